"""Rigid parallel jobs after Lublin and Feitelson (JPDC 2003): sizes, run times that depend on them, a daily cycle.

Sizes are serial, powers of two, or between. The logarithm of the run time is hyper-gamma distributed, with a mixture
that depends on the size. Inter-arrival times are gamma distributed in their logarithm, and shorter in busy hours. Time
limits are the run times: the model has no estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log2
from random import Random

from mooring.simulation.jobs import Job

_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_LOWEST, _BELOW_HIGHEST, _LOW_PART = 0.8, 2.5, 0.86
"""The two-stage uniform distribution of the logarithm of the size."""
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_SLOPE, _INTERCEPT = -0.0054, 0.78
"""The probability of a short job is a linear function of its size."""
_LONGEST_LOGARITHM = 12.0
_ARRIVALS = (10.2303, 0.4871)
_DAILY_CYCLE = (8.1737, 3.9631)
_CYCLE_BEGINS = 11
"""The hour at which the daily cycle begins."""
_BUCKETS, _BUCKET_SECONDS = 48, 1800


def lublin(*, jobs: int, processors: int, cores_as_tasks: bool, seed: str, load: float = 1.0) -> list[Job]:
    """Return jobs for a machine of this many processors. `load`: factor of the arrival rate."""
    random, weights = Random(seed), _weights()
    found: list[Job] = []
    time = 0.0
    for number in range(jobs):
        size = _size(processors, random)
        run = max(1, round(_run_seconds(size, random)))
        time = _next_arrival(time, exp(random.gammavariate(*_ARRIVALS)) / load, weights)
        request, tasks = ({"cpu": 1000}, size) if cores_as_tasks else ({"cpu": 1000 * size}, 1)
        found.append(Job(number, f"job-{number}", int(time), run, run, request, tasks))
    return found


def _size(processors: int, random: Random) -> int:
    if processors == 1 or random.random() <= _SERIAL:
        return 1
    highest = log2(processors)
    middle = max(highest - _BELOW_HIGHEST, min(_LOWEST, highest))
    low, high = (_LOWEST, middle) if random.random() <= _LOW_PART else (middle, highest)
    logarithm = random.uniform(low, high)
    size = 2 ** round(logarithm) if random.random() <= _POWER_OF_TWO else round(2**logarithm)
    return max(1, min(size, processors))


def _run_seconds(size: int, random: Random) -> float:
    short = min(max(_SLOPE * size + _INTERCEPT, 0), 1)
    while True:
        logarithm = random.gammavariate(*(_SHORT if random.random() <= short else _LONG))
        if logarithm <= _LONGEST_LOGARITHM:
            return exp(logarithm)


def _next_arrival(time: float, points: float, weights: Sequence[float]) -> float:
    """Return the time at which the points are spent: a second costs the weight of its half hour."""
    while True:
        bucket = int(time // _BUCKET_SECONDS)
        weight = weights[bucket % _BUCKETS]
        left = (bucket + 1) * _BUCKET_SECONDS - time
        if points <= left * weight:
            return time + points / weight
        points -= left * weight
        time = float((bucket + 1) * _BUCKET_SECONDS)


def _weights() -> list[float]:
    """Return the relative arrival rate of each half hour of the day, 1 in the mean."""
    shape, scale = _DAILY_CYCLE
    found = [0.0] * _BUCKETS
    # The distribution spans more than a day; its tail belongs to the first hours of the next cycle.
    for bucket in range(2 * _BUCKETS):
        found[(2 * _CYCLE_BEGINS + bucket) % _BUCKETS] += _gamma_density(bucket + 0.5, shape, scale)
    mean = sum(found) / _BUCKETS
    return [weight / mean for weight in found]


def _gamma_density(at: float, shape: float, scale: float) -> float:
    """Return the density of a gamma distribution without its constant factor, which cancels out."""
    return float((at / scale) ** (shape - 1) * exp(-at / scale))
