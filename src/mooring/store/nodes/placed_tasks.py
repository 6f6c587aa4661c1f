"""The tasks on the nodes of a pool with their workloads, and which of them may move to another node."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.policy.defragmentation import PlacedTask
from mooring.model.resources.devices import shares_of
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import ONE_TASK, Kind, Workload
from mooring.store.core.types import AnyRow
from mooring.store.tables import nodes, pools, tasks, workloads
from mooring.store.workloads import mounts
from mooring.store.workloads.pending import PLACEMENT_COLUMNS, as_workload


async def of_pool(
    connection: AsyncConnection, pool: str, now: datetime, *, max_lost_seconds: int, interactive: bool
) -> list[PlacedTask]:
    """Return all tasks on the nodes of a pool.

    Running batch work that is preemptible and has run for at most `max_lost_seconds` may move, and so may replicas of
    deployments; interactive sessions only with `interactive`. Work inside a timeslot, gangs and rollouts stay.
    """
    rows = (
        await connection.execute(
            select(
                *PLACEMENT_COLUMNS,
                pools.c.name.label("pool_name"),
                workloads.c.stopping,
                workloads.c.rolling,
                workloads.c.preemptible,
                tasks.c.id.label("task_id"),
                tasks.c.status.label("task_status"),
                tasks.c.node_id,
                tasks.c.devices,
                tasks.c.ports,
                tasks.c.current,
                tasks.c.revision.label("task_revision"),
                tasks.c.started_at.label("task_started_at"),
                tasks.c.requested_slots.label("task_request"),
            )
            .join(tasks, tasks.c.workload_id == workloads.c.id)
            .join(nodes, nodes.c.id == tasks.c.node_id)
            .join(pools, pools.c.id == nodes.c.pool_id)
            .where(pools.c.name == pool, or_(tasks.c.status.in_(list(OCCUPYING)), tasks.c.freed_at.is_(None)))
            .order_by(tasks.c.id)
        )
    ).all()
    occupied: defaultdict[UUID, Counter[UUID]] = defaultdict(Counter)
    for row in rows:
        occupied[row.id][row.node_id] += 1
    mounted = await mounts.of_workloads(connection, sorted(occupied))
    known: dict[UUID, Workload] = {}
    placed: list[PlacedTask] = []
    for row in rows:
        if row.id not in known:
            known[row.id] = as_workload(row, ONE_TASK, occupied[row.id], mounted=mounted.get(row.id, ()))
        workload = known[row.id]
        ran = 0 if row.task_started_at is None else max(int((now - row.task_started_at).total_seconds()), 0)
        lost = 0 if row.kind == Kind.DEPLOYMENT else ran
        ports = tuple(HostPort(port, protocol) for protocol, port in row.ports or ())
        placed.append(
            PlacedTask(
                row.task_id,
                row.node_id,
                workload,
                workload.constraints,
                tuple(shares_of(row.devices)),
                may_move(row, interactive=interactive) and lost <= max_lost_seconds,
                lost,
                ports,
            )
        )
    return placed


def may_move(row: AnyRow, *, interactive: bool) -> bool:
    """Return whether a task can be moved by itself, without the consent of its owner."""
    if row.task_status != TaskStatus.RUNNING or not row.current or row.stopping or row.timeslot_id is not None:
        return False
    if row.task_revision != row.revision or row.rolling or row.task_request != row.requested_slots:
        return False
    if row.kind == Kind.DEPLOYMENT:
        return True
    # All tasks of a session restart together, unless it is an array.
    alone = row.is_array or row.replicas == 1
    return bool(row.preemptible and alone and (interactive or row.type != "interactive"))
