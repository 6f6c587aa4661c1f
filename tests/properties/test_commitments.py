"""Commitments under random histories: with any binding mode, victims and faults, gangs are placed as a whole, once and
within capacity, and a new leader continues where the last one stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from sqlalchemy import select, update

from mooring.binding import preparing
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.decisions import Decision
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.resources.slots import parse_amounts
from mooring.model.workloads.constraints import Taint
from mooring.model.workloads.workload import NO_CONSTRAINTS, Kind
from mooring.scheduling.plugins.profiles import Registry
from mooring.services.administration.pools import PoolAdmin
from mooring.services.submission.placement_constraints import constraints_of
from mooring.store.audit.ledger_rules import Finding
from mooring.store.nodes.pools import Pool
from mooring.store.tables import attempts, tasks
from mooring.store.tables import holds as holds_table
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.workloads.placement import PlacementRequest
from tests.properties import proofs
from tests.properties.machine import (
    ADMIN,
    HEALTH,
    LATER,
    MAX_NODES,
    PICK,
    REPORTS,
    Machine,
    Steps,
    T,
    on,
    on_postgresql,
    on_sqlite,
    run,
)
from tests.properties.proofs import Excess, Placements
from tests.selection import examples
from tests.servers import PostgresServer
from tests.store.harness import Harness

MAX_WORKLOADS = 14
DEDICATED = Taint("dedicated", "db")
WISHES: dict[str, dict[str, Any]] = {
    "apart": {"anti_affinity": [{"topology_key": "node", "labels": {"app": "apart"}}]},
    "spread": {"spread": [{"topology_key": "zone", "max_skew": 1, "labels": {"app": "spread"}}]},
    "tolerant": {"tolerations": [{"key": DEDICATED.key, "value": DEDICATED.value}]},
    "selective": {"node_selector": {"zone": "x"}},
    "port": {"host_ports": [{"port": 8080}]},
}
GANG_OPTIONS: dict[str, dict[str, Any]] = {
    "gang": {"gang": True},
    "single": {"gang": True, "single_node": True},
    "minimum": {"min_tasks": 2},
}
BINDINGS = st.sampled_from(["optimistic", "pessimistic", "two_phase"])
TROUBLE = st.sampled_from(["stop", "scale", "another machine", "none", *HEALTH, *ADMIN])
PREEMPTION = st.sampled_from(["requeue", "terminate", "requeue", None])
REFUSED = Reason("image-missing", "no such image", "agent", "change")


@dataclass(frozen=True)
class Asked:
    """A submission."""

    kind: Kind
    replicas: int
    cpu: str
    gpu: str | None
    gang_option: str | None
    wish: str | None
    priority: int

    async def submit(self, harness: Harness, name: str) -> UUID:
        constraints = NO_CONSTRAINTS
        if self.wish is not None:
            wishes = PlacementRequest.model_validate(WISHES[self.wish])
            constraints = constraints_of(wishes, name=name, labels={"app": self.wish}, project="default", images=[])
        more = GANG_OPTIONS[self.gang_option] if self.gang_option is not None else {}
        return await harness.submit(
            name,
            kind=self.kind,
            replicas=max(self.replicas, more.get("min_tasks", 1)),
            cpu=self.cpu,
            slots={} if self.gpu is None else {"gpu": self.gpu},
            priority=self.priority,
            constraints=constraints,
            **more,
        )


ASKED = st.builds(
    Asked,
    kind=st.sampled_from(Kind),
    replicas=st.integers(1, 3),
    cpu=st.sampled_from(["500m", "1", "2"]),
    gpu=st.sampled_from([None, None, "0.25", "0.5", "0.7", "1", "2"]),
    gang_option=st.sampled_from([None, *GANG_OPTIONS]),
    wish=st.sampled_from([None, None, *WISHES]),
    priority=st.sampled_from([10, 50, 90]),
)


class Commitments(Machine):
    def __init__(self, url: str) -> None:
        self.excess: dict[tuple[UUID, str, int | None], Excess] = {}
        self.registry = Registry()
        super().__init__(url)
        self.holds = HoldsLoop(self.harness.fenced)

    @initialize(binding=BINDINGS, preemption=PREEMPTION, gpu=st.integers(1, 2))
    def begin(self, binding: str, preemption: str | None, gpu: int) -> None:
        """Two zones, and work that nearly fills them."""
        for zone in ("x", "y"):
            self.add_node(3, gpu, zone, False, None)
        self.pool_changes(binding, preemption, False)
        gang = Asked(Kind.SESSION, 2, "1", "0.5", "gang", None, 10)
        service = Asked(Kind.DEPLOYMENT, 2, "1", None, None, "spread", 50)
        self.submit([gang, service], runs=True)

    # --- tenants and admins ---

    @precondition(lambda self: len(self.workload_ids) < MAX_WORKLOADS)
    @rule(asked=st.lists(ASKED, min_size=1, max_size=3), runs=st.booleans())
    def submit(self, asked: list[Asked], runs: bool) -> None:
        for one in asked:
            self.workload_ids.append(self.do(one.submit(self.harness, f"w{next(self.numbers)}")))
            self.iterate()
        if runs:
            self.everything_goes_on()

    @rule(binding=BINDINGS, preemption=PREEMPTION, fragmentation=st.booleans())
    def pool_changes(self, binding: str, preemption: str | None, fragmentation: bool) -> None:
        allowed = {"enabled": False} if preemption is None else {"mode": preemption}
        asked = {"binding": binding, "preemption": allowed, "fragmentation": fragmentation}
        self.do(PoolAdmin(self.harness.database).change("default", PoolChange.model_validate(asked)))

    @rule(what=TROUBLE, pick=PICK)
    def trouble(self, what: str, pick: int) -> None:
        if what == "stop":
            self.stop(pick, False)
        elif what == "scale":
            self.scale(pick, 1 + pick % 4)
        elif what in HEALTH:
            self.node_is(pick, what)
        elif what in ADMIN:
            self.admin_does(pick, what)
        elif what == "another machine":
            self.machine_is_another(pick, 1 + pick % 4, pick % 3)

    @rule()
    def all_is_well_again(self) -> None:
        """Every node is as it was at first, and there are enough of them."""
        for number in range(len(self.node_ids)):
            self.node_is(number, "well")
            self.admin_does(number, "resume")
            self.machine_is_another(number, 3, 2)
        while len(self.node_ids) < 2:
            self.add_node(3, 2, "x", False, None)

    # --- the leader ---

    @rule()
    def iterate(self) -> None:
        """All that a pass decides is accepted, nothing breaks a demand, and waiting is no failure."""
        before = self.do(self._unplaced())
        tried = self.do(self.harness.rows(select(attempts)))
        backing_off = self.do(self._backing_off())
        assert not self.do(self.loop.once())
        assert self.loop.pending_queue.found_by_timer == 0
        self._check_placed(before)
        assert self.do(self.harness.rows(select(attempts))) == tried
        assert self.do(self._backing_off()).items() <= backing_off.items()

    replace_what_ended = rule()(Machine.replace_what_ended)

    @rule(too_late=st.booleans())
    def settle_holds(self, too_late: bool) -> None:
        """Places are taken by those that are ready, unless the time of all holds is over."""
        if too_late:
            past = update(holds_table).values(expires_at=now() - timedelta(seconds=1))
            self.do(self.harness.database.write(lambda c: c.execute(past)))
        self.do(self.holds.once())

    @rule(holder=st.sampled_from(["another", "the same"]))
    def leader_changes(self, holder: str) -> None:
        """The former leader commits nothing more. The new one knows only the store."""
        former, self.harness.leadership = self.harness.leadership, Leadership(self.harness.database, holder)
        self.do(self.harness.leadership.begin_term())
        self.do(self._submit_small())
        before = self.do(proofs.books(self.harness))
        assert former.held
        with pytest.raises(LeadershipLost):
            self.do(self.loop.once())
        assert self.do(proofs.books(self.harness)) == before
        self.loop.close()
        self.mirror = Mirror(self.harness.database)
        self.loop = self.new_loop(self.mirror)
        self.do(self.loop.start())
        self.holds = HoldsLoop(self.harness.fenced)

    async def _submit_small(self) -> None:
        """Work that the former leader has to decide on: it is placed, or gets a reason."""
        workload_id = await self.harness.submit(f"w{next(self.numbers)}", cpu="1m", memory="1Mi", kind=Kind.SESSION)
        self.workload_ids.append(workload_id)

    @rule(what=TROUBLE, pick=PICK, another=st.booleans())
    def pass_is_overtaken(self, what: str, pick: int, another: bool) -> None:
        """Passes over the same decide the same. Something, or another pass, comes before the commit of one; and what
        was bound and comes again changes nothing."""
        decisions, pools, revisions = self.do(self._decide())
        assert _received(self.do(self._decide())[0]) == _received(decisions)
        self.trouble(what, pick)
        if another:
            self.iterate()
        unplaced = self.do(self._unplaced())
        binder, term = Binder(self.harness.database), self.harness.leadership.term
        bound = self.do(binder.bind(decisions, term, pools=pools, expected=revisions)).bound
        self._check_placed(unplaced)
        before = self.do(proofs.books(self.harness))
        again = self.do(binder.bind(bound, term, pools=pools, expected=revisions))
        assert not again.bound
        assert not again.conflicts
        assert self.do(proofs.books(self.harness)) == before

    async def _decide(self) -> tuple[list[Decision], dict[str, Pool], dict[str, int]]:
        """Return the decisions of a leader that has just read the store, and its assumptions."""
        mirror = Mirror(self.harness.database)
        await mirror.load()
        await mirror.follow()
        scheduler = Schedulers(mirror, self.registry).of(mirror.pools["default"])
        return (
            list(scheduler.run(list(mirror.queue.values()), now() + LATER).decisions),
            mirror.pools,
            mirror.revisions(),
        )

    # --- nodes and their agents ---

    @precondition(lambda self: len(self.node_ids) < MAX_NODES)
    @rule(
        cpu=st.integers(1, 4),
        gpu=st.integers(0, 2),
        zone=st.sampled_from(["x", "y"]),
        dedicated=st.booleans(),
        max_tasks=st.sampled_from([None, None, 2]),
    )
    def add_node(self, cpu: int, gpu: int, zone: str, dedicated: bool, max_tasks: int | None) -> None:
        taints = (DEDICATED,) if dedicated else ()
        node = self.harness.node(
            f"n{next(self.numbers)}",
            cpu=cpu,
            slots={"gpu": gpu},
            labels={"zone": zone},
            taints=taints,
            max_tasks=max_tasks,
        )
        self.node_ids.append(self.do(node))

    def machine_is_another(self, pick: int, cpu: int, gpu: int) -> None:
        """An agent comes back with more or less than it had: what is there stays, nothing new comes above it."""
        if not self.node_ids:
            return
        capacity = parse_amounts({"cpu": cpu, "memory": "16Gi", "gpu": gpu})
        self.do(self.harness.connect(self.node_ids[pick % len(self.node_ids)], capacity, now()))
        self.excess = self.do(proofs.excesses(self.harness))

    @rule(reports=st.dictionaries(PICK, st.sampled_from(REPORTS), min_size=1, max_size=3))
    def report(self, reports: dict[int, Steps]) -> None:
        """Agents say something of tasks that they have, and say it again."""
        ids = self.do(self.charged())
        of_task = {ids[pick % len(ids)]: steps for pick, steps in reports.items()} if ids else {}
        self._tell_twice([(id, status, gone) for id, steps in of_task.items() for status, gone in steps])

    def start(self) -> None:
        """Everything that was placed runs, whether or not its node takes more."""
        self._tell_twice([(task_id, T.RUNNING, False) for task_id in self.do(self.charged())])
        assert not self.do(self._in_status(T.SCHEDULED, T.PREPARING))

    def leave(self) -> None:
        """All departing tasks end, whether or not their node takes new ones."""
        self._tell_twice([(task_id, T.CANCELLED, True) for task_id in self.do(self._in_status(T.TERMINATING))])
        assert not self.do(self._in_status(T.TERMINATING))

    @rule()
    def everything_goes_on(self) -> None:
        """Agents do all that is asked of them, and the leader what follows from it."""
        self.leave()
        self.replace_what_ended()
        self.iterate()
        self.prepare_all()
        self.settle_holds(too_late=False)
        self.start()

    @rule(picks=st.lists(PICK, min_size=1, max_size=3), ready=st.sampled_from([True, True, False]))
    def prepare(self, picks: list[int], ready: bool) -> None:
        held = self.do(self._in_status(T.RESERVED))
        chosen = sorted({held[pick % len(held)] for pick in picks}) if held else []
        self.do(self._take_reports(*((chosen, ()) if ready else ((), chosen))))

    def prepare_all(self) -> None:
        self.do(self._take_reports(self.do(self._in_status(T.RESERVED)), ()))

    async def _take_reports(self, prepared: Sequence[UUID], refused: Sequence[UUID]) -> None:
        await self.harness.database.write(
            lambda c: preparing.take_reports(c, prepared, dict.fromkeys(refused, REFUSED), actor="agent:n", now=now())
        )

    def _tell_twice(self, steps: list[tuple[UUID, TaskStatus, bool]]) -> None:
        self.do(self.tell(steps))
        before = self.do(proofs.books(self.harness))
        self.do(self.tell(steps))
        assert self.do(proofs.books(self.harness)) == before

    # --- what always holds ---

    def findings(self) -> list[Finding]:
        """Machines shrink here: what that leaves above capacity is looked at by itself."""
        return [found for found in super().findings() if found.rule != "within capacity"]

    @invariant()
    def nothing_is_above_capacity_but_what_a_shrunken_machine_had(self) -> None:
        before, self.excess = self.excess, self.do(proofs.excesses(self.harness))
        for key, excess in self.excess.items():
            assert key in before
            assert excess.staying <= before[key].staying
            assert excess.there <= before[key].there

    @invariant()
    def each_edge_is_recorded_once(self) -> None:
        self.do(proofs.check_edges(self.harness))

    @invariant()
    def devices_are_given_once(self) -> None:
        self.do(proofs.check_devices(self.harness))

    @invariant()
    def gangs_are_placed_as_one(self) -> None:
        self.do(proofs.check_together(self.harness, ()))

    def _check_placed(self, unplaced: set[UUID]) -> None:
        self.do(Placements.read(self.harness)).check(sorted(unplaced))
        self.do(proofs.check_together(self.harness, unplaced))

    async def _unplaced(self) -> set[UUID]:
        return set(await self._in_status(T.PENDING))

    async def _in_status(self, *statuses: TaskStatus) -> list[UUID]:
        query = select(tasks.c.id).where(tasks.c.status.in_(statuses)).order_by(tasks.c.id)
        return [row.id for row in await self.harness.rows(query)]

    async def _backing_off(self) -> dict[UUID, Any]:
        query = select(tasks.c.id, tasks.c.not_before).where(tasks.c.not_before.is_not(None))
        return {row.id: row.not_before for row in await self.harness.rows(query)}


def _received(decisions: Sequence[Decision]) -> list[tuple[Any, ...]]:
    return [(d.workload.id, d.outcome, d.placements, d.victims, d.reason) for d in decisions]


def test_commitments_hold_after_every_step_on_sqlite(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(
        on_sqlite(Commitments, sqlite_template, tmp_path), monkeypatch, max_examples=examples(5), stateful_step_count=30
    )


@pytest.mark.slow
def test_commitments_hold_after_every_step_on_postgresql(
    postgres_server: PostgresServer, postgres_template: str, monkeypatch: pytest.MonkeyPatch
):
    make = on_postgresql(Commitments, postgres_server, postgres_template)
    run(make, monkeypatch, max_examples=2, stateful_step_count=15)


@pytest.mark.soak
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_commitments_hold_over_long_histories(
    database: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(on(database, Commitments, request, tmp_path), monkeypatch, max_examples=40, stateful_step_count=50)
