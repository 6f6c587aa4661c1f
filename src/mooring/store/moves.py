"""What tasks occupy, moved: ledger rows, node counters, devices, ports and holds, a few statements for any number.

A task occupies what it requested, in one column of ledger and counters at a time. So a move is told by where it counted
before and where it counts afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.slots import Amounts
from mooring.store.changes import Change
from mooring.store.ids import new_id
from mooring.store.loading import LoadedTask, lock_nodes
from mooring.store.sets import Statement

_COLUMNS = {"held": 0, "reserved": 1, "used": 2}
_LEAVING = 3
_TASK = {"id": "uuid"}

_LEDGER = Statement(
    """
    UPDATE resource_allocations AS l SET
        held = CASE i.counts_as WHEN 'held' THEN l.requested ELSE 0 END,
        reserved = CASE i.counts_as WHEN 'reserved' THEN l.requested ELSE 0 END,
        used = CASE i.counts_as WHEN 'used' THEN l.requested ELSE 0 END,
        held_at = CASE WHEN i.held THEN {at} WHEN i.counts_as IS NOT NULL THEN l.held_at END,
        reserved_at = CASE WHEN i.scheduled THEN {at} ELSE l.reserved_at END,
        used_at = CASE WHEN i.started THEN {at} ELSE l.used_at END,
        freed_at = CASE WHEN i.freed THEN {at} END
    FROM {rows} i WHERE l.task_id = i.id AND l.freed_at IS NULL
    """,
    _TASK | {"counts_as": "text", "held": "boolean", "scheduled": "boolean", "started": "boolean", "freed": "boolean"},
    at="timestamptz",
)
_COUNTERS = """
    UPDATE node_resources AS r SET
        held = r.held + i.held, reserved = r.reserved + i.reserved, used = r.used + i.used,
        leaving = r.leaving + i.leaving
    FROM {rows} i WHERE r.node_id = i.node_id AND r.slot_name = i.slot_name
"""
_AMOUNTS = {
    "node_id": "uuid",
    "slot_name": "text",
    "held": "bigint",
    "reserved": "bigint",
    "used": "bigint",
    "leaving": "bigint",
}
_COUNT = Statement(_COUNTERS, _AMOUNTS)
# The fit rule of `model.slots.fits`, as a part of the write.
_COUNT_WHAT_FITS = Statement(
    f"{_COUNTERS} AND r.held + r.reserved + r.used + i.held + i.reserved + i.used <= r.allocatable", _AMOUNTS
)
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
# A port that a victim still has becomes the held task's when it is scheduled.
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


class TooLittleLeft(Exception):
    """Some counter of a guarded move would be above what its node has; what was written has to be rolled back."""


@dataclass(slots=True)
class Move:
    """One task on its way: where it counted, and what happened to it since."""

    task: LoadedTask
    node_id: UUID | None
    counted_as: str | None
    was_leaving: bool
    held: bool = False
    scheduled: bool = False
    started: bool = False
    freed: bool = False
    given_up: bool = False


@dataclass(slots=True)
class Moves:
    """The moves of one transaction, each task once."""

    _moves: dict[UUID, Move] = field(default_factory=dict)
    _devices_taken: list[tuple[Any, ...]] = field(default_factory=list)
    _ports_taken: list[tuple[Any, ...]] = field(default_factory=list)
    _held: list[tuple[Any, ...]] = field(default_factory=list)
    _holds_over: list[tuple[UUID]] = field(default_factory=list)

    def of(self, task: LoadedTask) -> Move:
        """The task's move, which begins where the task is now."""
        move = self._moves.get(task.id)
        if move is None:
            counts_as = task.counts_as
            move = Move(task, task.node_id, counts_as, task.preempted and counts_as is not None)
            self._moves[task.id] = move
        return move

    def hold(self, task: LoadedTask, change: Change) -> None:
        self.of(task).held = True
        task.column = "held"
        self._take(task, change)
        if change.hold is not None:
            purpose, expires_at = change.hold
            self._held.append((task.id, new_id(), task.workload_id, task.node_id, purpose, expires_at))

    def schedule(self, task: LoadedTask, change: Change, *, held: bool) -> None:
        """`held`: it had this place already."""
        self.of(task).scheduled = True
        task.column = "reserved"
        self._take(task, change)
        if held:
            self._holds_over.append((task.id,))
            named = msgspec.json.decode(task.ports) if task.ports else ()
            self._ports_taken += [(task.id, task.node_id, protocol, port, False) for protocol, port in named]

    def _take(self, task: LoadedTask, change: Change) -> None:
        """What is named with the place: devices and ports."""
        held = task.status is TaskStatus.RESERVED
        for slot, device, amount in change.devices:
            self._devices_taken.append((task.id, slot, device, task.node_id, amount))
            task.has_devices = True
        for protocol, port in change.ports:
            self._ports_taken.append((task.id, task.node_id, protocol, port, held))
        if change.ports:
            task.ports = msgspec.json.encode(change.ports).decode()

    def use(self, task: LoadedTask) -> None:
        self.of(task).started = True
        task.column = "used"

    def free(self, task: LoadedTask, *, held: bool = False) -> None:
        self.of(task).freed = True
        task.freed = True
        if held:
            self._holds_over.append((task.id,))

    def give_up(self, task: LoadedTask) -> None:
        """A hold goes, and with it all that the task had of the node."""
        self.of(task).given_up = True
        task.column = task.node_id = None
        self._holds_over.append((task.id,))

    async def write(
        self, connection: AsyncConnection, now: datetime, *, locked_nodes: Iterable[UUID] = (), guarded: bool = False
    ) -> None:
        """Counters first: if they refuse (TooLittleLeft), little was written in vain."""
        await self._write_counters(connection, locked_nodes, guarded)
        ledger = [
            (m.task.id, m.task.column, m.held, m.scheduled, m.started, m.freed)
            for m in self._moves.values()
            if m.held or m.scheduled or m.started or m.freed or m.given_up
        ]
        if ledger:
            await _LEDGER.run(connection, ledger, at=now)
        await self._write_devices(connection, now)
        released = [m for m in self._moves.values() if m.freed or m.given_up]
        if with_ports := [(m.task.id,) for m in released if m.task.ports]:
            await _FREE_PORTS.run(connection, with_ports)
        if taken := [row for row in self._ports_taken if not self._moves[row[0]].freed]:
            await _TAKE_PORTS.run(connection, taken)
        if self._held:
            await _HOLD.run(connection, self._held, at=now)
        if self._holds_over:
            await _END_HOLDS.run(connection, self._holds_over)

    async def _write_counters(self, connection: AsyncConnection, locked_nodes: Iterable[UUID], guarded: bool) -> None:
        deltas: dict[UUID, dict[str, list[int]]] = {}
        for move in self._moves.values():
            task = move.task
            counts_as = task.counts_as
            if move.counted_as is not None and move.node_id is not None:
                _add(deltas.setdefault(move.node_id, {}), task.request, -1, move.counted_as, move.was_leaving)
            if counts_as is not None and task.node_id is not None:
                _add(deltas.setdefault(task.node_id, {}), task.request, 1, counts_as, task.preempted)
        rows = [
            (node_id, slot, *delta)
            for node_id, slots in deltas.items()
            for slot, delta in slots.items()
            if guarded or any(delta)
        ]
        if not rows:
            return
        await lock_nodes(connection, deltas.keys() - set(locked_nodes))
        written = await (_COUNT_WHAT_FITS if guarded else _COUNT).run(connection, rows)
        if guarded and written.rowcount != len(rows):
            raise TooLittleLeft

    async def _write_devices(self, connection: AsyncConnection, now: datetime) -> None:
        if self._devices_taken:
            await _TAKE_DEVICES.run(connection, self._devices_taken)
            await _COUNT_DEVICES.run(connection, [(id,) for id in {row[0] for row in self._devices_taken}], sign=1)
        freed = [(m.task.id,) for m in self._moves.values() if m.freed and m.task.has_devices]
        given_up = [(m.task.id,) for m in self._moves.values() if m.given_up and m.task.has_devices]
        if freed or given_up:
            await _COUNT_DEVICES.run(connection, freed + given_up, sign=-1)
        if freed:
            await _FREE_DEVICES.run(connection, freed, at=now)
        if given_up:
            await _FORGET_DEVICES.run(connection, given_up)


def _add(slots: dict[str, list[int]], request: Amounts, sign: int, column: str, leaving: bool) -> None:
    number = _COLUMNS[column]
    for slot, amount in request.items():
        delta = slots.get(slot)
        if delta is None:
            delta = slots[slot] = [0, 0, 0, 0]
        delta[number] += sign * amount
        if leaving:
            delta[_LEAVING] += sign * amount
