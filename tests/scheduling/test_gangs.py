"""Tasks that belong together: gangs, workloads on one node, and packing into the smallest domain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.labels import equal_to
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    TaskTerm,
)
from mooring.scheduling import Scheduler
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.trial import Trial
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, chosen, node, workload

FOUR_CORES = [node("a").cpu(4), node("b").cpu(4)]
SELF = equal_to({"app": "x"})


@pytest.fixture(params=[False, True], ids=["numpy", "compiled"])
def compiled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def scheduler(nodes: Iterable[NodeBuilder], compiled: bool) -> Scheduler:
    return Scheduler((builder.node for builder in nodes), compiled=compiled)


def decide(nodes: Iterable[NodeBuilder], asks: WorkloadBuilder, compiled: bool) -> Decision:
    return scheduler(nodes, compiled).decide(asks.workload, NOW)


def constrained(asks: WorkloadBuilder, **constraints: Any) -> WorkloadBuilder:
    labels = (("app", "x"),)
    return WorkloadBuilder(replace(asks.workload, constraints=Constraints(labels=labels, **constraints)))


@pytest.mark.parametrize(
    ("name", "asks", "placed"),
    [
        ("as many as are needed", workload("w").cpu(2).replicas(6).at_least(4), 4),
        ("one more is needed", workload("w").cpu(2).replicas(6).at_least(5), 0),
        ("those that have a node count", workload("w").cpu(2).replicas(6).at_least(5).occupying(c=1), 4),
        ("enough have a node already", workload("w").cpu(3).replicas(6).at_least(2).occupying(c=2), 2),
        ("fewer wait than are needed", workload("w").cpu(2).replicas(3).at_least(9), 3),
        ("not to wait, and enough", workload("w").cpu(2).replicas(6).at_least(4).fail_if_short(), 4),
        ("not to wait, and too few", workload("w").cpu(2).replicas(6).at_least(5).fail_if_short(), 0),
        ("one per node", workload("w").cpu(1).replicas(6).at_least(2).max_per_node(1), 2),
        ("one per node, of which there are too few", workload("w").cpu(1).replicas(6).at_least(3).max_per_node(1), 0),
    ],
)
def test_at_least_the_minimum_of_tasks_is_placed_or_none(name, asks, placed, compiled):
    decision = decide(FOUR_CORES, asks, compiled)
    assert len(decision.placements) == placed, name
    assert (decision.outcome is Outcome.PLACED) == (placed > 0)


def test_the_reason_of_a_gang_says_how_many_tasks_fit(compiled):
    gang = decide(FOUR_CORES, workload("w").cpu(1).memory(0).replicas(9).gang(), compiled)
    assert gang.reason is not None
    assert gang.reason.message == (
        "capacity for 8 of 9 tasks, which start together; for the next, 0 of 2 nodes: 2 lack 1 cpu (best has 0)"
    )
    assert gang.reason.cure == "change"
    part = decide(FOUR_CORES, workload("w").cpu(2).replicas(6).at_least(5), compiled)
    assert part.reason is not None
    assert part.reason.message.startswith("capacity for 4 of 6 tasks, of which 5 start together; for the next, 0 of 2")
    assert part.reason.details["tasks"] == {"need": 6, "found": 4}


def test_the_reason_of_an_untried_gang_says_that_fewer_tasks_may_fit(compiled):
    apart = constrained(workload("w").cpu(1).replicas(9).gang(), anti_affinity=(TaskTerm("metadata.name", SELF),))
    decision = decide(FOUR_CORES, apart, compiled)
    assert decision.reason is not None
    assert decision.reason.message.startswith("capacity for at most 8 of 9 tasks, which start together; ")
    tried = replace(apart.workload, tasks=apart.workload.tasks[:3])
    reason = scheduler(FOUR_CORES, compiled).decide(tried, NOW).reason
    assert reason is not None
    assert reason.message.startswith(
        "capacity for 2 of 3 tasks, which start together; for the next, 0 of 2 nodes: 2 not matching"
    )


def test_a_gang_without_capacity_is_refused_before_any_of_its_tasks_is_tried(compiled):
    lab = scheduler(FOUR_CORES, compiled)
    lab.place([workload("first").cpu(1).workload], NOW)
    before = lab.cluster.changes.revision
    logged = None if lab._placer._engine is None else int(lab._placer._engine.nodes.head[0])
    lab.place([workload(f"gang-{number}").cpu(1).replicas(8).gang().workload for number in range(50)], NOW)
    assert lab.cluster.changes.revision == before
    assert logged is None or (lab._placer._engine is not None and int(lab._placer._engine.nodes.head[0]) == logged)


def test_a_gang_without_capacity_is_tried_again_once_a_task_ended(compiled):
    full = node("a").cpu(4).used(cpu=2)
    lab = scheduler([full, node("b").cpu(4)], compiled)
    gang = workload("gang").cpu(1).replicas(8).gang().workload
    smaller = workload("smaller").cpu(1).replicas(6).gang().workload
    assert [d.outcome for d in lab.run([gang], NOW).decisions] == [Outcome.WAITING]
    lab.cluster.upsert(full.used().node)
    assert [d.outcome for d in lab.run([gang], NOW).decisions] == [Outcome.PLACED]
    assert lab.decide(smaller, NOW).outcome is Outcome.WAITING


def test_a_smaller_gang_of_the_same_shape_finds_the_capacity_that_a_larger_one_lacks(compiled):
    lab = scheduler(FOUR_CORES, compiled)
    sizes = (9, 5, 4, 3, 1)
    waiting = [
        workload(f"gang-{n}").cpu(1).replicas(size).gang().priority(90 - n).workload for n, size in enumerate(sizes)
    ]
    assert [len(decision.placements) for decision in lab.run(waiting, NOW).decisions] == [0, 5, 0, 3, 0]


@pytest.mark.parametrize(
    ("name", "asks", "nodes"),
    [
        ("the only one with room for all", workload("w").cpu(2).replicas(3), ["large"]),
        ("all of them fit beside each other", workload("w").cpu(1).replicas(2).spread(), ["large"]),
        ("no node has room for all", workload("w").cpu(2).replicas(5), []),
        ("where its other task is", workload("w").cpu(1).replicas(2).occupying(small=1), ["small"]),
        ("no room where its other task is", workload("w").cpu(2).replicas(3).occupying(small=1), []),
        ("its other tasks are on a node that is gone", workload("w").cpu(1).replicas(2).occupying(gone=1), []),
        ("its other tasks are on two nodes", workload("w").cpu(1).replicas(2).occupying(small=1, large=1), []),
        ("more than it may have on a node", workload("w").cpu(1).replicas(3).max_per_node(2), []),
    ],
)
def test_a_single_node_workload_is_on_one_node_wholly_or_not_at_all(name, asks, nodes, compiled):
    cluster = [node("small").cpu(4), node("large").cpu(8)]
    decision = decide(cluster, asks.single_node(), compiled)
    assert chosen(decision) == nodes * len(asks.workload.tasks), name
    assert len({placement.score for placement in decision.placements}) <= 1


def test_a_single_node_workload_needs_capacity_for_the_number_of_its_tasks(compiled):
    cluster = [node("few").cpu(64).tasks(8, at_most=10), node("many").cpu(8).tasks(0, at_most=3)]
    assert chosen(decide(cluster, workload("w").cpu(1).replicas(3).single_node(), compiled)) == ["many"] * 3
    none = decide(cluster, workload("w").cpu(1).replicas(4).single_node(), compiled)
    assert none.reason is not None
    assert none.reason.message == (
        "all 4 tasks go to one node; 0 of 2 nodes: 2 without capacity for 4 more tasks (at most 10)"
    )


def test_a_single_node_workload_reports_the_total_that_its_tasks_lack(compiled):
    reason = decide(FOUR_CORES, workload("w").cpu(2).replicas(3).single_node(), compiled).reason
    assert reason is not None
    assert reason.message == "all 3 tasks go to one node; 0 of 2 nodes: 2 lack 6 cpu (best has 4)"
    assert (reason.cure, reason.details["single_node"]) == ("change", True)
    full = [node("a").cpu(8).used(cpu=4)]
    waits = decide(full, workload("w").cpu(2).replicas(3).single_node(), compiled).reason
    assert waits is not None
    assert waits.cure == "release"


@pytest.mark.parametrize(
    "constraints",
    [
        {"anti_affinity": (TaskTerm("metadata.name", SELF),)},
        {"spread": (Spread("metadata.name", 1, SELF),)},
        {"host_ports": (HostPort(80),)},
        {"ports_wanted": 2},
    ],
    ids=lambda constraints: next(iter(constraints)),
)
def test_tasks_that_keep_each_other_away_do_not_share_their_single_node(constraints, compiled):
    cluster = [NodeBuilder(replace(built.node, port_range=(2000, 2002))) for built in FOUR_CORES]
    lab = scheduler(cluster, compiled)
    asks = constrained(workload("w").cpu(1).replicas(2).single_node(), **constraints).workload
    assert lab.decide(asks, NOW).outcome is Outcome.WAITING
    assert lab.cluster.tasks.sum() == 0
    alone = replace(asks, tasks=asks.tasks[:1])
    assert lab.decide(alone, NOW).outcome is Outcome.PLACED


def test_every_task_on_a_single_node_gets_ports_of_its_own(compiled):
    cluster = [NodeBuilder(replace(built.node, port_range=(2000, 2003))) for built in FOUR_CORES]
    decision = decide(cluster, constrained(workload("w").replicas(2).single_node(), ports_wanted=2), compiled)
    assert [placement.ports for placement in decision.placements] == [(2000, 2001), (2002, 2003)]


def racks(**free: int) -> list[NodeBuilder]:
    """A node per name like `a1x` (zone a, rack 1, node x) with so many cores."""
    return [node(name).cpu(cores).labels(zone=name[0], rack=name[1]) for name, cores in free.items()]


@pytest.mark.parametrize(
    ("name", "tasks", "nodes"),
    [
        ("the tightest rack", 2, {"b2x"}),
        ("a rack before a zone", 4, {"a1x", "a1y"}),
        ("racks of one name in two zones are two racks", 5, {"b1x", "b2x"}),
        ("no rack holds it, but a zone does", 6, {"b1x", "b2x"}),
        ("no zone holds it", 9, {"a1x", "a1y", "a2x", "b1x", "b2x"}),
    ],
)
def test_a_packed_gang_goes_into_the_smallest_domain_that_holds_it(name, tasks, nodes, compiled):
    # Room in racks: a1 4, a2 3, b1 4, b2 2; in zones: a 7, b 6.
    cluster = racks(a1x=2, a1y=2, a2x=3, b1x=4, b2x=2)
    decision = decide(cluster, workload("w").cpu(1).replicas(tasks).gang().packed_by("zone", "rack"), compiled)
    assert len(decision.placements) == tasks
    assert set(chosen(decision)) <= nodes, name


def test_packing_is_a_wish_and_counts_nodes_without_the_labels_only_beyond_it(compiled):
    cluster = [*racks(a1x=2, b1x=2), node("bare").cpu(8)]
    asks = workload("w").cpu(1).packed_by("zone", "rack")
    assert set(chosen(decide(cluster, asks.replicas(2).gang(), compiled))) == {"a1x"}
    assert len(decide(cluster, asks.replicas(12).gang(), compiled).placements) == 12
    assert decide(cluster, asks.replicas(13).gang(), compiled).outcome is Outcome.WAITING


def test_tasks_that_have_a_node_bind_the_others_to_its_domain(compiled):
    cluster = racks(a1x=2, b1x=8, b2x=4)
    asks = workload("w").cpu(1).replicas(2).packed_by("zone", "rack")
    assert set(chosen(decide(cluster, asks, compiled))) == {"a1x"}
    assert set(chosen(decide(cluster, asks.occupying(b1x=1), compiled))) == {"b1x"}


def test_a_domain_where_tasks_keep_each_other_away_is_left_for_the_next(compiled):
    cluster = racks(a1x=3, b1x=2, b1y=2)
    apart = constrained(
        workload("w").cpu(1).replicas(2).gang().packed_by("zone"), anti_affinity=(TaskTerm("metadata.name", SELF),)
    )
    lab = scheduler(cluster, compiled)
    assert sorted(chosen(lab.decide(apart.workload, NOW))) == ["b1x", "b1y"]
    assert lab.cluster.tasks.sum() == 2


def test_an_explanation_of_a_packed_gang_names_the_winner_of_its_domain():
    lab = scheduler([*racks(a1x=2, a2x=2), node("best").cpu(64)], compiled=False)
    found = lab.explain(workload("w").cpu(1).replicas(2).gang().packed_by("zone", "rack").workload, NOW)
    assert found.winner is not None
    assert (found.winner.node, found.candidates) == ("a1x", 3)
    assert {placement.node_name for placement in found.placements} == {"a1x"}


def test_an_explanation_of_a_single_node_workload_is_about_all_its_tasks():
    lab = scheduler([node("small").cpu(4), node("large").cpu(8)], compiled=False)
    found = lab.explain(workload("w").cpu(2).replicas(3).single_node().workload, NOW)
    assert found.summary == "1 of 2 nodes: 1 lacks 6 cpu (best has 4)"
    assert found.winner is not None
    assert found.winner.node == "large"
    bound = lab.explain(workload("w").cpu(1).replicas(2).occupying(small=1).single_node().workload, NOW)
    assert bound.summary == "1 of 2 nodes: 1 away from the node that its other tasks are on"


@pytest.mark.parametrize("due", [1, 2])
def test_tasks_that_back_off_are_waited_for_only_as_far_as_they_are_needed(due):
    asks = workload("w").cpu(1).backing_off(*[None] * due, 30, 60).at_least(2)
    decision = decide(FOUR_CORES, asks, compiled=False)
    assert len(decision.placements) == (0 if due == 1 else 2)
    assert decision.reason is not None
    assert decision.reason.details["not_before"] == "2026-01-01T12:00:30+00:00"


def test_a_gang_takes_nodes_with_capacity_for_one_task_each_in_one_step(monkeypatch: pytest.MonkeyPatch):
    steps: list[int] = []
    assume = Trial.assume

    def counted(trial: Trial, rows: Rows, *rest: Any, **options: Any) -> None:
        steps.append(len(rows))
        assume(trial, rows, *rest, **options)

    monkeypatch.setattr(Trial, "assume", counted)
    nodes = [node("a").cpu(4), node("b").cpu(7), node("c").cpu(5), node("d").cpu(6)]
    asks = workload("w").cpu(4).replicas(3).gang()
    decision = decide(nodes, asks, compiled=False)
    assert steps == [3]
    assert chosen(decision) == chosen(decide(nodes, asks, compiled=True)) == ["b", "d", "c"]
    steps.clear()
    decide([node("a").cpu(8), node("b").cpu(4)], asks, compiled=False)
    assert steps == [1, 1, 1]
