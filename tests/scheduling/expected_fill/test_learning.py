"""The demand is learned from arrivals, and taken over when they tell more than those before."""

from __future__ import annotations

from collections import Counter
from random import Random

from mooring.model.workloads.workload import Workload
from mooring.scheduling.expected_fill.learning import (
    FIRST,
    REFRESH,
    WINDOW,
    ArrivedRequests,
    Request,
    has_changed,
)


def takeovers(shares: list[int]) -> list[int]:
    """Return the numbers of arrivals after which the demand was taken over."""
    arrived = ArrivedRequests()
    workloads = [Workload(name=f"w-{number}", request={"gpu": share}) for number, share in enumerate(shares)]
    return [number for number, workload in enumerate(workloads) if arrived.note(workload) is not None]


def test_equal_demand_is_taken_over_until_it_rests_on_many_arrivals():
    random = Random(7)
    shares = [random.choice((100, 200, 200, 500, 1000, 1000, 1000, 2000)) for _ in range(5 * WINDOW)]
    doublings = [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 16 * FIRST]
    assert takeovers(shares) == [*doublings, REFRESH, 2 * REFRESH, 3 * REFRESH]


def test_changed_demand_is_taken_over_soon():
    random = Random(8)
    before = [random.choice((200, 500, 1000)) for _ in range(2 * WINDOW)]
    after = [random.choice((250, 2000)) for _ in range(WINDOW)]
    assert takeovers([*before, *after])[8:] == [
        2 * WINDOW + REFRESH,
        2 * WINDOW + 2 * REFRESH,
        2 * WINDOW + 3 * REFRESH,
    ]


def test_samples_of_different_sizes_are_compared_by_their_shares():
    def sample(halves: int, wholes: int) -> Counter[Request]:
        return Counter({((("gpu", 500),), frozenset()): halves, ((("gpu", 1000),), frozenset()): wholes})

    assert not has_changed(sample(1000, 1000), sample(200, 200))
    assert has_changed(sample(1000, 1000), sample(300, 100))
    assert has_changed(sample(100, 100), sample(150, 150)), "half as many again"
    assert not has_changed(Counter(), Counter())
