"""A store with a leader, to whom anything may happen: what all such histories share, and what always holds."""

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
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test
from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling import scheduling_loop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.workloads import expiry as limits_loop
from mooring.controllers.workloads import rollouts as rollouts_loop
from mooring.controllers.workloads.expiry import ExpiryLoop
from mooring.controllers.workloads.rollouts import RolloutsLoop
from mooring.mirror import mirror as mirror_module
from mooring.mirror import statistics
from mooring.mirror.mirror import Mirror
from mooring.model.errors import Conflict
from mooring.model.lifecycle import AGENT_REPORTS, TaskStatus, is_end
from mooring.model.workloads.constraints import Effect, Taint
from mooring.model.workloads.workload import Kind
from mooring.services.administration.nodes import NodeAdmin
from mooring.store.audit.ledger_rules import Finding
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import nodes as nodes_table
from mooring.store.tables import tasks
from tests.mirror.compare import differences
from tests.properties import proofs
from tests.servers import PostgresServer
from tests.store.harness import LONG_AGO, Harness

R = TypeVar("R")
T = TaskStatus
MAX_NODES, MAX_WORKLOADS = 4, 6
PICK = st.integers(0, 11)
# After every backoff.
LATER = timedelta(hours=1)
Steps = list[tuple[TaskStatus, bool]]
# What agents say of a task, with `gone`: step by step, or several steps at once when it was short.
REPORTS: list[Steps] = [
    [(T.PREPARING, False)],
    [(T.RUNNING, False)],
    [(T.RUNNING, False), (T.SUCCEEDED, True)],
    [(T.PREPARING, False), (T.RUNNING, False), (T.FAILED, True)],
    [(T.SUCCEEDED, True)],
    [(T.FAILED, True)],
    [(T.CANCELLED, True)],
    [(T.CANCELLED, True), (T.CANCELLED, True)],
]
# What sessions may have of their own.
SORTS: dict[str, dict[str, Any]] = {
    "interactive": {"type": "interactive"},
    "retried": {"max_retries": 1},
    "array": {},
    "limited": {"time_limit_seconds": 60},
}
HEALTH = ["well", "ill", "silent"]
ADMIN = ["drain", "drain at once", "evict", "resume", "remove", "remove by force"]
EVICTING = Taint("spot", effect=Effect.NO_EXECUTE)
ANYTHING = st.lists(st.tuples(st.sampled_from(sorted(AGENT_REPORTS)), st.booleans()), min_size=1, max_size=3)


class Machine(RuleBasedStateMachine):
    """The steps of a stateful test. Subclasses expose them as rules."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.numbers = count(1)
        self.node_ids: list[UUID] = []
        self.workload_ids: list[UUID] = []
        self.do(self._open(url))

    def do(self, work: Awaitable[R]) -> R:
        async def run() -> R:
            return await work

        return self.runner.run(run())

    async def _open(self, url: str) -> None:
        self.harness = await Harness.open(Database(url))
        self.mirror = Mirror(self.harness.database)
        self.loop = self.new_loop(self.mirror)
        await self.loop.start()

    def new_loop(self, mirror: Mirror) -> SchedulingLoop:
        """Its timer is always due: work that it finds and no change had requeued is a missed cure."""
        return SchedulingLoop(mirror, Binder(self.harness.database), self.harness.leadership, reconcile_interval=0)

    def teardown(self) -> None:
        self.do(proofs.check_edges(self.harness))
        self.loop.close()
        self.do(self.harness.database.close())
        self.runner.close()

    # --- tenants ---

    def stop(self, pick: int, remove: bool) -> None:
        self.do(self.harness.stop(self.workload_ids[pick % len(self.workload_ids)], remove=remove))

    def scale(self, pick: int, replicas: int) -> None:
        workload_id = self.workload_ids[pick % len(self.workload_ids)]
        workload = self.do(self.harness.workload(workload_id))
        if workload.kind == Kind.DEPLOYMENT and workload.ended_at is None and not workload.stopping:
            self.do(self.harness.scale(workload_id, max(replicas, workload.min_tasks or 1)))

    def update(self, pick: int, cpu: str, surge: str) -> None:
        workload_id = self.workload_ids[pick % len(self.workload_ids)]
        workload = self.do(self.harness.workload(workload_id))
        if workload.kind == Kind.DEPLOYMENT and workload.ended_at is None and not workload.stopping:
            self.do(self.harness.update(workload_id, cpu=cpu, surge=surge, unavailable="1"))

    def force(self, pick: int) -> None:
        self.do(self.harness.stop(self.workload_ids[pick % len(self.workload_ids)], force=True))

    # --- the leader ---

    def replace_what_ended(self) -> None:
        self.do(self.harness.replace_ended())

    def roll(self, hours: int) -> None:
        """Deployments come nearer to their newest revision, and what retires is stopped when its time is over."""
        loop = RolloutsLoop(self.harness.fenced)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rollouts_loop, "now", lambda: now() + hours * LATER)
            while self.do(loop.once()):
                pass

    def time_is_over(self, hours: int) -> None:
        """End running tasks whose time limit is over. A second iteration finds none."""
        loop = ExpiryLoop(self.harness.fenced)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits_loop, "now", lambda: now() + hours * LATER)
            self.do(loop.once())
            assert self.do(loop.once()) is False

    # --- nodes and their agents ---

    def node_is(self, pick: int, how: str) -> None:
        """A node that answers again after it was lost returns."""
        if not self.node_ids:
            return
        node_id = self.node_ids[pick % len(self.node_ids)]
        if how == "silent":
            silent = update(nodes_table).where(nodes_table.c.id == node_id).values(last_seen_at=LONG_AGO)
            self.do(self.harness.database.write(lambda c: c.execute(silent)))
            self._look_at_nodes()
        else:
            self.do(self.harness.beat(node_id, now(), problem="disk full" if how == "ill" else None, cpu_percent=12.5))

    def admin_does(self, pick: int, what: str) -> None:
        if not self.node_ids:
            return
        node_id = self.node_ids[pick % len(self.node_ids)]
        if what in ("drain", "drain at once", "resume"):
            until = LONG_AGO if what == "drain at once" else None
            self.do(self.harness.drain(node_id, what != "resume", until=until))
            if what == "resume":
                self.do(self.harness.taint(node_id, remove=EVICTING.key))
            self._look_at_nodes()
            return
        if what == "evict":
            self.do(self.harness.taint(node_id, EVICTING))
            self._look_at_nodes()
            return
        name = self.do(self.harness.node_row(node_id)).name
        admin = NodeAdmin(self.harness.database, simulation_allowed=False)
        try:
            self.do(admin.remove(self.harness.principal, name, what == "remove by force"))
        except Conflict:
            assert what == "remove"
        else:
            self.node_ids.remove(node_id)

    def _look_at_nodes(self) -> None:
        loop = self.harness.nodes_loop(3600)
        loop._next_check_at = LONG_AGO
        self.do(loop.once())
        self.do(self.harness.draining_loop().once())

    async def charged(self) -> list[UUID]:
        query = select(tasks.c.id).where(tasks.c.node_id.is_not(None), tasks.c.freed_at.is_(None))
        return [row.id for row in await self.harness.rows(query.order_by(tasks.c.id))]

    async def tell(self, steps: list[tuple[UUID, TaskStatus, bool]]) -> None:
        """As the server takes a report in: an end counts when nothing is left on the node."""

        async def work(connection: Connection) -> None:
            changes = [
                Change(task_id, status, freed=gone) for task_id, status, gone in steps if gone or not is_end(status)
            ]
            await transitions.apply(connection, changes, actor="agent:n", now=now())
            await transitions.free_lost(connection, [task_id for task_id, _, gone in steps if gone], now())

        await self.harness.database.write(work)

    # --- what always holds ---

    @invariant()
    def ledger_counters_and_json_agree_within_capacity(self) -> None:
        assert self.findings() == []

    @invariant()
    def what_waits_is_made_from_the_present_template(self) -> None:
        assert self.do(proofs.outdated(self.harness)) == []

    def findings(self) -> list[Finding]:
        return self.do(self.harness.findings())

    @invariant()
    def the_mirror_follows(self) -> None:
        self.do(self.mirror.follow())
        assert self.do(differences(self.mirror, self.harness.database)) == []


def run(make: Callable[[], Machine], monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    monkeypatch.setattr(statistics, "_LOAD_SECONDS", 0)
    monkeypatch.setattr(mirror_module, "_CONFIRM_SECONDS", 0)
    # Nothing depends on how long a step took: every backoff is over at the next turn.
    monkeypatch.setattr(scheduling_loop, "now", lambda: now() + LATER)
    factory: Any = make
    # A failure is shown as it was found: to shrink it would take longer than a test may.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    own = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=phases, print_blob=True, **more)
    run_state_machine_as_test(factory, settings=own)


def on_sqlite(kind: type[Machine], template: Path, folder: Path) -> Callable[[], Machine]:
    """Makes machines, each with a database of its own."""
    numbers = count()

    def make() -> Machine:
        file = folder / f"{next(numbers)}.db"
        shutil.copy(template, file)
        return kind(f"sqlite+aiosqlite:///{file}")

    return make


def on_postgresql(kind: type[Machine], server: PostgresServer, template: str) -> Callable[[], Machine]:
    return lambda: kind(server.url(server.create_database(template=template)))


def on(database: str, kind: type[Machine], request: pytest.FixtureRequest, folder: Path) -> Callable[[], Machine]:
    """On either database, by its name."""
    if database == "sqlite":
        return on_sqlite(kind, request.getfixturevalue("sqlite_template"), folder)
    return on_postgresql(kind, request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_template"))
