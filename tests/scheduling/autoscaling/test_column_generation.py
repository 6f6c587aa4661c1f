"""Covering many tasks with few nodes: every task once, no node too full, and hardly more than the least cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.scheduling.autoscaling.column_generation import (
    Covering,
    Pattern,
    Programme,
    cover,
    similar,
    valuable,
)
from mooring.scheduling.solver import Whole
from tests.scheduling.autoscaling.reference_simplex import least_value
from tests.selection import examples


def covering(requests: list[list[int]], capacity: list[list[int]], cost: list[int]) -> Covering:
    asked, offered = np.array(requests), np.array(capacity)
    allowed = np.all(offered[None] >= asked[:, None], axis=2)
    return Covering(asked, offered, allowed, np.array(cost))


def cost_of(problem: Covering, patterns: list[Pattern]) -> int:
    return int(sum(problem.cost[pattern.template] * pattern.nodes for pattern in patterns))


def held(patterns: list[Pattern]) -> Whole:
    total: Whole = np.sum([pattern.counts * pattern.nodes for pattern in patterns], axis=0)
    return total


def test_kinds_that_complement_each_other_share_nodes() -> None:
    problem = covering([[8, 1], [1, 8]], [[9, 9]], [1])
    assert cost_of(problem, cover(problem, np.array([50, 50])).patterns) == 50


def test_a_pattern_that_fills_a_node_beats_one_with_a_lower_unit_cost() -> None:
    # Three fit into 10 with 1 left over, four into 12 with nothing: 12 for 40 tasks costs 10 x 5 = 50, not 14 x 4 = 56.
    problem = covering([[3]], [[10], [12]], [4, 5])
    assert cost_of(problem, cover(problem, np.array([40])).patterns) == 50


def test_the_last_tasks_get_a_small_node() -> None:
    problem = covering([[1]], [[1], [10]], [2, 10])
    assert cost_of(problem, cover(problem, np.array([31])).patterns) == 32


def test_similar_kinds_become_one_class_and_go_to_the_same_templates() -> None:
    requests = [[number, 1] for number in range(1, 201)]
    problem = covering(requests, [[100, 10], [400, 10]], [1, 3])
    classes, merged, sizes = similar(problem, np.full(200, 5))
    assert len(sizes) == 96
    assert sizes.sum() == 1000
    for kind in range(200):
        assert (merged.allowed[classes[kind]] == problem.allowed[kind]).all()
        assert (merged.requests[classes[kind]] >= problem.requests[kind]).all()
    assert (sizes == np.bincount(classes, weights=np.full(200, 5))).all()


def test_the_bound_proves_that_two_halves_and_a_remainder_need_two_nodes() -> None:
    problem = covering([[6]], [[10]], [3])
    found = cover(problem, np.array([2]))
    assert cost_of(problem, found.patterns) == 6
    assert found.bound == pytest.approx(6)


def test_merged_kinds_are_not_merged_for_the_bound() -> None:
    # 200 kinds of 50 to 249 tasks in 1,000: merging rounds requests up, which would prove too much.
    requests = [[number] for number in range(50, 250)]
    problem = covering(requests, [[1000]], [1])
    found = cover(problem, np.full(200, 3))
    total = sum(number for (number,) in requests) * 3 / 1000
    assert total * 0.95 <= found.bound <= cost_of(problem, _packed_singly(requests, 3))


def _packed_singly(requests: list[list[int]], each: int) -> list[Pattern]:
    """Pack by first fit decreasing, without merging."""
    free: list[int] = []
    for (request,) in sorted(requests, reverse=True):
        for _ in range(each):
            at = next((number for number, left in enumerate(free) if left >= request), None)
            if at is None:
                free.append(1000 - request)
            else:
                free[at] -= request
    return [Pattern(0, np.zeros(1, dtype=np.int64), len(free))]


_KINDS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 300)), min_size=1, max_size=12)
_TEMPLATES = st.lists(st.tuples(st.integers(9, 40), st.integers(9, 40), st.integers(1, 50)), min_size=1, max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(_KINDS, _TEMPLATES)
def test_the_programme_costs_no_more_than_a_plain_simplex_finds_and_no_less_than_its_bound(
    kinds: list[tuple[int, int, int]], templates: list[tuple[int, int, int]]
) -> None:
    problem = covering([[a, b] for a, b, _ in kinds], [[a, b] for a, b, _ in templates], [c for _, _, c in templates])
    demand = np.array([count for _, _, count in kinds])
    programme = Programme(problem, demand)
    programme.solve(valuable)
    # Both stop when no pattern of the heuristic pricing saves a ten-thousandth, each at prices of its own.
    reference = least_value(problem, demand)
    bound = programme.bound()
    assert bound <= reference * (1 + 1e-6)
    assert bound <= programme.value * (1 + 1e-6)
    assert programme.value <= reference * (1 + 1e-3)
    found = cover(problem, demand)
    assert found.bound <= cost_of(problem, found.patterns) + 1e-6


@settings(max_examples=examples(60), deadline=None)
@given(_KINDS, _TEMPLATES)
def test_every_task_is_held_once_and_no_node_is_too_full(
    kinds: list[tuple[int, int, int]], templates: list[tuple[int, int, int]]
) -> None:
    problem = covering([[a, b] for a, b, _ in kinds], [[a, b] for a, b, _ in templates], [c for _, _, c in templates])
    demand = np.array([count for _, _, count in kinds])
    patterns = cover(problem, demand).patterns
    assert (held(patterns) == demand).all()
    for pattern in patterns:
        assert pattern.nodes > 0
        assert (pattern.counts @ problem.requests <= problem.capacity[pattern.template]).all()
