"""Booking a slot among 100,000 bookings over a year on 1,000 nodes: the decision in the core, on every node of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import quantiles
from time import process_time

from mooring.model.nodes import Node
from mooring.scheduling import Cluster
from mooring.scheduling.bookings import Booked, book
from mooring.scheduling.timeline import Alternatives

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
        free = int(cluster.timeline.room(cluster.rows, whole, start, start + HOUR).sum())
        answer = _ask(cluster, number, 64, free + 1, start, start + HOUR)
        assert isinstance(answer, Alternatives)

    return {
        "nodes": NODES,
        "bookings": BOOKINGS,
        **_measured("confirmed", confirmed, MEASURED),
        **_measured("refused", refused, MEASURED // 10),
    }


def fill(cluster: Cluster) -> None:
    """As many bookings as there are, of some hours and some cores each, anywhere in the year."""
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
    cluster.timeline.room(cluster.rows, cluster.demand((("cpu", CORE),)), 0, YEAR)


def _ask(cluster: Cluster, number: int, cores: int, count: int, start: int, end: int) -> Booked | Alternatives:
    demand = cluster.demand((("cpu", cores * CORE), ("memory", 4 * cores * GIBIBYTE)))
    return book(cluster, ("measured", number), cluster.rows, demand, count, start, end)


def _measured(name: str, action: Callable[[int], None], times: int) -> dict[str, float]:
    """Milliseconds of processor time of each of so many."""
    spent: list[float] = []
    for number in range(times):
        before = process_time()
        action(number)
        spent.append((process_time() - before) * 1000)
    parts = quantiles(spent, n=100)
    return {f"{name}_p50_ms": parts[49], f"{name}_p99_ms": parts[98]}
