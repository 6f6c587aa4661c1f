"""Updates of what tasks occupy: ledger rows, node counters, devices, ports and holds, in a few statements per batch.

A task occupies the amounts that it requested, in one column of the ledger and the counters at a time (held, reserved or
used). An update is therefore the column before and the column after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import Amounts
from mooring.store.commit.locked_workloads import LOCK_NODES, LoadedTask
from mooring.store.commit.status_changes import Change
from mooring.store.core.batch_sql import Statement, Update, Writes
from mooring.store.core.ids import new_id

Deltas = dict[UUID, dict[str, list[int]]]
"""By node and slot: the changes of held, reserved, used and leaving."""

_COLUMNS = {"held": 0, "reserved": 1, "used": 2}
_LEAVING = 3
_MANY_ALIKE = 20
"""From this number of nodes with equal requests on, one statement states the amounts once for all of them."""
_TASK = {"id": "uuid"}

_AMOUNTS = {
    "node_id": "uuid",
    "slot_name": "text",
    "held": "bigint",
    "reserved": "bigint",
    "used": "bigint",
    "leaving": "bigint",
}
_KEY = "r.node_id = i.node_id AND r.slot_name = i.slot_name"
_INCREMENTS = {column: f"{column} = r.{column} + i.{column}" for column in (*_COLUMNS, "leaving")}
_COUNT = Update("node_resources AS r", _KEY, _AMOUNTS, always="", changes=_INCREMENTS)
_TAKE_DEVICES = Statement(
    """
    INSERT INTO device_allocations (task_id, slot_name, device_index, node_id, amount)
    SELECT i.id, i.slot_name, i.device_index, i.node_id, i.amount FROM {rows} i
    """,
    _TASK | {"slot_name": "text", "device_index": "bigint", "node_id": "uuid", "amount": "bigint"},
)
_COUNT_DEVICES = Statement(
    """
    UPDATE node_devices AS d SET taken = d.taken + {sign} * s.amount
    FROM (
        SELECT a.node_id, a.slot_name, a.device_index, sum(a.amount) AS amount
        FROM {rows} i JOIN device_allocations a ON a.task_id = i.id
        WHERE a.freed_at IS NULL GROUP BY a.node_id, a.slot_name, a.device_index
    ) AS s
    WHERE d.node_id = s.node_id AND d.slot_name = s.slot_name AND d.device_index = s.device_index
    """,
    _TASK,
    sign="bigint",
)
_FREE_DEVICES = Statement(
    """
    UPDATE device_allocations AS a SET freed_at = {at}
    FROM {rows} i WHERE a.task_id = i.id AND a.freed_at IS NULL
    """,
    _TASK,
    at="timestamptz",
)
_FORGET_DEVICES = Statement("DELETE FROM device_allocations WHERE task_id IN (SELECT i.id FROM {rows} i)", _TASK)
# A held task gets a port that a victim still has when it is scheduled.
_TAKE_PORTS = Statement(
    """
    INSERT INTO port_allocations (node_id, protocol, port, task_id)
    SELECT i.node_id, i.protocol, i.port, i.id FROM {rows} i
    WHERE NOT EXISTS (
        SELECT 1 FROM port_allocations p
        WHERE p.node_id = i.node_id AND p.protocol = i.protocol AND p.port = i.port AND (i.held OR p.task_id = i.id)
    )
    """,
    _TASK | {"node_id": "uuid", "protocol": "text", "port": "bigint", "held": "boolean"},
)
_FREE_PORTS = Statement("DELETE FROM port_allocations WHERE task_id IN (SELECT i.id FROM {rows} i)", _TASK)

_HOLD = Statement(
    """
    INSERT INTO holds (id, task_id, workload_id, node_id, purpose, created_at, expires_at)
    SELECT i.hold_id, i.id, i.workload_id, i.node_id, i.purpose, {at}, i.expires_at FROM {rows} i
    """,
    _TASK
    | {
        "hold_id": "uuid",
        "workload_id": "uuid",
        "node_id": "uuid",
        "purpose": "text",
        "expires_at": "timestamptz",
    },
    at="timestamptz",
)
_END_HOLDS = Statement("DELETE FROM holds WHERE task_id IN (SELECT i.id FROM {rows} i)", _TASK)


@dataclass(slots=True)
class AllocationUpdate:
    """The change of one task: where it counted before, and what has happened to it since."""

    task: LoadedTask
    node_id: UUID | None
    began_in: str | None
    counted: bool
    was_leaving: bool
    held: bool = False
    scheduled: bool = False
    started: bool = False
    freed: bool = False
    given_up: bool = False


@dataclass(slots=True)
class AllocationUpdates:
    """The updates of one transaction, one per task."""

    _updates: dict[UUID, AllocationUpdate] = field(default_factory=dict)
    _devices_taken: list[tuple[Any, ...]] = field(default_factory=list)
    _ports_taken: list[tuple[Any, ...]] = field(default_factory=list)
    _held: list[tuple[Any, ...]] = field(default_factory=list)
    _holds_over: list[tuple[UUID]] = field(default_factory=list)

    def of(self, task: LoadedTask) -> AllocationUpdate:
        """Return the update of a task; a new one starts from the state that the task has now."""
        update = self._updates.get(task.id)
        if update is None:
            counted = task.column is not None and not task.freed
            update = AllocationUpdate(task, task.node_id, task.column, counted, counted and task.preempted)
            self._updates[task.id] = update
        return update

    def hold(self, update: AllocationUpdate, change: Change) -> None:
        task = update.task
        update.held = True
        task.column = "held"
        self._take(task, change)
        if change.hold is not None:
            purpose, expires_at = change.hold
            self._held.append((task.id, new_id(), task.workload_id, task.node_id, purpose, expires_at))

    def schedule(self, update: AllocationUpdate, change: Change, *, held: bool) -> None:
        """`held`: the task had a hold on its node."""
        task = update.task
        update.scheduled = True
        task.column = "reserved"
        self._take(task, change)
        if held:
            self._holds_over.append((task.id,))
            named = msgspec.json.decode(task.ports) if task.ports else ()
            self._ports_taken += [(task.id, task.node_id, protocol, port, False) for protocol, port in named]

    def _take(self, task: LoadedTask, change: Change) -> None:
        """Take the devices and ports that the change names."""
        held = task.status is TaskStatus.RESERVED
        for slot, device, amount in change.devices:
            self._devices_taken.append((task.id, slot, device, task.node_id, amount))
            task.has_devices = True
        for protocol, port in change.ports:
            self._ports_taken.append((task.id, task.node_id, protocol, port, held))
        if change.ports:
            task.ports = msgspec.json.encode(change.ports).decode()

    def use(self, update: AllocationUpdate) -> None:
        update.started = True
        update.task.column = "used"

    def free(self, update: AllocationUpdate, *, held: bool = False) -> None:
        update.freed = update.task.freed = True
        if held:
            self._holds_over.append((update.task.id,))

    def release_hold(self, update: AllocationUpdate) -> None:
        """End a hold, and with it everything that the task had on the node."""
        task = update.task
        update.given_up = True
        task.column = task.node_id = None
        self._holds_over.append((task.id,))

    def write(self, writes: Writes, now: datetime, *, locked_nodes: Iterable[UUID] = (), guarded: bool = False) -> None:
        """Add the writes. `guarded`: all tasks are to be reserved, or the write raises NotAsExpected."""
        # Counters first: if a request does not fit, little has been written for nothing.
        if guarded:
            _reserve(writes, (update.task for update in self._updates.values()))
        else:
            _count(writes, self._deltas(), locked_nodes)
        self._write_ledger(writes, now)
        self._write_devices(writes, now)
        released = [m for m in self._updates.values() if m.freed or m.given_up]
        if with_ports := [(m.task.id,) for m in released if m.task.ports]:
            writes.add(_FREE_PORTS, with_ports)
        if taken := [row for row in self._ports_taken if not self._updates[row[0]].freed]:
            writes.add(_TAKE_PORTS, taken)
        if self._held:
            writes.add(_HOLD, self._held, at=now)
        if self._holds_over:
            writes.add(_END_HOLDS, self._holds_over)

    def _deltas(self) -> Deltas:
        deltas: Deltas = {}
        for update in self._updates.values():
            task = update.task
            if update.counted and update.node_id is not None and update.began_in is not None:
                _add(deltas.setdefault(update.node_id, {}), task.request, -1, update.began_in, update.was_leaving)
            if not task.freed and task.column is not None and task.node_id is not None:
                _add(deltas.setdefault(task.node_id, {}), task.request, 1, task.column, task.preempted)
        return deltas

    def _write_ledger(self, writes: Writes, now: datetime) -> None:
        """Add one statement for all tasks with the same change."""
        ways: dict[tuple[Any, ...], list[tuple[UUID]]] = {}
        for m in self._updates.values():
            way = (m.began_in, m.task.column, m.held, m.scheduled, m.started, m.freed)
            if m.began_in is not m.task.column or m.freed:
                ways.setdefault(way, []).append((m.task.id,))
        for way, ids in ways.items():
            writes.add(_ledger(*way), ids, at=now)

    def _write_devices(self, writes: Writes, now: datetime) -> None:
        if self._devices_taken:
            writes.add(_TAKE_DEVICES, self._devices_taken)
            writes.add(_COUNT_DEVICES, [(id,) for id in {row[0] for row in self._devices_taken}], sign=1)
        freed = [(m.task.id,) for m in self._updates.values() if m.freed and m.task.has_devices]
        given_up = [(m.task.id,) for m in self._updates.values() if m.given_up and m.task.has_devices]
        if freed or given_up:
            writes.add(_COUNT_DEVICES, freed + given_up, sign=-1)
        if freed:
            writes.add(_FREE_DEVICES, freed, at=now)
        if given_up:
            writes.add(_FORGET_DEVICES, given_up)


def _count(writes: Writes, deltas: Deltas, locked_nodes: Iterable[UUID]) -> None:
    unlocked = deltas.keys() - set(locked_nodes)
    if unlocked and writes.dialect == "postgresql":
        writes.add(LOCK_NODES, [(id,) for id in unlocked])
    rows = [(node_id, slot, *delta) for node_id, slots in deltas.items() for slot, delta in slots.items() if any(delta)]
    if rows:
        writes.add(_COUNT, rows)


def _reserve(writes: Writes, tasks: Iterable[LoadedTask]) -> None:
    """Reserve the requests of these tasks on their nodes, if all of them fit."""
    others: list[tuple[UUID, Amounts]] = []
    for amounts, node_ids in _nodes_by_amounts(tasks):
        if len(node_ids) < _MANY_ALIKE:
            others += [(id, amounts) for id in node_ids]
        elif slots := sorted(amounts):
            values = {f"amount_{number}": amounts[slot] for number, slot in enumerate(slots)} | _named(slots)
            expected = len(node_ids) * len(slots)
            writes.add(_same_reservation(len(slots)), [(id,) for id in node_ids], expected=expected, **values)
    if slots := sorted({slot for _, amounts in others for slot in amounts}):
        rows = [(id, *map(amounts.get, slots)) for id, amounts in others]
        expected = sum(len(amounts) for _, amounts in others)
        writes.add(_reservation(len(slots)), rows, expected=expected, **_named(slots))


def _nodes_by_amounts(tasks: Iterable[LoadedTask]) -> Iterator[tuple[Amounts, list[UUID]]]:
    """Yield the nodes whose tasks request the same in total, with that total.

    Tasks with equal requests share one object, so its identity stands for the request: amounts are summed once per
    combination of requests, not once per node.
    """
    by_node: dict[UUID, tuple[int, ...]] = {}
    requests: dict[int, Amounts] = {}
    for task in tasks:
        if task.node_id is not None:
            by_node[task.node_id] = (*by_node.get(task.node_id, ()), id(task.request))
            requests[id(task.request)] = task.request
    nodes: dict[tuple[int, ...], list[UUID]] = {}
    for node_id, requested in by_node.items():
        nodes.setdefault(requested, []).append(node_id)
    for requested, node_ids in nodes.items():
        yield _sum(requests[number] for number in requested), node_ids


def _sum(requests: Iterable[Amounts]) -> Amounts:
    total: Counter[str] = Counter()
    for request in requests:
        total.update(request)
    return total


def _named(slots: Sequence[str]) -> dict[str, str]:
    return {f"slot_{number}": slot for number, slot in enumerate(slots)}


@lru_cache(maxsize=100)
def _same_reservation(number: int) -> Statement:
    """Reserve the same amounts of `number` slots on each node where they fit, by the rule of `model.slots.fits`."""
    asked = _by_slot([f"{{amount_{n}}}" for n in range(number)])
    return Statement(
        f"""
        UPDATE node_resources SET reserved = reserved + {asked}
        WHERE node_id IN (SELECT i.node_id FROM {{rows}} i) AND held + reserved + used + {asked} <= allocatable
        """,
        {"node_id": "uuid"},
        only="node_resources",
        **{f"slot_{n}": "text" for n in range(number)},
        **{f"amount_{n}": "bigint" for n in range(number)},
    )


@lru_cache(maxsize=100)
def _reservation(number: int) -> Statement:
    """As `_same_reservation`, with other amounts on each node: a row per node, not per node and slot."""
    asked = _by_slot([f"i.amount_{n}" for n in range(number)])
    return Statement(
        f"""
        UPDATE node_resources AS r SET reserved = r.reserved + {asked} FROM {{rows}} i
        WHERE r.node_id = i.node_id AND r.held + r.reserved + r.used + {asked} <= r.allocatable
        """,
        {"node_id": "uuid"} | {f"amount_{n}": "bigint" for n in range(number)},
        only="node_resources",
        **{f"slot_{n}": "text" for n in range(number)},
    )


def _by_slot(amounts: Sequence[str]) -> str:
    return f"CASE slot_name {' '.join(f'WHEN {{slot_{n}}} THEN {amount}' for n, amount in enumerate(amounts))} END"


@lru_cache(maxsize=100)
def _ledger(
    before: str | None, after: str | None, held: bool, scheduled: bool, started: bool, freed: bool
) -> Statement:
    """Move the ledger rows of tasks from one column to another; freed rows keep their amounts."""
    settings = []
    if before is not after:
        settings += [f"{before} = 0"] if before else []
        settings += [f"{after} = requested"] if after else ["held_at = NULL"]
    for happened, moment in ((held, "held_at"), (scheduled, "reserved_at"), (started, "used_at"), (freed, "freed_at")):
        settings += [f"{moment} = {{at}}"] if happened else []
    return Statement(
        f"UPDATE resource_allocations SET {', '.join(settings)}"
        " WHERE task_id IN (SELECT i.id FROM {rows} i) AND freed_at IS NULL",
        _TASK,
        only="resource_allocations",
        at="timestamptz",
    )


def _add(slots: dict[str, list[int]], request: Amounts, sign: int, column: str, leaving: bool) -> None:
    number = _COLUMNS[column]
    for slot, amount in request.items():
        delta = slots.get(slot)
        if delta is None:
            delta = slots[slot] = [0, 0, 0, 0]
        delta[number] += sign * amount
        if leaving:
            delta[_LEAVING] += sign * amount
