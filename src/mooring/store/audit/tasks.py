"""The one consistent state of a task, derived from all records about it.

The status determines the other records: the column of the amounts, the timestamps that are set, whether there is a
node. The majority of sources decides values. Contradictions without a majority are left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from mooring.model.lifecycle import OCCUPYING, TaskStatus, is_end
from mooring.model.resources.slots import Amounts
from mooring.store.audit import task_holdings
from mooring.store.audit.corrections import Cell, Correction, Unresolved, Verdict, changed, deleted, inserted
from mooring.store.audit.evidence import EvidenceBatch, TaskEvidence, amounts
from mooring.store.audit.majority import (
    Decided,
    Undecided,
    Vote,
    majority,
)
from mooring.store.tables import resource_allocations, tasks

T = TaskStatus
_ENDS = tuple(status for status in T if is_end(status))
_ENDS_FREED = frozenset({T.SUCCEEDED, T.CANCELLED})
_UNSCHEDULED = frozenset({T.PENDING, T.RESERVED})
_UNSTARTED = _UNSCHEDULED | {T.SCHEDULED, T.PREPARING}
_STAMPS = "timestamps agree"
_NODE = "records of a task name one node"
_COPY = "JSON = ledger, {}"


class _Past(NamedTuple):
    """The times of the events in the life of a task."""

    created: Decided[datetime]
    held: Decided[datetime | None]
    scheduled: Decided[datetime | None]
    started: Decided[datetime | None]
    ended: Decided[datetime | None]
    freed: Decided[datetime | None]


def reconcile(own: TaskEvidence, batch: EvidenceBatch, *, copies: bool) -> Verdict:
    """Return the corrections of a task. `copies`: `occupied_slots` is maintained, so it counts and is corrected."""
    subject = f"task {own.task.id} ({own.task.status})"
    try:
        return Verdict(tuple(_corrections(own, batch, subject, copies=copies)))
    except Undecided as undecided:
        return Verdict(unresolved=(Unresolved("records of a task agree", subject, str(undecided)),))


def _corrections(own: TaskEvidence, batch: EvidenceBatch, subject: str, *, copies: bool) -> list[Correction]:
    status = _status(own)
    past = _past(own, status.value, copies=copies)
    node = _node(own, batch, status.value, past)
    column = _column(own, status.value, past, node.value)
    occupies = _occupies(status.value, past)
    request = _request(own, status.value, column, occupies=occupies, copies=copies)
    found = _task_corrections(own, batch, subject, status, past, node)
    found += _copy_corrections(own, subject, request, occupies=occupies, copies=copies)
    found += _ledger_corrections(own, subject, status.value, past, column, request)
    expected = task_holdings.Expected(
        status.value, node.value, occupies, request.value, past.held.value, past.freed.value, subject
    )
    return found + task_holdings.corrections(own, batch, expected)


def _status(own: TaskEvidence) -> Decided[TaskStatus]:
    """Return the status by task, history and feed, as far as the timestamps allow it."""
    votes = [Vote("tasks.status", own.task.status)]
    if own.history:
        votes.append(Vote("status_history", own.history[-1].new_status))
    if own.last_event is not None:
        votes.append(Vote("events", own.last_event))
    if len(votes) > 1 and len({vote.value for vote in votes}) == 1:
        return Decided(T(own.task.status), f"{own.task.status} by status_history")
    found = majority("status", [vote for vote in votes if vote.value in T.__members__ and _fits(own, T(vote.value))])
    return Decided(T(found.value), found.why)


def _fits(own: TaskEvidence, status: TaskStatus) -> bool:
    """Return whether the timestamps that most sources have match this status."""
    scheduled = _is_set(own, "scheduled_at", "reserved_at", T.SCHEDULED)
    started = _is_set(own, "started_at", "used_at", T.RUNNING)
    ended = _is_set(own, "ended_at", None, *_ENDS)
    if status in _UNSCHEDULED:
        return not scheduled and not started and not ended and (own.hold is None or status is T.RESERVED)
    if is_end(status):
        return ended is not False
    return (
        not ended
        and scheduled is not False
        and (started is not False if status is T.RUNNING else True)
        and (not started if status in _UNSTARTED else True)
    )


def _is_set(own: TaskEvidence, column: str, ledger_column: str | None, *statuses: TaskStatus) -> bool | None:
    """Return whether most sources have the timestamp; None if they are split evenly."""
    there = [getattr(own.task, column) is not None]
    if ledger_column is not None:
        there += [vote.value is not None for vote in _ledger_votes(own, ledger_column)]
    if own.whole_history:
        there.append(own.happened(*statuses) is not None)
    return None if 2 * sum(there) == len(there) else 2 * sum(there) > len(there)


def _past(own: TaskEvidence, status: TaskStatus, *, copies: bool) -> _Past:
    ends = is_end(status)
    scheduled = _moment(
        own,
        ("scheduled_at", "reserved_at", (T.SCHEDULED,)),
        status,
        forbidden=status in _UNSCHEDULED,
        optional=ends,
    )
    started = _moment(
        own,
        ("started_at", "used_at", (T.RUNNING,)),
        status,
        forbidden=status in _UNSTARTED,
        optional=ends or status is T.TERMINATING,
    )
    ended = _ended(own, status)
    created = _created(own)
    return _Past(created, _held(own, status), scheduled, started, ended, _freed(own, status, ended, copies))


def _moment(
    own: TaskEvidence,
    named: tuple[str, str, tuple[TaskStatus, ...]],
    status: TaskStatus,
    *,
    forbidden: bool,
    optional: bool,
) -> Decided[datetime | None]:
    column, ledger_column, statuses = named
    if forbidden:
        return Decided(None, f"a task that is {status} has none")
    votes: list[Vote[datetime | None]] = [Vote(f"tasks.{column}", getattr(own.task, column))]
    votes += _ledger_votes(own, ledger_column)
    happened = own.happened(*statuses)
    if happened is not None or own.whole_history:
        votes.append(Vote("status_history", happened))
    return majority(column, votes if optional else [vote for vote in votes if vote.value is not None])


def _created(own: TaskEvidence) -> Decided[datetime]:
    votes = [Vote("tasks.created_at", own.task.created_at), *_ledger_votes(own, "created_at")]
    try:
        return majority("created_at", votes)
    except Undecided:
        # The first tasks are created with their workload.
        return majority("created_at", [*votes, Vote("workloads.created_at", own.workload.created_at)])


def _ended(own: TaskEvidence, status: TaskStatus) -> Decided[datetime | None]:
    if not is_end(status):
        return Decided(None, f"a task that is {status} has not ended")
    votes: list[Vote[datetime | None]] = [Vote("tasks.ended_at", own.task.ended_at)]
    votes.append(Vote("status_history", own.happened(*_ENDS)))
    if status in _ENDS_FREED:
        votes += [Vote("tasks.freed_at", own.task.freed_at), *_ledger_votes(own, "freed_at")]
    return majority("ended_at", [vote for vote in votes if vote.value is not None])


def _freed(
    own: TaskEvidence, status: TaskStatus, ended: Decided[datetime | None], copies: bool
) -> Decided[datetime | None]:
    """Return when it was freed: for failed and lost tasks, possibly later than their end."""
    if not is_end(status):
        return Decided(None, f"a task that is {status} occupies its node or waits")
    if status in _ENDS_FREED:
        return Decided(ended.value, f"a task that is {status} is freed with its end")
    votes: list[Vote[datetime | None]] = [Vote("tasks.freed_at", own.task.freed_at)]
    votes += _ledger_votes(own, "freed_at")
    votes += _uniform("device_allocations.freed_at", [row.freed_at for row in own.devices.values()])
    try:
        return majority("freed_at", votes)
    except Undecided:
        moments = {vote.value for vote in votes if vote.value is not None}
        if len(moments) != 1:
            raise
        (moment,) = moments
        if copies and own.task.requested_slots:
            votes.append(Vote("tasks.occupied_slots", None if own.task.occupied_slots else moment))
        return majority("freed_at", votes)


def _held(own: TaskEvidence, status: TaskStatus) -> Decided[datetime | None]:
    if status is T.PENDING:
        return Decided(None, "a task that is PENDING has none")
    votes: list[Vote[datetime | None]] = list(_ledger_votes(own, "held_at"))
    held = own.held()
    if held is not None or own.whole_history:
        votes.append(Vote("status_history", held))
    if own.hold is not None:
        votes.append(Vote("holds.created_at", own.hold.created_at))
    if T.SCHEDULED in own.event_statuses and T.RESERVED not in own.event_statuses:
        votes.append(Vote("events", None))
    if status is T.RESERVED:
        votes = [vote for vote in votes if vote.value is not None]
    return majority("held_at", votes) if votes else Decided(None, "")


def _node(own: TaskEvidence, batch: EvidenceBatch, status: TaskStatus, past: _Past) -> Decided[UUID | None]:
    task = own.task
    if status is T.PENDING:
        return Decided(None, "a task that is PENDING has no node")
    if task.node_id is None and past.freed.value is not None:
        # Its node may have been removed since.
        return Decided(None, "")
    votes: list[Vote[UUID | None]] = [Vote("tasks.node_id", task.node_id)]
    if (named := batch.node_named(task.node_name)) is not None:
        votes.append(Vote("tasks.node_name", named))
    votes += _uniform("device_allocations.node_id", [row.node_id for row in own.devices.values()])
    votes += _uniform("port_allocations.node_id", [row.node_id for row in own.ports])
    if own.hold is not None:
        votes.append(Vote("holds.node_id", own.hold.node_id))
    if own.event_node is not None:
        votes.append(Vote("events.node_id", own.event_node))
    known = [vote for vote in votes if vote.value in batch.nodes]
    try:
        return majority("node", known)
    except Undecided:
        asked = amounts(task.requested_slots) or {}
        candidates = {vote.value for vote in known if vote.value is not None}
        return majority("node", [*known, *_counter_votes(batch, task.node_id, asked, candidates)])


def _counter_votes(
    batch: EvidenceBatch, node_id: UUID | None, asked: Amounts, candidates: Iterable[UUID]
) -> Iterable[Vote[UUID | None]]:
    """Yield the node whose counters include the task; by the ledger it counts on `tasks.node_id`."""
    for candidate in candidates:
        surplus = batch.surplus.get(candidate, {})
        if candidate == node_id:
            if not surplus:
                yield Vote("node_resources", candidate)
        elif asked and all(surplus.get(slot, 0) == amount for slot, amount in asked.items()):
            yield Vote("node_resources", candidate)


def _occupies(status: TaskStatus, past: _Past) -> bool:
    return status in OCCUPYING or (is_end(status) and past.freed.value is None)


def _column(own: TaskEvidence, status: TaskStatus, past: _Past, node: UUID | None) -> str | None:
    """Return the column of ledger and counters that has its amounts, or had them before it was freed."""
    if status is T.PENDING:
        return None
    if status is T.RESERVED:
        return "held"
    if past.started.value is not None:
        return "used"
    if past.scheduled.value is not None:
        return "reserved"
    return "held" if node is not None or own.task.node_name is not None else None


def _request(
    own: TaskEvidence, status: TaskStatus, column: str | None, *, occupies: bool, copies: bool
) -> Decided[dict[str, int]]:
    """Return the amounts that most sources state, slot by slot."""
    stated: dict[str, Amounts] = own.template_requests()
    if (copy := amounts(own.task.requested_slots)) is not None:
        stated["tasks.requested_slots"] = copy
    if copies and occupies and (occupied := amounts(own.task.occupied_slots)) is not None:
        stated["tasks.occupied_slots"] = occupied
    stated["resource_allocations.requested"] = {slot: row.requested for slot, row in own.ledger.items()}
    if column is not None and own.ledger:
        there = {slot: row.held + row.reserved + row.used for slot, row in own.ledger.items()}
        stated[f"resource_allocations.{column}"] = there
    slots = sorted({slot for asked in stated.values() for slot in asked})
    decided = {
        slot: majority(f"amount of {slot}", [Vote(name, asked.get(slot)) for name, asked in stated.items()])
        for slot in slots
    }
    value = {slot: found.value for slot, found in decided.items() if found.value is not None}
    return Decided(value, "; ".join(found.why for found in decided.values()))


def _task_corrections(
    own: TaskEvidence,
    batch: EvidenceBatch,
    subject: str,
    status: Decided[TaskStatus],
    past: _Past,
    node: Decided[UUID | None],
) -> list[Correction]:
    task, key = own.task, {"id": own.task.id}
    found = changed(
        tasks, key, [Cell("status", task.status, status.value.value, status.why)], "status agrees with history", subject
    )
    stamps = [
        Cell("created_at", task.created_at, *past.created),
        Cell("scheduled_at", task.scheduled_at, *past.scheduled),
        Cell("started_at", task.started_at, *past.started),
        Cell("ended_at", task.ended_at, *past.ended),
        Cell("freed_at", task.freed_at, *past.freed),
    ]
    found += changed(tasks, key, stamps, _STAMPS, subject)
    name = task.node_name
    if node.value is not None or status.value is T.PENDING:
        name = None if node.value is None else batch.nodes[node.value]
    named = [Cell("node_id", task.node_id, node.value, node.why), Cell("node_name", task.node_name, name, node.why)]
    return found + changed(tasks, key, named, _NODE, subject)


def _copy_corrections(
    own: TaskEvidence, subject: str, request: Decided[dict[str, int]], *, occupies: bool, copies: bool
) -> list[Correction]:
    task, key = own.task, {"id": own.task.id}
    requested = Cell("requested_slots", task.requested_slots, request.value, request.why)
    found = changed(tasks, key, [requested], _COPY.format("requested"), subject)
    if copies:
        why = request.why if occupies else "the task does not occupy a node"
        occupied = Cell("occupied_slots", task.occupied_slots, request.value if occupies else {}, why)
        found += changed(tasks, key, [occupied], _COPY.format("occupied"), subject)
    return found


def _ledger_corrections(
    own: TaskEvidence,
    subject: str,
    status: TaskStatus,
    past: _Past,
    column: str | None,
    request: Decided[dict[str, int]],
) -> list[Correction]:
    found: list[Correction] = []
    rule, what = "ledger agrees with the task", f"a task that is {status} has its amounts in {column or 'no column'}"
    for slot in sorted({*own.ledger, *request.value}):
        key = {"task_id": own.task.id, "slot_name": slot}
        row = own.ledger.get(slot)
        if slot not in request.value:
            assert row is not None
            values = {"requested": row.requested, "held": row.held, "reserved": row.reserved, "used": row.used}
            found.append(deleted(resource_allocations, key, values, request.why, rule, subject))
            continue
        amount = request.value[slot]
        expected: dict[str, tuple[Any, str]] = {"requested": (amount, request.why)}
        expected |= {name: (amount if name == column else 0, what) for name in ("held", "reserved", "used")}
        expected |= {
            "created_at": past.created,
            "held_at": past.held,
            "reserved_at": past.scheduled,
            "used_at": past.started,
            "freed_at": past.freed,
        }
        if row is None:
            values = {name: value for name, (value, _) in expected.items()}
            found.append(inserted(resource_allocations, key, values, request.why, rule, subject))
            continue
        cells = [Cell(name, getattr(row, name), value, why) for name, (value, why) in expected.items()]
        stamps = [cell for cell in cells if cell.column.endswith("_at")]
        found += changed(resource_allocations, key, cells[: -len(stamps)], rule, subject)
        found += changed(resource_allocations, key, stamps, _STAMPS, subject)
    return found


def _ledger_votes(own: TaskEvidence, column: str) -> list[Vote[Any]]:
    return _uniform(f"resource_allocations.{column}", [getattr(row, column) for row in own.ledger.values()])


def _uniform(source: str, values: Sequence[Any]) -> list[Vote[Any]]:
    """Return votes of rows that were written together: one if they agree, otherwise one each."""
    if len(set(values)) <= 1:
        return [Vote(source, value) for value in values[:1]]
    return [Vote(f"{source} ({number})", value) for number, value in enumerate(values, start=1)]
