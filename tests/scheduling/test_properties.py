"""Rules that hold for every cluster and every queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.resources.slots import fits
from mooring.model.workloads.workload import OnInsufficient, Workload
from mooring.scheduling import Cluster, Pass, Registry, Scheduler
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape, shape_of
from mooring.scheduling.plugins.evaluation import Evaluation, Evaluations
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from tests.scheduling.builders import NOW, id_of, node, workload
from tests.scheduling.reference import Answer, decide_all
from tests.selection import examples

SLOTS = ("cpu", "memory", "gpu")
USERS = ("ann", "ben")
REGIONS = ("us-east", "us-west", "eu-west", "moon")

amounts = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 12))
small = st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 3))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    return replace(
        node(name).node,
        pool=draw(st.sampled_from(["default", "default", "default", "other"])),
        status=draw(st.sampled_from([NodeStatus.READY] * 4 + [NodeStatus.DRAINING])),
        runtimes=frozenset(draw(st.sampled_from([("process",), ("process", "container"), ("container",)]))),
        architecture=draw(st.sampled_from(["x86_64", "x86_64", "arm64"])),
        region=draw(st.none() | st.sampled_from(REGIONS)),
        labels=draw(st.dictionaries(st.sampled_from(["zone", "rack"]), st.sampled_from("ab"))),
        owner=draw(st.none() | st.none() | st.sampled_from([id_of(user) for user in USERS])),
        max_tasks=draw(st.none() | st.integers(0, 4)),
        tasks=draw(st.integers(0, 2)),
        allocatable=draw(amounts),
        held=draw(small),
        reserved=draw(small),
        used=draw(small),
        cpu_percent=draw(st.integers(0, 4)) * 25.0,
        memory_percent=draw(st.integers(0, 4)) * 25.0,
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(0, 8))
    return [draw(nodes(f"node-{number}")) for number in range(count)]


@st.composite
def workloads(draw: st.DrawFn, name: str) -> Workload:
    built = workload(name).replicas(draw(st.integers(1, 5))).created(draw(st.integers(0, 2))).workload
    return replace(
        built,
        pool=draw(st.sampled_from(["default", "default", "other"])),
        user_id=id_of(draw(st.sampled_from(USERS))),
        runtime=draw(st.sampled_from(["process", "process", "container"])),
        request=draw(small),
        priority=draw(st.sampled_from([0, 10, 100])),
        architecture=draw(st.none() | st.sampled_from(["x86_64", "arm64"])),
        region=draw(st.none() | st.sampled_from(REGIONS)),
        gang=draw(st.booleans()),
        min_tasks=draw(st.none() | st.integers(1, 5)),
        single_node=draw(st.sampled_from([False, False, False, True])),
        pack=draw(st.sampled_from([(), (), ("zone",), ("zone", "rack")])),
        max_per_node=draw(st.none() | st.just(1) | st.integers(1, 3)),
        spread=draw(st.booleans()),
        on_insufficient=draw(st.sampled_from(OnInsufficient)),
        placed_before=draw(st.booleans()),
        occupied=draw(st.dictionaries(st.sampled_from([id_of(f"node-{n}") for n in range(8)]), st.integers(1, 2))),
    )


@st.composite
def queues(draw: st.DrawFn) -> list[Workload]:
    count = draw(st.integers(1, 6))
    return [draw(workloads(f"work-{number}")) for number in range(count)]


def answers(result: Pass) -> list[Answer]:
    return [
        Answer(
            decision.workload.name,
            decision.outcome,
            tuple((placement.node_name, placement.score) for placement in decision.placements),
        )
        for decision in result.decisions
    ]


@settings(max_examples=examples(100), deadline=None)
@given(clusters(), queues())
def test_a_pass_decides_as_one_task_after_the_other_on_every_node_would(cluster, queue):
    assert answers(Scheduler(cluster).run(queue, NOW)) == decide_all(cluster, queue)


@settings(max_examples=examples(60), deadline=None)
@given(clusters(), queues())
def test_nothing_is_placed_over_capacity_and_outcomes_say_what_was_placed(cluster, queue):
    decisions = Scheduler(cluster).run(queue, NOW).decisions
    assert Counter(decision.workload.id for decision in decisions) == Counter(work.id for work in queue)
    for machine in cluster:
        _check_capacity(machine, decisions)
    for decision in decisions:
        _check_outcome(decision)


def _check_capacity(machine: Node, decisions: Sequence[Decision]) -> None:
    asked: Counter[str] = Counter()
    tasks = 0
    for decision in decisions:
        for placement in decision.placements:
            if placement.node_id == machine.id:
                asked.update(decision.workload.request)
                tasks += 1
    for slot, amount in asked.items():
        held, reserved, used = (part.get(slot, 0) for part in (machine.held, machine.reserved, machine.used))
        assert fits(machine.allocatable.get(slot, 0), held, reserved, used, amount)
    if tasks and machine.max_tasks is not None:
        assert machine.tasks + tasks <= machine.max_tasks


def _check_outcome(decision: Decision) -> None:
    work = decision.workload
    fails_if_unschedulable = work.on_insufficient is OnInsufficient.FAIL and not work.placed_before
    placed = len(decision.placements)
    assert (decision.outcome is Outcome.PLACED) == (placed > 0)
    assert (decision.reason is None) == (placed == len(work.tasks))
    if work.gang or work.single_node or (fails_if_unschedulable and work.min_tasks is None):
        assert placed in (0, len(work.tasks))
    elif work.min_tasks is not None:
        there = placed + sum(work.occupied.values())
        assert placed in (0, len(work.tasks)) or there >= work.min_tasks
    if work.single_node and placed:
        assert len({*work.occupied, *(placement.node_id for placement in decision.placements)}) == 1
    if not placed:
        assert decision.outcome is (Outcome.IMPOSSIBLE if fails_if_unschedulable else Outcome.WAITING)


@settings(max_examples=examples(40), deadline=None)
@given(clusters(), queues(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_workloads_changes_nothing(cluster, queue, random):
    expected = Scheduler(cluster).run(queue, NOW)
    shuffled_cluster, shuffled_queue = list(cluster), list(queue)
    random.shuffle(shuffled_cluster)
    random.shuffle(shuffled_queue)
    columns = Cluster(node(f"gone-{number}").node for number in range(3))
    columns.remove(id_of("gone-1"))
    for machine in shuffled_cluster:
        columns.upsert(machine)
    columns.remove(id_of("gone-0"))
    columns.remove(id_of("gone-2"))
    result = Scheduler(cluster=columns).run(shuffled_queue, NOW)
    assert result == expected


class FailsForTheMoon:
    """A filter that cannot say anything about one region."""

    name = "moonless"
    depends_on: DependsOn = "row"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        if shape.region == "moon":
            raise ValueError(shape.region)
        return np.ones(len(rows), dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        raise AssertionError("it rejects nothing")


@settings(max_examples=examples(40), deadline=None)
@given(clusters(), queues())
def test_a_failing_plugin_hurts_only_its_workloads(cluster, queue):
    registry = Registry()
    registry.add_filter(FailsForTheMoon())
    profile = registry.profile(extra_filters=["moonless"])
    decisions = Scheduler(cluster, profile=profile).run(queue, NOW).decisions
    unhurt = [decision for decision in decisions if decision.outcome is not Outcome.ERROR]
    assert all(d.workload.region == "moon" and not d.placements for d in decisions if d not in unhurt)
    assert tuple(unhurt) == Scheduler(cluster).run([decision.workload for decision in unhurt], NOW).decisions


@settings(max_examples=examples(60), deadline=None)
@given(clusters(), queues())
def test_an_explanation_is_the_decision_with_its_grounds_and_changes_nothing(cluster, queue):
    lab = Scheduler(cluster)
    lab.run(queue[1:], NOW)
    taken, tasks = lab.cluster.taken.copy(), lab.cluster.tasks.copy()
    found = lab.explain(queue[0], NOW)
    assert np.array_equal(lab.cluster.taken, taken)
    assert np.array_equal(lab.cluster.tasks, tasks)
    assert found.candidates + sum(removed.nodes for removed in found.removed) == found.nodes
    assert (found.winner is None) == (found.candidates == 0)
    decision = lab.decide(queue[0], NOW)
    assert (found.outcome, found.placements, found.reason) == (decision.outcome, decision.placements, decision.reason)
    assert found.candidates == decision.feasible_nodes
    if found.placements:
        assert found.winner is not None
        assert found.winner.node == found.placements[0].node_name
        assert (found.runner_up is None) == (found.candidates == 1)


@st.composite
def changes(draw: st.DrawFn) -> Sequence[tuple[str, Node]]:
    """Nodes that come, change, go, or are measured, one after the other."""
    kinds = st.sampled_from(["upsert", "upsert", "remove", "load", "assume"])
    count = draw(st.integers(0, 10))
    return [(draw(kinds), draw(nodes(f"node-{draw(st.integers(0, 9))}"))) for _ in range(count)]


@settings(max_examples=examples(50), deadline=None)
@given(clusters(), queues(), st.lists(changes(), min_size=1, max_size=3))
def test_a_cached_evaluation_equals_a_fresh_one_after_any_changes(cluster, queue, rounds):
    columns = Cluster(cluster)
    profile = Registry().profile()
    stored = Evaluations(columns, profile)
    for changes_of_round in rounds:
        for kind, machine in changes_of_round:
            _change(columns, kind, machine, queue[0])
        for work in queue:
            shape = shape_of(work, columns)
            fresh = Evaluation(shape, columns, profile)
            fresh.refresh()
            assert np.array_equal(stored.of(shape).keys, fresh.keys)


def _change(columns: Cluster, kind: str, machine: Node, work: Workload) -> None:
    row = columns.row_of(machine.id)
    if kind == "upsert":
        columns.upsert(machine)
    elif kind == "remove":
        columns.remove(machine.id)
    elif kind == "load":
        columns.set_load(machine.id, machine.cpu_percent, machine.memory_percent)
    elif row is not None:
        demand = columns.demand(tuple(sorted(work.request.items())))
        columns.assume(np.array([row], dtype=np.intp), demand)


@settings(max_examples=15, deadline=None)
@given(st.integers(65, 200), st.integers(1, 80), st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_best_of_many_nodes_are_those_that_one_choice_after_the_other_gives(count, replicas, distinct, random):
    """Clusters beyond the first size of the columns, with many ties."""
    cluster = [
        node(f"node-{number:03}").cpu(random.randint(1, 1 + distinct)).load(25 * random.randint(0, 3), 0).node
        for number in range(count)
    ]
    queue = [
        workload(f"work-{number}").cpu(1).replicas(replicas).max_per_node(1).created(number).workload
        for number in range(3)
    ]
    assert answers(Scheduler(cluster).run(queue, NOW)) == decide_all(cluster, queue)
