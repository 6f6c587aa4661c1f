"""The error of estimated starts: their distance from the actual starts, on a virtual clock.

A hundred jobs of one to ten minutes are submitted at once to four nodes of four cores. The start of each is
estimated; then all of them run to their time limits and stop at once. In `early` each runs for a random part of its
limit, from three tenths on, which no estimate knows; in `history` the estimate knows what part that is on average.
Every start is planned; in `depth_1` only the first, as by default. `stored` is the estimate that the leader stores;
the others are computed on request.

`queue` is the processor time of estimating 10,000 pending jobs of 32 shapes on 100 nodes: of all steps together, of
the longest portion as the leader takes them, and the part of a processor that they take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from statistics import mean
from time import perf_counter, process_time
from uuid import UUID

from mooring.controllers.scheduling.estimates import PORTION_BUDGET_SECONDS, PORTION_SECONDS
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, HeadOfLine
from mooring.model.workloads.workload import LONG_AGO, Task, Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.queue_estimates import ExpectedEnd, QueueEstimates
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.explain.explanation import forget

JOBS, NODES, CORES = 100, 4, 4
ALL = 1 << 30
"""A depth at which every start is planned."""
GRACE = 10
"""Stop grace in seconds, the default of a server."""
START = LONG_AGO + timedelta(days=10_000)


MEAN_PART = 0.65
"""Of its limit that a job of `early` runs for on average."""
PENDING, SHAPES, LARGE = 10_000, 32, 100


def run() -> dict[str, float]:
    result: dict[str, float] = {}
    for depth_name, depth in (("", ALL), ("depth_1_", 1)):
        for name, early, how in (
            ("", False, asked),
            ("stored_", False, stored),
            ("early_", True, asked),
            ("early_stored_", True, stored),
            ("early_history_", True, stored_with_history),
        ):
            errors = [error for seed in range(3) for error in start_errors(seed, depth, early=early, how=how)]
            result[f"{name}{depth_name}mean_error_seconds"] = mean(errors)
            result[f"{name}{depth_name}most_error_seconds"] = max(errors)
    return result | queue_cost()


Starts = Mapping[UUID, datetime | None]
How = Callable[[Scheduler, Sequence[Workload], datetime], Starts]


def asked(scheduler: Scheduler, queue: Sequence[Workload], now: datetime) -> Starts:
    return scheduler.estimates(queue, now)


def stored(scheduler: Scheduler, queue: Sequence[Workload], now: datetime) -> Starts:
    return _all(QueueEstimates(scheduler, "default", queue, now))


def stored_with_history(scheduler: Scheduler, queue: Sequence[Workload], now: datetime) -> Starts:
    def expected(workload: Workload) -> int:
        assert workload.time_limit_seconds is not None
        return round(workload.time_limit_seconds * MEAN_PART)

    cluster, ends = scheduler.cluster, {}
    for row in cluster.rows.tolist():
        for key, promise in cluster.timeline.on(row):
            # Running tasks, not planned starts.
            if isinstance(key, UUID) and promise.end is not None:
                ends_at = now + (time_of(promise.end - GRACE) - now) * MEAN_PART
                ends[key] = ExpectedEnd(cluster.node(row).id, ends_at, {})
    return _all(QueueEstimates(scheduler, "default", queue, now, run_seconds=expected, ends=ends))


def _all(estimates: QueueEstimates) -> Starts:
    found: dict[UUID, datetime | None] = {}
    while not estimates.done:
        found |= {each.workload_id: each.start for each in estimates.advance(25)}
    return found


def queue_cost() -> dict[str, float]:
    """Return the cost of estimating a long queue in the portions of the leader."""
    chance = Random(1)
    nodes = [Node(name=f"n{number:03}", allocatable={"cpu": 64_000, "memory": 256 << 30}) for number in range(LARGE)]
    scheduler = Scheduler(nodes, head_of_line=HeadOfLine.BACKFILL, compiled=False)
    shapes = [(chance.randrange(1, 33), chance.randrange(1, 129)) for _ in range(SHAPES)]
    queue = [
        Workload(
            id=UUID(int=number + 1),
            name=f"job-{number}",
            request={"cpu": cores * 1000, "memory": gigabytes << 30},
            tasks=(Task(UUID(int=number + 1), 0),),
            created_at=START + timedelta(microseconds=number),
            time_limit_seconds=chance.randrange(600, 86_400),
            stop_grace_seconds=GRACE,
        )
        for number, (cores, gigabytes) in enumerate(chance.choices(shapes, k=PENDING + 1000))
    ]
    placed = scheduler.place(queue, START).decisions
    waiting = [each.workload for each in placed if not each.placements][:PENDING]
    estimates, portions, found = QueueEstimates(scheduler, "default", waiting, START), [], 0
    while not estimates.done:
        began, began_at = perf_counter(), process_time()
        while perf_counter() - began < PORTION_BUDGET_SECONDS:
            found += len(estimates.advance(1))
            if estimates.done:
                break
        portions.append(process_time() - began_at)
    assert found == len(waiting)
    return {
        "queue_jobs": len(waiting),
        "queue_processor_seconds": sum(portions),
        "queue_most_portion_processor_seconds": max(portions),
        "queue_portions": len(portions),
        "queue_processor_part": sum(portions) / (sum(portions) + len(portions) * PORTION_SECONDS),
    }


def start_errors(seed: int, depth: int = ALL, *, early: bool = False, how: How = asked) -> list[float]:
    """Return by how many seconds each job that had to wait started before or after its estimate."""
    nodes = [Node(name=f"n{number}", allocatable={"cpu": CORES * 1000}) for number in range(NODES)]
    scheduler = Scheduler(nodes, head_of_line=HeadOfLine.BACKFILL, backfill=Backfill(depth=depth), compiled=False)
    parts = Random(seed)
    waiting = {job.id: job for job in jobs(Random(seed))}
    ends: list[tuple[int, int, object]] = []
    estimates: dict[UUID, int] = {}
    errors: list[float] = []
    time, number = 0, 0
    while waiting:
        now = START + timedelta(seconds=time)
        for decision in scheduler.place(list(waiting.values()), now).decisions:
            if decision.placements:
                job = waiting.pop(decision.workload.id)
                if job.id in estimates:
                    errors.append(abs(time - estimates[job.id]))
                assert job.time_limit_seconds is not None
                number += 1
                part = parts.uniform(0.3, 1) if early else 1
                heappush(ends, (time + round(job.time_limit_seconds * part), number, decision))
        if time == 0:
            for job_id, estimate in how(scheduler, list(waiting.values()), now).items():
                assert estimate is not None
                estimates[job_id] = int((estimate - START).total_seconds())
        time, _, ended = heappop(ends)
        forget(scheduler.cluster, ended)  # type: ignore[arg-type]
        while ends and ends[0][0] == time:
            forget(scheduler.cluster, heappop(ends)[2])  # type: ignore[arg-type]
    return errors


def jobs(chance: Random) -> list[Workload]:
    return [
        Workload(
            id=UUID(int=number + 1),
            name=f"job-{number}",
            request={"cpu": chance.choice([1, 1, 2, 4]) * 1000},
            tasks=(Task(UUID(int=number + 1), 0),),
            created_at=START + timedelta(microseconds=number),
            time_limit_seconds=chance.randrange(60, 600),
            stop_grace_seconds=GRACE,
        )
        for number in range(JOBS)
    ]
