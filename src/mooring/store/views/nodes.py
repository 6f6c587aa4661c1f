"""Nodes with their capacity and allocations, and their pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.devices import Device
from mooring.store.nodes import devices
from mooring.store.nodes.learned_demand import CommonRequest, decoded
from mooring.store.nodes.pools import policy_of
from mooring.store.nodes.taints import TimedTaint, timed_taints
from mooring.store.tables import node_resources, nodes, pools, tasks, users


@dataclass(frozen=True, slots=True)
class SlotRow:
    """Amounts of one slot on one node, in base units."""

    capacity: int
    allocatable: int
    held: int
    reserved: int
    used: int

    @property
    def free(self) -> int:
        return self.allocatable - self.held - self.reserved - self.used


@dataclass(frozen=True, slots=True)
class NodeRow:
    id: UUID
    name: str
    pool: str
    status: str
    schedulable: bool
    reason: str | None
    simulated: bool
    region: str | None
    licence: str | None
    machine_image: str | None
    machine_image_version: str | None
    template: str | None
    scale_request_id: UUID | None
    architecture: str
    runtimes: Sequence[str]
    labels: Mapping[str, str]
    enforces: Mapping[str, str]
    isolation: str
    isolation_reason: str
    cpu_percent: float
    memory_percent: float
    last_seen_at: datetime | None
    owner: str | None
    taints: Sequence[TimedTaint]
    draining: bool
    drain_reason: str | None
    drain_until: datetime | None
    drained_at: datetime | None
    slots: Mapping[str, SlotRow]
    devices: Mapping[str, Sequence[Device]]
    tasks: int
    """Number of tasks that occupy it, including lost tasks whose end has not been reported."""


@dataclass(frozen=True, slots=True)
class PoolRow:
    id: UUID
    name: str
    simulated: bool
    runtimes: Sequence[str]
    policy: PoolPolicy
    version: int
    nodes: int
    learned_demand: Sequence[CommonRequest] = ()
    has_devices: bool = False
    """Whether one of its nodes has GPUs."""


_FIELDS = {field.name for field in fields(NodeRow)}


async def all_nodes(connection: AsyncConnection, *, pool: str | None = None) -> list[NodeRow]:
    return await _nodes(connection, *([] if pool is None else [pools.c.name == pool]))


async def by_name(connection: AsyncConnection, name: str) -> NodeRow | None:
    return next(iter(await _nodes(connection, nodes.c.name == name)), None)


async def all_pools(connection: AsyncConnection) -> list[PoolRow]:
    number = select(func.count()).select_from(nodes).where(nodes.c.pool_id == pools.c.id).correlate(pools)
    gpus = node_resources.c.slot_name == "gpu", node_resources.c.allocatable > 0
    own = select(nodes.c.id).join(node_resources, node_resources.c.node_id == nodes.c.id)
    with_devices = exists(own.where(nodes.c.pool_id == pools.c.id, *gpus).correlate(pools))
    rows = await connection.execute(
        select(pools, number.scalar_subquery().label("nodes"), with_devices.label("has_devices")).order_by(pools.c.name)
    )
    return [
        PoolRow(
            row.id,
            row.name,
            row.simulated,
            row.runtimes,
            policy_of(row),
            row.version,
            row.nodes,
            decoded(row.learned_demand),
            bool(row.has_devices),
        )
        for row in rows
    ]


async def pool_by_name(connection: AsyncConnection, name: str) -> PoolRow | None:
    return next((pool for pool in await all_pools(connection) if pool.name == name), None)


async def _nodes(connection: AsyncConnection, *conditions: ColumnElement[bool]) -> list[NodeRow]:
    """Return the matching nodes in four statements (nodes, slots, devices, tasks), whatever their number."""
    found = await connection.execute(
        select(
            nodes.c.id,
            nodes.c.name,
            pools.c.name.label("pool"),
            nodes.c.status,
            nodes.c.schedulable,
            nodes.c.reason,
            nodes.c.simulated,
            nodes.c.region,
            nodes.c.licence,
            nodes.c.machine_image,
            nodes.c.machine_image_version,
            nodes.c.template,
            nodes.c.scale_request_id,
            nodes.c.architecture,
            nodes.c.runtimes,
            nodes.c.labels,
            nodes.c.enforces,
            nodes.c.isolation,
            nodes.c.isolation_reason,
            nodes.c.cpu_percent,
            nodes.c.memory_percent,
            nodes.c.last_seen_at,
            users.c.name.label("owner"),
            nodes.c.taints,
            nodes.c.draining,
            nodes.c.drain_reason,
            nodes.c.drain_until,
            nodes.c.drained_at,
            nodes.c.created_at,
        )
        .join(pools, pools.c.id == nodes.c.pool_id)
        .join(users, users.c.id == nodes.c.owner_id, isouter=True)
        .where(*conditions)
        .order_by(nodes.c.name)
    )
    selected = select(nodes.c.id).join(pools, pools.c.id == nodes.c.pool_id).where(*conditions)
    slots = await _slots(connection, selected)
    named = await devices.by_node(connection, selected)
    counts = await _task_counts(connection, selected)
    columns = _FIELDS - {"slots", "devices", "tasks", "taints"}
    values = attrgetter(*columns)
    return [
        NodeRow(
            **dict(zip(columns, values(row), strict=True)),
            taints=timed_taints(row),
            slots=slots[row.id],
            devices=named.get(row.id, {}),
            tasks=counts.get(row.id, 0),
        )
        for row in found
    ]


async def _slots(connection: AsyncConnection, node_ids: Select[Any]) -> Mapping[UUID, dict[str, SlotRow]]:
    own = node_resources.c
    found: dict[UUID, dict[str, SlotRow]] = defaultdict(dict)
    query = select(own.node_id, own.slot_name, own.capacity, own.allocatable, own.held, own.reserved, own.used)
    for node_id, name, *amounts in await connection.execute(
        query.where(own.node_id.in_(node_ids)).order_by(own.slot_name)
    ):
        found[node_id][name] = SlotRow(*amounts)
    return found


async def _task_counts(connection: AsyncConnection, node_ids: Select[Any]) -> dict[UUID, int]:
    """Return the number of tasks that are charged to each node."""
    own = tasks.c
    query = select(own.node_id, func.count().label("tasks")).where(own.node_id.in_(node_ids), own.freed_at.is_(None))
    return {row.node_id: row.tasks for row in await connection.execute(query.group_by(own.node_id))}
