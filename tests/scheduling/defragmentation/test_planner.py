"""Plans of moves: the fit rule holds after every move, and the moves buy what the plan says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring import Node, Scheduler, Workload
from mooring.model.policy.defragmentation import Gain, PlacedTask, Plan
from mooring.model.resources.devices import WHOLE
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import new_tasks
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.planner import plan
from mooring.scheduling.plugins.profiles import Registry
from tests.selection import examples

PROFILE = Registry().profile("balanced")


def gpu_node(name: str, gpus: int = 8, cpu: int = 32) -> Node:
    return Node(name=name, allocatable={"cpu": cpu * 1000, "memory": 1 << 40, "gpu": gpus * WHOLE})


def work(name: str, gpus: float, cpu: int = 1) -> Workload:
    return Workload(name=name, request={"cpu": cpu * 1000, "gpu": round(gpus * WHOLE)})


class State:
    """A cluster with running tasks, each placed on the node that the test names."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.cluster = Cluster(nodes)
        self.nodes = {node.name: node for node in nodes}
        self.placed: list[PlacedTask] = []

    def run(self, workload: Workload, node: str, *, movable: bool = True, lost_seconds: int = 0) -> State:
        there = replace(workload, constraints=Constraints(designated=frozenset({node}), designated_strictly=True))
        decision = Scheduler(cluster=self.cluster, profile=PROFILE, compiled=False).place([there]).decisions[0]
        placement = decision.placements[0]
        self.placed.append(
            PlacedTask(
                placement.task_id,
                placement.node_id,
                workload,
                # The strict designation binds the test's task, not its replacement.
                there.constraints,
                placement.devices,
                movable,
                lost_seconds,
            )
        )
        return self

    def plan(
        self, *pending: Workload, gain: Gain = Gain.GPU, most: int = 10, budgets: dict[UUID, int] | None = None
    ) -> Plan:
        return plan(
            copy_of(self.cluster), PROFILE, "default", self.placed, pending, gain=gain, most=most, budgets=budgets
        )


def test_the_fewest_cheapest_moves_make_a_node_free_for_a_pending_task_of_eight_devices() -> None:
    state = State([gpu_node("a"), gpu_node("b"), gpu_node("c")])
    state.run(work("small", 1), "a").run(work("two", 2), "b").run(work("more", 2), "b").run(work("six", 6), "c")
    found = state.plan(work("large", 8))
    assert [(move.workload, move.source) for move in found.moves] == [("small", "a")]
    assert [(start.workload, start.node) for start in found.steps[0].starts] == [("large", "a")]
    assert found.gained == 8


def test_a_chain_moves_another_task_first() -> None:
    # b lacks the CPU for the task of a; c takes it once its own task has moved to b.
    state = State([gpu_node("a", 4, 8), gpu_node("b", 3, 2), gpu_node("c", 3, 4)])
    state.run(work("first", 2, cpu=4), "a").run(work("second", 3, cpu=1), "c")
    found = state.plan(work("large", 4, cpu=5))
    assert [(move.workload, move.source, move.target) for move in found.moves] == [
        ("second", "c", "b"),
        ("first", "a", "c"),
    ]


def test_tasks_that_may_not_move_stay() -> None:
    state = State([gpu_node("a"), gpu_node("b")])
    state.run(work("session", 1), "a", movable=False).run(work("other", 4), "b", movable=False)
    assert state.plan(work("large", 8)).steps == ()


def test_a_workload_without_disruption_budget_stays() -> None:
    state = State([gpu_node("a"), gpu_node("b")])
    small = work("replica", 1)
    state.run(small, "a").run(work("other", 4), "b", movable=False)
    assert state.plan(work("large", 8), budgets={small.id: 0}).steps == ()
    assert len(state.plan(work("large", 8), budgets={small.id: 1}).moves) == 1


def test_the_task_that_loses_the_least_work_moves() -> None:
    state = State([gpu_node("a"), gpu_node("b"), gpu_node("c")])
    state.run(work("old", 1), "a", lost_seconds=5000).run(work("young", 1), "b", lost_seconds=5)
    state.run(work("full", 6), "c", movable=False)
    assert [move.workload for move in state.plan(work("large", 8)).moves] == ["young"]


def test_a_gang_starts_with_all_of_its_tasks_or_nothing_moves() -> None:
    state = State([gpu_node(name) for name in "abc"])
    state.run(work("one", 1), "a").run(work("two", 1), "b").run(work("three", 4), "c")
    gang = replace(work("gang", 8), gang=True, tasks=new_tasks("gang", 2))
    found = state.plan(gang)
    assert len({start.node for start in found.steps[0].starts}) == 2
    assert len(found.moves) == 2
    assert state.plan(gang, most=1).steps == ()


def test_nodes_are_emptied_by_the_fewest_moves() -> None:
    state = State([gpu_node(name) for name in "abcd"])
    state.run(work("a1", 1), "a").run(work("b1", 1), "b").run(work("b2", 1), "b").run(work("c1", 3), "c")
    found = state.plan(gain=Gain.DRAIN_NODES, most=1)
    assert len(found.moves) == 1
    assert found.gained == 1
    # d was empty before and stays so.
    assert found.moves[0].target != "d"
    assert state.plan(gain=Gain.DRAIN_NODES).gained == 2


def test_the_largest_gang_gains_whole_nodes() -> None:
    state = State([gpu_node(name) for name in "abc"])
    state.run(work("one", 1), "a").run(work("two", 1), "b")
    found = state.plan(gain=Gain.LARGEST_GANG)
    assert found.gang == {"gpu": 8 * WHOLE}
    assert (found.gang_before, found.gained) == (1, 1)


_TASKS = st.lists(
    st.tuples(st.sampled_from([0.25, 0.5, 1, 2, 4]), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=16
)


@pytest.mark.parametrize("gain", list(Gain))
@settings(max_examples=examples(30), deadline=None)
@given(tasks=_TASKS, pending=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=4))
def test_the_fit_rule_holds_after_every_move(
    gain: Gain, tasks: list[tuple[float, int, int]], pending: list[int]
) -> None:
    state = State([gpu_node(f"n{number}", 8, 12) for number in range(5)])
    for number, (gpus, cpu, node) in enumerate(tasks):
        try:
            state.run(work(f"t{number}", gpus, cpu), f"n{node}", movable=number % 5 != 4)
        except IndexError:
            continue  # the node is full
    found = state.plan(*(work(f"p{number}", gpus, 2) for number, gpus in enumerate(pending)), gain=gain, most=6)
    assert len(found.moves) <= 6
    on = {task.task_id: task for task in state.placed}
    for move in found.moves:
        task = on[move.task_id]
        assert task.movable
        assert task.node_id == move.source_id != move.target_id
        on[move.task_id] = replace(task, node_id=move.target_id)
        _check_amounts(state, on)
    assert len({move.task_id for move in found.moves}) == len(found.moves)
    emptied = [name for step in found.steps for name in step.emptied]
    assert all(state.nodes[name].id not in {task.node_id for task in on.values()} for name in emptied)


def _check_amounts(state: State, on: dict[UUID, PlacedTask]) -> None:
    for node in state.nodes.values():
        here = [task.workload.request for task in on.values() if task.node_id == node.id]
        for slot, offered in node.allocatable.items():
            assert sum(request.get(slot, 0) for request in here) <= offered


def test_one_large_task_leaves_for_several_requests_rather_than_a_small_one_for_one() -> None:
    state = State([gpu_node("a", 8, 36), gpu_node("c", 0, 32)])
    state.run(work("small", 0, cpu=6), "a").run(work("busy", 4, cpu=6), "a", movable=False)
    state.run(work("large", 0, cpu=24), "a", lost_seconds=100)
    pending = [work(f"p{number}", 1, cpu=6) for number in range(4)]
    found = state.plan(*pending, most=1)
    assert [(move.workload, move.target) for move in found.moves] == [("large", "c")]
    assert found.gained == 4


def test_a_filled_node_leaves_small_requests_for_nodes_with_little_capacity() -> None:
    # Either request fits on a once its task has left; only the small one would fit on b, whose task leaves second.
    state = State([gpu_node("a", 2, 16), gpu_node("b", 2, 4), gpu_node("c", 0, 24)])
    state.run(work("first", 0, cpu=15), "a").run(work("second", 0, cpu=4), "b", lost_seconds=100)
    state.run(work("one", 1, cpu=1), "a", movable=False).run(work("two", 1, cpu=0), "b", movable=False)
    found = state.plan(work("narrow", 1, cpu=2), work("wide", 1, cpu=12), most=2)
    assert {(start.workload, start.node) for step in found.steps for start in step.starts} == {
        ("wide", "a"),
        ("narrow", "b"),
    }
