"""Dependencies of workloads: other workloads whose end they require, and predecessors with the same singleton name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import WorkloadStatus
from mooring.model.tenancy.access import Sight
from mooring.model.workloads.dependencies import Condition, Dependency
from mooring.store.core import batch_sql
from mooring.store.tables import dependencies, workloads
from mooring.store.views.visibility import shown_to

_other = workloads.alias()
_OF = (
    select(dependencies.c.workload_id, _other.c.id, _other.c.name, dependencies.c.condition, _other.c.status)
    .join(_other, _other.c.id == dependencies.c.depends_on)
    .where(batch_sql.among(dependencies.c.workload_id))
    .order_by(dependencies.c.workload_id, _other.c.created_at, _other.c.id)
)


async def named(
    connection: AsyncConnection, own_work: Sight, names: Collection[str], ids: Collection[UUID], *, anybodys: bool
) -> dict[str, UUID]:
    """Return the ids of the workloads that a user names; with `anybodys`, an id may belong to another user.

    A name resolves to a workload that is not removed, then to one that is alive, then to the newest.
    """
    found: dict[str, UUID] = {}
    own = workloads.c
    mine = shown_to(own_work)
    if names:
        preference = func.row_number().over(
            partition_by=own.name,
            order_by=(own.removed_at.is_not(None), own.ended_at.is_not(None), own.created_at.desc(), own.id.desc()),
        )
        ranked = select(own.name, own.id, preference.label("rank")).where(mine, own.name.in_(sorted(names))).subquery()
        rows = await connection.execute(select(ranked.c.name, ranked.c.id).where(ranked.c.rank == 1))
        found |= {row.name: row.id for row in rows}
    if ids:
        by_id = select(own.id).where(batch_sql.among(own.id, ids))
        known = await connection.execute(by_id if anybodys else by_id.where(mine))
        found |= {str(workload_id): workload_id for workload_id in known.scalars()}
    return found


async def of(connection: AsyncConnection, ids: Collection[UUID]) -> dict[UUID, tuple[Dependency, ...]]:
    """Return the current dependencies of these workloads; workloads without any are left out."""
    if not ids:
        return {}
    rows = await connection.execute(_OF, {"ids": ids})
    found: dict[UUID, list[Dependency]] = defaultdict(list)
    for workload_id, other_id, name, condition, status in rows:
        found[workload_id].append(Dependency(other_id, name, Condition(condition), WorkloadStatus(status)))
    return {workload_id: tuple(those) for workload_id, those in found.items()}


async def with_current_status(
    connection: AsyncConnection, asked: Sequence[tuple[UUID, Condition]]
) -> tuple[Dependency, ...]:
    """Return unsaved dependencies with the current status of the workloads they name."""
    if not asked:
        return ()
    rows = await connection.execute(
        select(workloads.c.id, workloads.c.name, workloads.c.status).where(
            workloads.c.id.in_([other for other, _ in asked])
        )
    )
    found = {row.id: row for row in rows}
    return tuple(
        Dependency(other, found[other].name, condition, WorkloadStatus(found[other].status))
        for other, condition in asked
        if other in found
    )


async def singleton_predecessors(
    connection: AsyncConnection, singletons: Sequence[tuple[UUID, UUID, str]]
) -> dict[UUID, UUID]:
    """Return the live predecessor of each singleton (workload, user, name): the previous one of that user and name.

    The predecessor depends on its own, so that waiting for it alone preserves the order of all.
    """
    if not singletons:
        return {}
    own = workloads.c
    before = func.lag(own.id, type_=own.id.type).over(
        partition_by=(own.user_id, own.singleton), order_by=(own.created_at, own.id)
    )
    lines = (
        select(own.id, before.label("before"))
        .where(
            own.user_id.in_({user_id for _, user_id, _ in singletons}),
            own.singleton.in_({word for _, _, word in singletons}),
            own.ended_at.is_(None),
        )
        .subquery()
    )
    rows = await connection.execute(
        select(lines.c.id, lines.c.before).where(
            lines.c.before.is_not(None),
            batch_sql.among(lines.c.id, [workload_id for workload_id, _, _ in singletons]),
        )
    )
    return {row.id: row.before for row in rows}


async def waiting_for(connection: AsyncConnection, ids: Collection[UUID]) -> set[UUID]:
    """Return the live workloads that the end of these may unblock: dependants, and the next singletons."""
    if not ids:
        return set()
    dependants = await connection.execute(
        select(dependencies.c.workload_id)
        .join(workloads, workloads.c.id == dependencies.c.workload_id)
        .where(batch_sql.among(dependencies.c.depends_on, ids), workloads.c.ended_at.is_(None))
    )
    ended, behind = workloads.alias(), workloads.alias()
    following = (
        select(behind.c.id)
        .where(
            behind.c.user_id == ended.c.user_id,
            behind.c.singleton == ended.c.singleton,
            behind.c.ended_at.is_(None),
            tuple_(behind.c.created_at, behind.c.id) > tuple_(ended.c.created_at, ended.c.id),
        )
        .order_by(behind.c.created_at, behind.c.id)
        .limit(1)
        .correlate(ended)
        .scalar_subquery()
    )
    next_singletons = await connection.execute(
        select(following).where(batch_sql.among(ended.c.id, ids), ended.c.singleton.is_not(None))
    )
    return {*dependants.scalars(), *(found for found in next_singletons.scalars() if found is not None)}
