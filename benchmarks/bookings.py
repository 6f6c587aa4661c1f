"""One booking beside 100,000 in a year on 1,000 nodes: the decision in the core, and the leader's iteration."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from statistics import quantiles
from time import process_time
from typing import Any
from uuid import UUID

from mooring.controllers.scheduling.reservations import Reservations
from mooring.mirror.calendar import Calendar
from mooring.mirror.schedulers import work_of
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.nodes.node import Node
from mooring.model.workloads.workload import LONG_AGO
from mooring.scheduling import Cluster, Scheduler
from mooring.scheduling.calendar.bookings import Booked, book
from mooring.scheduling.calendar.capacity_queries import Alternatives

NODES = 1_000
BOOKINGS = 100_000
MEASURED = 500
HOUR = 3600
YEAR = 365 * 24 * HOUR
CORE, GIBIBYTE = 1000, 1 << 30


def run() -> dict[str, float]:
    cluster = Cluster(
        Node(name=f"node-{number:04}", allocatable={"cpu": 64 * CORE, "memory": 256 * GIBIBYTE})
        for number in range(NODES)
    )
    fill(cluster)
    generator = random.Random(1)

    def confirmed(number: int) -> None:
        start = generator.randrange(YEAR)
        answer = _ask(cluster, number, generator.randint(1, 8), 4, start, start + generator.randint(1, 8) * HOUR)
        assert isinstance(answer, Booked)

    def refused(number: int) -> None:
        """One whole node more than is free in that hour."""
        start = generator.randrange(YEAR)
        whole = cluster.demand((("cpu", 64 * CORE), ("memory", 256 * GIBIBYTE)))
        free = int(cluster.timeline.task_capacity(cluster.rows, whole, start, start + HOUR).sum())
        answer = _ask(cluster, number, 64, free + 1, start, start + HOUR)
        assert isinstance(answer, Alternatives)

    return {
        "nodes": NODES,
        "bookings": BOOKINGS,
        **_measured("confirmed", confirmed, MEASURED),
        **_measured("refused", refused, MEASURED // 10),
        **_measured("decided", leader(), MEASURED),
    }


def leader() -> Callable[[int], None]:
    """A leader that knows as many timeslots: it receives another one, decides on it and adds it."""
    cluster = Cluster(
        Node(name=f"node-{number:04}", allocatable={"cpu": 64 * CORE, "memory": 256 * GIBIBYTE})
        for number in range(NODES)
    )
    scheduler, calendar = Scheduler(cluster=cluster, compiled=False), Calendar(cluster)
    generator = random.Random(2)
    ids = [cluster.node(row).id for row in cluster.rows.tolist()]
    for number in range(BOOKINGS):
        calendar.put(_timeslot(number, generator, status=TimeslotStatus.CONFIRMED, placements={ids[number % NODES]: 1}))
    calendar.nodes_to_check.clear()
    reservations = Reservations(cluster, calendar, lambda slot: scheduler.rows_for(work_of(slot, "process")))
    reservations.decide(LONG_AGO)

    def decided(number: int) -> None:
        asked = _timeslot(BOOKINGS + number, generator, count=4)
        calendar.put(asked)
        (move,) = reservations.decide(LONG_AGO)
        assert move.placements is not None
        reservations.settle([move], [replace(asked, status=move.status, placements=move.placements, version=2)])

    return decided


def _timeslot(number: int, generator: random.Random, **more: Any) -> Timeslot:
    starts_at = LONG_AGO + timedelta(seconds=2 * HOUR + generator.randrange(YEAR))
    cores = generator.randint(1, 8)
    values: dict[str, Any] = {
        "id": UUID(int=number),
        "name": "slot",
        "kind": TimeslotKind.BOOKING,
        "pool": "default",
        "status": TimeslotStatus.REQUESTED,
        "starts_at": starts_at,
        "ends_at": starts_at + timedelta(hours=generator.randint(1, 8)),
        "request": {"cpu": cores * CORE, "memory": 4 * cores * GIBIBYTE},
    }
    return Timeslot(**(values | more))


def fill(cluster: Cluster) -> None:
    """Existing bookings of some hours and some cores each, anywhere in the year."""
    generator = random.Random(0)
    rows = cluster.rows.tolist()
    for number in range(BOOKINGS):
        start = generator.randrange(YEAR)
        cores = generator.randint(1, 16)
        cluster.timeline.add(
            number,
            rows[number % NODES],
            start,
            start + generator.randint(1, 8) * HOUR,
            {"cpu": cores * CORE, "memory": 4 * cores * GIBIBYTE},
        )
    # Rows are built when they are first asked about, which is not the cost of one booking.
    cluster.timeline.task_capacity(cluster.rows, cluster.demand((("cpu", CORE),)), 0, YEAR)


def _ask(cluster: Cluster, number: int, cores: int, count: int, start: int, end: int) -> Booked | Alternatives:
    demand = cluster.demand((("cpu", cores * CORE), ("memory", 4 * cores * GIBIBYTE)))
    return book(cluster, ("measured", number), cluster.rows, demand, count, start, end)


def _measured(name: str, action: Callable[[int], None], times: int) -> dict[str, float]:
    """Return the processor time of each call in milliseconds."""
    spent: list[float] = []
    for number in range(times):
        before = process_time()
        action(number)
        spent.append((process_time() - before) * 1000)
    parts = quantiles(spent, n=100)
    return {f"{name}_p50_ms": parts[49], f"{name}_p99_ms": parts[98]}
