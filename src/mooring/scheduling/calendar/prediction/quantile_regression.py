"""A quantile of the run time, by on-line linear regression on what is known at submission.

The logarithm of the run time is predicted, with the pinball loss of the quantile and steps adapted to each feature
(AdaGrad). The asymmetry follows Gaussier, Glesser, Reis and Trystram, "Improving Backfilling by Using Machine Learning
to Predict Running Times" (2015): a job that is predicted too long waits for a gap that it does not need, which costs a
short job far more than a correction costs others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, exp, log, log2, pi, sin, sqrt

from mooring.model.workloads.lifetime.runs import EndedRun, JobFeatures
from mooring.scheduling.calendar.prediction.run_history import RunHistory

QUANTILE = 0.5
GAP_SHARE = 0.25
"""Work starts in a gap of this part of its predicted run time: many runs are far shorter, and those that are not delay
one planned start. On two published logs, with shifted submissions, this served better than the whole time."""
_STEP = 0.1
_FEWEST = 20
"""Runs that are learned before the first prediction."""
_UNLIMITED = 7 * 86_400
"""Stands for the limit of work that has none."""
_DAY = 86_400
_MOST_EXPONENT = 21.0
"""The logarithm of forty years: no prediction is longer."""


class QuantileRegression:
    gap_share = GAP_SHARE

    def __init__(self, quantile: float = QUANTILE) -> None:
        self.history = RunHistory()
        self._quantile = quantile
        self._weights: list[float] = []
        self._squares: list[float] = []
        """By feature: the sum of the squared gradients."""
        self._learned = 0

    def seconds(self, job: JobFeatures) -> float | None:
        """Return the quantile of the run time; None until enough runs have ended."""
        if self._learned < _FEWEST:
            return None
        return exp(min(max(self._residual(self._features(job)) + _prior(job), 0.0), _MOST_EXPONENT))

    def learn(self, run: EndedRun) -> None:
        features = self._features(run.job)
        if not self._weights:
            self._weights, self._squares = [0.0] * len(features), [1e-8] * len(features)
        error = self._residual(features) + _prior(run.job) - log(max(run.seconds, 1))
        slope = 1.0 - self._quantile if error > 0 else -self._quantile
        for number, feature in enumerate(features):
            gradient = slope * feature
            self._squares[number] += gradient * gradient
            self._weights[number] -= _STEP * gradient / sqrt(self._squares[number])
        self.history.learn(run)
        self._learned += 1

    def _residual(self, features: Sequence[float]) -> float:
        return sum(weight * feature for weight, feature in zip(self._weights, features, strict=True))

    def _features(self, job: JobFeatures) -> list[float]:
        """Return the features, all of a magnitude of about one; missing run times are replaced by more general ones."""
        prior = _prior(job)
        alike, limit, size, every = ([log(max(time, 1)) for time in times] for times in self.history.recent(job))
        last, last_two, last_three, long_run = (_mean(every[-newest:], prior) for newest in (1, 2, 3, 10))
        same_limit = _mean(limit[-2:], last_two)
        times = (
            last,
            last_two,
            last_three,
            long_run,
            same_limit,
            _mean(alike[-2:], same_limit),
            _mean(alike, _mean(limit, long_run)),
            _mean(size[-3:], last_three),
        )
        second = (job.submitted_at.hour * 60 + job.submitted_at.minute) * 60 + job.submitted_at.second
        hour, day = 2 * pi * second / _DAY, 2 * pi * (job.submitted_at.weekday() + second / _DAY) / 7
        return [
            1.0,
            (prior + 1.0) / 10,
            log2(1 + job.millicores / 1000) / 7,
            log2(1 + job.gpu / 1000) / 3,
            *(time / 10 for time in times),
            float(not every),
            float(not limit),
            float(not alike),
            cos(hour),
            sin(hour),
            cos(day),
            sin(day),
        ]


def _prior(job: JobFeatures) -> float:
    """Return the logarithm of the run time that is expected before anything is learned: a part of the limit."""
    return log((_UNLIMITED if job.limit_seconds is None else job.limit_seconds) + 1) - 1.0


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
