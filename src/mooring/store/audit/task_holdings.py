"""Devices, ports and hold of a task, reconciled with its status and its other records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.holds import Purpose
from mooring.model.policy.pools import Binding
from mooring.store.audit.corrections import Cell, Correction, changed, deleted, inserted, shown
from mooring.store.audit.evidence import (
    Device,
    EvidenceBatch,
    Port,
    TaskEvidence,
)
from mooring.store.audit.majority import Undecided
from mooring.store.core.ids import new_id
from mooring.store.nodes.pools import policy_of
from mooring.store.tables import device_allocations, holds, port_allocations, tasks

_DEVICES = "JSON = devices"
_PORTS = "JSON = ports"
_HOLDS = "reserved = held"


@dataclass(frozen=True, slots=True)
class Expected:
    """The state of a task that its devices, ports and hold have to agree with."""

    status: TaskStatus
    node: UUID | None
    occupies: bool
    request: Mapping[str, int]
    held: datetime | None
    freed: datetime | None
    subject: str


def corrections(own: TaskEvidence, batch: EvidenceBatch, expected: Expected) -> list[Correction]:
    return [*_devices(own, batch, expected), *_ports(own, batch, expected), *_hold(own, expected)]


def _devices(own: TaskEvidence, batch: EvidenceBatch, expected: Expected) -> list[Correction]:
    rows = {device: row.amount for device, row in own.devices.items()}
    copy = _device_copy(own.task.devices)
    why = "tasks.devices and device_allocations agree"
    if expected.status is TaskStatus.PENDING:
        devices, why = {}, "a task that is PENDING has no devices"
    elif not expected.occupies:
        devices, why = _whole_shares(rows, expected.request), "the device rows add up to the request"
    else:
        devices = rows if copy == rows else _supported(own, batch, expected, copy or {}, rows)
        if copy != rows:
            why = "by the request of the task and by the counters of its node's devices"
    found: list[Correction] = []
    for device in sorted({*rows, *devices}):
        slot, index = device
        key = {"task_id": own.task.id, "slot_name": slot, "device_index": index}
        wanted = {"node_id": expected.node, "amount": devices.get(device), "freed_at": expected.freed}
        row = own.devices.get(device)
        if row is None:
            found.append(inserted(device_allocations, key, wanted, why, _DEVICES, expected.subject))
        elif device not in devices:
            values = {name: getattr(row, name) for name in wanted}
            found.append(deleted(device_allocations, key, values, why, _DEVICES, expected.subject))
        else:
            # Rows are deleted with their node, so a row that exists has a node.
            if expected.node is None:
                del wanted["node_id"]
            cells = [Cell(name, getattr(row, name), value, why) for name, value in wanted.items()]
            found += changed(device_allocations, key, cells, _DEVICES, expected.subject)
    expected_devices = devices if expected.occupies else {}
    if expected_devices != (copy if copy is not None else own.task.devices) and (
        expected_devices or own.task.devices is not None
    ):
        cell = Cell("devices", own.task.devices, _as_copy(expected_devices) or None, why)
        found += changed(tasks, {"id": own.task.id}, [cell], _DEVICES, expected.subject)
    return found


def _supported(
    own: TaskEvidence, batch: EvidenceBatch, expected: Expected, copy: dict[Device, int], rows: dict[Device, int]
) -> dict[Device, int]:
    """Return the copy or the rows, whichever the request and the counters of the devices support."""

    def support(candidate: dict[Device, int]) -> int:
        slots = {slot for slot, _ in {*copy, *rows}}
        by_request = all(_sums(candidate).get(slot, 0) == expected.request.get(slot, 0) for slot in slots)
        return by_request + all(_counted(own, batch, expected.node, device, candidate) for device in {*copy, *rows})

    if support(copy) == support(rows):
        raise Undecided(f"devices: tasks.devices: {_text(copy)}; device_allocations: {_text(rows)}")
    return max(copy, rows, key=support)


def _counted(
    own: TaskEvidence, batch: EvidenceBatch, node: UUID | None, device: Device, candidate: Mapping[Device, int]
) -> bool:
    """Return whether the counter of a device equals the allocations of other tasks plus the candidate."""
    if node is None or (node, *device) not in batch.taken:
        return False
    taken, given = batch.taken[node, *device]
    row = own.devices.get(device)
    own_part = row.amount if row is not None and row.freed_at is None and row.node_id == node else 0
    return taken == given - own_part + candidate.get(device, 0)


def _whole_shares(rows: dict[Device, int], request: Mapping[str, int]) -> dict[Device, int]:
    """Return the devices that a freed task had; a single device of a slot had the whole request."""
    found = dict(rows)
    for slot, amount in _sums(rows).items():
        if amount == request.get(slot):
            continue
        own = [device for device in rows if device[0] == slot]
        if len(own) != 1 or slot not in request:
            raise Undecided(f"devices: device_allocations: {_text(rows)}; requested: {shown(request.get(slot))}")
        found[own[0]] = request[slot]
    return found


def _sums(devices: Mapping[Device, int]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for (slot, _), amount in devices.items():
        found[slot] += amount
    return found


def _device_copy(value: Any) -> dict[Device, int] | None:
    """Return `tasks.devices` by slot and index; None if it is malformed."""
    try:
        return {(slot, int(index)): int(amount) for slot, own in (value or {}).items() for index, amount in own}
    except (AttributeError, TypeError, ValueError):
        return None


def _as_copy(devices: Mapping[Device, int]) -> dict[str, list[list[int]]]:
    found: dict[str, list[list[int]]] = defaultdict(list)
    for (slot, index), amount in sorted(devices.items()):
        found[slot].append([index, amount])
    return dict(found)


def _text(devices: Mapping[Device, int]) -> str:
    return ", ".join(f"{slot} {index}: {amount}" for (slot, index), amount in sorted(devices.items())) or "none"


def _ports(own: TaskEvidence, batch: EvidenceBatch, expected: Expected) -> list[Correction]:
    copy = _port_copy(own.task.ports)
    rows = {(row.protocol, row.port) for row in own.ports if row.node_id == expected.node}
    why = "tasks.ports and port_allocations agree"
    ports: set[Port] = set()
    if expected.occupies:
        awaited = _awaited(own, batch, expected, copy or set())
        ports = rows | awaited
        if ports != copy:
            ports, why = _wanted(own, copy, ports)
    else:
        awaited, why = set(), f"a task that is {expected.status} has no ports"
    holder = {"task_id": own.task.id}
    found = [
        deleted(port_allocations, _port_key(row), holder, why, _PORTS, expected.subject)
        for row in own.ports
        if row.node_id != expected.node or (row.protocol, row.port) not in ports
    ]
    for protocol, port in sorted(ports - rows - awaited):
        key = {"node_id": expected.node, "protocol": protocol, "port": port}
        _refuse_other(own, batch, expected.node, (protocol, port))
        found.append(inserted(port_allocations, key, holder, why, _PORTS, expected.subject))
    if ports != copy or (own.task.ports is not None and not ports):
        cell = Cell("ports", own.task.ports, _in_order(own, ports) or None, why)
        found += changed(tasks, {"id": own.task.id}, [cell], _PORTS, expected.subject)
    return found


def _in_order(own: TaskEvidence, ports: set[Port]) -> list[list[str | int]]:
    """Return ports in the order of assignment: requested by number first, then those that were chosen."""
    constraints = own.constraints()
    named = [(port.protocol, port.port) for port in constraints.host_ports] if constraints is not None else []
    ordered = [port for port in named if port in ports] + sorted(ports.difference(named))
    return [list(port) for port in ordered]


def _wanted(own: TaskEvidence, copy: set[Port] | None, rows: set[Port]) -> tuple[set[Port], str]:
    """Return the copy or the rows, whichever the constraints of the workload allow, and why."""
    constraints = own.constraints()
    named = {(port.protocol, port.port) for port in constraints.host_ports} if constraints is not None else set()

    def allowed(candidate: set[Port] | None) -> bool:
        if constraints is None or candidate is None:
            return False
        return named <= candidate and len(candidate - named) == constraints.ports_wanted

    if allowed(copy) == allowed(rows):
        raise Undecided(f"ports: tasks.ports: {own.task.ports}; port_allocations: {sorted(rows)}")
    why = "workloads.constraints names the ports, or how many of them"
    return (rows if allowed(rows) else copy or set()), why


def _awaited(own: TaskEvidence, batch: EvidenceBatch, expected: Expected, copy: set[Port]) -> set[Port]:
    """Return ports of a held task that its victims still have; it gets them when it is scheduled."""
    if expected.status is not TaskStatus.RESERVED or expected.node is None:
        return set()
    others = {port: batch.ports.get((expected.node, *port), own.task.id) for port in copy}
    return {port for port, task_id in others.items() if task_id != own.task.id}


def _refuse_other(own: TaskEvidence, batch: EvidenceBatch, node: UUID | None, port: Port) -> None:
    """Raise Undecided if the records of another task claim the port as well."""
    if node is None or (holder := batch.ports.get((node, *port), own.task.id)) == own.task.id:
        return
    other = batch.tasks.get(holder)
    if other is None or port in (_port_copy(other.task.ports) or set()):
        raise Undecided(f"ports: {port[0]} {port[1]} is named by task {holder} as well")


def _port_copy(value: Any) -> set[Port] | None:
    try:
        return {(str(protocol), int(port)) for protocol, port in value or ()}
    except (TypeError, ValueError):
        return None


def _port_key(row: Any) -> dict[str, Any]:
    return {"node_id": row.node_id, "protocol": row.protocol, "port": row.port}


def _hold(own: TaskEvidence, expected: Expected) -> list[Correction]:
    hold, reserved = own.hold, expected.status is TaskStatus.RESERVED
    if hold is None and reserved:
        assert expected.held is not None
        purpose, expires_at = _hold_parameters(own, expected.held)
        values = {
            "task_id": own.task.id,
            "workload_id": own.task.workload_id,
            "node_id": expected.node,
            "purpose": purpose,
            "created_at": expected.held,
            "expires_at": expires_at,
        }
        why = "a task that is RESERVED has a hold"
        return [inserted(holds, {"id": new_id()}, values, why, _HOLDS, expected.subject)]
    if hold is None:
        return []
    key = {"id": hold.id}
    if not reserved:
        why = f"a task that is {expected.status} has no hold"
        return [deleted(holds, key, {"task_id": hold.task_id}, why, _HOLDS, expected.subject)]
    cells = [
        Cell("node_id", hold.node_id, expected.node, "the node of its task"),
        Cell("workload_id", hold.workload_id, own.task.workload_id, "the workload of its task"),
        Cell("created_at", hold.created_at, expected.held, "the ledger's held_at"),
    ]
    return changed(holds, key, cells, _HOLDS, expected.subject)


def _hold_parameters(own: TaskEvidence, held: datetime) -> tuple[Purpose, datetime]:
    """Return purpose and expiry of a missing hold, from another hold of the workload or from the pool policy."""
    if own.sibling_hold is not None:
        return Purpose(own.sibling_hold.purpose), own.sibling_hold.expires_at
    policy = policy_of(own.pool)
    preemption = policy.preemption
    if preemption is not None and (own.is_preemptor or policy.binding is not Binding.TWO_PHASE):
        return Purpose.PREEMPT, held + timedelta(seconds=preemption.hold_seconds)
    return Purpose.PREPARE, held + timedelta(seconds=policy.hold_seconds)
