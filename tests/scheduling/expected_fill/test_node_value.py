"""The value of a node is the device capacity that requests to come fill, the later the less."""

from __future__ import annotations

from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.demand import HORIZON, demand_of
from mooring.scheduling.expected_fill.node_value import (
    CPU_POINTS,
    FINE_CPU,
    FINE_STEP,
    POINTS,
    STEPS_PER_DOUBLING,
    NodeValues,
    cpu_at,
    cpu_point,
)

PLENTY = 64_000


def values(*typical: TypicalRequest) -> NodeValues:
    return NodeValues(demand_of(list(typical), [frozenset({None})]))


def test_wholes_fill_whole_devices_with_a_discount_for_the_later_ones():
    # Two devices and a horizon of 32: the first counts in full, the second after one of 32.
    horizon = 2 * HORIZON
    expected = 1000 * POINTS * (horizon + horizon - 1) // horizon
    assert values(TypicalRequest({"gpu": 1000})).value(0, 0, PLENTY, (1000, 1000)) == expected


def test_parts_that_no_request_can_use_are_worth_nothing():
    half = values(TypicalRequest({"gpu": 500}))
    assert half.value(0, 0, PLENTY, (0, 400)) == 0
    assert half.value(0, 0, PLENTY, (400, 1000)) == half.value(0, 0, PLENTY, (0, 1000))
    assert half.value(0, 0, PLENTY, (0, 600)) < half.value(0, 0, PLENTY, (0, 1000))


def test_devices_without_cpu_for_a_request_are_worth_nothing():
    needy = values(TypicalRequest({"gpu": 1000, "cpu": 4000}))
    assert needy.value(0, 0, 3500, (1000,)) == 0
    assert needy.value(0, 0, 4000, (1000,)) == 1000 * POINTS
    assert needy.value(0, 0, 4000, (1000, 1000)) < needy.value(0, 0, 8000, (1000, 1000))


def test_requests_without_devices_take_cpu_from_the_others():
    mixed = values(TypicalRequest({"gpu": 1000, "cpu": 4000}), TypicalRequest({"cpu": 4000}))
    assert mixed.value(4, 0, 4000, (1000,)) < mixed.value(0, 0, 4000, (1000,)) == 1000 * POINTS


def test_models_that_no_request_accepts_are_worth_nothing():
    only_a = demand_of([TypicalRequest({"gpu": 1000}, 1, frozenset("A"))], [frozenset("A"), frozenset("B")])
    found = NodeValues(only_a)
    assert found.value(0, only_a.class_of[frozenset("A")], PLENTY, (1000,)) == 1000 * POINTS
    assert found.value(0, only_a.class_of[frozenset("B")], PLENTY, (1000,)) == 0


def test_points_of_free_cpu_are_fine_where_it_is_scarce():
    first = FINE_CPU // FINE_STEP
    points = (0, 1, first - 1, first, first + 1, first + STEPS_PER_DOUBLING, first + STEPS_PER_DOUBLING + 1)
    assert [cpu_at(point) for point in points] == [0, 500, 3_500, 4_000, 4_250, 8_000, 8_500]
    assert [cpu_point(cpu_at(point)).point for point in range(CPU_POINTS)] == list(range(CPU_POINTS))
    assert cpu_point(3_999) == (first - 1, 0, FINE_STEP), "rounded down"
    assert cpu_point(8_375) == (first + STEPS_PER_DOUBLING, 375, 500)
    assert cpu_point(10**9) == (CPU_POINTS - 1, 0, FINE_STEP)


def test_between_the_points_the_value_is_interpolated():
    needy = values(TypicalRequest({"gpu": 1000, "cpu": 4_250}))
    devices = (1000, 1000, 1000)
    low, high = needy.value(0, 0, 8_000, devices), needy.value(0, 0, 8_500, devices)
    assert low < high, "a second request needs 8.5 cores"
    assert needy.value(0, 0, 8_375, devices) == low + (high - low) * 3 // 4
