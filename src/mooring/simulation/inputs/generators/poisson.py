"""Jobs that arrive independently of each other, in a given mix of kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, log
from random import Random

from mooring.model.errors import InvalidInput
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS
from mooring.simulation.inputs.text_files import MOST_JOBS
from mooring.simulation.jobs import DEFAULT_PRIORITY, Job


class Distribution(StrEnum):
    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, with its frequency relative to the other kinds."""

    request: Amounts
    mean_run_seconds: int
    name: str = "job"
    weight: float = 1.0
    tasks: int = 1
    distribution: Distribution = Distribution.EXPONENTIAL
    spread: float = 1.0
    """Of a lognormal distribution: the standard deviation of the logarithm."""
    limit_factor: float | None = None
    """The time limit is the run time times a random factor from 1 to this; None: no limit."""
    deadline_factor: float | None = None
    """The deadline is the submission plus this many run times; None: no deadline."""
    users: Sequence[str] = ("",)
    """One of them submits each job."""
    project: str = ""
    priority: int = DEFAULT_PRIORITY
    preemptible: bool = True
    gpu_models: frozenset[str] = frozenset()


def poisson(kinds: Sequence[JobKind], *, jobs_per_hour: float, seconds: int, seed: str) -> list[Job]:
    """Return the jobs that arrive within a time."""
    if jobs_per_hour * seconds / 3600 > MOST_JOBS / 2:
        raise InvalidInput(
            f"{jobs_per_hour:g} jobs per hour for {seconds:,} s are more than {MOST_JOBS // 2:,} jobs",
            code="invalid-scenario",
        )
    random, time = Random(seed), 0.0
    weights = [kind.weight for kind in kinds]
    jobs: list[Job] = []
    while (time := time + random.expovariate(jobs_per_hour / 3600)) < seconds:
        [kind] = random.choices(kinds, weights)
        jobs.append(_job(len(jobs), int(time), kind, random))
    return jobs


def _job(number: int, submitted: int, kind: JobKind, random: Random) -> Job:
    run = max(1, round(_run_seconds(kind, random)))
    limit = None if kind.limit_factor is None else ceil(run * random.uniform(1, kind.limit_factor))
    deadline = None if kind.deadline_factor is None else submitted + ceil(run * kind.deadline_factor)
    devices = (DeviceDemand("gpu", kind.gpu_models),) if kind.gpu_models else ()
    return Job(
        number,
        f"{kind.name}-{number}",
        submitted,
        run,
        limit,
        kind.request,
        kind.tasks,
        user=random.choice(kind.users),
        project=kind.project,
        priority=kind.priority,
        preemptible=kind.preemptible,
        constraints=Constraints(devices=devices) if devices else NO_CONSTRAINTS,
        deadline=deadline,
    )


def _run_seconds(kind: JobKind, random: Random) -> float:
    mean = kind.mean_run_seconds
    match kind.distribution:
        case Distribution.CONSTANT:
            return mean
        case Distribution.EXPONENTIAL:
            return random.expovariate(1 / mean)
        case Distribution.LOGNORMAL:
            return random.lognormvariate(log(mean) - kind.spread**2 / 2, kind.spread)
