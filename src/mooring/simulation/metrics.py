"""Figures of a simulation: waits, bounded slowdown and utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, quantiles

from mooring.model.nodes.node import Node
from mooring.model.resources.slots import total
from mooring.simulation.engine import JobOutcome

SHORTEST_RUN_SECONDS = 10
"""Shorter runs count as this long in the bounded slowdown."""


@dataclass(frozen=True, slots=True)
class Figures:
    jobs: int
    never_started: int
    mean_wait_seconds: float
    median_wait_seconds: float
    p95_wait_seconds: float
    mean_bounded_slowdown: float
    utilisation: dict[str, float]
    """By slot: the allocated part of the capacity from the first submission to the last end."""

    def as_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def figures_of(outcomes: Sequence[JobOutcome], nodes: Sequence[Node]) -> Figures:
    """Return the figures; waits and slowdowns are those of the jobs that started."""
    started = [(each.job, each.start) for each in outcomes if each.start is not None]
    waits = [start - job.submitted for job, start in started]
    # A percentile needs two values.
    percentiles = quantiles(waits, n=100, method="inclusive") if len(waits) > 1 else [float(sum(waits))] * 99
    return Figures(
        jobs=len(outcomes),
        never_started=len(outcomes) - len(started),
        mean_wait_seconds=mean(waits) if waits else 0.0,
        median_wait_seconds=percentiles[49],
        p95_wait_seconds=percentiles[94],
        mean_bounded_slowdown=mean(bounded_slowdown(start - job.submitted, job.run_seconds) for job, start in started)
        if started
        else 0.0,
        utilisation=_utilisation(outcomes, nodes),
    )


def bounded_slowdown(wait_seconds: int, run_seconds: int) -> float:
    return max(1.0, (wait_seconds + run_seconds) / max(run_seconds, SHORTEST_RUN_SECONDS))


def _utilisation(outcomes: Sequence[JobOutcome], nodes: Sequence[Node]) -> dict[str, float]:
    ends = [each.end for each in outcomes if each.end is not None]
    span = max(ends) - min(each.job.submitted for each in outcomes) if ends else 0
    capacity = total(node.allocatable for node in nodes)
    used = dict.fromkeys(capacity, 0)
    for each in outcomes:
        if each.start is not None:
            for slot, amount in each.job.request.items():
                used[slot] += amount * each.job.tasks * each.job.run_seconds
    return {slot: used[slot] / (amount * span) if amount and span else 0.0 for slot, amount in capacity.items()}
