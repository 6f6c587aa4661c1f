"""Predicted run times: bounds, determinism, bounded memory, and the rules by which they are learned."""

from __future__ import annotations

from datetime import timedelta
from math import exp
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.policy.pools import Expectation
from mooring.model.workloads.lifetime.runs import EndedRun, JobFeatures
from mooring.model.workloads.workload import LONG_AGO, Workload
from mooring.scheduling.calendar.prediction import run_history
from mooring.scheduling.calendar.prediction.corrections import INCREMENTS, corrected_end
from mooring.scheduling.calendar.prediction.last_two import LastTwoRuns
from mooring.scheduling.calendar.prediction.predictors import (
    Predictor,
    expected_runtime,
    features_of,
    predictor_of,
    with_prediction,
)
from mooring.scheduling.calendar.prediction.quantile_regression import QuantileRegression
from tests.selection import examples

PREDICTING = [Expectation.RECENT, Expectation.PREDICTED]
RUNS = st.tuples(
    st.integers(0, 3),
    st.sampled_from(["train", "train-2", "x" * 60]),
    st.one_of(st.none(), st.integers(1, 1 << 40)),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 40),
)


def job(
    user: int = 1, *, name: str = "train", limit: int | None = 3600, cores: int = 1, second: int = 0
) -> JobFeatures:
    return JobFeatures.of(
        user_id=UUID(int=user),
        type="batch",
        name=name,
        limit_seconds=limit,
        request={"cpu": cores * 1000},
        tasks=1,
        submitted_at=LONG_AGO + timedelta(seconds=second),
    )


def learned(predictor: Predictor, *runs: EndedRun) -> Predictor:
    for run in runs:
        predictor.learn(run)
    return predictor


def predictor(expectation: Expectation) -> Predictor:
    found = predictor_of(expectation)
    assert found is not None
    return found


@pytest.mark.parametrize("expectation", PREDICTING)
@settings(max_examples=examples(60), deadline=None)
@given(runs=st.lists(RUNS, max_size=60), asked=RUNS)
def test_prediction_is_positive_within_the_limit_and_the_same_for_the_same_runs(
    expectation: Expectation,
    runs: list[tuple[int, str, int | None, int, int]],
    asked: tuple[int, str, int | None, int, int],
):
    ended = [EndedRun(job(user, name=name, limit=limit, cores=cores), ran) for user, name, limit, cores, ran in runs]
    user, name, limit, cores, _ = asked
    features = job(user, name=name, limit=limit, cores=cores)
    seconds = expected_runtime(learned(predictor(expectation), *ended), features)
    assert seconds is None or 1 <= seconds <= (limit or 1 << 62)
    assert seconds == expected_runtime(learned(predictor(expectation), *ended), features)


@pytest.mark.parametrize("expectation", [Expectation.LIMIT, Expectation.HISTORY])
def test_other_expectations_predict_nothing(expectation: Expectation):
    assert predictor_of(expectation) is None


@pytest.mark.parametrize("expectation", PREDICTING)
def test_without_evidence_nothing_is_predicted(expectation: Expectation):
    assert expected_runtime(predictor(expectation), job()) is None


def test_last_two_is_the_mean_of_the_last_two_runs_that_are_most_alike():
    known = learned(
        LastTwoRuns(),
        EndedRun(job(limit=600), 999),
        EndedRun(job(limit=600), 100),
        EndedRun(job(limit=600), 156),
        EndedRun(job(limit=7200), 7000),
        EndedRun(job(limit=7200, cores=4), 5000),
        EndedRun(job(2, limit=600), 7),
    )
    assert known.seconds(job(limit=600)) == 128
    # One run with four cores is no pair, so both runs with this limit count.
    assert known.seconds(job(limit=7200, cores=4)) == 6000
    # Neither limit nor size is known: the last two runs of the user count.
    assert known.seconds(job(limit=60, cores=9)) == 6000
    assert known.seconds(job(2, limit=600)) is None


def test_numbered_jobs_are_alike():
    known = LastTwoRuns()
    learned(known, EndedRun(job(name="train-1"), 64), EndedRun(job(name="train-23"), 64))
    assert known.history.recent(job(name="train-456"))[0] == [64, 64]


@pytest.mark.parametrize("quantile", [0.25, 0.75])
def test_regression_learns_the_quantile_of_each_class(quantile: float):
    # Both classes have log-uniform run times over a factor of e² around their centres.
    chance, known = Random(1), QuantileRegression(quantile)
    below = {600: 0, 36_000: 0}
    for number in range(6000):
        limit, centre = chance.choice([(600, 60), (36_000, 6000)])
        run = EndedRun(job(limit=limit, second=number * 600), int(centre * exp(chance.uniform(-1, 1))))
        if number >= 4000:
            predicted = known.seconds(run.job)
            assert predicted is not None
            below[limit] += run.seconds < predicted
        known.learn(run)
    # About 1,000 runs of each class were predicted.
    assert all(abs(count / 1000 - quantile) < 0.12 for count in below.values()), below


def test_memory_is_bounded_per_user_and_in_the_number_of_users(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_history, "MAX_USERS", 5)
    known = LastTwoRuns()
    for number in range(5000):
        known.learn(EndedRun(job(number % 20, name=f"n{'x' * (number % 31)}", limit=number + 1), 10))
    assert len(known.history) <= 5 * run_history.MAX_CLASSES * run_history.NEWEST


def test_one_user_never_displaces_the_runs_of_another():
    known = learned(LastTwoRuns(), EndedRun(job(1), 64), EndedRun(job(1), 64))
    for number in range(5000):
        known.learn(EndedRun(job(2, limit=number + 1), 10))
    assert known.seconds(job(1)) == 64


def test_tasks_of_a_gang_run_as_one_job():
    gang = Workload(name="gang", request={"cpu": 1000}, gang=True, occupied={UUID(int=1): 3})
    assert features_of(gang).millicores == 4000
    assert features_of(Workload(name="array", request={"cpu": 1000})).millicores == 1000


def test_predicted_run_time_shortens_the_expected_but_not_the_longest_time():
    known = LastTwoRuns()
    asked = Workload(name="job-3", request={"cpu": 1000}, time_limit_seconds=3600, stop_grace_seconds=30)
    assert with_prediction(asked, known) is asked
    learned(known, EndedRun(features_of(asked), 64), EndedRun(features_of(asked), 64))
    predicted = with_prediction(asked, known)
    assert (predicted.expected_seconds, predicted.longest_seconds) == (64, 3630)
    assert with_prediction(predicted, None).expected_seconds == 3630


def test_work_without_a_limit_has_no_expected_end_whatever_is_predicted():
    assert Workload(name="job", request={}, predicted_seconds=60).expected_seconds is None


@given(end=st.integers(0, 1 << 40), late=st.integers(-1000, 1 << 30))
def test_corrected_end_is_the_first_sum_of_increments_after_now(end: int, late: int):
    expected, increments = end, list(INCREMENTS)
    if late > 1 << 23:
        late = 1 << 23
    while expected <= end + late:
        expected += increments.pop(0) if len(increments) > 1 else increments[0]
    assert corrected_end(end, end + late) == expected
