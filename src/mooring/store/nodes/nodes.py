"""Nodes and their capacity. Every change that affects placement raises the generation and appends an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, func, insert, literal_column, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, NotFound
from mooring.model.lifecycle import OCCUPYING, SILENT, NodeStatus, TaskStatus
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.access import not_there
from mooring.model.workloads.constraints import HostPort, Taint
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.constraint_columns import decode_taints
from mooring.store.core.ids import new_id
from mooring.store.core.queries import Query, rows_of
from mooring.store.core.types import AnyRow
from mooring.store.nodes import devices, taints
from mooring.store.nodes.heartbeats import status_after_silence
from mooring.store.nodes.pools import MAX_TASKS, REQUIRED_ISOLATION
from mooring.store.nodes.taints import TimedTaint
from mooring.store.tables import node_resources, nodes, pools, status_history, tasks
from mooring.store.workloads import volumes

_COUNT_BY_STATUS = select(nodes.c.status, func.count()).group_by(nodes.c.status)
_COUNT_REAL = select(func.count()).select_from(nodes).where(nodes.c.simulated.is_(False))


@dataclass(frozen=True, slots=True)
class NewNode:
    name: str
    pool_id: UUID
    capacity: Amounts
    architecture: str
    runtimes: Sequence[str]
    simulated: bool = False
    region: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    max_tasks: int | None = None
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    joined_by: UUID | None = None
    credential_hash: str | None = None
    devices: Mapping[str, Sequence[Device]] = field(default_factory=dict)
    """Devices behind the slots; a slot without named devices gets whole ones, numbered from 0."""


async def add(connection: AsyncConnection, new: NewNode, *, actor: str, now: datetime) -> UUID:
    if await find(connection, new.name) is not None:
        raise Conflict(f"there is a node {new.name!r} already", code="name-taken")
    node_id = new_id()
    await connection.execute(
        insert(nodes).values(
            id=node_id,
            name=new.name,
            pool_id=new.pool_id,
            status=NodeStatus.READY if new.simulated else NodeStatus.LOST,
            schedulable=True,
            reason=None if new.simulated else "never connected",
            simulated=new.simulated,
            region=new.region,
            architecture=new.architecture,
            runtimes=sorted(new.runtimes),
            labels=dict(new.labels),
            taints=taints.encode(TimedTaint(taint, now) for taint in new.taints),
            enforces={},
            isolation="container" if new.simulated else "none",
            joined_by=new.joined_by,
            max_tasks=new.max_tasks,
            licence=new.licence,
            machine_image=new.machine_image,
            machine_image_version=new.machine_image_version,
            credential_hash=new.credential_hash,
            created_at=now,
        )
    )
    await _set_capacity(connection, node_id, new.capacity, new.devices)
    await _changed(connection, node_id, 1, "added", now)
    status = NodeStatus.READY if new.simulated else NodeStatus.LOST
    await _history(connection, node_id, "none", status, actor, "Node added", now)
    return node_id


async def renew_credential(connection: AsyncConnection, node_id: UUID, credential_hash: str) -> None:
    """Replace the credential of a node that joins again under its name; the old one becomes invalid."""
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(credential_hash=credential_hash))


async def by_credential(connection: AsyncConnection, credential_hash: str) -> AnyRow | None:
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.name, nodes.c.pool_id, nodes.c.credential_hash).where(
            nodes.c.credential_hash == credential_hash
        )
    )
    return rows.one_or_none()


async def find(connection: AsyncConnection, name: str) -> AnyRow | None:
    return (await connection.execute(select(nodes).where(nodes.c.name == name))).one_or_none()


async def by_name(connection: AsyncConnection, name: str) -> AnyRow:
    found = await find(connection, name)
    if found is None:
        raise not_there(f"node {name[:63]!r}")
    return found


async def ids_by_pool(connection: AsyncConnection, names: Sequence[str]) -> dict[str, list[UUID]]:
    """Return the nodes of these names by pool name; raise NotFound if any is missing."""
    rows = await connection.execute(
        select(nodes.c.name, nodes.c.id, pools.c.name.label("pool"))
        .join(pools, pools.c.id == nodes.c.pool_id)
        .where(nodes.c.name.in_(names))
        .order_by(pools.c.name, nodes.c.name)
    )
    found: dict[str, list[UUID]] = defaultdict(list)
    there: set[str] = set()
    for row in rows:
        found[row.pool].append(row.id)
        there.add(row.name)
    for missing in sorted(set(names) - there):
        raise not_there(f"node {missing!r}")
    return found


async def connected(
    connection: AsyncConnection,
    node_id: UUID,
    *,
    capacity: Amounts,
    architecture: str,
    runtimes: Sequence[str],
    enforces: Mapping[str, str],
    boot_id: str,
    agent_version: str,
    multi_tenant: bool,
    now: datetime,
    isolation: str = "none",
    isolation_reason: str = "",
    named_devices: Mapping[str, Sequence[Device]] | None = None,
    licence: str | None = None,
    machine_image: str | None = None,
    machine_image_version: str = "",
    address: str | None = None,
    server_url: str | None = None,
) -> None:
    """Record the machine facts that an agent sends on connecting. The admin's settings (pool, labels, drain) stay."""
    row = await _locked(connection, node_id)
    facts = {
        "architecture": architecture,
        "runtimes": sorted(runtimes),
        "enforces": dict(enforces),
        "boot_id": boot_id,
        "agent_version": agent_version,
        "owner_id": None if multi_tenant else row.joined_by,
        "isolation": isolation,
        "isolation_reason": isolation_reason,
        "licence": licence,
        "machine_image": machine_image,
        "machine_image_version": machine_image_version,
        "address": address,
    }
    back = row.status in SILENT
    changed = await _set_capacity(connection, node_id, capacity, named_devices or {})
    changed = changed or any(getattr(row, name) != value for name, value in facts.items())
    values: dict[str, Any] = facts | {"last_seen_at": now, "server_url": server_url}
    if back:
        status = status_after_silence(row)
        values |= {"status": status, "reason": None}
        await _history(connection, node_id, row.status, status, "agent", "Agent connected", now)
    if changed or back:
        values["generation"] = row.generation + 1
        await _changed(connection, node_id, row.generation + 1, "connected", now)
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(values))


async def relabel(
    connection: AsyncConnection, node_id: UUID, labels: Mapping[str, str | None], region: str | None, *, now: datetime
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Set labels, removing those that are None, and the region: "" removes it, None leaves it unchanged.

    Return labels and region before and after, or None if nothing changed.
    """
    row = await _locked(connection, node_id)
    merged = {**row.labels, **labels}
    after = {
        "labels": {key: value for key, value in merged.items() if value is not None},
        "region": row.region if region is None else region or None,
    }
    before = {"labels": dict(row.labels), "region": row.region}
    if after == before:
        return None
    generation = row.generation + 1
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(**after, generation=generation))
    await _changed(connection, node_id, generation, "labels", now)
    return before, after


async def set_images(connection: AsyncConnection, node_id: UUID, images: Mapping[str, int], now: datetime) -> bool:
    """Store the container images on the node; return True if they changed.

    The generation stays: images do not affect feasibility, so placements decided meanwhile remain valid.
    """
    row = await _locked(connection, node_id)
    if (row.images or {}) == images:
        return False
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(images=dict(images)))
    await _changed(connection, node_id, row.generation, "images", now)
    return True


async def add_occupied_ports(
    connection: AsyncConnection, node_id: UUID, ports: Iterable[tuple[str, int]], now: datetime
) -> None:
    """Add ports that other programs use, until a heartbeat replaces the list."""
    row = await _locked(connection, node_id)
    before = {(protocol, port) for protocol, port in row.occupied_ports or ()}
    after = before.union((protocol, port) for protocol, port in ports)
    if after == before:
        return
    generation = row.generation + 1
    occupied = [list(port) for port in sorted(after)]
    await connection.execute(
        update(nodes).where(nodes.c.id == node_id).values(occupied_ports=occupied, generation=generation)
    )
    await _changed(connection, node_id, generation, "ports", now)


async def close(connection: AsyncConnection, node_id: UUID, reason: str, *, now: datetime) -> None:
    """Make the node unschedulable; heartbeats make it schedulable again once no reason is left."""
    row = await _locked(connection, node_id)
    if row.schedulable:
        await connection.execute(
            update(nodes)
            .where(nodes.c.id == node_id)
            .values(schedulable=False, reason=reason, generation=row.generation + 1)
        )
        await _changed(connection, node_id, row.generation + 1, "closed", now)


async def was_ever_registered(connection: AsyncConnection, node_id: UUID) -> bool:
    """Return False if the database has no trace of the node, neither its row nor its history."""
    removed = select(status_history.c.id).where(status_history.c.noun == "node", status_history.c.object_id == node_id)
    here = select(nodes.c.id).where(nodes.c.id == node_id)
    return bool((await connection.execute(select(or_(here.exists(), removed.exists())))).scalar_one())


async def unsee(connection: AsyncConnection, reason: str, now: datetime) -> None:
    """Mark every real node suspect until its agent reconnects: the database may hold outdated facts about them."""
    heard = select(nodes.c.id).where(nodes.c.simulated.is_(False), nodes.c.status.not_in(SILENT))
    for node_id in (await connection.execute(heard.order_by(nodes.c.id))).scalars().all():
        await set_status(connection, node_id, NodeStatus.SUSPECT, reason, actor="restore", now=now)


async def set_status(
    connection: AsyncConnection, node_id: UUID, status: NodeStatus, reason: str | None, *, actor: str, now: datetime
) -> bool:
    """Set the status; return True if it changed."""
    row = await _locked(connection, node_id)
    if row.status == status:
        return False
    await connection.execute(
        update(nodes).where(nodes.c.id == node_id).values(status=status, reason=reason, generation=row.generation + 1)
    )
    await _history(connection, node_id, row.status, status, actor, reason, now)
    await _changed(connection, node_id, row.generation + 1, status, now)
    return True


async def set_draining(
    connection: AsyncConnection,
    node_id: UUID,
    draining: bool,
    *,
    actor: str,
    now: datetime,
    reason: str | None = None,
    until: datetime | None = None,
) -> None:
    """Start or end a drain: a draining node accepts no new tasks and its tasks leave.

    `actor` is the user or control loop that does so. `until` is the time at which remaining tasks are ended; None
    means never. A silent node drains once it reports.
    """
    row = await _locked(connection, node_id)
    values = {
        "draining": draining,
        "drain_reason": reason,
        "drained_by": actor if draining else None,
        "drain_until": until,
        "drained_at": None,
    }
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(**values, generation=row.generation + 1))
    await _changed(connection, node_id, row.generation + 1, "draining" if draining else "resumed", now)
    status = NodeStatus.DRAINING if draining else NodeStatus.READY
    if row.status != status and row.status not in SILENT:
        await connection.execute(update(nodes).where(nodes.c.id == node_id).values(status=status))
        await _history(connection, node_id, row.status, status, actor, reason, now)


async def remove(connection: AsyncConnection, node_id: UUID, *, force: bool, actor: str, now: datetime) -> None:
    """Remove a node; raise Conflict while tasks occupy it, or if it has volumes and `force` does not give them up."""
    row = await _locked(connection, node_id)
    occupying = (
        await connection.execute(
            select(func.count()).select_from(tasks).where(tasks.c.node_id == node_id, tasks.c.freed_at.is_(None))
        )
    ).scalar_one()
    if occupying:
        hint = "" if force else "; drain it first, or remove it by force if the machine is permanently gone"
        raise Conflict(
            f"node {row.name!r} still has {occupying} task{'s' if occupying != 1 else ''}{hint}",
            code="node-occupied",
            details={"tasks": occupying},
        )
    count = await volumes.number_on(connection, node_id)
    if count and not force:
        raise Conflict(
            f"node {row.name!r} has {count} volume{'s' if count != 1 else ''}; remove them first, or remove the node by"
            " force, with their contents",
            code="node-has-volumes",
            details={"volumes": count},
        )
    await volumes.detach_from_node(connection, node_id, now)
    await _history(connection, node_id, row.status, "REMOVED", actor, "Node removed", now)
    await connection.execute(delete(nodes).where(nodes.c.id == node_id))
    await _changed(connection, node_id, row.generation + 1, "removed", now)


async def all_ids(connection: AsyncConnection) -> set[UUID]:
    return set((await connection.execute(select(nodes.c.id))).scalars())


async def load(connection: AsyncConnection, ids: Sequence[UUID] | None = None) -> list[Node]:
    """Return nodes with their counters as placement sees them: all, or those of the given ids."""
    those: dict[str, Any] = {} if ids is None else {"ids": ids}
    asked = [(query, those) for query in _load(some=ids is not None)]
    rows, counters, counts = await rows_of(connection, *asked)
    slots: dict[UUID, list[AnyRow]] = defaultdict(list)
    for counter in counters:
        slots[counter.node_id].append(counter)
    occupied = {row.node_id: row.number for row in counts}
    own_devices = await devices.by_node(connection, ids)
    return [
        Node(
            id=row.id,
            name=row.name,
            pool=row.pool_name,
            status=NodeStatus(row.status),
            schedulable=row.schedulable,
            unschedulable_reason=row.reason,
            runtimes=frozenset(row.runtimes),
            architecture=row.architecture,
            region=row.region,
            licence=row.licence,
            machine_image=row.machine_image,
            machine_image_version=row.machine_image_version or "",
            labels=row.labels | _own_labels(row),
            taints=decode_taints(row.taints),
            simulated=row.simulated,
            owner=row.owner_id,
            isolation=row.isolation,
            required_isolation=row.required_isolation or "none",
            max_tasks=row.most_tasks,
            generation=row.generation,
            allocatable={s.slot_name: s.allocatable for s in slots[row.id]},
            held={s.slot_name: s.held for s in slots[row.id]},
            reserved={s.slot_name: s.reserved for s in slots[row.id]},
            used={s.slot_name: s.used for s in slots[row.id]},
            devices=own_devices.get(row.id, {}),
            tasks=occupied.get(row.id, 0),
            cpu_percent=row.cpu_percent,
            memory_percent=row.memory_percent,
            images=row.images or {},
            occupied_ports=tuple(HostPort(port, protocol) for protocol, port in row.occupied_ports or ()),
        )
        for row in rows
    ]


@cache
def _load(*, some: bool) -> tuple[Query, Query, Query]:
    """Return the queries for nodes, their counters and their task counts; of all nodes, or of some."""
    most_tasks: ColumnElement[int | None] = literal_column(MAX_TASKS).label("most_tasks")
    isolation: ColumnElement[str | None] = literal_column(REQUIRED_ISOLATION).label("required_isolation")
    query = select(nodes, pools.c.name.label("pool_name"), most_tasks, isolation).join(
        pools, pools.c.id == nodes.c.pool_id
    )
    counters = select(node_resources)
    counts = (
        select(tasks.c.node_id, func.count().label("number"))
        .where(tasks.c.status.in_(list(OCCUPYING)), tasks.c.node_id.is_not(None))
        .group_by(tasks.c.node_id)
    )
    if some:
        query = query.where(batch_sql.among(nodes.c.id))
        counters = counters.where(batch_sql.among(node_resources.c.node_id))
        counts = counts.where(batch_sql.among(tasks.c.node_id))
    return Query(query), Query(counters), Query(counts)


def _own_labels(row: AnyRow) -> dict[str, str]:
    """Return the labels that every node has, so that topology and selectors can refer to them."""
    labels = {"node": row.name, "architecture": row.architecture, "pool": row.pool_name}
    return labels | {"region": row.region} if row.region else labels


async def tasks_on(connection: AsyncConnection, ids: Sequence[UUID]) -> list[AnyRow]:
    """Return task counts by node and workload, with separate rows for terminating and lost tasks and for ports.

    A lost task counts only if it holds ports that are not yet known to be free.
    """
    return await _tasks_on().rows(connection, ids=ids)


@cache
def _tasks_on() -> Query:
    leaving = (tasks.c.status == TaskStatus.TERMINATING).label("leaving")
    lost = (tasks.c.status == TaskStatus.LOST).label("lost")
    listens = and_(tasks.c.freed_at.is_(None), tasks.c.ports.is_not(None))
    return Query(
        select(tasks.c.node_id, tasks.c.workload_id, leaving, lost, tasks.c.ports, func.count().label("number"))
        .where(
            tasks.c.status.in_([*OCCUPYING, TaskStatus.LOST]),
            or_(~lost, listens),
            batch_sql.among(tasks.c.node_id),
        )
        .group_by(tasks.c.node_id, tasks.c.workload_id, leaving, lost, tasks.c.ports)
    )


async def loads(connection: AsyncConnection) -> list[tuple[UUID, float, float]]:
    """Return the load of every node that has reported one; it changes constantly and is not part of the generation."""
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.cpu_percent, nodes.c.memory_percent).where(nodes.c.last_seen_at.is_not(None))
    )
    return [(row.id, row.cpu_percent, row.memory_percent) for row in rows]


async def checksums(connection: AsyncConnection) -> dict[UUID, tuple[int, int]]:
    """Return each node's generation and the sum of its taken amounts over all slots, to verify a cached view."""
    taken = func.coalesce(func.sum(node_resources.c.held + node_resources.c.reserved + node_resources.c.used), 0)
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.generation, taken)
        .outerjoin(node_resources, node_resources.c.node_id == nodes.c.id)
        .group_by(nodes.c.id, nodes.c.generation)
    )
    return {id: (generation, int(sum)) for id, generation, sum in rows}


async def served_slots(connection: AsyncConnection) -> dict[UUID, frozenset[str]]:
    """Return the slots that the nodes of each pool have; pools without nodes are left out."""
    rows = await connection.execute(
        select(nodes.c.pool_id, node_resources.c.slot_name)
        .join(
            node_resources, and_(node_resources.c.node_id == nodes.c.id, node_resources.c.allocatable > 0), isouter=True
        )
        .distinct()
    )
    found: dict[UUID, set[str]] = {}
    for pool_id, slot in rows:
        found.setdefault(pool_id, set()).update([slot] if slot is not None else ())
    return {pool_id: frozenset(slots) for pool_id, slots in found.items()}


async def offered_runtimes(connection: AsyncConnection) -> dict[UUID, frozenset[str]]:
    """Return the runtimes that the nodes of each pool offer; pools without nodes are left out."""
    rows = await connection.execute(select(nodes.c.pool_id, nodes.c.runtimes).distinct())
    found: dict[UUID, set[str]] = {}
    for pool_id, runtimes in rows:
        # A corrupt row must not block submissions.
        found.setdefault(pool_id, set()).update(runtimes if isinstance(runtimes, list) else ())
    return {pool_id: frozenset(runtimes) for pool_id, runtimes in found.items()}


async def lock(connection: AsyncConnection, node_id: UUID) -> None:
    """Block placement on the node until the transaction ends. Lock order: workloads, nodes, counters."""
    await _locked(connection, node_id)


async def _locked(connection: AsyncConnection, node_id: UUID) -> AnyRow:
    row = (await connection.execute(select(nodes).where(nodes.c.id == node_id).with_for_update())).one_or_none()
    if row is None:
        raise NotFound("the node was removed")
    return row


async def _set_capacity(
    connection: AsyncConnection, node_id: UUID, capacity: Amounts, named: Mapping[str, Sequence[Device]]
) -> bool:
    """Write a machine's capacity. A slot that vanished keeps its row: its counters must stay verifiable."""
    rows = await connection.execute(
        select(node_resources.c.slot_name, node_resources.c.capacity, node_resources.c.system_reserved).where(
            node_resources.c.node_id == node_id
        )
    )
    before = {row.slot_name: row for row in rows}
    changed = False
    for slot in sorted({*before, *capacity}):
        amount = capacity.get(slot, 0)
        if slot not in before:
            await connection.execute(
                insert(node_resources).values(node_id=node_id, slot_name=slot, capacity=amount, allocatable=amount)
            )
        elif before[slot].capacity != amount:
            await connection.execute(
                update(node_resources)
                .where(node_resources.c.node_id == node_id, node_resources.c.slot_name == slot)
                .values(capacity=amount, allocatable=max(0, amount - before[slot].system_reserved))
            )
        else:
            continue
        changed = True
    amounts = {slot: capacity.get(slot, 0) for slot in sorted({*before, *capacity})}
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(capacity=amounts))
    return await devices.set_devices(connection, node_id, devices.completed(named, amounts)) or changed


async def _changed(connection: AsyncConnection, node_id: UUID, generation: int, kind: str, now: datetime) -> None:
    await events.append(connection, [events.NewEvent("node", node_id, generation, kind, node_id)], now)


async def _history(
    connection: AsyncConnection,
    node_id: UUID,
    old: str,
    new: str,
    actor: str,
    reason: str | None,
    now: datetime,
) -> None:
    await connection.execute(
        insert(status_history).values(
            noun="node",
            object_id=node_id,
            old_status=str(old),
            new_status=str(new),
            actor=actor,
            reason=reason,
            at=now,
        )
    )


async def count_by_status(connection: AsyncConnection) -> dict[NodeStatus, int]:
    rows = await connection.execute(_COUNT_BY_STATUS)
    return {NodeStatus(status): number for status, number in rows}


async def count_real(connection: AsyncConnection) -> int:
    """Return the number of nodes that have or had an agent: a lost node may return."""
    return int((await connection.execute(_COUNT_REAL)).scalar_one())
