"""Changes of task statuses: the one writer of statuses, ledger rows, node counters, JSON copies, history and events.

`apply` locks the workloads first and the node counters last, each in the order of their ids, so that writers never
wait for each other in a circle. A change that repeats or is no longer legal is left out, never an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BindParameter, bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.store import events
from mooring.store.changes import Applied, Change
from mooring.store.chunks import chunks
from mooring.store.derivation import derive_workloads
from mooring.store.history import Journal
from mooring.store.loading import Loaded, load, load_ended
from mooring.store.tables import node_resources, port_allocations, resource_allocations, tasks

_ledger = resource_allocations.c
_counters = node_resources.c
_ids: BindParameter[Any] = bindparam("ids", expanding=True)

_WRITTEN = (
    "status",
    "node_id",
    "node_name",
    "score",
    "occupied_slots",
    "ports",
    "exit_code",
    "restarts",
    "reason",
    "scheduled_at",
    "started_at",
    "ended_at",
    "freed_at",
    "version",
)
# Built once: making a statement costs as much as running it.
_WRITE_TASK = (
    update(tasks)
    .where(tasks.c.id == bindparam("task"))
    .values({name: bindparam(f"new_{name}", type_=tasks.c[name].type) for name in _WRITTEN})
)
_LIVE = select(_ledger.task_id, _ledger.slot_name, _ledger.requested, _ledger.held, _ledger.reserved, _ledger.used)
_LIVE = _LIVE.where(_ledger.task_id.in_(_ids), _ledger.freed_at.is_(None))
_ROWS = update(resource_allocations).where(_ledger.task_id.in_(_ids), _ledger.freed_at.is_(None))
_at = bindparam("at", type_=_ledger.created_at.type)
_RESERVE = _ROWS.values(reserved=_ledger.requested, reserved_at=_at)
_USE = _ROWS.values(used=_ledger.held + _ledger.reserved, held=0, reserved=0, used_at=_at)
_FREE = _ROWS.values(freed_at=_at)
_TAKE_PORTS = insert(port_allocations)
_FREE_PORTS = delete(port_allocations).where(port_allocations.c.task_id.in_(_ids))
_MOVE = (
    update(node_resources)
    .where(_counters.node_id == bindparam("node"), _counters.slot_name == bindparam("slot"))
    .values(
        held=_counters.held + bindparam("held_delta"),
        reserved=_counters.reserved + bindparam("reserved_delta"),
        used=_counters.used + bindparam("used_delta"),
    )
)


async def apply(
    connection: AsyncConnection,
    changes: Sequence[Change],
    *,
    actor: str,
    now: datetime,
    term: int | None = None,
    also: Iterable[UUID] = (),
    failed: Mapping[UUID, Reason] | None = None,
    loaded: Loaded | None = None,
) -> Applied:
    """Make the changes that are legal now.

    `also`: workloads to derive anew even if none of their tasks changed. `failed`: workloads that end FAILED as a
    whole, whatever their kind, unless some task of theirs is still alive. `loaded`: what the caller locked and read
    in this transaction for the same workloads; it is changed on the way.
    """
    if loaded is None:
        loaded = await load(connection, tasks_of=[change.task_id for change in changes], workload_ids=also)
    journal = Journal(actor, now, term)
    applied = Applied()
    accepted = _accept(changes, loaded)
    if accepted:
        await _change_tasks(connection, accepted, loaded, journal)
        applied.tasks.extend(accepted)
    await derive_workloads(connection, loaded, applied, failed or {}, journal)
    await journal.write(connection)
    return applied


async def free_lost(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> int:
    """Nothing is left of these tasks on their node, though their end was known before: free what they still occupy."""
    freed = [
        row
        for row in await load_ended(connection, task_ids)
        if lifecycle.is_end(TaskStatus(row["status"])) and row["freed_at"] is None
    ]
    if not freed:
        return 0
    moves = _Moves(await _live_ledger(connection, [row["id"] for row in freed]))
    for row in freed:
        moves.free(row, now)
        row["version"] += 1
    await _write_tasks(connection, freed)
    await moves.write(connection, now)
    told = [events.NewEvent("task", r["id"], r["version"], "freed", r["node_id"], r["workload_id"]) for r in freed]
    await events.append(connection, told, now)
    return len(freed)


def _accept(changes: Sequence[Change], loaded: Loaded) -> list[tuple[Change, TaskStatus]]:
    """The changes that are legal one after the other, each with the status that it leaves."""
    accepted: list[tuple[Change, TaskStatus]] = []
    for change in changes:
        row = loaded.tasks.get(change.task_id)
        if row is None or not lifecycle.is_legal(old := TaskStatus(row["status"]), change.new):
            continue
        accepted.append((change, old))
        row["status"] = change.new
    return accepted


async def _change_tasks(
    connection: AsyncConnection, accepted: Sequence[tuple[Change, TaskStatus]], loaded: Loaded, journal: Journal
) -> None:
    moves = _Moves(await _live_ledger(connection, [change.task_id for change, _ in accepted]))
    for change, old in accepted:
        row = loaded.tasks[change.task_id]
        if change.node_id is not None:
            row["node_id"], row["node_name"], row["score"] = change.node_id, change.node_name, change.score
        if change.exit_code is not None:
            row["exit_code"] = change.exit_code
        if change.restarts is not None:
            row["restarts"] = change.restarts
        if change.reason is not None:
            row["reason"] = change.reason.as_dict()
        if change.new is TaskStatus.SCHEDULED:
            row["scheduled_at"] = journal.now
            row["ports"] = [list(port) for port in change.ports] or None
            moves.reserve(row)
        elif change.new is TaskStatus.RUNNING:
            row["started_at"] = journal.now
            moves.use(row)
        elif lifecycle.is_end(change.new):
            row["ended_at"] = journal.now
            if change.freed or old not in lifecycle.OCCUPYING:
                moves.free(row, journal.now)
        row["version"] += 1
        why = change.reason.message if change.reason else change.node_name and f"Placed on {change.node_name}"
        journal.note("task", change.task_id, row["workload_id"], old, change.new, why)
        journal.tell(
            events.NewEvent("task", change.task_id, row["version"], change.new, row["node_id"], row["workload_id"])
        )
    await _write_tasks(connection, [loaded.tasks[task_id] for task_id in dict.fromkeys(c.task_id for c, _ in accepted)])
    await moves.write(connection, journal.now)


@dataclass(frozen=True, slots=True)
class _Row:
    """A live ledger row."""

    slot: str
    requested: int
    held: int
    reserved: int
    used: int


@dataclass(slots=True)
class _Moves:
    """Amounts on their way between the columns of the ledger, and with them the counters of the nodes.

    `ledger` is kept as the moves so far leave it: a short task runs and ends in one report.
    """

    ledger: dict[UUID, list[_Row]]
    _reserved: list[UUID] = field(default_factory=list)
    _used: list[UUID] = field(default_factory=list)
    _freed: list[UUID] = field(default_factory=list)
    _ports_taken: list[dict[str, Any]] = field(default_factory=list)
    _ports_freed: list[UUID] = field(default_factory=list)
    _deltas: dict[tuple[UUID, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))

    def reserve(self, task: dict[str, Any]) -> None:
        self._reserved.append(task["id"])
        rows = self.ledger[task["id"]]
        task["occupied_slots"] = {row.slot: row.requested for row in rows}
        self._replace(task, [_Row(row.slot, row.requested, row.held, row.requested, row.used) for row in rows])
        self._ports_taken += [
            {"node_id": task["node_id"], "task_id": task["id"], "protocol": protocol, "port": port}
            for protocol, port in task["ports"] or ()
        ]

    def use(self, task: dict[str, Any]) -> None:
        self._used.append(task["id"])
        rows = self.ledger[task["id"]]
        self._replace(task, [_Row(row.slot, row.requested, 0, 0, row.held + row.reserved) for row in rows])

    def free(self, task: dict[str, Any], now: datetime) -> None:
        self._freed.append(task["id"])
        task["freed_at"] = now
        task["occupied_slots"] = {}
        self._replace(task, [])
        if task["ports"]:
            self._ports_freed.append(task["id"])
            task["ports"] = None

    def _replace(self, task: dict[str, Any], rows: list[_Row]) -> None:
        for sign, side in ((-1, self.ledger[task["id"]]), (1, rows)):
            for row in side:
                if row.held or row.reserved or row.used:
                    delta = self._deltas[task["node_id"], row.slot]
                    delta[0] += sign * row.held
                    delta[1] += sign * row.reserved
                    delta[2] += sign * row.used
        self.ledger[task["id"]] = rows

    async def write(self, connection: AsyncConnection, now: datetime) -> None:
        for statement, ids in ((_RESERVE, self._reserved), (_USE, self._used), (_FREE, self._freed)):
            for part in chunks(ids):
                await connection.execute(statement, {"ids": part, "at": now})
        for part in chunks(self._ports_freed):
            await connection.execute(_FREE_PORTS, {"ids": part})
        if self._ports_taken:
            await connection.execute(_TAKE_PORTS, self._ports_taken)
        moved = [(key, delta) for key, delta in sorted(self._deltas.items()) if any(delta)]
        if moved:
            await connection.execute(
                _MOVE,
                [
                    {"node": node, "slot": slot, "held_delta": held, "reserved_delta": reserved, "used_delta": used}
                    for (node, slot), (held, reserved, used) in moved
                ],
            )


async def _live_ledger(connection: AsyncConnection, task_ids: Sequence[UUID]) -> dict[UUID, list[_Row]]:
    found: dict[UUID, list[_Row]] = defaultdict(list)
    for part in chunks(list(dict.fromkeys(task_ids))):
        for task_id, *amounts in await connection.execute(_LIVE, {"ids": part}):
            found[task_id].append(_Row(*amounts))
    return found


async def _write_tasks(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    await connection.execute(
        _WRITE_TASK, [{"task": row["id"]} | {f"new_{name}": row[name] for name in _WRITTEN} for row in rows]
    )
