"""Stateful test of the store.

In any order of events ledger, counters and JSON agree, no node is over capacity, the mirror follows, and the commit
accepts what the scheduler proposes.
"""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.schedule import DEFAULT_SCHEDULE, ScheduleOptions
from mooring.model.workloads.workload import Kind, OnInsufficient
from tests.properties import proofs
from tests.properties.machine import (
    ADMIN,
    ANYTHING,
    HEALTH,
    LATER,
    MAX_NODES,
    MAX_WORKLOADS,
    PICK,
    REPORTS,
    SORTS,
    Machine,
    Steps,
    T,
    on,
    on_postgresql,
    on_sqlite,
    run,
)
from tests.selection import examples
from tests.servers import PostgresServer


class Store(Machine):
    def __init__(self, url: str) -> None:
        self.proposed: list[Decision] = []
        self.last_report: list[tuple[UUID, T, bool]] = []
        super().__init__(url)

    stop = rule(pick=PICK, remove=st.booleans())(Machine.stop)
    scale = rule(pick=PICK, replicas=st.integers(1, 5))(Machine.scale)
    update = rule(pick=PICK, cpu=st.sampled_from(["250m", "1", "2"]), surge=st.sampled_from(["0", "1", "100%"]))(
        Machine.update
    )
    roll = rule(hours=st.integers(0, 1))(Machine.roll)
    force = rule(pick=PICK)(Machine.force)
    replace_what_ended = rule()(Machine.replace_what_ended)
    time_is_over = rule(hours=st.integers(0, 1))(Machine.time_is_over)
    node_is = rule(pick=PICK, how=st.sampled_from(HEALTH))(Machine.node_is)
    admin_does = rule(pick=PICK, what=st.sampled_from(ADMIN))(Machine.admin_does)

    @initialize(cpu=st.integers(2, 4), replicas=st.integers(1, 3))
    def begin(self, cpu: int, replicas: int) -> None:
        """Something to happen to: a service and a job on two nodes."""
        for _ in range(2):
            self.add_node(cpu, 1, None)
        for kind in Kind:
            self.submit(kind, replicas, "1", None, None, False, False, "retried", placed=True)

    @precondition(lambda self: len(self.workload_ids) < MAX_WORKLOADS)
    @rule(
        kind=st.sampled_from(Kind),
        replicas=st.integers(1, 4),
        cpu=st.sampled_from(["250m", "1", "3"]),
        gpu=st.sampled_from([None, 1, 0]),
        max_per_node=st.sampled_from([None, 1, 2]),
        gang=st.booleans(),
        fail=st.booleans(),
        sort=st.sampled_from(sorted(SORTS)),
        placed=st.booleans(),
    )
    def submit(
        self,
        kind: Kind,
        replicas: int,
        cpu: str,
        gpu: int | None,
        max_per_node: int | None,
        gang: bool,
        fail: bool,
        sort: str,
        placed: bool,
    ) -> None:
        is_array = kind is Kind.SESSION and sort == "array" and not (gang or fail)
        workload_id = self.do(
            self.harness.submit(
                f"w{next(self.numbers)}",
                kind=kind,
                replicas=replicas,
                cpu=cpu,
                max_per_node=max_per_node,
                gang=gang,
                on_insufficient=OnInsufficient.FAIL if fail else OnInsufficient.WAIT,
                slots={} if gpu is None else {"gpu": gpu},
                schedule=ScheduleOptions(array=Array(0, 1, replicas), max_retries=1) if is_array else DEFAULT_SCHEDULE,
            )
        )
        if kind is Kind.SESSION and sort != "array":
            self.do(self.harness.set(workload_id, **SORTS[sort]))
        self.workload_ids.append(workload_id)
        if placed:
            self.propose_and_bind()

    @rule()
    def propose_and_bind(self) -> None:
        """Nothing changed in between: the committer accepts all that the proposer decided."""
        result = self.do(self.harness.bind(self.do(self.harness.propose(at=now() + LATER))))
        assert [why for _, why in result.conflicts] == []
        assert result.dropped == []

    @rule()
    def iterate(self) -> None:
        """The same with the mirror that only followed."""
        assert not self.do(self.loop.once())
        assert self.loop.pending_queue.found_by_timer == 0

    @rule()
    def propose(self) -> None:
        self.proposed = self.do(self.harness.propose(at=now() + LATER))

    @precondition(lambda self: self.proposed)
    @rule(twice=st.booleans())
    def bind_late(self, twice: bool) -> None:
        """Bind an old proposal, which any event may have overtaken since, and perhaps twice."""
        for _ in range(1 + twice):
            self.do(self.harness.bind(self.proposed))
        self.proposed = []

    @precondition(lambda self: len(self.node_ids) < MAX_NODES)
    @rule(cpu=st.integers(1, 4), gpu=st.integers(0, 2), max_tasks=st.sampled_from([None, 1, 3]))
    def add_node(self, cpu: int, gpu: int, max_tasks: int | None) -> None:
        name = f"n{next(self.numbers)}"
        self.node_ids.append(self.do(self.harness.node(name, cpu=cpu, max_tasks=max_tasks, slots={"gpu": gpu})))

    @precondition(lambda self: self.node_ids)
    @rule(pick=PICK)
    def node_grows(self, pick: int) -> None:
        node_id = self.node_ids[pick % len(self.node_ids)]
        self.do(self.harness.connect(node_id, parse_amounts({"cpu": 5, "memory": "16Gi", "gpu": 3}), now()))

    @rule(reports=st.lists(st.tuples(PICK, st.one_of(st.sampled_from(REPORTS), ANYTHING)), min_size=1, max_size=4))
    def report(self, reports: list[tuple[int, Steps]]) -> None:
        """Agents say something of tasks that they have, true or not."""
        ids = self.do(self.charged())
        if ids:
            self.last_report = [
                (ids[pick % len(ids)], status, gone) for pick, steps in reports for status, gone in steps
            ]
            self.do(self.tell(self.last_report))

    @rule()
    def start(self) -> None:
        """A well-behaved agent: everything that was placed runs."""
        self.last_report = [(task_id, T.RUNNING, False) for task_id in self.do(self.charged())]
        self.do(self.tell(self.last_report))

    @precondition(lambda self: self.last_report)
    @rule()
    def report_again(self) -> None:
        """The connection broke before the answer came."""
        self.do(self.tell(self.last_report))

    @invariant()
    def a_gang_of_a_job_is_placed_wholly_or_not_at_all(self) -> None:
        self.do(proofs.check_together(self.harness, ()))


def test_ledger_counters_and_json_agree_after_every_step_on_sqlite(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(on_sqlite(Store, sqlite_template, tmp_path), monkeypatch, max_examples=examples(10), stateful_step_count=30)


@pytest.mark.slow
def test_ledger_counters_and_json_agree_after_every_step_on_postgresql(
    postgres_server: PostgresServer, postgres_template: str, monkeypatch: pytest.MonkeyPatch
):
    make = on_postgresql(Store, postgres_server, postgres_template)
    run(make, monkeypatch, max_examples=examples(2), stateful_step_count=20)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_ledger_counters_and_json_agree_over_long_histories(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(on(database, Store, request, tmp_path), monkeypatch, max_examples=60, stateful_step_count=50)
