"""Changes of task statuses: the one writer of statuses, ledger rows, node counters, JSON copies, history and events.

`apply` locks the workloads first, then the nodes, each in the order of their ids, so that writers never wait for each
other in a circle. A change that repeats or is no longer legal is left out, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.store import events
from mooring.store.changes import Applied, Change
from mooring.store.derivation import derive_workloads
from mooring.store.history import Journal
from mooring.store.loading import Loaded, LoadedTask, load, load_ended
from mooring.store.moves import Moves
from mooring.store.sets import Statement

_WRITE_TASKS = Statement(
    """
    UPDATE tasks AS t SET
        status = i.status,
        version = i.version,
        requeue = i.requeue,
        node_id = i.node_id,
        node_name = CASE WHEN i.node_id IS NOT NULL THEN coalesce(i.node_name, t.node_name) END,
        score = CASE WHEN i.node_id IS NOT NULL THEN coalesce(i.score, t.score) END,
        occupied_slots = CASE WHEN i.occupies THEN t.requested_slots ELSE '{{}}' END,
        ports = CASE WHEN i.occupies THEN coalesce(i.ports, t.ports) END,
        devices = CASE WHEN i.occupies THEN coalesce(i.devices, t.devices) END,
        prepared_at = CASE WHEN i.node_id IS NOT NULL THEN t.prepared_at END,
        preempted_by = coalesce(i.preempted_by, t.preempted_by),
        exit_code = coalesce(i.exit_code, t.exit_code),
        restarts = coalesce(i.restarts, t.restarts),
        reason = coalesce(i.reason, t.reason),
        scheduled_at = CASE WHEN i.scheduled THEN {at} ELSE t.scheduled_at END,
        started_at = CASE WHEN i.started THEN {at} ELSE t.started_at END,
        ended_at = CASE WHEN i.ended THEN {at} ELSE t.ended_at END,
        freed_at = CASE WHEN i.freed THEN {at} ELSE t.freed_at END
    FROM {rows} i WHERE t.id = i.id
    """,
    {
        "id": "uuid",
        "status": "text",
        "version": "bigint",
        "node_id": "uuid",
        "occupies": "boolean",
        "requeue": "boolean",
        "node_name": "text",
        "score": "bigint",
        "scheduled": "boolean",
        "started": "boolean",
        "ended": "boolean",
        "freed": "boolean",
        "ports": "jsonb",
        "devices": "jsonb",
        "preempted_by": "uuid",
        "exit_code": "bigint",
        "restarts": "bigint",
        "reason": "jsonb",
    },
    at="timestamptz",
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
    guarded: bool = False,
) -> Applied:
    """Make the changes that are legal now.

    `also`: workloads to derive anew even if none of their tasks changed. `failed`: workloads that end FAILED as a
    whole, whatever their kind, unless some task of theirs is still alive. `loaded`: what the caller locked and read
    in this transaction for the same workloads; it is changed on the way. `guarded`: raise TooLittleLeft instead of
    putting more on a node than fits there.
    """
    if loaded is None:
        loaded = await load(connection, tasks_of=[change.task_id for change in changes], workload_ids=also)
    journal = Journal(actor, now, term)
    applied = Applied()
    written: dict[UUID, _Written] = {}
    moves = Moves()
    for change in changes:
        task = loaded.tasks.get(change.task_id)
        if task is None or change.new not in lifecycle.TASK_EDGES[task.status]:
            continue
        old = task.status
        row = written.get(task.id)
        if row is None:
            row = written[task.id] = _Written(task)
        _change(row, change, old, moves)
        why = change.reason.message if change.reason else change.node_name and f"Placed on {change.node_name}"
        journal.note("task", task.id, task.workload_id, old, change.new, why)
        # A hold that is given up changes the node that it was on.
        node_id = task.node_id or row.left
        journal.tell(
            events.NewEvent("task", task.id, task.version, change.new, node_id, task.workload_id, change.details)
        )
        applied.tasks.append((change, old))
    if written:
        await moves.write(connection, now, locked_nodes=loaded.locked_nodes, guarded=guarded)
        await _write(connection, written.values(), now)
    await derive_workloads(connection, loaded, applied, failed or {}, journal)
    await journal.write(connection)
    return applied


async def free_lost(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> int:
    """Nothing is left of these tasks on their node, though their end was known before: free what they still occupy."""
    lost = [t for t in await load_ended(connection, task_ids) if lifecycle.is_end(t.status) and not t.freed]
    if not lost:
        return 0
    moves = Moves()
    for task in lost:
        moves.free(task)
        task.version += 1
    await moves.write(connection, now)
    await _write(connection, [_Written(task, freed=True) for task in lost], now)
    told = [events.NewEvent("task", t.id, t.version, "freed", t.node_id, t.workload_id) for t in lost]
    await events.append(connection, told, now)
    return len(lost)


@dataclass(slots=True)
class _Written:
    """A task as it will be written; what is None stays as it was."""

    task: LoadedTask
    node_name: str | None = None
    score: int | None = None
    scheduled: bool = False
    started: bool = False
    ended: bool = False
    freed: bool = False
    ports: tuple[tuple[str, int], ...] | None = None
    devices: dict[str, list[tuple[int, int]]] | None = None
    preempted_by: UUID | None = None
    exit_code: int | None = None
    restarts: int | None = None
    reason: dict[str, Any] | None = None
    left: UUID | None = None
    """The node that it was on until its hold was given up."""


_columns = attrgetter(
    "node_name",
    "score",
    "scheduled",
    "started",
    "ended",
    "freed",
    "ports",
    "devices",
    "preempted_by",
    "exit_code",
    "restarts",
    "reason",
)


async def _write(connection: AsyncConnection, written: Iterable[_Written], now: datetime) -> None:
    rows = []
    for row in written:
        task = row.task
        occupies = task.counts_as is not None
        rows.append((task.id, task.status, task.version, task.node_id, occupies, task.requeue, *_columns(row)))
    await _WRITE_TASKS.run(connection, rows, at=now)


def _change(row: _Written, change: Change, old: TaskStatus, moves: Moves) -> None:
    """One edge: the task becomes what the change says, and what it occupies moves along."""
    task, new = row.task, change.new
    moves.of(task)
    task.status = new
    task.version += 1
    if change.reason is not None:
        row.reason = change.reason.as_dict()
    if change.exit_code is not None:
        row.exit_code = change.exit_code
    if change.restarts is not None:
        row.restarts = change.restarts
    if new is TaskStatus.SCHEDULED or new is TaskStatus.RESERVED:
        if change.node_id is not None:
            task.node_id, row.node_name, row.score = change.node_id, change.node_name, change.score
        if change.ports:
            row.ports = change.ports
        if change.devices:
            row.devices = _by_slot(change)
        if new is TaskStatus.RESERVED:
            moves.hold(task, change)
        else:
            row.scheduled = True
            moves.schedule(task, change, held=old is TaskStatus.RESERVED)
    elif new is TaskStatus.RUNNING:
        row.started = True
        moves.use(task)
    elif new is TaskStatus.TERMINATING:
        task.requeue = task.requeue or change.requeue
        if change.preempted_by is not None:
            row.preempted_by = change.preempted_by
            task.preempted = True
    elif new is TaskStatus.PENDING:
        row.left = task.node_id
        moves.give_up(task)
    elif lifecycle.is_end(new):
        row.ended = True
        if change.freed or old not in lifecycle.OCCUPYING:
            row.freed = True
            moves.free(task, held=old is TaskStatus.RESERVED)


def _by_slot(change: Change) -> dict[str, list[tuple[int, int]]]:
    """The readable copy: slot to [index, amount] each."""
    found: dict[str, list[tuple[int, int]]] = {}
    for slot, device, amount in change.devices:
        found.setdefault(slot, []).append((device, amount))
    return found
