"""Predictors of run times: each learns from runs in the order in which they end."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Protocol

from mooring.model.policy.pools import Expectation
from mooring.model.workloads.lifetime.runs import EndedRun, JobFeatures
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.prediction.last_two import LastTwoRuns
from mooring.scheduling.calendar.prediction.quantile_regression import QuantileRegression

_STEPS_PER_OCTAVE = 16


class Predictor(Protocol):
    """Deterministic: the same runs in the same order give the same predictions."""

    @property
    def gap_share(self) -> float:
        """The part of the predicted run time for which a gap must last."""
        ...

    def seconds(self, job: JobFeatures) -> float | None:
        """Return the predicted run time; None without evidence."""

    def learn(self, run: EndedRun) -> None: ...


def predictor_of(expectation: Expectation) -> Predictor | None:
    """Return a new predictor for pools with this expectation; None if they use no predictions."""
    if expectation is Expectation.RECENT:
        return LastTwoRuns()
    return QuantileRegression() if expectation is Expectation.PREDICTED else None


def features_of(workload: Workload) -> JobFeatures:
    """Return the features of a workload; tasks of a gang run as one job, all others by themselves."""
    return JobFeatures.of(
        user_id=workload.user_id,
        type=workload.type,
        name=workload.name,
        limit_seconds=workload.time_limit_seconds,
        request=workload.request,
        tasks=len(workload.tasks) + sum(workload.occupied.values()) if workload.gang else 1,
        submitted_at=workload.created_at,
    )


def with_prediction(workload: Workload, predictor: Predictor | None) -> Workload:
    """Return the workload with its predicted run time, or without one."""
    seconds = None if predictor is None else expected_runtime(predictor, features_of(workload))
    gap = None if predictor is None or seconds is None else max(ceil(seconds * predictor.gap_share), 1)
    if seconds == workload.predicted_seconds and gap == workload.predicted_gap_seconds:
        return workload
    return replace(workload, predicted_seconds=seconds, predicted_gap_seconds=gap)


def expected_runtime(predictor: Predictor, job: JobFeatures) -> int | None:
    """Return the predicted run time in whole seconds, at least one and at most the time limit; None without evidence.

    It is rounded up to one of sixteen steps per power of two, so that work that is alike is planned alike.
    """
    seconds = predictor.seconds(job)
    if seconds is None:
        return None
    rounded = _rounded_up(seconds)
    return rounded if job.limit_seconds is None else max(min(rounded, job.limit_seconds), 1)


def _rounded_up(seconds: float) -> int:
    whole = max(int(-(-seconds // 1)), 1)
    step = max((1 << whole.bit_length() - 1) // _STEPS_PER_OCTAVE, 1)
    return -(-whole // step) * step
