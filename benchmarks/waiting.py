"""A long queue with a planned start at its head: what a burst of work and a turn cost, beside a pool that skips.

Nodes of 16 cores run work that ends within the hours; a job for a whole node heads the queue. Processor time, without a
database.
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
from mooring.model.nodes import Node
from mooring.model.pools import HeadOfLine
from mooring.model.slots import Amounts, total
from mooring.model.workloads import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.timeline import seconds_of
from mooring.scheduling.waiting import WaitingRoom

NODES = 1000
BURST = 10_000
QUEUE = 20_000
TURNS = 100
GIB = 1 << 30
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for head_of_line in (HeadOfLine.SKIP, HeadOfLine.BACKFILL):
        figures[f"{head_of_line}_burst_ms"] = 1000 * _burst(head_of_line)
        figures[f"{head_of_line}_turn_p50_ms"] = 1000 * median(_turns(head_of_line))
    return figures


@dataclass
class Cluster:
    """Nodes, what runs there until when, and the leader's turn."""

    head_of_line: HeadOfLine
    time: datetime = NOW
    running: dict[UUID, list[tuple[UUID, Amounts, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offered = {"cpu": 16_000, "memory": 64 * GIB}
        self.nodes = [Node(name=f"n{number}", allocatable=offered) for number in range(NODES)]
        self.scheduler = Scheduler(self.nodes, head_of_line=self.head_of_line, compiled=True)
        self.room = WaitingRoom(
            self.scheduler.cluster, best=lambda waiting, number: self.scheduler.best(waiting, number, self.time)
        )
        if self.head_of_line is HeadOfLine.BACKFILL:
            self.room.depths = {"default": 1}

    def turn(self) -> float:
        """Try what is worth it; the processor time that it took."""
        started = process_time()
        self.scheduler.cluster.timeline.advance(seconds_of(self.time))
        taken = self.room.take(self.time)
        left = self.room.park(self.scheduler.place(taken, self.time), self.scheduler.profile, self.time)
        for group in self.room.unexplained(64):
            waits = Decision(group.entry.workload, Outcome.WAITING)
            reason = self.scheduler.with_reason(waits, group.shortage).reason
            assert reason is not None
            self.room.explained(group, reason)
        took = process_time() - started
        for decision in left.decisions:
            end = seconds_of(self.time) + (decision.workload.time_limit_seconds or 0)
            for place in decision.placements:
                self.running.setdefault(place.node_id, []).append((place.task_id, decision.workload.request, end))
        return took

    def end_one(self, chance: random.Random) -> None:
        """A task is over, and its node is told anew."""
        node = chance.choice(self.nodes)
        here = self.running[node.id]
        here.pop(chance.randrange(len(here)))
        used = total(request for _, request, _ in here)
        self.scheduler.cluster.upsert(replace(node, used=used, tasks=len(here)))
        self.scheduler.cluster.tell_ends(node.id, {task: (end, request) for task, request, end in here})


def _burst(head_of_line: HeadOfLine) -> float:
    """Small work comes while most of every node is free, and none of them wholly."""
    cluster, small = Cluster(head_of_line), _small(random.Random(1))
    for _ in range(NODES):
        cluster.room.admit(next(small))
    cluster.turn()
    cluster.room.admit(_head())
    cluster.turn()
    for _ in range(BURST):
        cluster.room.admit(next(small))
    return cluster.turn()


def _turns(head_of_line: HeadOfLine) -> list[float]:
    """One task after the other ends on full nodes, with a long queue."""
    chance = random.Random(2)
    cluster, small = Cluster(head_of_line), _small(chance)
    for _ in range(NODES * 14):
        cluster.room.admit(next(small))
    cluster.turn()
    cluster.room.admit(_head())
    for _ in range(QUEUE):
        cluster.room.admit(next(small))
    cluster.turn()
    took = []
    for _ in range(TURNS):
        cluster.time += timedelta(seconds=1)
        cluster.end_one(chance)
        took.append(cluster.turn())
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


def _head() -> Workload:
    """It comes first, as its priority says."""
    return Workload(name="head", request={"cpu": 16_000, "memory": 60 * GIB}, priority=90, time_limit_seconds=3600)
