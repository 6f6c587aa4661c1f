"""Prices of capacity: loads of models, scarcity of whole devices, and the weight of requests without devices."""

from __future__ import annotations

import numpy as np
import pytest

from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.demand import CPU_LEVELS, demand_of
from mooring.scheduling.expected_fill.node_value import POINTS
from mooring.scheduling.expected_fill.prices import FreeCapacity, free_capacity, placement_cost, prices

A, B = frozenset({"A"}), frozenset({"B"})
PLENTY = 10**9


def test_free_capacity_counts_nodes_with_free_devices_only():
    demand = demand_of([TypicalRequest({"gpu": 500})], [A])
    classes = np.zeros(3, dtype=np.int32)
    devices = np.array([[1000, 300], [0, 0], [1000, 1000]])
    found = free_capacity(demand, classes, np.array([4000, 8000, -100]), devices)
    assert found == FreeCapacity(4000, [3300], [[0, 1, 1]])


def test_the_load_of_models_that_only_restricted_requests_want_is_their_demand_over_the_capacity():
    # Half of the demand is for A alone, which counts 1.5-fold and has a quarter of the capacity: 0.5 * 1.5 * 4.
    demand = demand_of([TypicalRequest({"gpu": 1000}, 1, A), TypicalRequest({"gpu": 1000}, 1)], [A, B])
    found = prices(demand, FreeCapacity(PLENTY, [1000, 3000], [[0, 1], [0, 3]]))
    assert found.loads[demand.class_of[A]] == 2048, "limited to 2"
    # The rest of the demand finds B: 0.5 of 4 devices on 3.
    assert found.loads[demand.class_of[B]] == 4 * 512 // 3
    full = prices(demand, FreeCapacity(PLENTY, [0, 3000], [[1, 0], [0, 3]]))
    assert full.loads[demand.class_of[A]] == 0, "no capacity is left to protect"


def test_capacity_for_several_devices_gets_scarce_late():
    demand = demand_of([TypicalRequest({"gpu": 4000}, 1), TypicalRequest({"gpu": 1000}, 4)], [A])
    plenty = prices(demand, FreeCapacity(PLENTY, [40_000], [[0, 0, 0, 0, 10]]))
    assert plenty.scarcities == (23,), "half of the demand: (1.25 * 0.5) ** 8 = 0.023 of 1024"
    scarce = prices(demand, FreeCapacity(PLENTY, [40_000], [[0, 36, 0, 0, 1]]))
    assert scarce.scarcities == (1024,)
    # The only place for four is lost with its first device.
    assert (
        placement_cost(demand, scarce, 0, 1000, 4, 3) - placement_cost(demand, scarce, 0, 1000, 1, 0) == 4000 * POINTS
    )


@pytest.mark.parametrize(("free_cpu", "level"), [(12_000, 0), (10_500, 2), (9_000, CPU_LEVELS), (0, CPU_LEVELS)])
def test_cpu_is_protected_when_the_demand_for_devices_needs_it(free_cpu: int, level: int) -> None:
    demand = demand_of([TypicalRequest({"gpu": 1000, "cpu": 1000})], [A])
    assert prices(demand, FreeCapacity(free_cpu, [10_000], [[0, 10]])).cpu_level == level
