"""Runs of a queue on a scheduler with a clock of its own, in which every task runs to its time limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from random import Random
from uuid import UUID

from mooring.model.decisions import Decision
from mooring.model.labels import equal_to
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine
from mooring.model.workloads.constraints import (
    NODE_NAME_FIELD,
    Constraints,
    HostPort,
    TaskTerm,
)
from mooring.model.workloads.workload import Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.explain.explanation import forget
from tests.scheduling.builders import NOW, WorkloadBuilder, node, workload


class Run:
    """A queue on a scheduler, with a pass whenever tasks end."""

    def __init__(self, scheduler: Scheduler, queue: Sequence[Workload]) -> None:
        self.scheduler = scheduler
        self.waiting = {each.id: each for each in queue}
        self.starts: dict[UUID, datetime] = {}
        self.seconds = 0
        self._ends: list[tuple[int, int, Decision]] = []
        self._number = 0

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def until(self, seconds: int | None = None) -> dict[UUID, datetime]:
        """Run until all has started, or for some seconds with a pass at the end; returns the starts."""
        while self.waiting:
            self._pass()
            if seconds is not None and (not self._ends or self._ends[0][0] > seconds):
                self.seconds = seconds
                self._pass()
                break
            self.seconds = self._ends[0][0]
            while self._ends and self._ends[0][0] == self.seconds:
                self._end(heappop(self._ends)[2])
        return self.starts

    def _pass(self) -> None:
        for decision in self.scheduler.place(list(self.waiting.values()), self.now).decisions:
            workload, placements = decision.workload, decision.placements
            if not placements:
                continue
            self.starts.setdefault(workload.id, self.now)
            assert workload.time_limit_seconds is not None
            self._number += 1
            heappush(self._ends, (self.seconds + workload.time_limit_seconds, self._number, decision))
            self._set_ends(decision)
            placed = {each.task_id for each in placements}
            left = tuple(task for task in workload.tasks if task.id not in placed)
            occupied = dict(workload.occupied)
            for each in placements:
                occupied[each.node_id] = occupied.get(each.node_id, 0) + 1
            del self.waiting[workload.id]
            if left:
                self.waiting = {**self.waiting, workload.id: replace(workload, tasks=left, occupied=occupied)}

    def _end(self, decision: Decision) -> None:
        forget(self.scheduler.cluster, decision)
        rest = self.waiting.get(decision.workload.id)
        if rest is not None:
            occupied = Counter(dict(rest.occupied))
            occupied.subtract(each.node_id for each in decision.placements)
            self.waiting[rest.id] = replace(rest, occupied=dict(+occupied))

    def _set_ends(self, decision: Decision) -> None:
        """Tell when tasks end at the latest, as a server does in all pools."""
        cluster, workload = self.scheduler.cluster, decision.workload
        for each in decision.placements:
            row = cluster.row_of(each.node_id)
            assert row is not None
            assert workload.longest_seconds is not None
            footprint = Footprint(workload.constraints, each.devices, False, workload.stop_grace_seconds)
            end = seconds_of(self.now) + workload.longest_seconds
            cluster.timeline.expect(each.task_id, row, end, workload.request, footprint)


def job(name: str, cores: int, seconds: int | None, order: int = 0) -> WorkloadBuilder:
    return workload(name).cpu(cores).created(1000 - order).limit(seconds)


def scheduler_of(
    *cores: int,
    head_of_line: HeadOfLine = HeadOfLine.BACKFILL,
    depth: int = 1,
    order: BackfillOrder = BackfillOrder.QUEUE,
) -> Scheduler:
    nodes = [node(f"n{number}").cpu(each).slot("gpu", 2).node for number, each in enumerate(cores)]
    rules = Backfill(depth=depth, order=order)
    return Scheduler(nodes, head_of_line=head_of_line, backfill=rules, compiled=False)


def mixed_jobs(seed: int, number: int = 24) -> list[Workload]:
    """Jobs of one to four cores for minutes, of which some are gangs."""
    chance = Random(seed)
    jobs = [job(f"w{at}", chance.choice([1, 1, 2, 4]), chance.randrange(60, 600), at) for at in range(number)]
    gangs = [each.replicas(2).gang() if chance.random() < 0.2 else each for each in jobs]
    return [replace(each.workload, stop_grace_seconds=10) for each in gangs]


def demanding_jobs(seed: int, number: int = 40) -> list[Workload]:
    """Jobs of which some want a port, devices, or a node without others of their kind."""
    chance, jobs = Random(seed), mixed_jobs(seed, number)
    term = TaskTerm(NODE_NAME_FIELD, equal_to({"app": "alone"}))
    apart = Constraints(labels=(("app", "alone"),), anti_affinity=(term,))
    for at, each in enumerate(jobs):
        kind = chance.randrange(5)
        if kind == 0:
            jobs[at] = replace(each, constraints=Constraints(host_ports=(HostPort(8080),)))
        elif kind == 1:
            jobs[at] = replace(each, request={**each.request, "gpu": chance.choice([500, 1000, 2000])})
        elif kind == 2:
            jobs[at] = replace(each, constraints=apart)
    return jobs
