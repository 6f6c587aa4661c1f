"""Figures of a simulation: waits, bounded slowdown, utilisation, GPUs, tenants, deadlines and start estimates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import mean, median, quantiles

from mooring.model.resources.slots import total
from mooring.model.tenancy.quotas import Scope
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.simulation.outcomes import GpuSample, JobOutcome, Result
from mooring.simulation.scenario import Scenario

SHORTEST_RUN_SECONDS = 10
"""Shorter runs count as this long in the bounded slowdown."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """Percentages of the GPU capacity."""

    unallocated_percent: float
    """The mean over time, from the first to the last submission."""
    fragmented_percent: float
    unallocated_at_full_demand_percent: float | None
    """At the arrivals at which the GPUs requested so far equal the capacity; only where no job ends."""


@dataclass(frozen=True, slots=True)
class StartFigures:
    """The errors of the first planned starts of jobs that waited."""

    planned: int
    mean_error_seconds: float
    median_error_seconds: float
    late: int
    """Jobs that started later than planned first."""


@dataclass(frozen=True, slots=True)
class TenantFigures:
    name: str
    jobs: int
    mean_wait_seconds: float
    share: float
    """Of the use of all tenants: the largest part of any slot."""
    share_over_entitlement: float
    """The entitlement is its weight among the tenants with jobs."""


@dataclass(frozen=True, slots=True)
class Figures:
    jobs: int
    never_started: int
    mean_wait_seconds: float
    median_wait_seconds: float
    p95_wait_seconds: float
    mean_bounded_slowdown: float
    utilisation: dict[str, float]
    """By slot: the allocated part of the capacity from the first submission to the end."""
    statuses: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    node_losses: int = 0
    """Attempts that ended with their node."""
    moves: int = 0
    """Attempts that ended with a move to another node."""
    deadlines: int = 0
    """Jobs with a deadline."""
    deadline_hits: int = 0
    fairness: float = 1.0
    """Jain's index of the shares over entitlements of all tenants: 1 if all are equal."""
    gpu: GpuFigures | None = None
    starts: StartFigures | None = None
    tenants_by: str = "user"
    tenants: tuple[TenantFigures, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def figures_of(result: Result, scenario: Scenario) -> Figures:
    """Return the figures; waits and slowdowns are those of the jobs that started."""
    outcomes = result.outcomes
    waits = [each.wait_seconds for each in outcomes if each.wait_seconds is not None]
    percentiles = percentiles_of(waits)
    slowdowns = [slowdown for each in outcomes if (slowdown := slowdown_of(each)) is not None]
    offered = _offered(result, scenario)
    used = _used(outcomes, offered)
    by, tenants = _tenants(outcomes, scenario, offered)
    with_deadline = [each for each in outcomes if each.job.deadline is not None]
    return Figures(
        jobs=len(outcomes),
        never_started=len(outcomes) - len(waits),
        mean_wait_seconds=mean(waits) if waits else 0.0,
        median_wait_seconds=percentiles[49],
        p95_wait_seconds=percentiles[94],
        mean_bounded_slowdown=mean(slowdowns) if slowdowns else 0.0,
        utilisation={slot: used.get(slot, 0) / amount if amount else 0.0 for slot, amount in offered.items()},
        statuses=dict(sorted(Counter(each.status.value for each in outcomes).items())),
        preemptions=sum(each.preemptions for each in outcomes),
        node_losses=sum(each.node_losses for each in outcomes),
        moves=sum(each.moves for each in outcomes),
        deadlines=len(with_deadline),
        deadline_hits=sum(is_in_time(each) for each in with_deadline),
        fairness=_jain([each.share_over_entitlement for each in tenants]),
        gpu=_gpus(result),
        starts=_starts(outcomes),
        tenants_by=by,
        tenants=tenants,
    )


def bounded_slowdown(wait_seconds: int, run_seconds: int) -> float:
    return max(1.0, (wait_seconds + run_seconds) / max(run_seconds, SHORTEST_RUN_SECONDS))


def slowdown_of(outcome: JobOutcome) -> float | None:
    """Return the bounded slowdown; None if the job did not start, or does not end by itself.

    The run time is that of the trace, up to the time limit: a job that is started again waits for longer.
    """
    if not outcome.attempts or outcome.job.run_seconds is None:
        return None
    run = min(outcome.job.run_seconds, outcome.limit_seconds or outcome.job.run_seconds)
    last = outcome.attempts[-1].start
    return bounded_slowdown(last - outcome.job.submitted, run)


def is_in_time(outcome: JobOutcome) -> bool:
    """Return whether the job ended by its deadline."""
    end, deadline = outcome.end, outcome.job.deadline
    return end is not None and deadline is not None and end <= deadline


def percentiles_of(values: Sequence[float]) -> list[float]:
    """Return the percentiles 1 to 99."""
    if len(values) > 1:
        return quantiles(values, n=100, method="inclusive")
    return [float(sum(values))] * 99


def _offered(result: Result, scenario: Scenario) -> dict[str, int]:
    """Return the capacity times seconds by slot, without the time for which nodes were lost."""
    start, end = result.start, result.end
    offered = {slot: amount * (end - start) for slot, amount in total(n.allocatable for n in scenario.nodes).items()}
    allocatable = {node.name: node.allocatable for node in scenario.nodes}
    for fault in scenario.faults:
        back = end if fault.back_at is None else min(fault.back_at, end)
        missing = max(0, back - max(fault.at, start))
        for name in fault.nodes:
            for slot, amount in allocatable[name].items():
                offered[slot] -= amount * missing
    return offered


def _used(outcomes: Sequence[JobOutcome], offered: Mapping[str, int]) -> dict[str, int]:
    used = dict.fromkeys(offered, 0)
    for each in outcomes:
        seconds = sum(attempt.end - attempt.start for attempt in each.attempts)
        for slot, amount in each.job.request.items() if seconds else ():
            used[slot] = used.get(slot, 0) + amount * each.job.tasks * seconds
    return used


def tenant_scope(outcomes: Sequence[JobOutcome]) -> Scope:
    """Return the level at which tenants are compared: projects if the jobs name any, otherwise users."""
    return Scope.PROJECT if any(each.job.project for each in outcomes) else Scope.USER


def _tenants(
    outcomes: Sequence[JobOutcome], scenario: Scenario, offered: Mapping[str, int]
) -> tuple[str, tuple[TenantFigures, ...]]:
    scope = tenant_scope(outcomes)
    own: defaultdict[str, list[JobOutcome]] = defaultdict(list)
    for each in outcomes:
        own[each.job.tenant(scope)].append(each)
    weights = {each.name: each.weight for each in scenario.tenants if each.scope is scope}
    use: dict[str, float] = {}
    for name, jobs in own.items():
        used = _used(jobs, offered)
        use[name] = max((used[slot] / amount for slot, amount in offered.items() if amount), default=0.0)
    all_use, all_weights = sum(use.values()), sum(weights.get(name, 100) for name in own)
    found: list[TenantFigures] = []
    for name, jobs in sorted(own.items(), key=lambda item: -use[item[0]]):
        waits = [each.wait_seconds for each in jobs if each.wait_seconds is not None]
        share = use[name] / all_use if all_use else 0.0
        entitled = weights.get(name, 100) / all_weights if all_weights else 1.0
        ratio = share / entitled if entitled else 0.0
        found.append(TenantFigures(name or "-", len(jobs), mean(waits) if waits else 0.0, share, ratio))
    return scope.value, tuple(found)


def _jain(values: Sequence[float]) -> float:
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _starts(outcomes: Sequence[JobOutcome]) -> StartFigures | None:
    errors = [
        each.first_start - each.planned_start
        for each in outcomes
        if each.first_start is not None and each.planned_start is not None
    ]
    if not errors:
        return None
    sizes = [abs(error) for error in errors]
    return StartFigures(len(errors), mean(sizes), median(sizes), sum(error > 0 for error in errors))


def _gpus(result: Result) -> GpuFigures | None:
    samples = result.gpus
    if not samples:
        return None
    last_submission = max(each.job.submitted for each in result.outcomes)
    return GpuFigures(
        _mean_percent(samples, last_submission, "unallocated"),
        _mean_percent(samples, last_submission, "fragmented"),
        _at_full_demand(result, samples[0].capacity),
    )


def _mean_percent(samples: Sequence[GpuSample], until: int, name: str) -> float:
    """Return the mean over time of an amount in percent of the capacity."""
    within = [each for each in samples if each.time <= until] or samples[:1]
    percents = [100 * float(getattr(each, name)) / each.capacity if each.capacity else 0.0 for each in within]
    if len(within) == 1:
        return percents[0]
    seconds = [after.time - before.time for before, after in pairwise(within)]
    return sum(p * s for p, s in zip(percents, seconds, strict=False)) / sum(seconds)


def _at_full_demand(result: Result, capacity: int) -> float | None:
    """Return the unallocated percentage when 100 % of the capacity has been requested, as the mean of its arrivals."""
    if not capacity or any(each.job.run_seconds is not None for each in result.outcomes):
        return None
    arrived = allocated = 0
    at_capacity: list[float] = []
    for each in sorted(result.outcomes, key=lambda each: (each.job.submitted, each.job.number)):
        requested = each.job.request.get(DEVICE_SLOT, 0) * each.job.tasks
        arrived += requested
        # Nothing ends, so a job that started at once holds its GPUs from then on.
        allocated += requested * (each.wait_seconds == 0)
        if round(100 * arrived / capacity) == 100:
            at_capacity.append(round(100 * allocated / capacity, 2))
    return 100 - mean(at_capacity) if at_capacity else None
