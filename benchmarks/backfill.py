"""Backfill on published job logs, against the published average bounded slowdowns.

A processor of a log is a core. The logs and their protocol are not part of the project: MOORING_TRACES names the folder
that holds them.

KTH-SP2: the simulation replays all jobs on one node, and the first jobs as gangs over a node per processor.
Lublin: ten sequences of jobs on one empty node. The study's own rules differ from EASY's, so a driver of its own passes
its head and its reservation to the scheduler.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from math import log10
from pathlib import Path
from statistics import mean
from time import process_time
from uuid import UUID

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, BackfillOrder, Expectation, HeadOfLine, PoolPolicy
from mooring.model.workloads.workload import LONG_AGO, Task, Workload
from mooring.scheduling import Scheduler
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.scheduler import Pass
from mooring.simulation import jobs as simulation
from mooring.simulation.engine import replay
from mooring.simulation.inputs.traces.swf import read_swf
from mooring.simulation.metrics import bounded_slowdown, figures_of
from mooring.simulation.scenario import Scenario

CORE = 1000
EVERYTHING = 1 << 30
"""More than any queue: every waiting job has a planned start."""
GANGS = 5_000
"""The number of jobs that run as gangs."""
FOLDER = Path(os.environ.get("MOORING_TRACES") or Path(__file__).resolve().parent.parent.parent / "shared" / "traces")


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    submitted: int
    runs: int
    requested: int
    processors: int


@dataclass(frozen=True, slots=True)
class Result:
    """Start times by the number of the job, and the figures derived from them."""

    jobs: Sequence[Job]
    starts: dict[int, int]

    @property
    def slowdown(self) -> float:
        """The average bounded slowdown."""
        return mean(bounded_slowdown(self.starts[job.number] - job.submitted, job.runs) for job in self.jobs)


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    machine = [Node(name="machine", allocatable={"cpu": 100 * CORE})]
    jobs = kth_jobs(gangs=False)
    for name, rules in (
        ("easy", Backfill()),
        ("easy_shortest_first", Backfill(order=BackfillOrder.SHORTEST)),
        ("easy_plus_plus", Backfill(order=BackfillOrder.SHORTEST, expectation=Expectation.RECENT)),
        ("learned", Backfill(order=BackfillOrder.SHORTEST, expectation=Expectation.PREDICTED)),
        ("conservative", Backfill(depth=EVERYTHING)),
    ):
        figures |= _simulated(f"kth_{name}", machine, jobs, rules)
    figures |= {f"kth_{name}_published": published_kth(scheduler) for name, scheduler in PUBLISHED_KTH.items()}
    processors = [Node(name=f"machine-{number}", allocatable={"cpu": CORE}) for number in range(100)]
    figures |= _simulated("kth_gangs", processors, kth_jobs(gangs=True)[:GANGS], Backfill())
    for backfilling in (False, True):
        for policy in SCORES:
            results = [lublin(sequence, policy, backfilling) for sequence in lublin_sequences()]
            words = f"lublin_{policy.lower()}{'_backfill' if backfilling else ''}"
            figures[words] = mean(result.slowdown for result in results)
            figures[f"{words}_published"] = published_lublin(policy, backfilling)
    return figures


def _simulated(name: str, nodes: Sequence[Node], jobs: Sequence[simulation.Job], rules: Backfill) -> dict[str, float]:
    policy = PoolPolicy("balanced", sequencer="fifo", head_of_line=HeadOfLine.BACKFILL, backfill=rules)
    scenario = Scenario(nodes, jobs, {"default": policy})
    used = process_time()
    result = replay(scenario)
    used = process_time() - used
    return {
        name: figures_of(result, scenario).mean_bounded_slowdown,
        f"{name}_processor_seconds": used,
        f"{name}_jobs_per_second": len(jobs) / used,
    }


class Machine:
    """One node, the jobs on it, and the scheduler that says which start."""

    def __init__(self, processors: int, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.ends: list[tuple[int, int]] = []
        self.starts: dict[int, int] = {}
        self.node = Node(name="machine", allocatable={"cpu": processors * CORE})
        self._jobs: dict[int, Job] = {}
        scheduler.cluster.upsert(self.node)
        row = scheduler.cluster.row_of(self.node.id)
        assert row is not None
        self.row = row

    def workload(self, job: Job) -> Workload:
        self._jobs[job.number] = job
        number = UUID(int=job.number + 1)
        return Workload(
            id=number,
            name=f"job-{job.number}",
            request={"cpu": job.processors * CORE},
            tasks=(Task(number, 0),),
            created_at=_at(job.submitted),
            time_limit_seconds=job.requested,
        )

    def end_jobs(self, time: int, most: int = EVERYTHING) -> None:
        """Jobs end by themselves, mostly long before their limit."""
        cluster = self.scheduler.cluster
        for _ in range(min(most, len(self.ends))):
            if self.ends[0][0] > time:
                break
            _, number = heappop(self.ends)
            cluster.count_amounts([self.row], [{"cpu": self._jobs[number].processors * CORE}], -1)
            cluster.timeline.remove(UUID(int=number + 1))

    def started(self, waiting: Sequence[Workload], time: int, scheduler: Scheduler | None = None) -> list[int]:
        """One pass of the machine's scheduler or of another; the numbers of the jobs that start."""
        return self.note_starts((scheduler or self.scheduler).place(waiting, _at(time)), time)

    def note_starts(self, result: Pass, time: int) -> list[int]:
        """Let the placed jobs run, and return their numbers."""
        numbers = [decision.workload.id.int - 1 for decision in result.decisions if decision.placements]
        for number in numbers:
            self.starts[number] = time
            heappush(self.ends, (time + self._jobs[number].runs, number))
        return numbers


def _at(second: int) -> datetime:
    return LONG_AGO + timedelta(seconds=second)


def lublin(jobs: Sequence[Job], policy: str, backfilling: bool) -> Result:
    """A sequence by the study's rules: a head stays the head, and others only start if they end before its start."""
    machine = Machine(256, Scheduler(head_of_line=HeadOfLine.BACKFILL, compiled=False))
    others = Scheduler(cluster=machine.scheduler.cluster, head_of_line=HeadOfLine.SKIP, compiled=False)
    timeline, score = machine.scheduler.cluster.timeline, SCORES[policy]
    arrivals = sorted(jobs, key=lambda job: job.number)
    waiting: dict[int, Workload] = {}
    by_number = {job.number: job for job in jobs}
    position, head = 0, -1
    while position < len(arrivals) or waiting:
        time = min(
            arrivals[position].submitted if position < len(arrivals) else NEVER,
            machine.ends[0][0] if machine.ends else NEVER,
        )
        # While a head waits, the study looks at the queue after every single event, arrivals first.
        most = 1 if head in waiting else EVERYTHING
        came = position
        while position < min(len(arrivals), came + most) and arrivals[position].submitted <= time:
            waiting[arrivals[position].number] = machine.workload(arrivals[position])
            position += 1
        machine.end_jobs(time, most if most > 1 or position == came else 0)
        while waiting:
            if head not in waiting:
                head = min(waiting, key=lambda number: score(by_number[number]))
                planned = None
            timeline.remove("head")
            if machine.started([waiting[head]], time):
                del waiting[head]
                continue
            if not backfilling:
                break
            if planned is None:
                planned = min(each.start for each in timeline.planned if each.start is not None)
            timeline.drop_plans({"default"})
            # A job may start if it ends before the second of the head's start, whatever else is free then.
            if planned - 1 > time:
                timeline.add("head", machine.row, planned - 1, None, machine.node.allocatable)
                behind = [workload for number, workload in waiting.items() if number != head]
                for number in machine.started(behind, time, others):
                    del waiting[number]
            break
    return Result(jobs, machine.starts)


SCORES: dict[str, Callable[[Job], tuple[float, ...]]] = {
    "FCFS": lambda job: (job.submitted, job.number),
    "SJF": lambda job: (job.requested, job.submitted, job.number),
    "F1": lambda job: (log10(max(job.requested, 1)) * job.processors + 870 * log10(max(job.submitted, 1)), job.number),
}


def kth_jobs(*, gangs: bool) -> list[simulation.Job]:
    path = _file("KTH-SP2-1996-2.swf.gz")
    with gzip.open(path, "rt") as lines:
        return read_swf(lines, path.name, gangs=gangs)


def lublin_sequences() -> list[list[Job]]:
    jobs = [replace(job, requested=job.runs) for job in _log("lublin_256.swf.gz")]
    starts = json.loads(_file("starts_lublin-1.json").read_bytes())
    return [jobs[first : first + starts["sequence_length"]] for first in starts["start_rows"]]


PUBLISHED_KTH = {
    "easy": "easy_backfill_scheduler_None_None",
    "easy_shortest_first": "easy_sjbf_scheduler_None_None",
    "easy_plus_plus": "easy_plus_plus_scheduler_predictortsafrir_tsafrir",
    "learned": "best of 5770 learned variants",
    "clairvoyant": "easy_plus_plus_scheduler_predictorclairvoyant_throw_an_error",
}
"""The beginnings of the rows of the study's table."""


def published_kth(scheduler: str) -> float:
    with _file("published_kth-sp2.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["scheduler"].startswith(scheduler):
                return float(row["avg_bsld"])
    raise LookupError(scheduler)


def published_lublin(policy: str, backfilling: bool) -> float:
    with _file("published_lublin-1.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["policy"] == policy and row["backfill"] == ("yes" if backfilling else "no"):
                return float(row["published_avg_bsld"])
    raise LookupError(policy)


def _log(name: str) -> list[Job]:
    """Return the jobs of a log in the Standard Workload Format, unchanged."""
    jobs: list[Job] = []
    with gzip.open(_file(name), "rt") as lines:
        for line in lines:
            fields = line.split()
            if fields and not fields[0].startswith(";"):
                submitted, runs, used, asked, requested = (int(float(fields[at])) for at in (1, 3, 4, 7, 8))
                processors = asked if asked > 0 else used
                jobs.append(Job(len(jobs), submitted, runs, requested, processors))
    return jobs


def _file(name: str) -> Path:
    path = FOLDER / "swf" / name
    if not path.exists():
        raise SystemExit(f"no {name} in {path.parent}; set MOORING_TRACES to the folder that holds the job logs")
    return path
