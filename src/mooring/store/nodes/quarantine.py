"""Tasks that live on a node and that the database does not know, as after a restore: kept until somebody decides.

They go on until an admin confirms that they may be ended or their grace is over; the node takes nothing new meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, delete, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store import events, sets
from mooring.store.inserts import insert_new
from mooring.store.tables import nodes, quarantined_tasks, tasks

REASON = "tasks run here that the database does not know: see `mooring quarantine`"
GRACE_OVER = "grace over"
"""In the place of who confirmed it; no user can be called so."""
_LONGEST_NAME = 63
_own = quarantined_tasks.c
_CONFIRMED = select(_own.task_id).where(_own.node_id == bindparam("node"), _own.confirmed_by.is_not(None))
_QUARANTINED = select(_own.node_id).where(sets.among(_own.node_id)).distinct()


@dataclass(frozen=True, slots=True)
class Quarantined:
    node: str
    task_id: UUID
    workload_name: str
    seen_at: datetime
    ends_at: datetime
    confirmed_by: str | None


async def take(
    connection: AsyncConnection, node_id: UUID, living: Mapping[UUID, str], *, grace: timedelta, now: datetime
) -> list[UUID]:
    """Of what lives on a node, by id with the names of the workloads, keep what the database does not know.

    Returns those that are new; what was kept before and lives no more is forgotten.
    """
    await connection.execute(
        delete(quarantined_tasks).where(_own.node_id == node_id, ~sets.among(_own.task_id, living))
    )
    unknown = living.keys() - await _known(connection, living.keys())
    return [
        task_id
        for task_id in sorted(unknown)
        if await insert_new(
            connection,
            quarantined_tasks,
            {
                "node_id": node_id,
                "task_id": task_id,
                "workload_name": living[task_id][:_LONGEST_NAME],
                "seen_at": now,
                "ends_at": now + grace,
            },
        )
    ]


async def to_end(connection: AsyncConnection, node_id: UUID, strays: Collection[UUID]) -> list[UUID]:
    """What may be ended on a node: what somebody confirmed, and strays that the database knows not to belong there."""
    found = set((await connection.execute(_CONFIRMED, {"node": node_id})).scalars())
    if not strays:
        return sorted(found)
    # One that still waits, in a restored database, may yet be placed where it runs.
    elsewhere = or_(tasks.c.node_id != node_id, tasks.c.freed_at.is_not(None))
    astray = await connection.execute(select(tasks.c.id).where(sets.among(tasks.c.id, list(strays)), elsewhere))
    return sorted(found.union(astray.scalars()))


async def reasons(connection: AsyncConnection, node_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The nodes that take nothing new because of it."""
    rows = await connection.execute(_QUARANTINED, {"ids": node_ids})
    return dict.fromkeys(rows.scalars(), REASON)


async def all_tasks(connection: AsyncConnection) -> list[Quarantined]:
    rows = await connection.execute(
        select(nodes.c.name, _own.task_id, _own.workload_name, _own.seen_at, _own.ends_at, _own.confirmed_by)
        .join(nodes, nodes.c.id == _own.node_id)
        .order_by(nodes.c.name, _own.seen_at, _own.task_id)
    )
    return [Quarantined(*row) for row in rows]


async def confirm(
    connection: AsyncConnection,
    by: str,
    *,
    node_id: UUID | None = None,
    task_id: UUID | None = None,
    due: datetime | None = None,
    now: datetime,
    term: int | None = None,
) -> list[UUID]:
    """Let tasks be ended: those of a node, one, those whose grace is over by then, or all. Which had to be told so."""
    chosen: list[ColumnElement[bool]] = [_own.confirmed_by.is_(None)]
    if node_id is not None:
        chosen.append(_own.node_id == node_id)
    if task_id is not None:
        chosen.append(_own.task_id == task_id)
    if due is not None:
        chosen.append(_own.ends_at <= due)
    rows = await connection.execute(
        update(quarantined_tasks).where(*chosen).values(confirmed_by=by).returning(_own.node_id, _own.task_id)
    )
    confirmed = rows.all()
    # The servers that the agents are connected to follow the events.
    versions = await connection.execute(
        select(nodes.c.id, nodes.c.generation).where(nodes.c.id.in_({row.node_id for row in confirmed}))
    )
    told = [events.NewEvent("node", node.id, node.generation, "quarantine-ended", node.id) for node in versions]
    await events.append(connection, told, now, term)
    return [row.task_id for row in confirmed]


async def next_due(connection: AsyncConnection) -> datetime | None:
    """When the next grace is over."""
    due = select(_own.ends_at).where(_own.confirmed_by.is_(None)).order_by(_own.ends_at).limit(1)
    return (await connection.execute(due)).scalar_one_or_none()


async def holds(connection: AsyncConnection, *, node_id: UUID | None = None, task_id: UUID | None = None) -> bool:
    """Whether anything of this node, of this id, or at all is here, ended or not."""
    chosen: ColumnElement[bool] = true()
    if node_id is not None:
        chosen = _own.node_id == node_id
    elif task_id is not None:
        chosen = _own.task_id == task_id
    return (await connection.execute(select(_own.task_id).where(chosen).limit(1))).first() is not None


async def _known(connection: AsyncConnection, task_ids: Collection[UUID]) -> set[UUID]:
    known = select(tasks.c.id).where(sets.among(tasks.c.id, task_ids))
    return set((await connection.execute(known)).scalars())
