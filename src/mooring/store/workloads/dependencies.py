"""What workloads wait for: the end of others that they name, and their turn behind others of the same word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.dependencies import Condition, Dependency
from mooring.model.lifecycle import WorkloadStatus
from mooring.store import sets
from mooring.store.tables import dependencies, workloads


async def named(
    connection: AsyncConnection, user_id: UUID, names: Collection[str], ids: Collection[UUID], *, anybodys: bool
) -> dict[str, UUID]:
    """What names and ids of workloads mean to a user; `anybodys`: an id may be that of another user's.

    A name means one that is not removed and alive before others, then the newest.
    """
    found: dict[str, UUID] = {}
    own = workloads.c
    if names:
        preference = func.row_number().over(
            partition_by=own.name,
            order_by=(own.removed_at.is_not(None), own.ended_at.is_not(None), own.created_at.desc(), own.id.desc()),
        )
        ranked = (
            select(own.name, own.id, preference.label("place"))
            .where(own.user_id == user_id, own.name.in_(sorted(names)))
            .subquery()
        )
        rows = await connection.execute(select(ranked.c.name, ranked.c.id).where(ranked.c.place == 1))
        found |= {row.name: row.id for row in rows}
    if ids:
        by_id = select(own.id).where(sets.among(own.id, ids))
        mine = await connection.execute(by_id if anybodys else by_id.where(own.user_id == user_id))
        found |= {str(workload_id): workload_id for workload_id in mine.scalars()}
    return found


async def of(connection: AsyncConnection, ids: Collection[UUID]) -> dict[UUID, tuple[Dependency, ...]]:
    """What these workloads depend on, as it stands now; those that depend on nothing are not named."""
    other = workloads.alias()
    rows = await connection.execute(
        select(dependencies.c.workload_id, other.c.id, other.c.name, dependencies.c.condition, other.c.status)
        .join(other, other.c.id == dependencies.c.depends_on)
        .where(sets.among(dependencies.c.workload_id, ids))
        .order_by(dependencies.c.workload_id, other.c.created_at, other.c.id)
    )
    found: dict[UUID, list[Dependency]] = defaultdict(list)
    for workload_id, other_id, name, condition, status in rows:
        found[workload_id].append(Dependency(other_id, name, Condition(condition), WorkloadStatus(status)))
    return {workload_id: tuple(those) for workload_id, those in found.items()}


async def as_they_stand(connection: AsyncConnection, asked: Sequence[tuple[UUID, Condition]]) -> tuple[Dependency, ...]:
    """Dependencies that are not written, with the status of what they name."""
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


async def turns(connection: AsyncConnection, turns: Sequence[tuple[UUID, UUID, str]]) -> dict[UUID, UUID]:
    """Of workloads with a singleton's word (id, user, word): the living one of the same user and word just before.

    That one has its own before it, so to wait for it is to wait for all.
    """
    if not turns:
        return {}
    own = workloads.c
    before = func.lag(own.id, type_=own.id.type).over(
        partition_by=(own.user_id, own.singleton), order_by=(own.created_at, own.id)
    )
    lines = (
        select(own.id, before.label("before"))
        .where(
            own.user_id.in_({user_id for _, user_id, _ in turns}),
            own.singleton.in_({word for _, _, word in turns}),
            own.ended_at.is_(None),
        )
        .subquery()
    )
    rows = await connection.execute(
        select(lines.c.id, lines.c.before).where(
            lines.c.before.is_not(None),
            sets.among(lines.c.id, [workload_id for workload_id, _, _ in turns]),
        )
    )
    return {row.id: row.before for row in rows}


async def waiting_for(connection: AsyncConnection, ids: Collection[UUID]) -> set[UUID]:
    """The living workloads that the end of these may let go: their dependants, and who is next in their turn."""
    if not ids:
        return set()
    dependants = await connection.execute(
        select(dependencies.c.workload_id)
        .join(workloads, workloads.c.id == dependencies.c.workload_id)
        .where(sets.among(dependencies.c.depends_on, ids), workloads.c.ended_at.is_(None))
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
    next_in_turn = await connection.execute(
        select(following).where(sets.among(ended.c.id, ids), ended.c.singleton.is_not(None))
    )
    return {*dependants.scalars(), *(found for found in next_in_turn.scalars() if found is not None)}
