"""Whatever happens in whatever order: ledger, counters and JSON agree, nothing is over capacity, the mirror follows,
and what the scheduler proposes is what the commit accepts."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers import scheduling as scheduling_loop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.nodes import NodeAdmin
from mooring.mirror import mirror as mirror_module
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision
from mooring.model.errors import Conflict
from mooring.model.lifecycle import AGENT_REPORTS, TaskStatus, is_end, is_legal
from mooring.model.slots import parse_amounts
from mooring.model.workloads import Kind, OnInsufficient
from mooring.store import transitions
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database
from mooring.store.tables import nodes as nodes_table
from mooring.store.tables import status_history, tasks, workloads
from tests.mirror.compare import differences
from tests.servers import PostgresServer
from tests.store.harbour import LONG_AGO, Harbour

R = TypeVar("R")
T = TaskStatus
MOST_NODES, MOST_WORKLOADS = 4, 6
PICK = st.integers(0, 11)
# After every backoff.
LATER = timedelta(hours=1)
# What agents say of a task, with `gone`: step by step, or several steps at once when it was short.
REPORTS = [
    [(T.PREPARING, False)],
    [(T.RUNNING, False)],
    [(T.RUNNING, False), (T.SUCCEEDED, True)],
    [(T.PREPARING, False), (T.RUNNING, False), (T.FAILED, True)],
    [(T.SUCCEEDED, True)],
    [(T.FAILED, True)],
    [(T.CANCELLED, True)],
    [(T.CANCELLED, True), (T.CANCELLED, True)],
]
ANYTHING = st.lists(st.tuples(st.sampled_from(sorted(AGENT_REPORTS)), st.booleans()), min_size=1, max_size=3)


class Store(RuleBasedStateMachine):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.numbers = count(1)
        self.node_ids: list[UUID] = []
        self.workload_ids: list[UUID] = []
        self.proposed: list[Decision] = []
        self.last_report: list[tuple[UUID, TaskStatus, bool]] = []
        self.do(self._open(url))

    def do(self, work: Awaitable[R]) -> R:
        async def run() -> R:
            return await work

        return self.runner.run(run())

    async def _open(self, url: str) -> None:
        self.harbour = await Harbour.open(Database(url))
        self.mirror = Mirror(self.harbour.database)
        # The timer is always due: what it finds that no change had woken would be a cure that was missed.
        binder = Binder(self.harbour.database)
        self.loop = SchedulingLoop(self.mirror, binder, self.harbour.office, reconcile_interval=0)
        await self.loop.start()

    def teardown(self) -> None:
        self.do(self._check_histories())
        self.loop.close()
        self.do(self.harbour.database.close())
        self.runner.close()

    @initialize(cpu=st.integers(2, 4), replicas=st.integers(1, 3))
    def begin(self, cpu: int, replicas: int) -> None:
        """Something to happen to: a service and a job on two nodes."""
        for _ in range(2):
            self.add_node(cpu, 1, None)
        for kind in Kind:
            self.submit(kind, replicas, "1", None, None, False, False, placed=True)

    # --- tenants ---

    @precondition(lambda self: len(self.workload_ids) < MOST_WORKLOADS)
    @rule(
        kind=st.sampled_from(Kind),
        replicas=st.integers(1, 4),
        cpu=st.sampled_from(["250m", "1", "3"]),
        gpu=st.sampled_from([None, 1, 0]),
        max_per_node=st.sampled_from([None, 1, 2]),
        gang=st.booleans(),
        fail=st.booleans(),
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
        placed: bool,
    ) -> None:
        workload_id = self.do(
            self.harbour.submit(
                f"w{next(self.numbers)}",
                kind=kind,
                replicas=replicas,
                cpu=cpu,
                max_per_node=max_per_node,
                gang=gang,
                on_insufficient=OnInsufficient.FAIL if fail else OnInsufficient.WAIT,
                slots={} if gpu is None else {"gpu": gpu},
            )
        )
        self.workload_ids.append(workload_id)
        if placed:
            self.propose_and_bind()

    @rule(pick=PICK, remove=st.booleans())
    def stop(self, pick: int, remove: bool) -> None:
        self.do(self.harbour.stop(self.workload_ids[pick % len(self.workload_ids)], remove=remove))

    @rule(pick=PICK, replicas=st.integers(1, 5))
    def scale(self, pick: int, replicas: int) -> None:
        workload_id = self.workload_ids[pick % len(self.workload_ids)]
        workload = self.do(self.harbour.workload(workload_id))
        if workload.kind == Kind.DEPLOYMENT and workload.ended_at is None and not workload.stopping:
            self.do(self.harbour.scale(workload_id, replicas))

    # --- the scheduler ---

    @rule()
    def propose_and_bind(self) -> None:
        """Nothing changed in between: the committer accepts all that the proposer decided."""
        result = self.do(self.harbour.bind(self.do(self.harbour.propose(at=now() + LATER))))
        assert [why for _, why in result.conflicts] == []
        assert result.dropped == []

    @rule()
    def turn(self) -> None:
        """The same with the mirror that only followed."""
        assert self.do(self.loop.once()) is False
        assert self.loop.room.found_by_timer == 0

    @rule()
    def propose(self) -> None:
        self.proposed = self.do(self.harbour.propose(at=now() + LATER))

    @precondition(lambda self: self.proposed)
    @rule(twice=st.booleans())
    def bind_late(self, twice: bool) -> None:
        """What was proposed may have been overtaken by anything since; it may also come twice."""
        for _ in range(1 + twice):
            self.do(self.harbour.bind(self.proposed))
        self.proposed = []

    @rule()
    def replace_what_ended(self) -> None:
        self.do(self.harbour.replace_ended())

    # --- nodes and their agents ---

    @precondition(lambda self: len(self.node_ids) < MOST_NODES)
    @rule(cpu=st.integers(1, 4), gpu=st.integers(0, 2), max_tasks=st.sampled_from([None, 1, 3]))
    def add_node(self, cpu: int, gpu: int, max_tasks: int | None) -> None:
        name = f"n{next(self.numbers)}"
        self.node_ids.append(self.do(self.harbour.node(name, cpu=cpu, max_tasks=max_tasks, slots={"gpu": gpu})))

    @precondition(lambda self: self.node_ids)
    @rule(pick=PICK, how=st.sampled_from(["well", "ill", "larger", "silent"]))
    def node_is(self, pick: int, how: str) -> None:
        """A node that answers again after it was lost returns."""
        node_id = self.node_ids[pick % len(self.node_ids)]
        if how == "larger":
            self.do(self.harbour.connect(node_id, parse_amounts({"cpu": 5, "memory": "16Gi", "gpu": 3}), now()))
        elif how == "silent":
            silent = update(nodes_table).where(nodes_table.c.id == node_id).values(last_seen_at=LONG_AGO)
            self.do(self.harbour.database.write(lambda c: c.execute(silent)))
            self._look_at_nodes()
        else:
            self.do(self.harbour.beat(node_id, now(), problem="disk full" if how == "ill" else None, cpu_percent=12.5))

    @precondition(lambda self: self.node_ids)
    @rule(pick=PICK, what=st.sampled_from(["drain", "resume", "remove", "remove by force"]))
    def admin_does(self, pick: int, what: str) -> None:
        node_id = self.node_ids[pick % len(self.node_ids)]
        if what in ("drain", "resume"):
            self.do(self.harbour.drain(node_id, what == "drain"))
            self._look_at_nodes()
            return
        name = self.do(self.harbour.node_row(node_id)).name
        admin = NodeAdmin(self.harbour.database, simulation_allowed=False)
        try:
            self.do(admin.remove(self.harbour.principal, name, what == "remove by force"))
        except Conflict:
            assert what == "remove"
        else:
            self.node_ids.remove(node_id)

    @rule(reports=st.lists(st.tuples(PICK, st.one_of(st.sampled_from(REPORTS), ANYTHING)), min_size=1, max_size=4))
    def report(self, reports: list[tuple[int, list[tuple[TaskStatus, bool]]]]) -> None:
        """Agents say something of tasks that they have, true or not."""
        ids = self.do(self._charged())
        if ids:
            self.last_report = [
                (ids[pick % len(ids)], status, gone) for pick, steps in reports for status, gone in steps
            ]
            self.do(self._report(self.last_report))

    @rule()
    def start(self) -> None:
        """A well-behaved agent: everything that was placed runs."""
        self.last_report = [(task_id, T.RUNNING, False) for task_id in self.do(self._charged())]
        self.do(self._report(self.last_report))

    @precondition(lambda self: self.last_report)
    @rule()
    def report_again(self) -> None:
        """The connection broke before the answer came."""
        self.do(self._report(self.last_report))

    def _look_at_nodes(self) -> None:
        loop = self.harbour.nodes_loop(3600)
        loop._next_look_at = LONG_AGO
        self.do(loop.once())

    async def _charged(self) -> list[UUID]:
        query = select(tasks.c.id).where(tasks.c.node_id.is_not(None), tasks.c.freed_at.is_(None))
        return [row.id for row in await self.harbour.rows(query.order_by(tasks.c.id))]

    async def _report(self, steps: list[tuple[UUID, TaskStatus, bool]]) -> None:
        """As the server takes a report in: an end counts when nothing is left on the node."""

        async def work(connection: Connection) -> None:
            changes = [
                Change(task_id, status, freed=gone) for task_id, status, gone in steps if gone or not is_end(status)
            ]
            await transitions.apply(connection, changes, actor="agent:n", now=now())
            await transitions.free_lost(connection, [task_id for task_id, _, gone in steps if gone], now())

        await self.harbour.database.write(work)

    # --- what always holds ---

    @invariant()
    def ledger_counters_and_json_agree_within_capacity(self) -> None:
        assert self.do(self.harbour.findings()) == []

    @invariant()
    def the_mirror_follows(self) -> None:
        self.do(self.mirror.follow())
        assert self.do(differences(self.mirror, self.harbour.database)) == []

    @invariant()
    def a_gang_of_a_job_is_placed_wholly_or_not_at_all(self) -> None:
        async def look() -> None:
            query = (
                select(tasks.c.workload_id, tasks.c.node_name)
                .join(workloads)
                .where(workloads.c.gang, workloads.c.kind == Kind.SESSION)
            )
            placed: dict[UUID, set[bool]] = {}
            for row in await self.harbour.rows(query):
                placed.setdefault(row.workload_id, set()).add(row.node_name is not None)
            assert all(len(answers) == 1 for answers in placed.values())

        self.do(look())

    async def _check_histories(self) -> None:
        """Every status that a task ever had followed legally from the one before, up to the present one."""
        ways: dict[UUID, list[tuple[str, str]]] = {}
        query = select(status_history).where(status_history.c.noun == "task").order_by(status_history.c.id)
        for row in await self.harbour.rows(query):
            ways.setdefault(row.object_id, []).append((row.old_status, row.new_status))
        for task in await self.harbour.rows(select(tasks)):
            way = ways.get(task.id, [])
            assert all(is_legal(TaskStatus(old), TaskStatus(new)) for old, new in way)
            passed = ["PENDING", *(new for _, new in way)]
            assert [old for old, _ in way] == passed[:-1]
            assert passed[-1] == task.status


def run(make: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setattr(mirror_module, "_LOAD_SECONDS", 0)
    # Nothing depends on how long a step took: every backoff is over at the next turn.
    monkeypatch.setattr(scheduling_loop, "now", lambda: now() + LATER)
    factory: Any = make
    # A failure is shown as it was found: to shrink it would take longer than a test may.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    own = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=phases, print_blob=True, **more)
    run_state_machine_as_test(factory, settings=own)


def test_the_books_agree_after_every_step_on_sqlite(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    numbers = count()

    def make() -> Store:
        file = tmp_path / f"{next(numbers)}.db"
        shutil.copy(sqlite_template, file)
        return Store(f"sqlite+aiosqlite:///{file}")

    run(make, monkeypatch, max_examples=10, stateful_step_count=30)


def test_the_books_agree_after_every_step_on_postgresql(
    postgres_server: PostgresServer, postgres_template: str, monkeypatch: pytest.MonkeyPatch
):
    def make() -> Store:
        return Store(postgres_server.url(postgres_server.create_database(template=postgres_template)))

    run(make, monkeypatch, max_examples=2, stateful_step_count=20)
