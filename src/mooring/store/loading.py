"""What a change of statuses works on: workloads, locked, with their living and current tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.store.chunks import chunks
from mooring.store.tables import tasks, workloads
from mooring.store.types import AnyRow

# Built once: making a statement costs as much as running it.
_LOCK = (
    select(
        workloads.c.id,
        workloads.c.name,
        workloads.c.kind,
        workloads.c.status,
        workloads.c.stopping,
        workloads.c.replicas,
        workloads.c.max_per_node,
        workloads.c.reason,
        workloads.c.placed_before,
        workloads.c.started_at,
        workloads.c.ended_at,
        workloads.c.removed_at,
        workloads.c.version,
    )
    .where(workloads.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(workloads.c.id)
    .with_for_update()
)
_OWNERS = select(tasks.c.workload_id).distinct().where(tasks.c.id.in_(bindparam("ids", expanding=True)))
_LIVING = select(tasks).where(
    tasks.c.workload_id.in_(bindparam("ids", expanding=True)),
    tasks.c.current | tasks.c.status.in_([*lifecycle.OCCUPYING, TaskStatus.PENDING]),
)
_THESE = select(tasks).where(tasks.c.id.in_(bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True)
class Loaded:
    workloads: dict[UUID, AnyRow]
    """Locked until the transaction ends."""
    tasks: dict[UUID, dict[str, Any]]
    """Those that are current or alive, as dictionaries to be changed."""


async def load(
    connection: AsyncConnection, *, tasks_of: Sequence[UUID] = (), workload_ids: Iterable[UUID] = ()
) -> Loaded:
    """The workloads of these tasks, and these workloads, with their tasks."""
    owners = await _owners(connection, tasks_of)
    locked = await lock_workloads(connection, {*owners, *workload_ids})
    return Loaded(locked, await _rows(connection, _LIVING, list(locked)))


async def lock_workloads(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, AnyRow]:
    """The workloads' rows, locked in the order of their ids until the transaction ends."""
    found: dict[UUID, AnyRow] = {}
    for part in chunks(sorted(set(ids))):
        found.update((row.id, row) for row in await connection.execute(_LOCK, {"ids": part}))
    return found


async def load_ended(connection: AsyncConnection, task_ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """These tasks, whatever became of them, with their workloads locked."""
    await lock_workloads(connection, await _owners(connection, task_ids))
    found = await _rows(connection, _THESE, list(dict.fromkeys(task_ids)))
    return [found[task_id] for task_id in dict.fromkeys(task_ids) if task_id in found]


async def _owners(connection: AsyncConnection, task_ids: Sequence[UUID]) -> set[UUID]:
    found: set[UUID] = set()
    for part in chunks(task_ids):
        found.update((await connection.execute(_OWNERS, {"ids": part})).scalars())
    return found


async def _rows(connection: AsyncConnection, query: Any, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    found: dict[UUID, dict[str, Any]] = {}
    for part in chunks(ids):
        found.update((row.id, dict(row._mapping)) for row in await connection.execute(query, {"ids": part}))
    return found
