"""The demand to come: sampled sequences, classes of models, and groups of requests for several devices."""

from __future__ import annotations

from collections import Counter

import numpy as np

from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.demand import (
    CPU_LEVELS,
    LENGTH,
    MOST_CLASSES,
    SEQUENCES,
    SHARE_ONE,
    Group,
    Request,
    demand_of,
)

ANY = frozenset({None})
A, B, BOTH = frozenset({"A"}), frozenset({"B"}), frozenset({"A", "B"})


def test_sequences_hold_requests_as_often_as_their_weights_say():
    typical = [TypicalRequest({"gpu": 500}, 3), TypicalRequest({"gpu": 1000, "cpu": 200}, 1)]
    demand = demand_of(typical, [ANY])
    assert demand.requests == (Request(0, 1, 500, 1), Request(200, 1, 1000, 1))
    for position in demand.sequences[0].T:
        assert Counter(position.tolist()) == {0: SEQUENCES * 3 // 4, 1: SEQUENCES // 4}


def test_rare_requests_are_in_as_many_sequences_as_their_weight_says():
    rare = [TypicalRequest({"gpu": 1000}, 999), TypicalRequest({"gpu": 8000}, 1)]
    numbers = demand_of(rare, [ANY]).sequences[0]
    drawn = np.count_nonzero(numbers == 1)
    assert drawn in (SEQUENCES * LENGTH // 1000, SEQUENCES * LENGTH // 1000 + 1)
    assert np.count_nonzero(numbers == 1, axis=0).max() == 1


def test_requests_without_devices_take_part_by_the_cpu_level():
    typical = [TypicalRequest({"gpu": 1000}, 1), TypicalRequest({"cpu": 100}, 1)]
    demand = demand_of(typical, [ANY])
    without = [
        np.count_nonzero(numbers == demand.requests.index(Request(100, 0, 0, 1))) for numbers in demand.sequences
    ]
    assert without[0] == 0
    assert without == sorted(without)
    assert without[CPU_LEVELS] == SEQUENCES * LENGTH // 2


def test_equal_demand_gives_equal_sequences():
    typical = [TypicalRequest({"gpu": amount}, amount) for amount in (100, 300, 700, 2000)]
    first, second = demand_of(typical, [ANY]), demand_of(list(typical), [ANY])
    assert np.array_equal(first.sequences[0], second.sequences[0])
    assert len({numbers.tobytes() for numbers in first.sequences[0]}) == SEQUENCES


def test_models_that_the_same_requests_accept_are_one_class():
    typical = [TypicalRequest({"gpu": 1000}, 1, A), TypicalRequest({"gpu": 1000}, 1)]
    others = [frozenset({"B"}), frozenset({"C"})]
    demand = demand_of(typical, [A, *others, BOTH])
    assert demand.classes == 2
    assert demand.class_of[others[0]] == demand.class_of[others[1]]
    assert demand.class_of[A] == demand.class_of[BOTH], "a node with both models serves requests for either"
    only_a = next(each for each in demand.requests if each.classes != 3)
    assert only_a.classes == 1 << demand.class_of[A]


def test_many_sets_of_models_are_limited_to_the_most_demanded():
    names = [f"model-{number}" for number in range(30)]
    typical = [TypicalRequest({"gpu": 1000}, 31 - at, frozenset({name})) for at, name in enumerate(names)]
    demand = demand_of(typical, [frozenset({name}) for name in names])
    assert demand.classes <= MOST_CLASSES
    assert demand.class_of[frozenset({names[0]})] != demand.class_of[frozenset({names[1]})]


def test_groups_count_larger_requests_that_compete_with_them():
    typical = [TypicalRequest({"gpu": 2000}, 1), TypicalRequest({"gpu": 8000}, 1), TypicalRequest({"gpu": 1000}, 10)]
    demand = demand_of(typical, [ANY])
    # 20 devices: two in the small request, eight in the large one, which may take the places of the small one.
    assert demand.groups == (Group(2, 1, SHARE_ONE * 10 // 20), Group(8, 1, SHARE_ONE * 8 // 20))


def test_demand_without_devices_is_empty():
    demand = demand_of([TypicalRequest({"cpu": 100})], [ANY])
    assert demand.smallest_share == 0
    assert demand.groups == ()
