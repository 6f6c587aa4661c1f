"""The formula of fair share, on worked numbers."""

from datetime import UTC, datetime

import pytest

from mooring.model.policy.pools import FairShare
from mooring.model.resources.slots import amounts
from mooring.model.tenancy.fair_share import (
    decay,
    factor,
    normalised,
    shares_of_days,
)

WEEK = 7 * 86_400
POOL = amounts(cpu=64, gpu=8)
USED = {"cpu": 4000.0 * WEEK, "gpu": 1000.0 * WEEK}


@pytest.mark.parametrize(("days", "left"), [(0, 1.0), (1, 0.9057), (7, 0.5), (14, 0.25), (28, 0.0625)])
def test_use_counts_half_after_each_half_life(days: int, left: float):
    assert decay(days, 7) == pytest.approx(left, abs=5e-5)


@pytest.mark.parametrize(("weight", "expected"), [(1.0, 0.97954), (2.0, 0.98972), (0.5, 0.95949)])
def test_a_week_of_four_cores_and_a_gpu(weight: float, expected: float):
    # (4/64 x 7/28 x 1 + 1/8 x 7/28 x 10) / 11
    used = normalised(USED, POOL, FairShare())
    assert used == pytest.approx(0.02983, abs=5e-6)
    assert factor(used, weight) == pytest.approx(expected, abs=5e-6)


def test_a_tenant_without_use_has_the_highest_factor_and_no_factor_is_zero():
    assert factor(normalised({}, POOL, FairShare())) == 1.0
    assert factor(1e9) == 2**-10


def test_slots_that_the_pool_lacks_do_not_count():
    licences = USED | {"licence": 1e12}
    assert normalised(licences, POOL, FairShare()) == normalised(USED, POOL, FairShare())
    assert normalised(USED, {}, FairShare()) == 0.0


def test_a_slot_without_a_weight_counts_like_a_core():
    rules = FairShare(slot_weights=(("cpu", 1000),))
    half = {"cpu": 32_000.0 * WEEK}
    assert normalised(half, {"cpu": 64_000, "licence": 5}, rules) == pytest.approx(0.5 / 4 / 2)


def test_as_many_days_count_as_are_looked_back_at():
    today = datetime(2026, 3, 1, tzinfo=UTC)
    shares = shares_of_days(today, FairShare(half_life_days=1, lookback_days=3))
    assert list(shares.items()) == [
        (today, 1.0),
        (datetime(2026, 2, 28, tzinfo=UTC), 0.5),
        (datetime(2026, 2, 27, tzinfo=UTC), 0.25),
    ]
