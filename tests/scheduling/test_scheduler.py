from __future__ import annotations

import doctest

import pytest

import mooring.scheduling.scheduler
from mooring.model.decisions import Outcome
from tests.scheduling.builders import NOW, chosen, decide, decision_of, node, run, scheduler, workload

FOUR_CORES = [node(name).cpu(4).memory("8Gi") for name in ("a", "b")]


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(mooring.scheduling.scheduler).failed == 0


def test_every_workload_gets_a_decision():
    result = run(
        scheduler(FOUR_CORES),
        workload("fits").cpu(4),
        workload("huge").cpu(5),
        workload("fails").cpu(5).fail_if_short(),
        workload("later").backing_off(1),
    )
    assert {decision.workload.name: decision.outcome for decision in result.decisions} == {
        "fits": Outcome.PLACED,
        "huge": Outcome.WAITING,
        "fails": Outcome.IMPOSSIBLE,
        "later": Outcome.WAITING,
    }
    assert result.outcomes == {Outcome.PLACED: 1, Outcome.WAITING: 2, Outcome.IMPOSSIBLE: 1}
    assert result.placements == 1


def test_the_highest_priority_first_then_the_oldest_then_the_lowest_id():
    same = sorted((workload("one"), workload("two")), key=lambda builder: builder.workload.id.int)
    result = run(
        scheduler(FOUR_CORES),
        same[1].created(5),
        workload("young").created(1),
        same[0].created(5),
        workload("urgent").priority(100),
        workload("idle").priority(0).created(100),
    )
    assert [decision.workload.name for decision in result.decisions] == [
        "urgent",
        same[0].workload.name,
        same[1].workload.name,
        "young",
        "idle",
    ]


def test_one_that_does_not_fit_does_not_block_those_behind_it():
    result = run(scheduler(FOUR_CORES), workload("huge").cpu(5).priority(90), workload("small").cpu(1))
    assert decision_of(result.decisions, "huge").outcome is Outcome.WAITING
    assert decision_of(result.decisions, "small").outcome is Outcome.PLACED


def test_a_gang_is_placed_wholly_or_not_at_all():
    lab = scheduler(FOUR_CORES)
    result = run(lab, workload("gang").cpu(3).replicas(3).gang().priority(90), workload("rest").cpu(4).replicas(2))
    gang = decision_of(result.decisions, "gang")
    assert (gang.outcome, gang.placements) == (Outcome.WAITING, ())
    # What the gang had tried is free again.
    assert chosen(decision_of(result.decisions, "rest")) == ["a", "b"]


def test_tasks_without_a_gang_are_placed_in_part():
    decision = decide(FOUR_CORES, workload("w").cpu(3).replicas(3))
    assert decision.outcome is Outcome.PLACED
    assert [placement.task_id for placement in decision.placements] == [task.id for task in decision.workload.tasks[:2]]
    assert decision.reason is not None
    assert decision.reason.message.startswith("2 of 3 tasks placed; for the next, 0 of 2 nodes: ")


@pytest.mark.parametrize(
    ("name", "asks", "outcome", "placed"),
    [
        ("all fit", workload("w").cpu(3).replicas(2).fail_if_short(), Outcome.PLACED, 2),
        ("some fit", workload("w").cpu(3).replicas(3).fail_if_short(), Outcome.IMPOSSIBLE, 0),
        ("some fit, one per node", workload("w").replicas(3).max_per_node(1).fail_if_short(), Outcome.IMPOSSIBLE, 0),
        ("none fits", workload("w").cpu(5).fail_if_short(), Outcome.IMPOSSIBLE, 0),
        ("it ran before", workload("w").cpu(3).replicas(3).fail_if_short().placed_before(), Outcome.PLACED, 2),
        ("it ran before, none", workload("w").cpu(5).fail_if_short().placed_before(), Outcome.WAITING, 0),
        ("it waits for a delay", workload("w").backing_off(None, 9).fail_if_short(), Outcome.WAITING, 0),
    ],
)
def test_work_that_fails_on_insufficient_capacity_fails_as_a_whole_at_its_first_placement(name, asks, outcome, placed):
    decision = decide(FOUR_CORES, asks)
    assert (decision.outcome, len(decision.placements)) == (outcome, placed), name


def test_tasks_that_back_off_are_left_out():
    decision = decide(FOUR_CORES, workload("w").cpu(1).backing_off(30, None, 0, 60))
    assert decision.outcome is Outcome.PLACED
    assert [placement.task_id for placement in decision.placements] == [
        task.id for task in decision.workload.tasks[1:3]
    ]
    assert decision.reason is not None
    assert decision.reason.code == "backing-off"
    assert decision.reason.message == "2 of 4 tasks back off until 2026-01-01T12:00:30+00:00"


def test_a_gang_waits_for_the_last_of_its_tasks_that_back_off():
    decision = decide(FOUR_CORES, workload("w").cpu(1).backing_off(30, None, 60).gang())
    assert decision.outcome is Outcome.WAITING
    assert decision.reason is not None
    assert decision.reason.code == "backing-off"
    assert decision.reason.message.endswith("until 2026-01-01T12:01:00+00:00")


def test_a_workload_only_sees_the_nodes_of_its_pool():
    lab = scheduler([node("a").cpu(4), node("b").cpu(9).pool("other")])
    assert chosen(run(lab, workload("w").cpu(1)).decisions[0]) == ["a"]
    assert chosen(run(lab, workload("w").cpu(1).pool("other")).decisions[0]) == ["b"]
    lab.cluster.upsert(node("b").cpu(9).node)
    assert chosen(run(lab, workload("w").cpu(9)).decisions[0]) == ["b"]
    assert run(lab, workload("w").cpu(1).pool("other")).decisions[0].outcome is Outcome.WAITING


def test_decisions_count_in_the_next_pass():
    lab = scheduler([node("a").cpu(4)])
    assert run(lab, workload("first").cpu(3)).placements == 1
    assert run(lab, workload("second").cpu(3)).placements == 0
    lab.cluster.upsert(node("a").cpu(4).node)
    assert run(lab, workload("second").cpu(3)).placements == 1


def test_a_node_that_leaves_is_not_chosen_and_one_that_comes_is():
    lab = scheduler(FOUR_CORES)
    for name in ("a", "b"):
        lab.cluster.remove(node(name).node.id)
    assert run(lab, workload("w")).placements == 0
    lab.cluster.upsert(node("c").node)
    assert chosen(run(lab, workload("w")).decisions[0]) == ["c"]


def test_a_measured_load_changes_the_selected_node():
    lab = scheduler(FOUR_CORES)
    assert chosen(run(lab, workload("w")).decisions[0]) == ["a"]
    lab.cluster.set_load(node("a").node.id, 50, 50)
    assert chosen(run(lab, workload("w")).decisions[0]) == ["b"]


def test_an_empty_pass_and_a_workload_without_waiting_tasks():
    lab = scheduler(FOUR_CORES)
    assert lab.run([], NOW).decisions == ()
    assert run(lab, workload("w").replicas(0)).decisions[0].outcome is Outcome.PLACED


def test_more_shapes_than_the_cache_holds_are_placed_alike():
    lab = scheduler([node("a").cpu(1000)])
    fitting = [workload(f"w{number}").cpu(f"{number}m") for number in range(1, 300)]
    for _ in range(2):
        assert run(lab, *fitting).outcomes == {Outcome.PLACED: 299}
    assert run(lab, *(builder.slot("gpu", 1) for builder in fitting)).outcomes == {Outcome.WAITING: 299}
