"""The only writer of task statuses, ledger rows, counters, JSON copies, history and events.

`apply` locks workloads first, then nodes, then the counters of tenants, each in the order of their ids, so that writers
never deadlock. A change that repeats an earlier one or is no longer legal is skipped; it is never an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.admission import Checked
from mooring.model.workloads.lifetime.health import LOOPS_AFTER
from mooring.store.commit import exit_policy
from mooring.store.commit.allocation_updates import AllocationUpdate, AllocationUpdates
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import (
    Loaded,
    LoadedTask,
    load,
    load_ended,
)
from mooring.store.commit.status_changes import Applied, Change, LastExit
from mooring.store.commit.tenant_usage import TenantUsage
from mooring.store.commit.workload_status import Ends, update_workloads
from mooring.store.control import events
from mooring.store.core.batch_sql import Update, Writes

_MANY_TASKS = 200
"""More changes than this are planned in a thread, off the event loop."""
_WRITE_TASKS = Update(
    "tasks AS t",
    # Always true, except for an outdated draft.
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
        "crashes": "bigint",
        "crashed": "boolean",
        "last_exit_code": "bigint",
        "last_reason": "jsonb",
        "retry_at": "timestamptz",
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
        "crashed": """
            crashes = coalesce(i.crashes, t.crashes),
            last_exit_code = CASE WHEN i.last_reason IS NULL THEN t.last_exit_code ELSE i.last_exit_code END,
            last_reason = coalesce(i.last_reason, t.last_reason),
            retry_at = CASE WHEN i.crashed THEN i.retry_at ELSE t.retry_at END
        """,
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
    last: bool = False,
) -> Applied:
    """Make the changes that are legal now.

    `also`: workloads whose status is derived again even if none of their tasks changed. `ended`: workloads that end as
    a whole, whatever their kind, unless a task of theirs is alive. `loaded`: the rows that the caller has locked and
    read in this transaction for the same workloads; it is modified. `last`: see `Writes.execute`.
    """
    if loaded is None:
        loaded = await load(connection, tasks_of=[change.task_id for change in changes], workload_ids=also)
    writes = Writes.on(connection)
    planning = partial(plan, writes, changes, loaded, ChangeLog(actor, now, term), ended=ended)
    # Cancelling an array changes as many tasks as it has.
    applied = planning() if len(changes) <= _MANY_TASKS else await asyncio.to_thread(planning)
    await writes.execute(connection, last=last)
    return applied


def plan(
    writes: Writes,
    changes: Sequence[Change],
    loaded: Loaded,
    log: ChangeLog,
    *,
    ended: Ends | None = None,
    admitted: Mapping[UUID, Checked] | None = None,
    guarded: bool = False,
) -> Applied:
    """Add the writes of `apply` to `writes`.

    `admitted`: the results of the admission checks of workloads that are placed. `guarded`: the loaded rows are not
    locked, so the writes raise NotAsExpected if a task has changed or if the requests no longer fit on a node.
    """
    planned = _Plan(loaded, log)
    for change in _with_all_holds(changes, loaded):
        planned.add(change)
    if planned.updates:
        planned.allocations.write(writes, log.now, locked_nodes=loaded.locked_nodes, guarded=guarded)
        _write(writes, planned.updates.values(), log.now, all_expected=guarded)
    update_workloads(writes, loaded, planned.applied, ended or {}, planned.lowered, admitted or {}, log)
    planned.usage.write(writes, loaded, log)
    log.write(writes)
    return planned.applied


def _with_all_holds(changes: Sequence[Change], loaded: Loaded) -> Sequence[Change]:
    """Add the other holds of each workload that gives up one: a workload holds capacity for all its tasks or none."""
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
    """Free the allocations of tasks whose end was known before their node confirmed that nothing of them is left.

    Return the number of tasks that were freed.
    """
    lost = [t for t in await load_ended(connection, task_ids) if lifecycle.is_end(t.status) and not t.freed]
    if not lost:
        return 0
    allocations = AllocationUpdates()
    for task in lost:
        allocations.free(allocations.of(task))
        task.version += 1
    updates = [_TaskUpdate(task, freed=True) for task in lost]
    for update in updates:
        update.release()
    freed = [events.NewEvent("task", t.id, t.version, "freed", t.node_id, t.workload_id) for t in lost]
    writes = Writes.on(connection)
    allocations.write(writes, now)
    _write(writes, updates, now)
    events.add(writes, freed, now)
    await writes.execute(connection)
    return len(lost)


@dataclass(slots=True)
class _Plan:
    """The changes of one transaction, collected task by task."""

    loaded: Loaded
    log: ChangeLog
    applied: Applied = field(default_factory=Applied)
    updates: dict[UUID, _TaskUpdate] = field(default_factory=dict)
    allocations: AllocationUpdates = field(default_factory=AllocationUpdates)
    usage: TenantUsage = field(default_factory=TenantUsage)
    lowered: set[UUID] = field(default_factory=set)
    """Workloads whose priority was lowered."""

    def add(self, change: Change) -> None:
        """Add a change, unless it repeats an earlier one or is not legal."""
        task = self.loaded.tasks.get(change.task_id)
        if task is None:
            return
        if task.status is change.new is TaskStatus.RUNNING:
            self._refresh(task, change)
        elif change.new in lifecycle.TASK_EDGES[task.status]:
            self._transition(task, change)

    def _refresh(self, task: LoadedTask, change: Change) -> None:
        """Store news about a running task: readiness, restarts, image digests, address."""
        kinds = _events_about(task, change)
        if not kinds:
            return
        self._update_of(task).set_running_state(change)
        task.restarts, task.crashes = change.restarts or task.restarts, change.crashes or 0
        task.version += 1
        for kind in kinds:
            details = _crash_details(task, change) if kind in events.CRASHES else None
            self.log.add_event(
                events.NewEvent("task", task.id, task.version, kind, task.node_id, task.workload_id, details)
            )
        self.applied.tasks.append((change, TaskStatus.RUNNING))

    def _transition(self, task: LoadedTask, change: Change) -> None:
        """Move a task to its new status, with its allocations, its history and its event."""
        old, workload = task.status, self.loaded.workloads[task.workload_id]
        if lifecycle.is_end(change.new):
            change = exit_policy.apply(change, task, workload, self.lowered)
        update = self._update_of(task)
        # Taken before the task changes: it says where the task counts until now.
        allocation = self.allocations.of(task)
        _set_status(update, change)
        _EFFECTS.get(change.new, _end)(_Transition(update, change, old, allocation, self.allocations))
        if change.new is TaskStatus.RUNNING and workload.time_limit_seconds:
            update.deadline = self.log.now + timedelta(seconds=workload.time_limit_seconds)
        self._record(task, change, old, update.left)
        self.applied.tasks.append((change, old))

    def _record(self, task: LoadedTask, change: Change, old: TaskStatus, left: UUID | None) -> None:
        """Add the history row and the event of a transition."""
        why = change.reason.message if change.reason else change.node_name and f"Placed on {change.node_name}"
        self.log.add_status("task", task.id, task.workload_id, old, change.new, why)
        # A hold that is given up changes the node that it was on.
        node_id = task.node_id or left
        self.log.add_event(
            events.NewEvent("task", task.id, task.version, change.new, node_id, task.workload_id, change.details)
        )

    def _update_of(self, task: LoadedTask) -> _TaskUpdate:
        update = self.updates.get(task.id)
        if update is None:
            update = self.updates[task.id] = _TaskUpdate(task)
            self.usage.begin(task)
        return update


@dataclass(slots=True)
class _TaskUpdate:
    """The columns of a task that change; a value of None or False leaves its column unchanged."""

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
    crashes: int | None = None
    last_exit: LastExit | None = None
    crashed: bool = False
    """Its crashes, its last exit or the time of its restart change."""
    reason: dict[str, Any] | None = None
    readiness: Literal["ready", "unready"] | None = None
    digests: Mapping[str, str] | None = None
    address: str | None = None
    left: UUID | None = None
    """The node of a hold that was given up."""

    def place(self, change: Change) -> None:
        self.moved, self.occupancy = True, "taken"
        self.task.node_id, self.node_name, self.score = change.node_id, change.node_name, change.score
        if change.ports or change.devices:
            self.named, self.ports, self.devices = True, change.ports or None, _by_slot(change) or None

    def release(self) -> None:
        self.occupancy = "released"
        if self.task.ports or self.task.has_devices:
            self.named, self.ports, self.devices = True, None, None

    def set_running_state(self, change: Change) -> None:
        self.task.ready = change.ready
        self.readiness = "ready" if change.ready else "unready"
        self.digests, self.address, self.restarts = change.digests or None, change.address, change.restarts
        self.set_crashes(change)

    def set_crashes(self, change: Change) -> None:
        if change.last_exit is not None or (change.crashes or 0) != self.task.crashes:
            self.crashed, self.crashes, self.last_exit = True, change.crashes, change.last_exit

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
            self.crashes,
            self.crashed,
            None if self.last_exit is None else self.last_exit.exit_code,
            None if self.last_exit is None else self.last_exit.as_dict(),
            None if self.last_exit is None else self.last_exit.retry_at,
            self.reason,
            self.started or self.reason is not None,
            self.readiness,
            self.digests,
            self.address,
        )


def _write(writes: Writes, updates: Iterable[_TaskUpdate], now: datetime, *, all_expected: bool = False) -> None:
    rows = [update.values(writes.copies) for update in updates]
    writes.add(_WRITE_TASKS, rows, expected=len(rows) if all_expected else None, at=now)


def _set_status(update: _TaskUpdate, change: Change) -> None:
    task = update.task
    task.status = change.new
    task.version += 1
    if change.reason is not None:
        update.reason = change.reason.as_dict()
        task.code = change.reason.code
    if change.restarts is not None:
        update.restarts = change.restarts
    if change.crashes:
        update.set_crashes(change)
    if task.ready:
        task.ready, update.readiness = False, "unready"


class _Transition(NamedTuple):
    """The transition of one task from `old` to the status that the change names."""

    update: _TaskUpdate
    change: Change
    old: TaskStatus
    allocation: AllocationUpdate
    allocations: AllocationUpdates


def _reserve(to: _Transition) -> None:
    """RESERVED: capacity is held on the node that the change names."""
    if to.change.node_id is not None:
        to.update.place(to.change)
    to.allocations.hold(to.allocation, to.change)


def _schedule(to: _Transition) -> None:
    """SCHEDULED: on the node of its hold, or on the one that the change names."""
    if to.change.node_id is not None:
        to.update.place(to.change)
    to.update.scheduled = True
    to.allocations.schedule(to.allocation, to.change, held=to.old is TaskStatus.RESERVED)


def _prepare(to: _Transition) -> None:
    """PREPARING: the task occupies the same as before."""


def _start(to: _Transition) -> None:
    """RUNNING: reserved amounts become used ones."""
    to.update.started = True
    to.update.set_running_state(to.change)
    to.allocations.use(to.allocation)


def _terminate(to: _Transition) -> None:
    """TERMINATING: the amounts of a preempted task count as `leaving` until they are freed."""
    task = to.update.task
    task.requeue = task.requeue or to.change.requeue
    if to.change.preempted_by is not None:
        to.update.preempted_by = to.change.preempted_by
        task.preempted = True


def _release_hold(to: _Transition) -> None:
    """PENDING again: nothing of the task was ever on the node."""
    to.update.left = to.update.task.node_id
    to.update.moved, to.update.node_name, to.update.score = True, None, None
    to.update.release()
    to.allocations.release_hold(to.allocation)


def _end(to: _Transition) -> None:
    """An end: allocations are freed once nothing of the task is left on its node."""
    task = to.update.task
    task.requeue = task.requeue or to.change.requeue
    to.update.ended = True
    to.update.exit_code = to.change.exit_code
    if to.change.freed or to.old not in lifecycle.OCCUPYING:
        to.update.freed = True
        to.update.release()
        to.allocations.free(to.allocation, held=to.old is TaskStatus.RESERVED)


_EFFECTS = {
    TaskStatus.PENDING: _release_hold,
    TaskStatus.RESERVED: _reserve,
    TaskStatus.SCHEDULED: _schedule,
    TaskStatus.PREPARING: _prepare,
    TaskStatus.RUNNING: _start,
    TaskStatus.TERMINATING: _terminate,
}
"""The effects of each new status; all others are ends."""


def _events_about(task: LoadedTask, change: Change) -> list[str]:
    """Return the kinds of events that report news about a running task; none if there is no news."""
    kinds: list[str] = []
    crashes = change.crashes or 0
    if crashes > task.crashes:
        kinds.append(events.CRASH_LOOPING if task.earlier_crashes + crashes >= LOOPS_AFTER else events.CRASHED)
    if task.ready is not change.ready:
        kinds.append(events.READY if change.ready else events.UNREADY)
    if kinds:
        return kinds
    before = msgspec.json.decode(task.digests) if task.digests else None
    same = (not change.digests or change.digests == before) and change.address in (None, task.address)
    return [] if same and (change.restarts or 0) <= task.restarts else [events.RENEWED]


def _crash_details(task: LoadedTask, change: Change) -> dict[str, Any]:
    """Return the details of a crash event."""
    found: dict[str, Any] = {"restarts": task.restarts, "crashes": task.earlier_crashes + task.crashes}
    if (ended := change.last_exit) is not None:
        retry_at = None if ended.retry_at is None else ended.retry_at.isoformat()
        found |= {**ended.as_dict(), "exit_code": ended.exit_code, "next_retry_at": retry_at}
    return found


def _by_slot(change: Change) -> dict[str, list[tuple[int, int]]]:
    """Return the readable copy of the devices: (index, amount) pairs by slot."""
    found: dict[str, list[tuple[int, int]]] = {}
    for slot, device, amount in change.devices:
        found.setdefault(slot, []).append((device, amount))
    return found
