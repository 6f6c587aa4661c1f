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

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import events
from mooring.store.chunks import chunks
from mooring.store.ids import new_id
from mooring.store.tables import node_resources, resource_allocations, status_history, tasks, workloads
from mooring.store.types import AnyRow


@dataclass(frozen=True, slots=True)
class Change:
    """One task to a new status. `freed`: False where the end is known but not that nothing is left on the node."""

    task_id: UUID
    new: TaskStatus
    reason: Reason | None = None
    node_id: UUID | None = None
    node_name: str | None = None
    score: int | None = None
    exit_code: int | None = None
    restarts: int | None = None
    freed: bool = True


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    workload_id: UUID
    name: str
    kind: str
    old: WorkloadStatus
    new: WorkloadStatus
    reason: str | None


@dataclass(slots=True)
class Applied:
    """What was really changed."""

    tasks: list[tuple[Change, TaskStatus]] = field(default_factory=list)
    workloads: list[WorkloadChange] = field(default_factory=list)


async def lock_workloads(connection: AsyncConnection, ids: Iterable[UUID]) -> dict[UUID, AnyRow]:
    """The workloads' rows, locked in the order of their ids until the transaction ends."""
    found: dict[UUID, AnyRow] = {}
    for part in chunks(sorted(set(ids))):
        rows = await connection.execute(
            select(
                workloads.c.id,
                workloads.c.name,
                workloads.c.kind,
                workloads.c.status,
                workloads.c.stopping,
                workloads.c.replicas,
                workloads.c.max_per_node,
                workloads.c.reason,
                workloads.c.placed_before,
                workloads.c.started_at,
                workloads.c.ended_at,
                workloads.c.removed_at,
                workloads.c.version,
            )
            .where(workloads.c.id.in_(part))
            .order_by(workloads.c.id)
            .with_for_update()
        )
        found.update((row.id, row) for row in rows)
    return found


async def apply(
    connection: AsyncConnection,
    changes: Sequence[Change],
    *,
    actor: str,
    now: datetime,
    term: int | None = None,
    also: Iterable[UUID] = (),
    failed: Mapping[UUID, Reason] | None = None,
) -> Applied:
    """Make the changes that are legal now.

    `also`: workloads to derive anew even if none of their tasks changed. `failed`: workloads that end FAILED as a
    whole, whatever their kind, unless some task of theirs is still alive.
    """
    owners = await _workloads_of(connection, [change.task_id for change in changes])
    locked = await lock_workloads(connection, {*owners.values(), *also})
    rows = await _task_rows(connection, list(locked))
    applied = Applied()
    if changes:
        await _change_tasks(connection, changes, rows, applied, actor=actor, now=now, term=term)
    await _derive_workloads(connection, locked, rows, applied, failed or {}, actor=actor, now=now, term=term)
    return applied


async def free_lost(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> int:
    """Nothing is left of these tasks on their node, though their end was known before: free what they still occupy."""
    owners = await _workloads_of(connection, list(task_ids))
    locked = await lock_workloads(connection, owners.values())
    rows = await _task_rows(connection, list(locked), all_of=list(task_ids))
    freed = [
        row
        for task_id in dict.fromkeys(task_ids)
        if (row := rows.get(task_id)) is not None
        and lifecycle.is_end(TaskStatus(row["status"]))
        and row["freed_at"] is None
    ]
    if not freed:
        return 0
    ledger = await _live_ledger(connection, [row["id"] for row in freed])
    deltas: dict[tuple[UUID, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in freed:
        _count(deltas, row["node_id"], ledger[row["id"]], -1)
    for part in chunks([row["id"] for row in freed]):
        await connection.execute(
            update(resource_allocations)
            .where(resource_allocations.c.task_id.in_(part), resource_allocations.c.freed_at.is_(None))
            .values(freed_at=now)
        )
        await connection.execute(
            update(tasks)
            .where(tasks.c.id.in_(part))
            .values(freed_at=now, occupied_slots={}, version=tasks.c.version + 1)
        )
    await _move_counters(connection, deltas)
    await events.append(
        connection,
        [
            events.NewEvent("task", row["id"], row["version"] + 1, "freed", row["node_id"], row["workload_id"])
            for row in freed
        ],
        now,
    )
    return len(freed)


async def _workloads_of(connection: AsyncConnection, task_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    found: dict[UUID, UUID] = {}
    for part in chunks(task_ids):
        rows = await connection.execute(select(tasks.c.id, tasks.c.workload_id).where(tasks.c.id.in_(part)))
        found.update((row.id, row.workload_id) for row in rows)
    return found


async def _task_rows(
    connection: AsyncConnection, workload_ids: Sequence[UUID], all_of: Sequence[UUID] = ()
) -> dict[UUID, dict[str, Any]]:
    """The tasks of these workloads that are current or still occupy a node, as dictionaries to be changed."""
    found: dict[UUID, dict[str, Any]] = {}
    for part in chunks(workload_ids):
        alive = tasks.c.status.in_([*lifecycle.OCCUPYING, TaskStatus.PENDING])
        result = await connection.execute(select(tasks).where(tasks.c.workload_id.in_(part), tasks.c.current | alive))
        found.update((row.id, dict(row._mapping)) for row in result)
    missing = [task_id for task_id in all_of if task_id not in found]
    for part in chunks(missing):
        result = await connection.execute(select(tasks).where(tasks.c.id.in_(part)))
        found.update((row.id, dict(row._mapping)) for row in result)
    return found


async def _live_ledger(
    connection: AsyncConnection, task_ids: Sequence[UUID]
) -> dict[UUID, list[tuple[str, int, int, int, int]]]:
    found: dict[UUID, list[tuple[str, int, int, int, int]]] = defaultdict(list)
    ledger = resource_allocations.c
    for part in chunks(task_ids):
        rows = await connection.execute(
            select(ledger.task_id, ledger.slot_name, ledger.requested, ledger.held, ledger.reserved, ledger.used).where(
                ledger.task_id.in_(part), ledger.freed_at.is_(None)
            )
        )
        for task_id, slot, requested, held, reserved, used in rows:
            found[task_id].append((slot, requested, held, reserved, used))
    return found


async def _change_tasks(
    connection: AsyncConnection,
    changes: Sequence[Change],
    rows: dict[UUID, dict[str, Any]],
    applied: Applied,
    *,
    actor: str,
    now: datetime,
    term: int | None,
) -> None:
    accepted: list[tuple[Change, TaskStatus]] = []
    for change in changes:
        row = rows.get(change.task_id)
        if row is None or not lifecycle.is_legal(old := TaskStatus(row["status"]), change.new):
            continue
        accepted.append((change, old))
        row["status"] = change.new
    if not accepted:
        return
    ledger = await _live_ledger(connection, [change.task_id for change, _ in accepted])
    deltas: dict[tuple[UUID, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    reserve: list[UUID] = []
    use: list[UUID] = []
    free: list[UUID] = []
    history: list[dict[str, Any]] = []
    feed: list[events.NewEvent] = []
    for change, old in accepted:
        row = rows[change.task_id]
        # As the changes before this one leave it: a short task runs and ends in one report.
        amounts = ledger[change.task_id]
        if change.node_id is not None:
            row["node_id"], row["node_name"], row["score"] = change.node_id, change.node_name, change.score
        if change.exit_code is not None:
            row["exit_code"] = change.exit_code
        if change.restarts is not None:
            row["restarts"] = change.restarts
        if change.reason is not None:
            row["reason"] = change.reason.as_dict()
        occupied_before = old in lifecycle.OCCUPYING
        if change.new is TaskStatus.SCHEDULED:
            row["scheduled_at"] = now
            reserve.append(change.task_id)
            row["occupied_slots"] = {slot: requested for slot, requested, *_ in amounts}
            for slot, requested, *_ in amounts:
                deltas[row["node_id"], slot][1] += requested
            ledger[change.task_id] = [
                (slot, requested, held, requested, used) for slot, requested, held, _, used in amounts
            ]
        elif change.new is TaskStatus.RUNNING:
            row["started_at"] = now
            use.append(change.task_id)
            for slot, _, held, reserved, _used in amounts:
                delta = deltas[row["node_id"], slot]
                delta[0] -= held
                delta[1] -= reserved
                delta[2] += held + reserved
            ledger[change.task_id] = [
                (slot, requested, 0, 0, held + reserved) for slot, requested, held, reserved, _ in amounts
            ]
        elif lifecycle.is_end(change.new):
            row["ended_at"] = now
            if change.freed or not occupied_before:
                row["freed_at"] = now
                row["occupied_slots"] = {}
                free.append(change.task_id)
                if occupied_before:
                    _count(deltas, row["node_id"], amounts, -1)
        row["version"] += 1
        history.append(_history("task", change.task_id, row["workload_id"], old, change.new, actor, change, now, term))
        feed.append(
            events.NewEvent("task", change.task_id, row["version"], change.new, row["node_id"], row["workload_id"])
        )
    await _write_tasks(connection, [rows[task_id] for task_id in {change.task_id: None for change, _ in accepted}])
    await _write_ledger(connection, reserve, use, free, now)
    await _move_counters(connection, deltas)
    await connection.execute(insert(status_history), history)
    await events.append(connection, feed, now)
    applied.tasks.extend(accepted)


_WRITTEN = (
    "status",
    "node_id",
    "node_name",
    "score",
    "occupied_slots",
    "exit_code",
    "restarts",
    "reason",
    "scheduled_at",
    "started_at",
    "ended_at",
    "freed_at",
    "version",
)


async def _write_tasks(connection: AsyncConnection, rows: Sequence[Mapping[str, Any]]) -> None:
    await connection.execute(
        update(tasks)
        .where(tasks.c.id == bindparam("task"))
        .values({name: bindparam(f"new_{name}", type_=tasks.c[name].type) for name in _WRITTEN}),
        [{"task": row["id"]} | {f"new_{name}": row[name] for name in _WRITTEN} for row in rows],
    )


async def _write_ledger(
    connection: AsyncConnection, reserve: Sequence[UUID], use: Sequence[UUID], free: Sequence[UUID], now: datetime
) -> None:
    ledger = resource_allocations.c
    for ids, values in (
        (reserve, {"reserved": ledger.requested, "reserved_at": now}),
        (use, {"used": ledger.held + ledger.reserved, "held": 0, "reserved": 0, "used_at": now}),
        (free, {"freed_at": now}),
    ):
        for part in chunks(ids):
            await connection.execute(
                update(resource_allocations).where(ledger.task_id.in_(part), ledger.freed_at.is_(None)).values(values)
            )


def _count(
    deltas: dict[tuple[UUID, str], list[int]],
    node_id: UUID | None,
    amounts: Iterable[tuple[str, int, int, int, int]],
    sign: int,
) -> None:
    if node_id is None:
        return
    for slot, _, held, reserved, used in amounts:
        delta = deltas[node_id, slot]
        delta[0] += sign * held
        delta[1] += sign * reserved
        delta[2] += sign * used


async def _move_counters(connection: AsyncConnection, deltas: Mapping[tuple[UUID, str], Sequence[int]]) -> None:
    moved = [(key, delta) for key, delta in sorted(deltas.items()) if any(delta)]
    if not moved:
        return
    counters = node_resources.c
    await connection.execute(
        update(node_resources)
        .where(counters.node_id == bindparam("node"), counters.slot_name == bindparam("slot"))
        .values(
            held=counters.held + bindparam("held_delta"),
            reserved=counters.reserved + bindparam("reserved_delta"),
            used=counters.used + bindparam("used_delta"),
        ),
        [
            {"node": node, "slot": slot, "held_delta": held, "reserved_delta": reserved, "used_delta": used}
            for (node, slot), (held, reserved, used) in moved
        ],
    )


async def _derive_workloads(
    connection: AsyncConnection,
    locked: Mapping[UUID, AnyRow],
    rows: Mapping[UUID, Mapping[str, Any]],
    applied: Applied,
    failed: Mapping[UUID, Reason],
    *,
    actor: str,
    now: datetime,
    term: int | None,
) -> None:
    statuses: dict[UUID, list[TaskStatus]] = defaultdict(list)
    for row in rows.values():
        if row["current"]:
            statuses[row["workload_id"]].append(TaskStatus(row["status"]))
    touched: dict[UUID, list[Change]] = defaultdict(list)
    for change, _ in applied.tasks:
        touched[rows[change.task_id]["workload_id"]].append(change)
    updates: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    feed: list[events.NewEvent] = []
    for workload_id, workload in locked.items():
        old = WorkloadStatus(workload.status)
        new = old
        if not lifecycle.is_workload_end(old):
            new = lifecycle.derive(
                old,
                statuses[workload_id],
                desired=workload.replicas,
                service=workload.kind == Kind.DEPLOYMENT,
                stopping=workload.stopping,
            )
            # What still lives of it decides otherwise: a replica runs, or one was added since.
            if workload_id in failed and all(map(lifecycle.is_end, statuses[workload_id])):
                new = WorkloadStatus.FAILED
        own = touched[workload_id]
        placed = any(change.new is TaskStatus.SCHEDULED for change in own)
        if new is old and not own:
            continue
        reason = failed.get(workload_id) or _explain(new, own, workload)
        ended = lifecycle.is_workload_end(new)
        updates.append(
            {
                "workload": workload_id,
                "new_status": new,
                "new_reason": _kept_reason(new, own, workload, placed, reason),
                "new_placed": workload.placed_before or placed,
                "new_started": workload.started_at or (now if new is WorkloadStatus.RUNNING else None),
                "new_ended": workload.ended_at or (now if ended else None),
                "new_updated": now,
                "new_version": workload.version + 1,
            }
        )
        feed.append(events.NewEvent("workload", workload_id, workload.version + 1, new, None, workload_id))
        if new is not old:
            text = reason.message if reason else None
            history.append(history_row("workload", workload_id, workload_id, old, new, actor, text, now, term))
            applied.workloads.append(WorkloadChange(workload_id, workload.name, workload.kind, old, new, text))
    if updates:
        await connection.execute(
            update(workloads)
            .where(workloads.c.id == bindparam("workload"))
            .values(
                status=bindparam("new_status"),
                reason=bindparam("new_reason", type_=workloads.c.reason.type),
                placed_before=bindparam("new_placed"),
                started_at=bindparam("new_started", type_=workloads.c.started_at.type),
                ended_at=bindparam("new_ended", type_=workloads.c.ended_at.type),
                updated_at=bindparam("new_updated", type_=workloads.c.updated_at.type),
                version=bindparam("new_version"),
            ),
            updates,
        )
    if history:
        await connection.execute(insert(status_history), history)
    await events.append(connection, feed, now)


def _explain(new: WorkloadStatus, own: Sequence[Change], workload: AnyRow) -> Reason | None:
    """Why the workload is in its new status, in the words that its history keeps."""
    replicas = "replica" if workload.kind == Kind.DEPLOYMENT else "task"
    many = f"{workload.replicas} {replicas}{'s' if workload.replicas != 1 else ''}"
    if new is WorkloadStatus.SCHEDULED:
        return Reason("scheduled", f"Scheduled {many}", "scheduler")
    if new is WorkloadStatus.RUNNING:
        return Reason("running", f"All {many} started", "agent")
    if new is WorkloadStatus.SUCCEEDED:
        return Reason("succeeded", f"All {many} ended with success", "agent")
    if new is WorkloadStatus.CANCELLED:
        return Reason("cancelled", "Stopped as asked", "user")
    return next((change.reason for change in reversed(own) if change.reason is not None), None)


def _kept_reason(
    new: WorkloadStatus, own: Sequence[Change], workload: AnyRow, placed: bool, reason: Reason | None
) -> dict[str, Any] | None:
    """What stays with the workload: why it waits, fails or ended; nothing while it starts or runs well."""
    if new in (WorkloadStatus.SCHEDULED, WorkloadStatus.PREPARING, WorkloadStatus.RUNNING, WorkloadStatus.SUCCEEDED):
        return None
    if reason is not None:
        return reason.as_dict()
    return None if placed else workload.reason


def _history(
    noun: str,
    object_id: UUID,
    workload_id: UUID,
    old: str,
    new: str,
    actor: str,
    change: Change,
    now: datetime,
    term: int | None,
) -> dict[str, Any]:
    text = change.reason.message if change.reason else None
    if text is None and change.node_name is not None:
        text = f"Placed on {change.node_name}"
    return history_row(noun, object_id, workload_id, old, new, actor, text, now, term)


def history_row(
    noun: str,
    object_id: UUID,
    workload_id: UUID,
    old: str,
    new: str,
    actor: str,
    reason: str | None,
    now: datetime,
    term: int | None = None,
) -> dict[str, Any]:
    return {
        "id": new_id(),
        "noun": noun,
        "object_id": object_id,
        "workload_id": workload_id,
        "old_status": str(old),
        "new_status": str(new),
        "actor": actor,
        "reason": reason[:500] if reason else None,
        "at": now,
        "term": term,
    }
