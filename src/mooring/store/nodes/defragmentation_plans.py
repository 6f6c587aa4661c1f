"""Plans of automatic defragmentation: durable, so that a new leader continues them and no budget is exceeded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.defragmentation import MoveStatus, Plan, PlanStatus
from mooring.store.control import events
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import defragmentation_moves, defragmentation_plans, nodes, pools, tasks, workloads

BUDGET_WINDOW = timedelta(hours=1)
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class StoredMove:
    plan_id: UUID
    number: int
    """From 1, in the order of the plan."""
    status: MoveStatus
    workload_id: UUID
    workload: str
    task_id: UUID
    source: str
    target: str
    serves: tuple[UUID, ...]
    """The pending workloads that its step lets start; empty: other gains."""
    evicted_at: datetime | None
    replacement_id: UUID | None = None
    lost_seconds: int = 0
    reason: str | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredPlan:
    id: UUID
    pool_id: UUID
    pool: str
    status: PlanStatus
    gain: str
    gained: float
    bound: float | None
    bound_reason: str | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None
    moves: tuple[StoredMove, ...]

    @property
    def moving(self) -> StoredMove | None:
        return next((move for move in self.moves if move.status is MoveStatus.MOVING), None)

    @property
    def following(self) -> StoredMove | None:
        """The next move."""
        return next((move for move in self.moves if move.status is MoveStatus.PLANNED), None)


@dataclass(frozen=True, slots=True)
class Replacement:
    """The current task in the place of an evicted one."""

    task_id: UUID
    status: str
    node: str | None
    reason: str | None


async def insert_plan(
    connection: AsyncConnection, pool_id: UUID, plan_id: UUID, plan: Plan, *, now: datetime, term: int
) -> None:
    """Write a plan with its moves, and an event of the pool."""
    await connection.execute(
        insert(defragmentation_plans).values(
            id=plan_id,
            pool_id=pool_id,
            status=PlanStatus.EXECUTING,
            gain=plan.gain,
            gained=plan.gained,
            bound=plan.bound.value,
            bound_reason=plan.bound.reason,
            created_at=now,
        )
    )
    rows = [
        {
            "plan_id": plan_id,
            "pool_id": pool_id,
            "status": MoveStatus.PLANNED,
            "workload_id": move.workload_id,
            "workload": move.workload,
            "task_id": move.task_id,
            "source": move.source,
            "target": move.target,
            "lost_seconds": move.lost_seconds,
            "serves": sorted({str(start.workload_id) for start in step.starts if start.workload_id is not None}),
        }
        for step in plan.steps
        for move in step.moves
    ]
    await connection.execute(
        insert(defragmentation_moves), [{**row, "number": number} for number, row in enumerate(rows, 1)]
    )
    await _note(connection, pool_id, plan_id, PlanStatus.EXECUTING, now, term)


async def end_plan(
    connection: AsyncConnection,
    plan_id: UUID,
    status: PlanStatus,
    reason: str | None,
    *,
    now: datetime,
    term: int,
) -> bool:
    """End a plan that is still executed; the remaining moves are left out. Return whether it was."""
    own = defragmentation_plans.c
    ended = (
        await connection.execute(
            update(defragmentation_plans)
            .where(own.id == plan_id, own.status == PlanStatus.EXECUTING)
            .values(status=status, reason=_cut(reason), ended_at=now)
            .returning(own.pool_id)
        )
    ).scalar_one_or_none()
    if ended is None:
        return False
    await connection.execute(
        update(defragmentation_moves)
        .where(defragmentation_moves.c.plan_id == plan_id, defragmentation_moves.c.status == MoveStatus.PLANNED)
        .values(status=MoveStatus.LEFT_OUT, ended_at=now)
    )
    await _note(connection, ended, plan_id, status, now, term)
    return True


async def note_evicted(connection: AsyncConnection, move: StoredMove, now: datetime) -> None:
    await _set_move(connection, move, status=MoveStatus.MOVING, evicted_at=now)


async def note_ended(
    connection: AsyncConnection,
    move: StoredMove,
    status: MoveStatus,
    *,
    replacement_id: UUID | None,
    reason: str | None,
    now: datetime,
) -> None:
    """Note that the replacement of a moved task runs on the target, or that it never will."""
    await _set_move(connection, move, status=status, replacement_id=replacement_id, reason=_cut(reason), ended_at=now)


async def executing(connection: AsyncConnection) -> list[StoredPlan]:
    return await _load(connection, defragmentation_plans.c.status == PlanStatus.EXECUTING)


async def newest(connection: AsyncConnection, pool: str, limit: int) -> list[StoredPlan]:
    """Return the newest plans of a pool, the newest first."""
    own = defragmentation_plans.c
    ids = (
        select(own.id)
        .join(pools, pools.c.id == own.pool_id)
        .where(pools.c.name == pool)
        .order_by(own.created_at.desc(), own.id.desc())
        .limit(limit)
    )
    found = await _load(connection, own.id.in_(ids))
    return found[::-1]


async def newest_by_pool(connection: AsyncConnection, pool_ids: Collection[UUID]) -> dict[UUID, StoredPlan]:
    """Return the newest plan of each pool that has one."""
    if not pool_ids:
        return {}
    own = defragmentation_plans.c
    number = func.row_number().over(partition_by=own.pool_id, order_by=(own.created_at.desc(), own.id.desc()))
    numbered = select(own.id, number.label("number")).where(own.pool_id.in_(list(pool_ids))).subquery()
    first = select(numbered.c.id).where(numbered.c.number == 1)
    return {plan.pool_id: plan for plan in await _load(connection, own.id.in_(first))}


async def evictions_since(connection: AsyncConnection, since: datetime) -> dict[UUID, list[datetime]]:
    """Return the times of the automatic moves after a time, by pool, the earliest first."""
    own = defragmentation_moves.c
    rows = await connection.execute(
        select(own.pool_id, own.evicted_at).where(own.evicted_at > since).order_by(own.evicted_at)
    )
    found: dict[UUID, list[datetime]] = {}
    for pool_id, at in rows:
        found.setdefault(pool_id, []).append(at)
    return found


async def moved_since(connection: AsyncConnection, pool_id: UUID, since: datetime) -> set[UUID]:
    """Return the tasks that automatic moves have created after a time."""
    own = defragmentation_moves.c
    rows = await connection.execute(
        select(own.replacement_id).where(
            own.pool_id == pool_id, own.evicted_at > since, own.replacement_id.is_not(None)
        )
    )
    return set(rows.scalars())


async def replacement_of(connection: AsyncConnection, task_id: UUID) -> Replacement | None:
    """Return the task that replaces an evicted one; None while there is none."""
    old = tasks.alias("old")
    row = (
        await connection.execute(
            select(tasks.c.id, tasks.c.status, tasks.c.reason, nodes.c.name.label("node"))
            .join(old, (old.c.workload_id == tasks.c.workload_id) & (old.c.task_index == tasks.c.task_index))
            .outerjoin(nodes, nodes.c.id == tasks.c.node_id)
            .where(old.c.id == task_id, tasks.c.id != task_id, tasks.c.current)
        )
    ).one_or_none()
    if row is None:
        return None
    return Replacement(row.id, row.status, row.node, None if row.reason is None else row.reason.get("message"))


async def may_be_replaced(connection: AsyncConnection, workload_id: UUID) -> bool:
    """Return whether a workload has not ended."""
    found = await connection.execute(select(workloads.c.ended_at).where(workloads.c.id == workload_id))
    return (row := found.one_or_none()) is not None and row.ended_at is None


async def any_pending(connection: AsyncConnection, workload_ids: Sequence[UUID]) -> bool:
    """Return whether one of the workloads still has a task without a node."""
    open_task = select(tasks.c.id).where(
        among(tasks.c.workload_id, workload_ids), tasks.c.current, tasks.c.status == TaskStatus.PENDING
    )
    return (await connection.execute(open_task.limit(1))).first() is not None


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete plans that ended before a time, with their moves; return the number of plans."""
    own = defragmentation_plans.c
    over = list(
        (await connection.execute(select(own.id).where(own.ended_at < before).order_by(own.id).limit(limit))).scalars()
    )
    if over:
        moves = defragmentation_moves
        await connection.execute(delete(moves).where(moves.c.plan_id.in_(over)))
        await connection.execute(delete(defragmentation_plans).where(own.id.in_(over)))
    return len(over)


async def _set_move(connection: AsyncConnection, move: StoredMove, **values: object) -> None:
    own = defragmentation_moves.c
    await connection.execute(
        update(defragmentation_moves).where(own.plan_id == move.plan_id, own.number == move.number).values(**values)
    )


async def _load(connection: AsyncConnection, *conditions: ColumnElement[bool]) -> list[StoredPlan]:
    """Return the matching plans with their moves, the oldest first."""
    own, steps = defragmentation_plans.c, defragmentation_moves.c
    rows = (
        await connection.execute(
            select(*own, pools.c.name.label("pool"))
            .join(pools, pools.c.id == own.pool_id)
            .where(*conditions)
            .order_by(own.created_at, own.id)
        )
    ).all()
    moves: dict[UUID, list[StoredMove]] = {row.id: [] for row in rows}
    if rows:
        for move in await connection.execute(
            select(defragmentation_moves).where(steps.plan_id.in_(list(moves))).order_by(steps.number)
        ):
            moves[move.plan_id].append(_move(move))
    return [
        StoredPlan(
            row.id,
            row.pool_id,
            row.pool,
            PlanStatus(row.status),
            row.gain,
            row.gained,
            row.bound,
            row.bound_reason,
            row.reason,
            row.created_at,
            row.ended_at,
            tuple(moves[row.id]),
        )
        for row in rows
    ]


def _move(row: AnyRow) -> StoredMove:
    return StoredMove(
        row.plan_id,
        row.number,
        MoveStatus(row.status),
        row.workload_id,
        row.workload,
        row.task_id,
        row.source,
        row.target,
        tuple(UUID(each) for each in row.serves),
        row.evicted_at,
        row.replacement_id,
        row.lost_seconds,
        row.reason,
        row.ended_at,
    )


async def _note(
    connection: AsyncConnection,
    pool_id: UUID,
    plan_id: UUID,
    status: PlanStatus,
    now: datetime,
    term: int,
) -> None:
    """Append an event of the pool. Every user may read it, so that it names no workload."""
    version = await connection.scalar(select(pools.c.version).where(pools.c.id == pool_id))
    details = {"plan": str(plan_id), "status": status.value}
    event = events.NewEvent("pool", pool_id, int(version or 0), events.DEFRAGMENTATION, details=details)
    await events.append(connection, [event], now, term)


def _cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:_MAX_REASON]
