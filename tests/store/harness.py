"""A test harness over one database: tenants, pools, and one method for each thing that a test does with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.controllers.nodes.node_health import NodeHealthLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.nodes.heartbeats import Pace
from mooring.model.policy.pools import Binding
from mooring.model.policy.preemption import Preemption, Victim
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import parse_amounts
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import Constraints, Taint
from mooring.model.workloads.containers import Container, Restart, TaskTemplate
from mooring.model.workloads.schedule import DEFAULT_SCHEDULE, ScheduleOptions
from mooring.model.workloads.workload import NO_CONSTRAINTS, Kind, OnInsufficient
from mooring.scheduling import Scheduler
from mooring.store.audit import ledger_rules
from mooring.store.audit.ledger_rules import Finding
from mooring.store.audit.repair import Repair, repair
from mooring.store.commit import bind, transitions
from mooring.store.commit.bind import BindResult, Draft
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.control import leadership
from mooring.store.core.batch_sql import NotAsExpected
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.core.types import AnyRow
from mooring.store.nodes import (
    heartbeats,
    nodes,
    pools,
    slot_types,
    taints,
)
from mooring.store.nodes.taints import TimedTaint
from mooring.store.tables import events, node_devices, node_resources, status_history
from mooring.store.tables import nodes as nodes_table
from mooring.store.tables import pools as pools_table
from mooring.store.tables import resource_allocations as ledger_table
from mooring.store.tables import tasks as tasks_table
from mooring.store.tables import workloads as workloads_table
from mooring.store.tenancy import tenants, users
from mooring.store.workloads import new_workloads, pending, revisions, rollouts, stopping

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Harness:
    database: Database
    principal: Principal
    pool: pools.Pool
    leadership: Leadership

    @classmethod
    async def open(cls, database: Database) -> Harness:
        async def seed(connection: Connection) -> pools.Pool:
            await slot_types.ensure_built_in(connection)
            await tenants.bootstrap(connection, password_hash="hash", now=LONG_AGO)
            await pools.ensure(connection, "simulated", runtimes=["container"], simulated=True, now=LONG_AGO)
            return await pools.ensure(connection, "default", runtimes=["process"], simulated=False, now=LONG_AGO)

        pool = await database.write(seed)
        async with database.read() as connection:
            admin = await users.find(connection, tenants.FIRST_ADMIN)
            account = await tenants.account(connection, admin.id)
        assert account is not None
        leadership = Leadership(database, "test")
        await leadership.begin_term()
        return cls(database, account.principal, pool, leadership)

    @property
    def fenced(self) -> FencedDatabase:
        """The database as the controllers of the present leadership get it."""
        return FencedDatabase(self.database, self.leadership)

    # --- nodes and workloads ---

    async def node(
        self,
        name: str,
        *,
        cpu: int | str = 8,
        memory: int | str = "16Gi",
        simulated: bool = False,
        max_tasks: int | None = None,
        seen_at: datetime | None = None,
        slots: Mapping[str, int | str] | None = None,
        labels: Mapping[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
    ) -> UUID:
        """Create a node in the pool `default` whose agent has connected."""
        capacity = parse_amounts({"cpu": cpu, "memory": memory, **(slots or {})})

        async def work(connection: Connection) -> UUID:
            new = nodes.NewNode(
                name,
                self.pool.id,
                capacity,
                "x86_64",
                ["process"],
                simulated=simulated,
                labels=labels or {},
                taints=taints,
                max_tasks=max_tasks,
            )
            return await nodes.add(connection, new, actor="test", now=LONG_AGO)

        node_id = await self.database.write(work)
        if not simulated:
            await self.connect(node_id, capacity, seen_at or now())
        return node_id

    async def connect(self, node_id: UUID, capacity: dict[str, int], at: datetime) -> None:
        await self.database.write(
            lambda c: nodes.connected(
                c,
                node_id,
                capacity=capacity,
                architecture="x86_64",
                runtimes=["process"],
                enforces={},
                boot_id="boot",
                agent_version="1",
                multi_tenant=True,
                now=at,
            )
        )

    async def beat(self, node_id: UUID, at: datetime, *, problem: str | None = None, cpu_percent: float = 0) -> None:
        await self.database.write(
            lambda c: heartbeats.record_beats(c, [heartbeats.Beat(node_id, None, cpu_percent, 0, 0, problem)], at)
        )

    async def drain(self, node_id: UUID, draining: bool = True, **more: Any) -> None:
        await self.database.write(lambda c: nodes.set_draining(c, node_id, draining, actor="test", now=now(), **more))

    async def submit(
        self,
        name: str,
        *,
        replicas: int = 1,
        kind: Kind = Kind.DEPLOYMENT,
        cpu: int | str = 1,
        memory: int | str = "1Gi",
        gang: bool = False,
        spread: bool = True,
        max_per_node: int | None = None,
        priority: int = 10,
        on_insufficient: OnInsufficient = OnInsufficient.WAIT,
        slots: Mapping[str, int | str] | None = None,
        constraints: Constraints = NO_CONSTRAINTS,
        type: str = "batch",
        schedule: ScheduleOptions = DEFAULT_SCHEDULE,
        **more: Any,
    ) -> UUID:
        request = parse_amounts({"cpu": cpu, "memory": memory, **(slots or {})})
        new = new_workloads.NewWorkload(
            id=new_id(),
            name=name,
            kind=kind,
            type=type,
            principal=self.principal,
            pool_id=self.pool.id,
            replicas=replicas,
            template=TaskTemplate((Container(command=("sleep", "60"), slots=request),), restart=Restart.NEVER),
            region=None,
            priority=priority,
            labels={},
            gang=gang or on_insufficient is OnInsufficient.FAIL,
            spread=spread,
            max_per_node=max_per_node,
            on_insufficient=on_insufficient,
            task_ids=() if schedule.array is not None else tuple(new_id() for _ in range(replicas)),
            constraints=constraints,
            schedule=schedule,
            **more,
        )
        await self.database.write(lambda c: new_workloads.submit(c, [new], now()))
        return new.id

    async def set(self, workload_id: UUID, **columns: Any) -> UUID:
        """Write columns of a workload without any checks."""
        own = update(workloads_table).where(workloads_table.c.id == workload_id).values(columns)
        await self.database.write(lambda c: c.execute(own))
        return workload_id

    async def set_options(self, **options: Any) -> None:
        """Set options of the pool `default`."""
        own = update(pools_table).where(pools_table.c.id == self.pool.id).values(options=options)
        await self.database.write(lambda c: c.execute(own))

    # --- changes ---

    async def propose(self, ids: Sequence[UUID] | None = None, *, at: datetime | None = None) -> list[Decision]:
        """Return the decisions of the scheduler for all pending workloads, or for these, from the current store."""
        mirror = Mirror(self.database)
        await mirror.load()
        waiting = [workload for workload in mirror.queue.values() if ids is None or workload.id in ids]
        return list(Scheduler(cluster=mirror.cluster).run(waiting, at or now()).decisions)

    async def bind(self, decisions: Iterable[Decision], *, term: int | None = None) -> BindResult:
        return await Binder(self.database).bind(list(decisions), term or self.leadership.term)

    async def commit(
        self,
        *decisions: Decision,
        mode: Binding = Binding.OPTIMISTIC,
        preemption: Preemption | None = None,
        expected: Mapping[str, int] | None = None,
        at: datetime | None = None,
    ) -> BindResult:
        """Commit decisions in one of the binding modes."""
        drafted = await self.draft(*decisions, at=at) if mode is Binding.OPTIMISTIC else None
        return await self.commit_draft(
            drafted, *decisions, mode=mode, preemption=preemption, expected=expected, now=at or now()
        )

    async def draft(self, *decisions: Decision, at: datetime | None = None) -> Draft | None:
        async with self.database.read() as connection:
            return await bind.draft(connection, decisions, now=at or now(), term=self.leadership.term)

    async def commit_draft(self, drafted: Draft | None, *decisions: Decision, **more: Any) -> BindResult:
        """Commit as the binder does: without the draft if it is outdated."""
        given: dict[str, Any] = {"now": now(), "term": self.leadership.term} | more
        try:
            return await self.database.write(lambda c: bind.bind(c, decisions, drafted=drafted, **given))
        except NotAsExpected:
            return await self.database.write(lambda c: bind.bind(c, decisions, **given))

    async def place(self) -> BindResult:
        return await self.bind(await self.propose())

    async def apply(self, *changes: Change, actor: str = "test", term: int | None = None) -> Any:
        return await self.database.write(lambda c: transitions.apply(c, changes, actor=actor, now=now(), term=term))

    async def move(self, task: AnyRow | UUID, *statuses: TaskStatus, **more: Any) -> None:
        """Move a task through these statuses, each in its own transaction."""
        task_id = task if isinstance(task, UUID) else task.id
        for status in statuses:
            await self.apply(Change(task_id, status, **more))

    async def run(self, workload_id: UUID) -> list[AnyRow]:
        """Place and start all tasks of a workload, and return its current tasks."""
        await self.place()
        for task in await self.tasks(workload_id):
            await self.move(task, TaskStatus.RUNNING)
        return await self.tasks(workload_id)

    async def scale(self, workload_id: UUID, replicas: int) -> Applied:
        return await self.database.write(lambda c: rollouts.scale(c, workload_id, replicas, actor="test", now=now()))

    async def update(
        self,
        workload_id: UUID,
        *command: str,
        cpu: int | str = 1,
        replicas: int | None = None,
        cause: str = "changed",
        **rollout: Any,
    ) -> Applied:
        """Change the template of a deployment, and its rollout options."""
        request = parse_amounts({"cpu": cpu, "memory": "1Gi"})
        template = TaskTemplate((Container(command=command or ("sleep", "2"), slots=request),), restart=Restart.NEVER)

        async def work(connection: Connection) -> Applied:
            own = await rollouts.lock(connection, workload_id)
            return await revisions.change(
                connection,
                own,
                template,
                replace(own.rollout, **rollout),
                NO_CONSTRAINTS,
                cause=cause,
                replicas=replicas or own.replicas,
                user_id=self.principal.user_id,
                now=now(),
            )

        return await self.database.write(work)

    async def stop(self, workload_id: UUID, *, remove: bool = False, force: bool = False) -> Applied:
        reason = Reason("stopped", "Stopped by request", "user")
        return await self.database.write(
            lambda c: stopping.stop(c, workload_id, actor="test", now=now(), remove=remove, reason=reason, force=force)
        )

    async def free_lost(self, *task_ids: UUID) -> int:
        return await self.database.write(lambda c: transitions.free_lost(c, task_ids, now()))

    async def replace_ended(self) -> None:
        while await LifecycleLoop(self.fenced).once():
            pass

    async def fall_silent(
        self,
        node_id: UUID,
        at: datetime,
        status: Literal[NodeStatus.SUSPECT, NodeStatus.LOST] = NodeStatus.LOST,
    ) -> bool:
        """Mark a node that has been silent since `at`; return whether it was."""
        silent = await self.database.write(
            lambda c: heartbeats.fall_silent(c, [node_id], at, status, reason="silent", now=at)
        )
        return node_id in silent

    def nodes_loop(self, timeout_seconds: float = 30) -> NodeHealthLoop:
        return NodeHealthLoop(self.fenced, Pace(timeout_seconds=timeout_seconds))

    def draining_loop(self) -> DrainingLoop:
        return DrainingLoop(self.fenced)

    async def taint(self, node_id: UUID, *new: Taint, remove: str | None = None, at: datetime | None = None) -> None:
        added, removed = [TimedTaint(each, at or now()) for each in new], [] if remove is None else [(remove, None)]
        await self.database.write(lambda c: taints.change(c, node_id, add=added, remove=removed, now=now()))

    async def start_term(self, holder: str) -> int:
        return await self.database.write(lambda c: leadership.start_term(c, holder, now()))

    # --- queries ---

    async def workload(self, workload_id: UUID) -> AnyRow:
        return (await self.rows(select(workloads_table).where(workloads_table.c.id == workload_id)))[0]

    async def task(self, task_id: UUID) -> AnyRow:
        return (await self.rows(select(tasks_table).where(tasks_table.c.id == task_id)))[0]

    async def tasks(self, workload_id: UUID, *, current: bool = True) -> list[AnyRow]:
        query = select(tasks_table).where(tasks_table.c.workload_id == workload_id)
        if current:
            query = query.where(tasks_table.c.current)
        return await self.rows(query.order_by(tasks_table.c.task_index, tasks_table.c.attempt))

    async def statuses(self, workload_id: UUID) -> list[str]:
        return [task.status for task in await self.tasks(workload_id)]

    async def ledger(self, task_id: UUID) -> dict[str, AnyRow]:
        rows = await self.rows(select(ledger_table).where(ledger_table.c.task_id == task_id))
        return {row.slot_name: row for row in rows}

    async def node_row(self, node_id: UUID) -> AnyRow:
        return (await self.rows(select(nodes_table).where(nodes_table.c.id == node_id)))[0]

    async def counters(self, node_id: UUID, slot: str = "cpu") -> tuple[int, int, int]:
        """Return (held, reserved, used)."""
        table = node_resources.c
        row = (await self.rows(select(node_resources).where(table.node_id == node_id, table.slot_name == slot)))[0]
        return row.held, row.reserved, row.used

    async def leaving(self, node_id: UUID, slot: str = "cpu") -> int:
        table = node_resources.c
        rows = await self.rows(select(table.leaving).where(table.node_id == node_id, table.slot_name == slot))
        return int(rows[0].leaving)

    async def taken(self, node_id: UUID, slot: str = "gpu") -> dict[int, int]:
        """Return the allocated amount by device index."""
        table = node_devices.c
        rows = await self.rows(select(node_devices).where(table.node_id == node_id, table.slot_name == slot))
        return {row.device_index: row.taken for row in rows}

    async def history(self, object_id: UUID) -> list[AnyRow]:
        table = status_history.c
        return await self.rows(select(status_history).where(table.object_id == object_id).order_by(table.id))

    async def feed(self, object_id: UUID) -> list[AnyRow]:
        return await self.rows(select(events).where(events.c.object_id == object_id).order_by(events.c.revision))

    async def rows(self, query: Any) -> list[AnyRow]:
        async with self.database.read() as connection:
            return list(await connection.execute(query))

    async def execute(self, statement: Any) -> None:
        """Change rows directly, bypassing the store."""
        await self.database.write(lambda c: c.execute(statement))

    async def repair(self) -> Repair:
        return await self.database.write(lambda c: repair(c, now()))

    async def findings(self) -> list[Finding]:
        async with self.database.snapshot() as connection:
            return (await ledger_rules.audit(connection)).findings


async def decision_on(
    harness: Harness,
    workload_id: UUID,
    node_ids: Sequence[UUID],
    *,
    devices: Sequence[DeviceShare] = (),
    victims: Sequence[AnyRow] = (),
) -> Decision:
    """Return a decision that places one task on each of these nodes, whatever their state."""
    async with harness.database.read() as connection:
        [found] = await pending.waiting(connection, [workload_id])
    rows = [await harness.node_row(node_id) for node_id in node_ids]
    placements = tuple(
        Placement(task.id, row.id, row.name, row.generation, 1, devices=tuple(devices))
        for task, row in zip(found.tasks, rows, strict=False)
    )
    return Decision(
        found,
        Outcome.RESERVED if victims else Outcome.PLACED,
        placements,
        victims=tuple(Victim(task.id, task.workload_id, task.node_id) for task in victims),
    )


async def someone_waits_for_a_lock(database: Database) -> bool:
    """Return whether a session of this PostgreSQL database waits for a lock."""
    async with database.read() as connection:
        found = await connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(found.scalar_one())
