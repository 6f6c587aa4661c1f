"""The byte budget: bounded in all, and no flow can take it from the others."""

import pytest

from mooring.api.middleware.load_shedding.byte_budget import ByteBudget
from mooring.model.errors import TooManyAttempts


def most_bytes(budget: ByteBudget, flow: str) -> int:
    """The bytes that a flow gets, in requests of one byte each."""
    taken = 0
    try:
        while True:
            budget.reservation(flow).resize(1)
            taken += 1
    except TooManyAttempts:
        return taken


def test_a_few_flows_with_large_bodies_leave_half_to_the_small_bodies_of_others():
    budget = ByteBudget(1024)
    assert [most_bytes(budget, str(number)) for number in range(6)] == [128, 128, 128, 128, 4, 4]


def test_the_sum_over_all_flows_never_exceeds_the_budget():
    budget = ByteBudget(1024)
    for number in range(1000):
        most_bytes(budget, str(number))
    assert budget.held_bytes == 1024


def test_a_reservation_that_cannot_grow_stays_as_it_was_and_gives_everything_back():
    budget = ByteBudget(400)
    one, other = budget.reservation("ada"), budget.reservation("ada")
    one.resize(30)
    other.resize(15)
    with pytest.raises(TooManyAttempts, match="hold 45 bytes") as error:
        other.resize(40)
    assert error.value.code == "too-many-bytes"
    assert budget.held_bytes == 45
    one.release()
    one.release()
    other.resize(40)
    other.release()
    assert (budget.held_bytes, dict(budget._held)) == (0, {})
