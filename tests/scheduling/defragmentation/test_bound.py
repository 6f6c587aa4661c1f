"""The bound is proven: no plan gains more, and where whole nodes decide it is exact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.policy.defragmentation import Gain
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.defragmentation.bound import bound
from mooring.scheduling.defragmentation.planner import plan
from tests.scheduling.defragmentation.test_planner import PROFILE, State, gpu_node, work
from tests.selection import examples


def test_two_large_requests_and_two_small_tasks_on_two_nodes_gain_one_node() -> None:
    state = State([gpu_node("a"), gpu_node("b")])
    state.run(work("one", 1), "a").run(work("two", 1), "b")
    found = state.plan(work("first", 8), work("second", 8))
    assert found.gained == 8
    assert found.bound.value == pytest.approx(8, abs=0.3)


def test_shares_above_a_half_need_a_device_each() -> None:
    state = State([gpu_node("a", 2)])
    state.run(work("one", 0.6), "a")
    found = state.plan(*(work(f"p{number}", 0.6) for number in range(3)))
    # One of them fits without moves; the amounts alone would allow two.
    assert found.gained == 0
    assert found.bound.value == pytest.approx(0, abs=0.1)


def test_emptied_nodes_have_a_bound() -> None:
    state = State([gpu_node(name) for name in "abc"])
    state.run(work("one", 5), "a").run(work("two", 5), "b").run(work("three", 3), "c")
    found = state.plan(gain=Gain.DRAIN_NODES)
    assert found.gained == 1
    assert found.bound.value == pytest.approx(1, abs=0.1)


def test_a_node_that_holds_more_than_it_offers_has_no_bound() -> None:
    state = State([gpu_node("a"), gpu_node("b")])
    state.run(work("one", 6), "a")
    state.cluster.upsert(gpu_node("a", 4))
    proven = bound(state.cluster, PROFILE, "default", state.placed, [(work("large", 8), 8.0, 1)], Gain.GPU)
    assert proven.value is None
    assert proven.reason is not None
    assert "more than they offer" in proven.reason


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.3, 0.6, 1, 2, 4]), st.integers(0, 2)), max_size=8),
    st.lists(st.sampled_from([0.6, 1, 2, 8]), max_size=4),
    st.sampled_from([Gain.GPU, Gain.DRAIN_NODES]),
)
def test_no_plan_gains_more_than_the_bound(tasks: list[tuple[float, int]], pending: list[float], gain: Gain) -> None:
    state = State([gpu_node(f"n{number}", 8, 12) for number in range(3)])
    for number, (gpus, node) in enumerate(tasks):
        try:
            state.run(work(f"t{number}", gpus), f"n{node}")
        except IndexError:
            continue  # the node is full
    waiting = [work(f"p{number}", gpus) for number, gpus in enumerate(pending)]
    if gain is Gain.GPU and not waiting:
        return
    wanted = [(each, each.request["gpu"] / 1000, 1) for each in waiting] if gain is Gain.GPU else []
    proven = bound(state.cluster, PROFILE, "default", state.placed, wanted, gain)
    found = plan(
        copy_of(state.cluster), PROFILE, "default", state.placed, waiting, gain=gain, most=20, with_bound=False
    )
    if proven.value is not None:
        assert proven.value >= found.gained - 1e-6
