"""A long queue with a planned start at its head: the cost of a burst of work and of a pass, beside a pool that skips.

Nodes run work that ends within the hours; a job for a whole node heads the queue. Processor time, without a database.
The large cluster has 100,000 running tasks and 10,000 pending jobs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from time import process_time
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.decisions import Decision, Outcome
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine
from mooring.model.resources.slots import Amounts, total
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.queue.pending_queue import PendingQueue

NODES = 1000
BURST = 10_000
QUEUE = 20_000
PASSES = 100
LARGE_NODES, LARGE_QUEUE, LARGE_PASSES = 5000, 10_000, 20
GIB = 1 << 30
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for head_of_line in (HeadOfLine.SKIP, HeadOfLine.BACKFILL):
        figures[f"{head_of_line}_burst_ms"] = 1000 * _burst(head_of_line)
        figures[f"{head_of_line}_pass_p50_ms"] = 1000 * median(_pass_seconds(Cluster(head_of_line), 14, QUEUE, PASSES))
    large = Cluster(HeadOfLine.BACKFILL, nodes_in_all=LARGE_NODES, cores=32)
    took = _pass_seconds(large, 20, LARGE_QUEUE, LARGE_PASSES)
    figures |= {"large_pass_p50_ms": 1000 * median(took), "large_turn_maximum_ms": 1000 * max(took)}
    return figures


@dataclass
class Cluster:
    """Nodes with running work and its ends, and the leader's passes."""

    head_of_line: HeadOfLine
    nodes_in_all: int = NODES
    cores: int = 16
    time: datetime = NOW
    running: dict[UUID, list[tuple[UUID, Amounts, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offered = {"cpu": self.cores * 1000, "memory": 4 * self.cores * GIB}
        self.nodes = [Node(name=f"n{number}", allocatable=offered) for number in range(self.nodes_in_all)]
        self.scheduler = Scheduler(self.nodes, head_of_line=self.head_of_line, compiled=True)
        self.pending_queue = PendingQueue(
            self.scheduler.cluster, best=lambda waiting, number: self.scheduler.best(waiting, number, self.time)
        )
        if self.head_of_line is HeadOfLine.BACKFILL:
            self.pending_queue.backfill_depths = {"default": 1}

    def run_pass(self) -> float:
        """Run one pass over the pending queue. Return its processor time."""
        started = process_time()
        self.scheduler.cluster.timeline.advance(seconds_of(self.time))
        taken = self.pending_queue.take(self.time)
        left = self.pending_queue.add_unschedulable(
            self.scheduler.place(taken, self.time), self.scheduler.profile, self.time
        )
        for group in self.pending_queue.unexplained(64):
            waits = Decision(group.entry.workload, Outcome.WAITING)
            reason = self.scheduler.with_reason(waits, group.unplaced).reason
            assert reason is not None
            self.pending_queue.explained(group, reason)
        took = process_time() - started
        for decision in left.decisions:
            end = seconds_of(self.time) + (decision.workload.time_limit_seconds or 0)
            for place in decision.placements:
                self.running.setdefault(place.node_id, []).append((place.task_id, decision.workload.request, end))
        return took

    def end_one(self, chance: random.Random) -> None:
        """End a task, and update its node."""
        node = chance.choice(self.nodes)
        here = self.running[node.id]
        here.pop(chance.randrange(len(here)))
        used = total(request for _, request, _ in here)
        self.scheduler.cluster.upsert(replace(node, used=used, tasks=len(here)))
        self.scheduler.cluster.set_expected_ends(node.id, {task: (end, request) for task, request, end in here})


def _burst(head_of_line: HeadOfLine) -> float:
    """Small work arrives while most of every node is free, but no node is entirely free."""
    cluster, small = Cluster(head_of_line), _small(random.Random(1))
    for _ in range(NODES):
        cluster.pending_queue.admit(next(small))
    cluster.run_pass()
    cluster.pending_queue.admit(_head(cluster.cores))
    cluster.run_pass()
    for _ in range(BURST):
        cluster.pending_queue.admit(next(small))
    return cluster.run_pass()


def _pass_seconds(cluster: Cluster, running: int, queue: int, passes: int) -> list[float]:
    """Tasks end one after the other on full nodes, with a long queue."""
    chance = random.Random(2)
    small = _small(chance)
    for _ in range(cluster.nodes_in_all * running):
        cluster.pending_queue.admit(next(small))
    cluster.run_pass()
    cluster.pending_queue.admit(_head(cluster.cores))
    for _ in range(queue):
        cluster.pending_queue.admit(next(small))
    cluster.run_pass()
    took = []
    for _ in range(passes):
        cluster.time += timedelta(seconds=1)
        cluster.end_one(chance)
        took.append(cluster.run_pass())
    return took


def _small(chance: random.Random) -> Iterator[Workload]:
    number = 0
    while True:
        number += 1
        yield Workload(
            name=f"small-{number}",
            user_id=uuid5(NAMESPACE_OID, f"user-{number % 20}"),
            request={"cpu": chance.choice([1000, 2000]), "memory": chance.choice([1, 2, 4]) * GIB},
            created_at=NOW + timedelta(microseconds=number),
            time_limit_seconds=chance.choice([600, 3600, 7200]),
        )


def _head(cores: int) -> Workload:
    """A workload that comes first by its priority."""
    request = {"cpu": cores * 1000, "memory": 60 * GIB}
    return Workload(name="head", request=request, priority=90, time_limit_seconds=3600)
