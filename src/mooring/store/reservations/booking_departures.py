"""Departures of tasks without a time limit from nodes whose capacity a booking takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import TimeslotKind, TimeslotStatus
from mooring.model.lifecycle import OCCUPYING, SILENT, TaskStatus
from mooring.model.nodes.eviction import BOOKING_BEGINS
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Kind
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import node_resources, nodes, tasks, timeslot_places, timeslots, workloads

_BY = "timeslots"
_TIME_TO_MOVE = timedelta(minutes=30)
"""Time that replicas have to be replaced on other nodes before they must stop."""
_AHEAD = _TIME_TO_MOVE + timedelta(hours=1)
"""Time to look ahead: the time to move plus the longest stop grace of a task."""
_WAITED_FOR = timedelta(minutes=1)
"""Tolerance after the start of a booking's lead within which it waits for the end of a task with a time limit."""
_STAYING = [status for status in OCCUPYING if status is not TaskStatus.TERMINATING]


class Departure(NamedTuple):
    """Time and reason of a task's departure from its node."""

    at: datetime
    reason: Reason
    patient: bool = False
    """True if the task stays while its workload can spare no running task."""


@dataclass(frozen=True, slots=True)
class Departures:
    of_task: Mapping[UUID, Sequence[Departure]]
    nodes: frozenset[UUID]
    next_at: datetime | None
    """Time at which the next booking is near enough to be considered."""


async def departures(connection: AsyncConnection, now: datetime) -> Departures:
    """Return, by task, the departures of tasks without a time limit from nodes that bookings are about to need.

    The pool's present policy does not matter: if it no longer places such tasks on booked capacity, earlier ones leave.
    """
    near = {"now": now, "near": now + _AHEAD}
    node_ids = list((await connection.execute(_booked_nodes(), near)).scalars())
    next_at = (await connection.execute(_next_booking(), near)).scalar()
    found: dict[UUID, list[Departure]] = {}
    if node_ids:
        booked = _by_node(await connection.execute(_bookings(), {**near, "ids": node_ids}))
        running = _by_node(await connection.execute(_running(), {"ids": node_ids}))
        capacity: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
        for row in await connection.execute(_capacity(), {"ids": node_ids}):
            capacity[row.node_id][row.slot_name] = row.allocatable
        for node_id in sorted(booked):
            for task, booking in displaced(booked[node_id], running.get(node_id, ()), capacity[node_id], now):
                found[task.id] = _departures_of(task, booking)
    return Departures(found, frozenset(node_ids), None if next_at is None else next_at - _AHEAD)


def displaced(
    bookings: Sequence[AnyRow], running: Sequence[AnyRow], capacity: Amounts, now: datetime
) -> list[tuple[AnyRow, AnyRow]]:
    """Return the tasks without a time limit that exceed a node's capacity, each with the booking that needs it.

    Replicas of deployments are evicted first, since they are replaced elsewhere; then by lowest priority, newest first.
    """
    open_ended = [task for task in running if task.time_limit_seconds is None]
    open_ended.sort(key=lambda task: (task.kind != Kind.DEPLOYMENT, task.priority, -task.id.int))
    leaving: list[tuple[AnyRow, AnyRow]] = []
    for booking in sorted(bookings, key=lambda booking: (booking.eligible_at, booking.id)):
        begins = max(booking.eligible_at, now)
        overlapping = [each for each in bookings if each.eligible_at <= begins < each.ends_at]
        excess = {slot: -amount for slot, amount in capacity.items()}
        for each in overlapping:
            _add(excess, each.requested_slots, each.tasks)
        for task in running:
            if task.time_limit_seconds is None or _end(task, now) - _WAITED_FOR > begins:
                _add(excess, task.requested_slots)
        gone = {task.id for task, _ in leaving}
        for task, _ in leaving:
            _add(excess, task.requested_slots, -1)
        chosen: list[AnyRow] = []
        for task in (task for task in open_ended if task.id not in gone):
            if any(excess.get(slot, 0) > 0 for slot, amount in task.requested_slots.items() if amount):
                chosen.append(task)
                _add(excess, task.requested_slots, -1)
        # Reprieve tasks whose departure a later choice has made unnecessary.
        for task in reversed(chosen):
            if all(excess.get(slot, 0) + amount <= 0 for slot, amount in task.requested_slots.items() if amount):
                _add(excess, task.requested_slots)
            else:
                leaving.append((task, booking))
    return leaving


def _departures_of(task: AnyRow, booking: AnyRow) -> list[Departure]:
    begins = booking.eligible_at.isoformat(timespec="seconds")
    message = f"A booking takes its capacity on node {booking.node_name} from {begins} on, and it has no time limit"
    reason = Reason(BOOKING_BEGINS, message, _BY, "never", {"from": begins})
    stops_at = booking.eligible_at - timedelta(seconds=task.stop_grace_seconds or 0)
    found = [Departure(stops_at, reason)]
    if task.kind == Kind.DEPLOYMENT or task.status == TaskStatus.RESERVED:
        found.append(Departure(stops_at - _TIME_TO_MOVE, reason, patient=task.status == TaskStatus.RUNNING))
    return found


def _end(task: AnyRow, now: datetime) -> datetime:
    deadline: datetime = task.deadline_at or (task.started_at or now) + timedelta(seconds=task.time_limit_seconds)
    return deadline + timedelta(seconds=task.stop_grace_seconds or 0)


def _add(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    for slot, amount in amounts.items():
        total[slot] = total.get(slot, 0) + times * amount


def _by_node(rows: Iterable[AnyRow]) -> dict[UUID, list[AnyRow]]:
    found: defaultdict[UUID, list[AnyRow]] = defaultdict(list)
    for row in rows:
        found[row.node_id].append(row)
    return dict(found)


_OF_BOOKING = (
    timeslots.c.ended_at.is_(None),
    # A booking at risk has no capacity to free until it is placed again.
    timeslots.c.status.in_([TimeslotStatus.CONFIRMED, TimeslotStatus.ACTIVE]),
    timeslots.c.kind != TimeslotKind.MAINTENANCE,
)


@cache
def _booked_nodes() -> Select[Any]:
    """Return the query for nodes with a near booking and a task without a time limit."""
    return (
        select(timeslot_places.c.node_id)
        .distinct()
        .join(timeslots, timeslots.c.id == timeslot_places.c.timeslot_id)
        .join(nodes, nodes.c.id == timeslot_places.c.node_id)
        .join(tasks, tasks.c.node_id == timeslot_places.c.node_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            *_OF_BOOKING,
            timeslots.c.eligible_at <= bindparam("near"),
            timeslots.c.ends_at > bindparam("now"),
            # The agents of silent nodes cannot be notified.
            nodes.c.status.not_in(sorted(SILENT)),
            tasks.c.status.in_(_STAYING),
            workloads.c.time_limit_seconds.is_(None),
            workloads.c.timeslot_id.is_(None),
        )
    )


@cache
def _next_booking() -> Select[Any]:
    later = timeslots.c.eligible_at > bindparam("near")
    return select(func.min(timeslots.c.eligible_at)).where(*_OF_BOOKING, later)


@cache
def _bookings() -> Select[Any]:
    own = timeslots.c
    return (
        select(own.id, own.eligible_at, own.ends_at, own.requested_slots)
        .add_columns(timeslot_places.c.node_id, nodes.c.name.label("node_name"))
        .add_columns(timeslot_places.c.tasks)
        .join(timeslot_places, timeslot_places.c.timeslot_id == own.id)
        .join(nodes, nodes.c.id == timeslot_places.c.node_id)
        .where(*_OF_BOOKING, own.eligible_at <= bindparam("near"), own.ends_at > bindparam("now"))
        .where(among(timeslot_places.c.node_id))
    )


@cache
def _running() -> Select[Any]:
    """Return the query for all tasks that stay, except those inside a timeslot: they use its capacity."""
    own, of = tasks.c, workloads.c
    return (
        select(own.id, own.node_id, own.status, own.requested_slots, own.started_at, own.deadline_at)
        .add_columns(of.kind, of.priority, of.time_limit_seconds)
        .add_columns(of.template["stop_grace_seconds"].as_integer().label("stop_grace_seconds"))
        .join(workloads, of.id == own.workload_id)
        .where(among(own.node_id), own.status.in_(_STAYING), of.timeslot_id.is_(None))
        .order_by(own.id)
    )


@cache
def _capacity() -> Select[Any]:
    own = node_resources.c
    return select(own.node_id, own.slot_name, own.allocatable).where(among(own.node_id))
