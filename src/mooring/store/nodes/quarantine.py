"""Quarantined tasks: tasks that run on a node but are unknown to the database, for example after a restore.

They run until an admin confirms their end or their grace period expires; until then the node accepts no new tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, delete, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.inserts import insert_new
from mooring.store.tables import nodes, quarantined_tasks, tasks

REASON = "tasks run here that the database does not know: see `mooring quarantine`"
GRACE_OVER = "grace over"
"""Value of `confirmed_by` after the grace period expired; not a valid user name."""
_MAX_NAME_LENGTH = 63
_own = quarantined_tasks.c
_CONFIRMED = select(_own.task_id).where(_own.node_id == bindparam("node"), _own.confirmed_by.is_not(None))
_QUARANTINED = select(_own.node_id).where(batch_sql.among(_own.node_id)).distinct()


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
    """Quarantine those of a node's live tasks, given as workload names by task id, that the database does not know.

    Return the newly quarantined tasks. Rows of tasks that no longer live on the node are deleted.
    """
    await connection.execute(
        delete(quarantined_tasks).where(_own.node_id == node_id, ~batch_sql.among(_own.task_id, living))
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
                "workload_name": living[task_id][:_MAX_NAME_LENGTH],
                "seen_at": now,
                "ends_at": now + grace,
            },
        )
    ]


async def to_end(connection: AsyncConnection, node_id: UUID, strays: Collection[UUID]) -> list[UUID]:
    """Return the tasks to end on a node: confirmed ones, and strays that the database places elsewhere or has freed."""
    found = set((await connection.execute(_CONFIRMED, {"node": node_id})).scalars())
    if not strays:
        return sorted(found)
    # A task that is pending in a restored database has no node and is left out: it may still be placed on this one.
    elsewhere = or_(tasks.c.node_id != node_id, tasks.c.freed_at.is_not(None))
    astray = await connection.execute(select(tasks.c.id).where(batch_sql.among(tasks.c.id, list(strays)), elsewhere))
    return sorted(found.union(astray.scalars()))


async def reasons(connection: AsyncConnection, node_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return those of these nodes that are unschedulable because of quarantined tasks, with the reason."""
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
    """Confirm the end of tasks: on a node, one task, those due by a time, or all. Return the newly confirmed tasks."""
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
    # The servers that hold the agents' connections follow the events.
    versions = await connection.execute(
        select(nodes.c.id, nodes.c.generation).where(nodes.c.id.in_({row.node_id for row in confirmed}))
    )
    ended = [events.NewEvent("node", node.id, node.generation, "quarantine-ended", node.id) for node in versions]
    await events.append(connection, ended, now, term)
    return [row.task_id for row in confirmed]


async def next_due(connection: AsyncConnection) -> datetime | None:
    """Return the time at which the next grace period expires."""
    due = select(_own.ends_at).where(_own.confirmed_by.is_(None)).order_by(_own.ends_at).limit(1)
    return (await connection.execute(due)).scalar_one_or_none()


async def holds(connection: AsyncConnection, *, node_id: UUID | None = None, task_id: UUID | None = None) -> bool:
    """Return whether any task is quarantined, on this node, with this id or at all; confirmed ones count."""
    chosen: ColumnElement[bool] = true()
    if node_id is not None:
        chosen = _own.node_id == node_id
    elif task_id is not None:
        chosen = _own.task_id == task_id
    return (await connection.execute(select(_own.task_id).where(chosen).limit(1))).first() is not None


async def _known(connection: AsyncConnection, task_ids: Collection[UUID]) -> set[UUID]:
    known = select(tasks.c.id).where(batch_sql.among(tasks.c.id, task_ids))
    return set((await connection.execute(known)).scalars())
