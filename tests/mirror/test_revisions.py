"""A view is complete up to the placement below which none is missing."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mooring.mirror.revisions import Revisions

POOL, OTHER = UUID(int=1), UUID(int=2)


def test_a_gap_holds_the_view_back_until_it_is_filled():
    revisions = Revisions({POOL: 4})
    revisions.seen(POOL, 6)
    assert revisions.of(POOL) == 4
    revisions.seen(POOL, 5)
    assert revisions.of(POOL) == 6
    revisions.seen(POOL, 3)
    assert (revisions.of(POOL), revisions.of(OTHER)) == (6, 0)


@given(st.permutations(range(1, 12)), st.integers(0, 11))
def test_whatever_the_order_it_is_the_longest_run_without_a_gap(order: list[int], length: int):
    revisions = Revisions()
    seen = order[:length]
    for revision in (*seen, *seen):
        revisions.seen(POOL, revision)
    expected = next(number for number in range(12) if number + 1 not in seen)
    assert revisions.of(POOL) == expected
