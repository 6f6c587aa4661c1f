"""Placement alone: how long one pass takes, without store, API or agents."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from mooring.model.decisions import Outcome
from mooring.model.nodes import REGIONS, Node
from mooring.model.workloads import Kind, Task, Workload
from mooring.scheduling import Scheduler

NODES = 1000
WORKLOADS = 1000
REPLICAS = 3
ROUNDS = 5
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run() -> dict[str, float]:
    """Milliseconds of one pass over 1000 gangs of three tasks, one per node, on 1000 nodes; the best of five."""
    return {
        "one_shape_ms": _best(lambda index: _gang(index, shapes=1)),
        "twenty_shapes_ms": _best(lambda index: _gang(index, shapes=20)),
        "nothing_fits_ms": _best(lambda index: _gang(index, shapes=20, scale=1000), outcome=Outcome.WAITING),
        "one_by_one_ms": _best(lambda index: _gang(index, shapes=20, gang=False)),
    }


def _best(make: Callable[[int], Workload], *, outcome: Outcome = Outcome.PLACED) -> float:
    workloads = [make(index) for index in range(WORKLOADS)]
    times: list[float] = []
    for _ in range(ROUNDS):
        scheduler = Scheduler(_node(index) for index in range(NODES))
        started = time.perf_counter()
        result = scheduler.run(workloads, NOW)
        times.append(time.perf_counter() - started)
        if result.outcomes[outcome] != WORKLOADS:
            raise RuntimeError(f"expected {WORKLOADS} {outcome} and got {dict(result.outcomes)}")
    return round(1000 * min(times), 1)


def _node(index: int) -> Node:
    return Node(
        id=UUID(int=index + 1),
        name=f"node-{index:04}",
        pool="default",
        runtimes=frozenset({"container", "process"}),
        region=REGIONS[index % len(REGIONS)],
        allocatable={"cpu": 16_000 * (1 + index % 4), "memory": (32 << 30) * (1 + index % 4)},
        cpu_percent=index * 7 % 100,
        memory_percent=index * 13 % 100,
    )


def _gang(index: int, *, shapes: int, scale: int = 1, gang: bool = True) -> Workload:
    variant = index % shapes + 1
    return Workload(
        id=UUID(int=index + 1),
        name=f"gang-{index}",
        kind=Kind.DEPLOYMENT,
        pool="default",
        user_id=UUID(int=1),
        runtime="container",
        request={"cpu": 100 * variant * scale, "memory": (variant << 27) * scale},
        tasks=tuple(Task(UUID(int=(index + 1) * 100 + replica), replica) for replica in range(REPLICAS)),
        created_at=NOW,
        region=REGIONS[variant % len(REGIONS)],
        gang=gang,
        max_per_node=1 if gang else None,
    )
