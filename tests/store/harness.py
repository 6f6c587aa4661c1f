"""A database with tenants and pools, and short words for what the rooms above the store do with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select, update

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.draining import DrainingLoop
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.nodes import NodesLoop
from mooring.coordination.leadership import Office
from mooring.mirror.mirror import Mirror
from mooring.model.constraints import Constraints, Taint
from mooring.model.containers import Container, Restart, TaskTemplate
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.devices import DeviceShare
from mooring.model.heartbeats import Pace
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption, Victim
from mooring.model.reasons import Reason
from mooring.model.slots import parse_amounts
from mooring.model.tenants import Principal
from mooring.model.workloads import NO_CONSTRAINTS, Kind, OnInsufficient
from mooring.scheduling import Scheduler
from mooring.store import (
    bind,
    heartbeats,
    leadership,
    ledger,
    nodes,
    pools,
    rollouts,
    slot_types,
    taints,
    tenants,
    transitions,
    users,
    workload_revisions,
    workloads,
)
from mooring.store.bind import Bound, Draft
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.ids import new_id
from mooring.store.ledger import Finding
from mooring.store.sets import NotAsExpected
from mooring.store.tables import events, node_devices, node_resources, status_history
from mooring.store.tables import nodes as nodes_table
from mooring.store.tables import pools as pools_table
from mooring.store.tables import resource_allocations as ledger_table
from mooring.store.tables import tasks as tasks_table
from mooring.store.tables import workloads as workloads_table
from mooring.store.taints import Standing
from mooring.store.types import AnyRow

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Harbour:
    database: Database
    principal: Principal
    pool: pools.Pool
    office: Office

    @classmethod
    async def open(cls, database: Database) -> Harbour:
        async def seed(connection: Connection) -> pools.Pool:
            await slot_types.ensure_built_in(connection)
            await tenants.bootstrap(connection, password_hash="hash", now=LONG_AGO)
            await pools.ensure(connection, "simulated", runtimes=["container"], simulated=True, now=LONG_AGO)
            return await pools.ensure(connection, "default", runtimes=["process"], simulated=False, now=LONG_AGO)

        pool = await database.write(seed)
        async with database.read() as connection:
            admin = await users.find(connection, tenants.FIRST_ADMIN)
            standing = await tenants.standing(connection, admin.id)
        assert standing is not None
        office = Office(database, "test")
        await office.take()
        return cls(database, standing.principal, pool, office)

    # --- what is there ---

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
        """A node of the pool `default` that has connected."""
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
            lambda c: heartbeats.take(c, [heartbeats.Beat(node_id, None, cpu_percent, 0, 0, problem)], at)
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
        **more: Any,
    ) -> UUID:
        request = parse_amounts({"cpu": cpu, "memory": memory, **(slots or {})})
        new = workloads.NewWorkload(
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
            task_ids=tuple(new_id() for _ in range(replicas)),
            constraints=constraints,
            **more,
        )
        await self.database.write(lambda c: workloads.submit(c, [new], now()))
        return new.id

    async def set(self, workload_id: UUID, **columns: Any) -> UUID:
        """Columns of a workload, written as they are."""
        own = update(workloads_table).where(workloads_table.c.id == workload_id).values(columns)
        await self.database.write(lambda c: c.execute(own))
        return workload_id

    async def set_options(self, **options: Any) -> None:
        """Of the pool `default`."""
        own = update(pools_table).where(pools_table.c.id == self.pool.id).values(options=options)
        await self.database.write(lambda c: c.execute(own))

    # --- what happens to it ---

    async def propose(self, ids: Sequence[UUID] | None = None, *, at: datetime | None = None) -> list[Decision]:
        """What the scheduler decides for everything that waits, or for these, from the store as it is."""
        mirror = Mirror(self.database)
        await mirror.load()
        waiting = [workload for workload in mirror.queue.values() if ids is None or workload.id in ids]
        return list(Scheduler(cluster=mirror.cluster).run(waiting, at or now()).decisions)

    async def bind(self, decisions: Iterable[Decision], *, term: int | None = None) -> Bound:
        return await Binder(self.database).bind(list(decisions), term or self.office.term)

    async def commit(
        self,
        *decisions: Decision,
        mode: Binding = Binding.OPTIMISTIC,
        preemption: Preemption | None = None,
        expected: Mapping[str, int] | None = None,
        at: datetime | None = None,
    ) -> Bound:
        """The commit itself, in one of its modes."""
        drafted = await self.draft(*decisions, at=at) if mode is Binding.OPTIMISTIC else None
        return await self.commit_draft(
            drafted, *decisions, mode=mode, preemption=preemption, expected=expected, now=at or now()
        )

    async def draft(self, *decisions: Decision, at: datetime | None = None) -> Draft | None:
        async with self.database.read() as connection:
            return await bind.draft(connection, decisions, now=at or now(), term=self.office.term)

    async def commit_draft(self, drafted: Draft | None, *decisions: Decision, **more: Any) -> Bound:
        """As the binder does: without the draft if it is outdated."""
        given: dict[str, Any] = {"now": now(), "term": self.office.term} | more
        try:
            return await self.database.write(lambda c: bind.bind(c, decisions, drafted=drafted, **given))
        except NotAsExpected:
            return await self.database.write(lambda c: bind.bind(c, decisions, **given))

    async def place(self) -> Bound:
        return await self.bind(await self.propose())

    async def apply(self, *changes: Change, actor: str = "test", term: int | None = None) -> Any:
        return await self.database.write(lambda c: transitions.apply(c, changes, actor=actor, now=now(), term=term))

    async def move(self, task: AnyRow | UUID, *statuses: TaskStatus, **more: Any) -> None:
        """One task through these statuses, each in a transaction of its own."""
        task_id = task if isinstance(task, UUID) else task.id
        for status in statuses:
            await self.apply(Change(task_id, status, **more))

    async def run(self, workload_id: UUID) -> list[AnyRow]:
        """Place and start all tasks of a workload; its current tasks."""
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
        """Another template for a deployment, and other words for how its tasks are replaced."""
        request = parse_amounts({"cpu": cpu, "memory": "1Gi"})
        template = TaskTemplate((Container(command=command or ("sleep", "2"), slots=request),), restart=Restart.NEVER)

        async def work(connection: Connection) -> Applied:
            own = await rollouts.lock(connection, workload_id)
            return await workload_revisions.change(
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
        reason = Reason("stopped", "Stopped as asked", "user")
        return await self.database.write(
            lambda c: workloads.stop(c, workload_id, actor="test", now=now(), remove=remove, reason=reason, force=force)
        )

    async def free_lost(self, *task_ids: UUID) -> int:
        return await self.database.write(lambda c: transitions.free_lost(c, task_ids, now()))

    async def replace_ended(self) -> None:
        while await LifecycleLoop(self.database, self.office).once():
            pass

    async def fall_silent(
        self,
        node_id: UUID,
        at: datetime,
        status: Literal[NodeStatus.SUSPECT, NodeStatus.LOST] = NodeStatus.LOST,
    ) -> bool:
        """Whether it was not heard of until then, and is called so now."""
        silent = await self.database.write(
            lambda c: heartbeats.fall_silent(c, [node_id], at, status, reason="silent", now=at)
        )
        return node_id in silent

    def nodes_loop(self, timeout_seconds: float = 30) -> NodesLoop:
        return NodesLoop(self.database, self.office, Pace(timeout_seconds=timeout_seconds))

    def draining_loop(self) -> DrainingLoop:
        return DrainingLoop(self.database, self.office)

    async def taint(self, node_id: UUID, *new: Taint, remove: str | None = None, at: datetime | None = None) -> None:
        added, removed = [Standing(each, at or now()) for each in new], [] if remove is None else [(remove, None)]
        await self.database.write(lambda c: taints.change(c, node_id, add=added, remove=removed, now=now()))

    async def take_office(self, holder: str) -> int:
        return await self.database.write(lambda c: leadership.take_office(c, holder, now()))

    # --- what one can see of it ---

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
        """(held, reserved, used)."""
        table = node_resources.c
        row = (await self.rows(select(node_resources).where(table.node_id == node_id, table.slot_name == slot)))[0]
        return row.held, row.reserved, row.used

    async def leaving(self, node_id: UUID, slot: str = "cpu") -> int:
        table = node_resources.c
        rows = await self.rows(select(table.leaving).where(table.node_id == node_id, table.slot_name == slot))
        return int(rows[0].leaving)

    async def taken(self, node_id: UUID, slot: str = "gpu") -> dict[int, int]:
        """What is taken of each device."""
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

    async def findings(self) -> list[Finding]:
        async with self.database.snapshot() as connection:
            return (await ledger.audit(connection)).findings


async def decision_on(
    harbour: Harbour,
    workload_id: UUID,
    node_ids: Sequence[UUID],
    *,
    devices: Sequence[DeviceShare] = (),
    victims: Sequence[AnyRow] = (),
) -> Decision:
    """A scheduler's wish for a workload, whatever the cluster says: one task on each of these nodes."""
    async with harbour.database.read() as connection:
        [found] = await workloads.waiting(connection, [workload_id])
    rows = [await harbour.node_row(node_id) for node_id in node_ids]
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
    """On PostgreSQL, in this database."""
    async with database.read() as connection:
        found = await connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(found.scalar_one())
