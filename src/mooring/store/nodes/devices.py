"""Devices of nodes: their properties and the amounts taken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Select, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import InvalidInput
from mooring.model.resources.devices import MAX_DEVICES, WHOLE, Device
from mooring.model.resources.slots import Amounts, slot_type
from mooring.store.core.batch_sql import among
from mooring.store.core.queries import Query
from mooring.store.core.types import AnyRow
from mooring.store.tables import node_devices

_columns = node_devices.c
_ALL = select(node_devices).order_by(_columns.device_index)
_SOME = Query(_ALL.where(among(_columns.node_id)))


async def set_devices(connection: AsyncConnection, node_id: UUID, devices: Mapping[str, Sequence[Device]]) -> bool:
    """Write the devices of these slots; return True if anything changed. The caller has locked the node.

    A device that vanished keeps its row, with capacity 0, while some of it is taken: allocations must stay verifiable.
    """
    rows = await connection.execute(
        select(node_devices).where(_columns.node_id == node_id, _columns.slot_name.in_(sorted(devices)))
    )
    before = {(row.slot_name, row.device_index): row for row in rows}
    wanted = {(slot, device.index): device for slot, own in devices.items() for device in own}
    changed = False
    for slot, index in sorted({*before, *wanted}):
        key = and_(_columns.node_id == node_id, _columns.slot_name == slot, _columns.device_index == index)
        row, device = before.get((slot, index)), wanted.get((slot, index))
        if device is None:
            if row is not None and row.taken == 0:
                await connection.execute(delete(node_devices).where(key))
            elif row is not None and row.capacity:
                await connection.execute(update(node_devices).where(key).values(capacity=0))
            else:
                continue
        else:
            facts = {"model": device.model, "memory": device.memory, "capacity": device.capacity}
            if row is None:
                await connection.execute(
                    insert(node_devices).values(node_id=node_id, slot_name=slot, device_index=index, **facts)
                )
            elif (row.model, row.memory, row.capacity) != tuple(facts.values()):
                await connection.execute(update(node_devices).where(key).values(facts))
            else:
                continue
        changed = True
    return changed


def completed(devices: Mapping[str, Sequence[Device]], capacity: Amounts) -> dict[str, Sequence[Device]]:
    """Return a node's devices by slot: the named ones, or whole devices numbered from 0 where none are named."""
    for slot, amount in capacity.items():
        if slot_type(slot).devices and amount > MAX_DEVICES * WHOLE:
            raise InvalidInput(
                f"{slot}: a node has at most {MAX_DEVICES} devices, not {amount // WHOLE:,}", code="too-many-devices"
            )
    return {
        slot: devices.get(slot) or [Device(index) for index in range(amount // WHOLE)]
        for slot, amount in capacity.items()
        if slot in devices or slot_type(slot).devices
    }


async def by_node(
    connection: AsyncConnection, node_ids: Sequence[UUID] | Select[tuple[UUID]] | None = None
) -> dict[UUID, dict[str, tuple[Device, ...]]]:
    """Return the devices of all nodes, or of the given ones."""
    rows: Iterable[AnyRow]
    if isinstance(node_ids, Select):
        rows = await connection.execute(_ALL.where(_columns.node_id.in_(node_ids)))
    elif node_ids is not None:
        rows = await _SOME.rows(connection, ids=node_ids)
    else:
        rows = await connection.execute(_ALL)
    found: dict[UUID, dict[str, tuple[Device, ...]]] = defaultdict(dict)
    for row in rows:
        own = found[row.node_id]
        device = Device(row.device_index, row.capacity, row.model, row.memory, row.taken)
        own[row.slot_name] = (*own.get(row.slot_name, ()), device)
    return found
