"""Changes of task statuses: the one writer of statuses, ledger rows, counters, JSON copies, history and events.

`apply` locks the workloads first, then the nodes, then the counters of tenants, each in the order of their ids, so that
writers never wait for each other in a circle. A change that repeats or is no longer legal is left out, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.admission import Checked
from mooring.model.lifecycle import TaskStatus
from mooring.store import endings, events
from mooring.store.changes import Applied, Change
from mooring.store.charges import Charges
from mooring.store.derivation import Ends, derive_workloads
from mooring.store.history import Journal
from mooring.store.loading import Loaded, LoadedTask, load, load_ended
from mooring.store.moves import Moves
from mooring.store.sets import Update, Writes

_WRITE_TASKS = Update(
    "tasks AS t",
    # Always so, except for a draft that came too late.
    "t.id = i.id AND t.version < i.version",
    {
        "id": "uuid",
        "status": "text",
        "version": "bigint",
        "node_id": "uuid",
        "requeue": "boolean",
        "preempted_by": "uuid",
        "moved": "boolean",
        "node_name": "text",
        "score": "bigint",
        "occupancy": "text",
        "named": "boolean",
        "ports": "jsonb",
        "devices": "jsonb",
        "scheduled": "boolean",
        "started": "boolean",
        "deadline": "timestamptz",
        "ended": "boolean",
        "freed": "boolean",
        "exit_code": "bigint",
        "restarts": "bigint",
        "reason": "jsonb",
        "explained": "boolean",
        "readiness": "text",
        "digests": "jsonb",
        "address": "text",
    },
    always="status = i.status, version = i.version",
    changes={
        "requeue": "requeue = i.requeue",
        "preempted_by": "preempted_by = coalesce(i.preempted_by, t.preempted_by)",
        "moved": """
            node_id = CASE WHEN i.moved THEN i.node_id ELSE t.node_id END,
            node_name = CASE WHEN i.moved THEN i.node_name ELSE t.node_name END,
            score = CASE WHEN i.moved THEN i.score ELSE t.score END,
            prepared_at = CASE WHEN i.moved THEN NULL ELSE t.prepared_at END
        """,
        "occupancy": """
            occupied_slots = CASE i.occupancy WHEN 'taken' THEN t.requested_slots WHEN 'released' THEN '{{}}'
                ELSE t.occupied_slots END
        """,
        "named": """
            ports = CASE WHEN i.named THEN i.ports ELSE t.ports END,
            devices = CASE WHEN i.named THEN i.devices ELSE t.devices END
        """,
        "scheduled": "scheduled_at = CASE WHEN i.scheduled THEN {at} ELSE t.scheduled_at END",
        "started": "started_at = CASE WHEN i.started THEN {at} ELSE t.started_at END",
        "deadline": "deadline_at = coalesce(i.deadline, t.deadline_at)",
        "ended": """
            ended_at = CASE WHEN i.ended THEN {at} ELSE t.ended_at END,
            exit_code = coalesce(i.exit_code, t.exit_code)
        """,
        "freed": "freed_at = CASE WHEN i.freed THEN {at} ELSE t.freed_at END",
        "restarts": "restarts = coalesce(i.restarts, t.restarts)",
        "explained": "reason = CASE WHEN i.explained THEN i.reason ELSE t.reason END",
        "readiness": """
            ready_at = CASE i.readiness WHEN 'ready' THEN coalesce(t.ready_at, {at}) WHEN 'unready' THEN NULL
                ELSE t.ready_at END
        """,
        "digests": "digests = coalesce(i.digests, t.digests)",
        "address": "address = coalesce(i.address, t.address)",
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
    ended: Ends | None = None,
    loaded: Loaded | None = None,
) -> Applied:
    """Make the changes that are legal now.

    `also`: workloads to derive anew even if none of their tasks changed. `ended`: workloads that end as a whole, and
    how, whatever their kind, unless some task of theirs is still alive. `loaded`: what the caller locked and read in
    this transaction for the same workloads; it is changed on the way.
    """
    if loaded is None:
        loaded = await load(connection, tasks_of=[change.task_id for change in changes], workload_ids=also)
    writes = Writes.on(connection)
    applied = plan(writes, changes, loaded, Journal(actor, now, term), ended=ended)
    await writes.make(connection)
    return applied


def plan(
    writes: Writes,
    changes: Sequence[Change],
    loaded: Loaded,
    journal: Journal,
    *,
    ended: Ends | None = None,
    looks: Mapping[UUID, Checked] | None = None,
    guarded: bool = False,
) -> Applied:
    """Put together what `apply` writes.

    `looks`: how admission looked at workloads that are placed. `guarded`: what was loaded may change until then, so
    the writes are refused (NotAsExpected) where a task has, or where more would be put on a node than fits there.
    """
    applied = Applied()
    written: dict[UUID, _Written] = {}
    moves, charges = Moves(), Charges()
    lowered: set[UUID] = set()
    for change in _with_all_holds(changes, loaded):
        task = loaded.tasks.get(change.task_id)
        if task is None:
            continue
        old = task.status
        learned = _learned(task, change) if old is change.new is TaskStatus.RUNNING else None
        if learned is None and change.new not in lifecycle.TASK_EDGES[old]:
            continue
        if lifecycle.is_end(change.new):
            change = endings.of_task(change, task, loaded.workloads[task.workload_id], lowered)
        row = written.get(task.id)
        if row is None:
            row = written[task.id] = _Written(task)
            charges.begin(task)
        if learned is not None:
            row.learn(change)
            task.version += 1
            journal.tell(events.NewEvent("task", task.id, task.version, learned, task.node_id, task.workload_id))
            applied.tasks.append((change, old))
            continue
        _change(row, change, old, moves)
        if change.new is TaskStatus.RUNNING and (limit := loaded.workloads[task.workload_id].time_limit_seconds):
            row.deadline = journal.now + timedelta(seconds=limit)
        why = change.reason.message if change.reason else change.node_name and f"Placed on {change.node_name}"
        journal.note("task", task.id, task.workload_id, old, change.new, why)
        # A hold that is given up changes the node that it was on.
        node_id = task.node_id or row.left
        journal.tell(
            events.NewEvent("task", task.id, task.version, change.new, node_id, task.workload_id, change.details)
        )
        applied.tasks.append((change, old))
    if written:
        moves.write(writes, journal.now, locked_nodes=loaded.locked_nodes, guarded=guarded)
        _write(writes, written.values(), journal.now, whole=guarded)
    derive_workloads(writes, loaded, applied, ended or {}, lowered, looks or {}, journal)
    charges.write(writes, loaded, journal)
    journal.write(writes)
    return applied


def _with_all_holds(changes: Sequence[Change], loaded: Loaded) -> Sequence[Change]:
    """A place is kept for a workload as a whole: where one hold of it is given up, all are."""
    broken = {
        task.workload_id: change.reason
        for change in changes
        if change.new is TaskStatus.PENDING
        and (task := loaded.tasks.get(change.task_id)) is not None
        and task.status is TaskStatus.RESERVED
    }
    if not broken:
        return changes
    known = {change.task_id for change in changes}
    others = (
        Change(task.id, TaskStatus.PENDING, broken[task.workload_id])
        for task in loaded.tasks.values()
        if task.workload_id in broken and task.status is TaskStatus.RESERVED and task.id not in known
    )
    return [*changes, *others]


async def free_lost(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> int:
    """Nothing is left of these tasks on their node, though their end was known before: free what they still occupy."""
    lost = [t for t in await load_ended(connection, task_ids) if lifecycle.is_end(t.status) and not t.freed]
    if not lost:
        return 0
    moves = Moves()
    for task in lost:
        moves.free(moves.of(task))
        task.version += 1
    freed = [_Written(task, freed=True) for task in lost]
    for row in freed:
        row.release()
    told = [events.NewEvent("task", t.id, t.version, "freed", t.node_id, t.workload_id) for t in lost]
    writes = Writes.on(connection)
    moves.write(writes, now)
    _write(writes, freed, now)
    events.tell(writes, told, now)
    await writes.make(connection)
    return len(lost)


@dataclass(slots=True)
class _Written:
    """A task as it will be written; what is None or False stays as it was."""

    task: LoadedTask
    moved: bool = False
    node_name: str | None = None
    score: int | None = None
    occupancy: Literal["taken", "released"] | None = None
    named: bool = False
    """Its ports and devices change."""
    ports: tuple[tuple[str, int], ...] | None = None
    devices: dict[str, list[tuple[int, int]]] | None = None
    scheduled: bool = False
    started: bool = False
    deadline: datetime | None = None
    ended: bool = False
    freed: bool = False
    preempted_by: UUID | None = None
    exit_code: int | None = None
    restarts: int | None = None
    reason: dict[str, Any] | None = None
    readiness: Literal["ready", "unready"] | None = None
    digests: Mapping[str, str] | None = None
    address: str | None = None
    left: UUID | None = None
    """The node that it was on until its hold was given up."""

    def place(self, change: Change) -> None:
        self.moved, self.occupancy = True, "taken"
        self.task.node_id, self.node_name, self.score = change.node_id, change.node_name, change.score
        if change.ports or change.devices:
            self.named, self.ports, self.devices = True, change.ports or None, _by_slot(change) or None

    def release(self) -> None:
        self.occupancy = "released"
        if self.task.ports or self.task.has_devices:
            self.named, self.ports, self.devices = True, None, None

    def learn(self, change: Change) -> None:
        """What is known of a task that runs."""
        self.task.ready = change.ready
        self.readiness = "ready" if change.ready else "unready"
        self.digests, self.address, self.restarts = change.digests or None, change.address, change.restarts

    def values(self, copies: bool) -> tuple[Any, ...]:
        task = self.task
        return (
            task.id,
            task.status,
            task.version,
            task.node_id,
            task.requeue,
            self.preempted_by,
            self.moved,
            self.node_name,
            self.score,
            self.occupancy if copies else None,
            self.named,
            self.ports,
            self.devices,
            self.scheduled,
            self.started,
            self.deadline,
            self.ended,
            self.freed,
            self.exit_code,
            self.restarts,
            self.reason,
            self.started or self.reason is not None,
            self.readiness,
            self.digests,
            self.address,
        )


def _write(writes: Writes, written: Iterable[_Written], now: datetime, *, whole: bool = False) -> None:
    rows = [row.values(writes.copies) for row in written]
    writes.add(_WRITE_TASKS, rows, expected=len(rows) if whole else None, at=now)


def _change(row: _Written, change: Change, old: TaskStatus, moves: Moves) -> None:
    """One edge: the task becomes what the change says, and what it occupies moves along."""
    task, new = row.task, change.new
    move = moves.of(task)
    task.status = new
    task.version += 1
    if change.reason is not None:
        row.reason = change.reason.as_dict()
        task.code = change.reason.code
    if change.restarts is not None:
        row.restarts = change.restarts
    if task.ready:
        task.ready, row.readiness = False, "unready"
    if new is TaskStatus.SCHEDULED or new is TaskStatus.RESERVED:
        if change.node_id is not None:
            row.place(change)
        if new is TaskStatus.RESERVED:
            moves.hold(move, change)
        else:
            row.scheduled = True
            moves.schedule(move, change, held=old is TaskStatus.RESERVED)
    elif new is TaskStatus.RUNNING:
        row.started = True
        row.learn(change)
        moves.use(move)
    elif new is TaskStatus.TERMINATING:
        task.requeue = task.requeue or change.requeue
        if change.preempted_by is not None:
            row.preempted_by = change.preempted_by
            task.preempted = True
    elif new is TaskStatus.PENDING:
        row.left = task.node_id
        row.moved, row.node_name, row.score = True, None, None
        row.release()
        moves.give_up(move)
    elif lifecycle.is_end(new):
        task.requeue = task.requeue or change.requeue
        row.ended = True
        row.exit_code = change.exit_code
        if change.freed or old not in lifecycle.OCCUPYING:
            row.freed = True
            row.release()
            moves.free(move, held=old is TaskStatus.RESERVED)


def _learned(task: LoadedTask, change: Change) -> str | None:
    """The kind of event that tells what is new about a task that runs on; None where nothing is."""
    if task.ready is not change.ready:
        return events.READY if change.ready else events.UNREADY
    before = msgspec.json.decode(task.digests) if task.digests else None
    same = (not change.digests or change.digests == before) and change.address in (None, task.address)
    return None if same else events.RENEWED


def _by_slot(change: Change) -> dict[str, list[tuple[int, int]]]:
    """The readable copy: slot to [index, amount] each."""
    found: dict[str, list[tuple[int, int]]] = {}
    for slot, device, amount in change.devices:
        found.setdefault(slot, []).append((device, amount))
    return found
