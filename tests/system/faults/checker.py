"""The invariants after a run under faults, checked on the records without the code that wrote them.

The names of the rules are those of the invariants I1 to I15. Three of them are shown elsewhere: that equal input gives
equal decisions (I9), by the property tests of the core; reserved starts behind a blocked workload (I10), by properties
with a clock of their own; and that timeslots never need more than there is (I15), by the audit, which comes after this.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from typing import NamedTuple
from uuid import UUID

from mooring.model.calendar.timeslots import OVER, TIMESLOT_EDGES, TimeslotStatus
from mooring.model.lifecycle import (
    OCCUPYING,
    WORKLOAD_EDGES,
    TaskStatus,
    WorkloadStatus,
    is_end,
    is_legal,
    is_workload_end,
)
from tests.system.faults.load import BOUNDED, BOUNDED_SESSIONS, Accepted, Booked
from tests.system.faults.records import Records, Row
from tests.system.faults.replay import Moment, Replay

T = TaskStatus
_STATUSES = frozenset(status.value for status in TaskStatus)


class Violation(NamedTuple):
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


def check(
    records: Records, accepted: Mapping[str, Accepted], booked: Mapping[str, Booked] | None = None
) -> list[Violation]:
    """Of a cluster that is whole and quiet again."""
    found = [Violation(rule, what) for rule, proof in _PROOFS for what in proof(records)]
    found += [Violation("moments", what) for what in _moments(records)]
    found += [Violation("accepted", what) for what in _accounted(records, accepted)]
    return found + [Violation("booked", what) for what in _all_booked(records, booked or {})]


def check_empty(records: Records) -> list[Violation]:
    """For a cluster whose workloads were all stopped: nothing of them is left in the database or on the nodes."""
    found = [f"workload {row['name']} is {row['status']}" for row in records.workloads if not _workload_ended(row)]
    found += [f"task {row['id']} is {row['status']}" for row in records.tasks if not is_end(TaskStatus(row["status"]))]
    found += [
        f"{row['slot_name']} of node {row['node_id']} is still charged"
        for row in records.resources
        if row["held"] or row["reserved"] or row["used"] or row["leaving"]
    ]
    found += [f"ledger row {row['task_id']} {row['slot_name']}" for row in records.ledger if row["freed_at"] is None]
    found += [f"task {task} still runs" for task in records.processes]
    return [Violation("empty", what) for what in found]


# --- histories --------------------------------------------------------------------------------------------------------


def _terms(records: Records) -> Iterator[str]:
    """I7: nothing of a deposed leader is committed after its replacement's first, and no term has two holders."""
    for name, rows, order in (("event", records.events, "revision"), ("history row", records.history, "id")):
        newest = 0
        for row in rows:
            term = row["term"]
            if term is not None and term < newest:
                yield f"{name} {row[order]} has term {term} after one of term {newest}"
            newest = max(newest, term or 0)
    holders: dict[int, set[str]] = defaultdict(set)
    for name, log in records.logs.items():
        for term in re.findall(r"scheduler started successfully \(term (\d+)\)", log):
            holders[int(term)].add(name)
    for number, names in holders.items():
        if len(names) > 1:
            yield f"term {number} was held by {' and '.join(sorted(names))}"


def _edges(records: Records) -> Iterator[str]:
    """Every change of a status is legal and continues where the last one ended, up to the present one."""
    now = {("task", task["id"]): "PENDING" for task in records.tasks}
    for row in records.history:
        if row["noun"] == "node" or row["old_status"] == row["new_status"]:
            continue
        key = (row["noun"], row["object_id"])
        old, new = row["old_status"], row["new_status"]
        if now.get(key, "none") != old:
            yield f"{row['noun']} {row['object_id']} was {now.get(key, 'none')}, and history row {row['id']} says {old}"
        elif old != "none" and not _legal(row["noun"], old, new):
            yield f"{row['noun']} {row['object_id']} went from {old} to {new}"
        now[key] = new
    for noun, rows in (("task", records.tasks), ("workload", records.workloads), ("timeslot", records.timeslots)):
        for row in rows:
            if now.get((noun, row["id"])) != row["status"]:
                yield f"{noun} {row['id']} is {row['status']}, its history ends with {now.get((noun, row['id']))}"


def _legal(noun: str, old: str, new: str) -> bool:
    if noun == "task":
        return is_legal(TaskStatus(old), TaskStatus(new))
    if noun == "timeslot":
        return TimeslotStatus(new) in TIMESLOT_EDGES[TimeslotStatus(old)]
    return WorkloadStatus(new) in WORKLOAD_EDGES[WorkloadStatus(old)]


def _recorded_once(records: Records) -> Iterator[str]:
    """I3, I8: each change has one history row and one event, in the same order; a repeated report changed nothing."""
    received: dict[UUID, list[str]] = defaultdict(list)
    for event in records.events:
        if event["noun"] == "task" and event["kind"] in _STATUSES:
            received[event["object_id"]].append(event["kind"])
    noted: dict[UUID, list[str]] = defaultdict(list)
    for row in records.history:
        if row["noun"] == "task":
            noted[row["object_id"]].append(row["new_status"])
    for task in received.keys() | noted.keys():
        if received[task] != noted[task]:
            yield f"task {task} has the history {noted[task]} and the events {received[task]}"


# --- tasks ------------------------------------------------------------------------------------------------------------


def _started_once(records: Records) -> Iterator[str]:
    """A task, which is one attempt, starts at most once, on the one node that it was placed on."""
    tasks = {task["id"]: task for task in records.tasks}
    placed = {row["object_id"] for row in records.history if row["new_status"] == "SCHEDULED"}
    for id, lines in records.notes.items():
        starts = [line for line in lines if line.startswith("start ")]
        if len(starts) > 1:
            yield f"task {id} was started {len(starts)} times: {starts}"
        if id not in tasks or id not in placed:
            yield f"task {id} ran, and nobody had placed it"
    nodes: dict[UUID, set[str]] = defaultdict(set)
    for node, exits in records.exits.items():
        for id in exits:
            nodes[id].add(node)
    for id, names in nodes.items():
        if len(names) > 1:
            yield f"task {id} was on {' and '.join(sorted(names))}"
        elif id in tasks and tasks[id]["node_name"] not in names:
            yield f"task {id} was on {names}, and the books say {tasks[id]['node_name']}"


def _ends_are_true(records: Records) -> Iterator[str]:
    """The recorded end of a task agrees with the notes of the task itself and of its agent."""
    exits = {id: code for of_node in records.exits.values() for id, code in of_node.items()}
    for task in records.tasks:
        lines = records.notes.get(task["id"], ())
        if task["status"] == T.SUCCEEDED and [line.split()[0] for line in lines] != ["start", "end"]:
            yield f"task {task['id']} SUCCEEDED, and it noted {list(lines)}"
        if task["status"] in (T.SUCCEEDED, T.FAILED) and task["exit_code"] != exits.get(task["id"]):
            yield f"task {task['id']} {task['status']} with {task['exit_code']}, on its node {exits.get(task['id'])}"


def _runs(records: Records) -> Iterator[str]:
    """RUNNING tasks have processes, and no others do. Ended tasks hold no capacity."""
    running = {task["id"] for task in records.tasks if task["status"] == T.RUNNING}
    for task_id in running ^ records.processes:
        what = "is RUNNING, and nothing runs" if task_id in running else "runs, and is not RUNNING"
        yield f"task {task_id} {what}"
    for task in records.tasks:
        if is_end(TaskStatus(task["status"])) and task["node_id"] is not None and task["freed_at"] is None:
            yield f"task {task['id']} ended as {task['status']} and is still charged to {task['node_name']}"


def _attempts(records: Records) -> Iterator[str]:
    """I11: waiting is no attempt: a further attempt was placed before, and retries count own failures only."""
    placed = {row["object_id"] for row in records.history if row["new_status"] == "SCHEDULED"}
    evicted = _evicted(records)
    by_index: dict[tuple[UUID, int], list[Row]] = defaultdict(list)
    for task in records.tasks:
        by_index[task["workload_id"], task["task_index"]].append(task)
    for (workload, index), attempts in by_index.items():
        numbers = [task["attempt"] for task in attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"task {index} of {workload} has the attempts {numbers}"
        for before in attempts[:-1]:
            if before["id"] not in placed:
                yield f"task {before['id']} was replaced, and it had never been placed"
            if before["current"]:
                yield f"task {before['id']} is current beside its replacement"
        failed = sum(task["status"] == T.FAILED and task["id"] not in evicted for task in attempts[:-1])
        if attempts[-1]["failures"] > failed:
            yield f"task {attempts[-1]['id']} counts {attempts[-1]['failures']} failures after {failed}"


# --- every moment -----------------------------------------------------------------------------------------------------


def _moments(records: Records) -> Iterator[str]:
    """I1, I4, I6 and I14 after every transaction of the run."""
    tasks = {task["id"]: task for task in records.tasks}
    workloads = {row["id"]: row for row in records.workloads}
    limited = {user["id"] for user in records.users if user["name"] == BOUNDED}
    bounded = {row["id"] for row in records.workloads if row["user_id"] in limited}
    allocatable = {(row["node_id"], row["slot_name"]): row["allocatable"] for row in records.resources}
    for moment in Replay(records).moments():
        placed = moment.placed
        last = moment.changed[-1]["revision"]
        for node in {event["node_id"] for event in placed}:
            needed: Counter[str] = Counter()
            for task in moment.on_node[node]:
                needed.update(tasks[task]["requested_slots"])
            for slot, amount in needed.items():
                if amount > allocatable[node, slot]:
                    yield f"I1: {amount} {slot} on node {node}, which has {allocatable[node, slot]}, at revision {last}"
            if moment.node_status.get(node) != "READY":
                yield f"I14: revision {last} places on node {node}, which is {moment.node_status.get(node)}"
        for workload_id in {event["workload_id"] for event in placed}:
            yield from (f"{what} at revision {last}" for what in _of_workload(workloads[workload_id], moment, tasks))
        if bounded and placed:
            there = {
                tasks[id]["workload_id"]
                for id, status in moment.status.items()
                if status in OCCUPYING and tasks[id]["workload_id"] in bounded
            }
            if len(there) > BOUNDED_SESSIONS:
                yield f"I6: {len(there)} workloads of a user who may have {BOUNDED_SESSIONS}, at revision {last}"


def _of_workload(workload: Row, moment: Moment, tasks: Mapping[UUID, Row]) -> Iterator[str]:
    own = [task for task in tasks.values() if task["workload_id"] == workload["id"]]
    if workload["gang"] and workload["kind"] == "session":
        at = moment.changed[-1]["at"]
        newest = {task["task_index"]: task for task in own if task["created_at"] <= at}
        waiting = [index for index, task in newest.items() if moment.status[task["id"]] is T.PENDING]
        if waiting:
            yield f"I4: the gang {workload['name']} was placed without its tasks {waiting}"
    if workload["max_per_node"] is not None:
        for node, there in moment.on_node.items():
            count = sum(task["id"] in there and moment.status[task["id"]] in OCCUPYING for task in own)
            if count > (most := workload["max_per_node"]):
                yield f"I14: {count} tasks of {workload['name']} on node {node}, where {most} may be"


# --- promises ---------------------------------------------------------------------------------------------------------


def _accounted(records: Records, accepted: Mapping[str, Accepted]) -> Iterator[str]:
    """Each accepted workload is there once and came to what was asked for; and there is no other."""
    rows = {row["id"]: row for row in records.workloads}
    names = Counter(row["name"] for row in records.workloads)
    for name, count in names.items():
        if name not in accepted or count > 1:
            yield f"workload {name} is there {count} times, and was accepted {int(name in accepted)} times"
    own: dict[UUID, list[Row]] = defaultdict(list)
    for task in records.tasks:
        own[task["workload_id"]].append(task)
    evicted = _evicted(records)
    for name, promise in accepted.items():
        row = rows.get(promise.id)
        if row is None:
            yield f"workload {name} was accepted and is not there"
        else:
            yield from (f"workload {name} {what}" for what in _stored(promise, row, own[promise.id], evicted))


def _evicted(records: Records) -> set[UUID]:
    """Evicted tasks used no retry, however they ended."""
    return {row["object_id"] for row in records.history if (row["noun"], row["new_status"]) == ("task", T.TERMINATING)}


def _stored(promise: Accepted, row: Row, tasks: list[Row], evicted: Set[UUID]) -> Iterator[str]:
    work, status = promise.work, WorkloadStatus(row["status"])
    if promise.stop_requested and (status is WorkloadStatus.CANCELLED or work.seconds is None):
        if status is not WorkloadStatus.CANCELLED:
            yield f"was told to end and is {status}"
    elif work.seconds is None:
        running = sum(task["current"] and task["status"] == T.RUNNING for task in tasks)
        if row["replicas"] not in {promise.replicas, *promise.late}:
            yield f"wants {row['replicas']} tasks, and {promise.replicas} or {promise.late} were asked for"
        if status is not WorkloadStatus.RUNNING or running != row["replicas"]:
            yield f"is {status} with {running} of {row['replicas']} tasks running"
    elif work.exit_code:
        failures = sum(task["status"] == T.FAILED and task["id"] not in evicted for task in tasks)
        if status is not WorkloadStatus.FAILED or failures != work.retries + 1:
            yield f"is {status} after {failures} failures, with {work.retries} retries; tasks: {_ends(tasks)}"
    elif status is not WorkloadStatus.SUCCEEDED:
        yield f"is {status} ({row['code']}), and its command succeeds; tasks: {_ends(tasks)}"


def _ends(tasks: list[Row]) -> list[tuple[str, str | None]]:
    return [(task["status"], task["code"]) for task in tasks]


def _all_booked(records: Records, booked: Mapping[str, Booked]) -> Iterator[str]:
    """Each timeslot that was taken is there once and was decided on; what was near is over, what is far is promised."""
    rows = {row["id"]: row for row in records.timeslots}
    names = Counter(row["name"] for row in records.timeslots)
    for name, count in names.items():
        if name not in booked or count > 1:
            yield f"timeslot {name} is there {count} times, and was taken {int(name in booked)} times"
    places = Counter(place["timeslot_id"] for place in records.places for _ in range(place["tasks"]))
    for name, slot in booked.items():
        row = rows.get(slot.id)
        if row is None:
            yield f"timeslot {name} was taken and is not there"
            continue
        status = TimeslotStatus(row["status"])
        if slot.booking.far and not slot.given_back:
            if status not in (TimeslotStatus.CONFIRMED, TimeslotStatus.REFUSED):
                yield f"timeslot {name} is {status}, and its time has not come"
            if status is TimeslotStatus.CONFIRMED and places[slot.id] != slot.booking.count:
                yield f"timeslot {name} has {places[slot.id]} places of {slot.booking.count}"
        elif status not in OVER:
            yield f"timeslot {name} is {status}, and should be over"


def _workload_ended(row: Row) -> bool:
    return is_workload_end(WorkloadStatus(row["status"]))


_PROOFS: tuple[tuple[str, Callable[[Records], Iterator[str]]], ...] = (
    ("I7 terms", _terms),
    ("edges", _edges),
    ("I3, I8 told once", _recorded_once),
    ("started once", _started_once),
    ("true ends", _ends_are_true),
    ("runs", _runs),
    ("I11 attempts", _attempts),
)
