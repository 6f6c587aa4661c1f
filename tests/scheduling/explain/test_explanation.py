from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.labels import equal_to
from mooring.model.lifecycle import NodeStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.constraints import NODE_NAME_FIELD, Constraints, TaskTerm
from mooring.scheduling import Cluster, Scheduler
from mooring.scheduling.plugins.selectors.round_robin import RoundRobin
from tests.scheduling.builders import NOW, chosen, decide, id_of, node, run, scheduler, workload
from tests.scheduling.plugins.test_plugins import Gives, with_filter


def reason_of(decision: Decision) -> Reason:
    assert decision.reason is not None
    return decision.reason


def test_it_counts_the_nodes_by_what_rejected_them_and_names_what_they_lack():
    nodes = [
        *(node(f"full-{number}").cpu(8).memory("64Gi").used(memory=f"{60 - 4 * number}Gi") for number in range(3)),
        *(node(f"closed-{number}").cpu(8).memory("64Gi").unschedulable() for number in range(2)),
    ]
    reason = reason_of(decide(nodes, workload("w").cpu(1).memory("64Gi")))
    # The fullest uses 60Gi, the others 56Gi and 52Gi: 64 - 52 = 12
    assert reason.message == ("0 of 5 nodes: 3 lack 64Gi memory (best has 12Gi), 2 not ready")
    assert (reason.code, reason.by, reason.cure) == ("insufficient-resources", "resources", "release")
    assert reason.details["nodes"] == 5
    assert reason.details["rejected"] == {"resources": 3, "ready": 2}
    assert reason.details["lacking"] == {
        "memory": {"nodes": 3, "needs": 64 << 30, "most_free": 12 << 30, "largest": 64 << 30}
    }


def test_each_node_counts_for_the_slot_that_most_lack():
    nodes = [
        node("a").cpu(1).memory("1Gi"),
        node("b").cpu(8).memory("1Gi"),
        node("c").cpu(2).memory("8Gi"),
    ]
    reason = reason_of(decide(nodes, workload("w").cpu(4).memory("4Gi")))
    # cpu is lacking on a and c, memory on a and b: cpu comes first by name, and b is left for memory.
    assert reason.message == ("0 of 3 nodes: 2 lack 4 cpu (best has 2), 1 lacks 4Gi memory (best has 1Gi)")
    assert reason.cure == "change"


def test_a_request_that_no_node_could_ever_take_is_cured_by_change_alone():
    full = node("a").cpu(8).used(cpu=6)
    assert reason_of(decide([full], workload("w").cpu(8))).cure == "release"
    reason = reason_of(decide([full], workload("w").cpu(9)))
    assert reason.cure == "change"
    assert reason.message == ("0 of 1 node: 1 lacks 9 cpu (best has 2, 8 when empty)")


def test_amounts_are_readable():
    nodes = [node("a").memory("16Gi").used(memory="1234567890")]
    reason = reason_of(decide(nodes, workload("w").memory("15.5Gi")))
    # 17179869184 - 1234567890 = 15945301294 bytes = 14.85 Gi
    assert "1 lacks 15.5Gi memory (best has 14.8Gi)" in reason.message
    reason = reason_of(decide(nodes, workload("w").memory(15945301295)))
    assert "1 lacks 15945301295 memory (best has 15945301294)" in reason.message


def test_too_few_nodes_for_one_task_each():
    nodes = [node(name).cpu(4) for name in ("a", "b")] + [node("c").cpu(1)]
    decision = decide(nodes, workload("w").cpu(2).replicas(10).max_per_node(1).gang().fail_if_short())
    reason = reason_of(decision)
    assert decision.outcome is Outcome.IMPOSSIBLE
    assert reason.message == "Insufficient nodes: need 10, found 2"
    assert reason.code == "insufficient-nodes"
    assert reason.cure == "change"
    assert reason.details["tasks"] == {"need": 10, "found": 2}
    assert reason.details["rejected"] == {"resources": 1}


def test_too_few_free_nodes_are_cured_by_release_if_enough_would_do_when_empty():
    nodes = [node("a").cpu(4), node("b").cpu(4).used(cpu=3), node("c").cpu(4).unschedulable()]
    two = workload("w").cpu(2).replicas(2).max_per_node(1).gang()
    assert reason_of(decide(nodes, two)).cure == "release"
    assert reason_of(decide(nodes, two.replicas(3))).cure == "change"
    # a has one of its tasks already: only b is left for the other two.
    assert reason_of(decide(nodes, two.occupying(a=1))).cure == "change"


def test_a_gang_that_fits_in_part_says_how_many_tasks_fit():
    nodes = [node("a").cpu(4), node("b").cpu(4)]
    reason = reason_of(decide(nodes, workload("w").cpu(3).replicas(3).gang()))
    assert reason.message == (
        "capacity for 2 of 3 tasks, which start together; for the next, 0 of 2 nodes: 2 lack 3 cpu (best has 1)"
    )
    # Empty, each of both takes one task of three cores: two of three.
    assert reason.cure == "change"


def test_the_limit_per_node_is_named():
    nodes = [node("a").cpu(4), node("b").cpu(4)]
    reason = reason_of(decide(nodes, workload("w").cpu(1).replicas(3).max_per_node(1)))
    assert reason.message == (
        "2 of 3 tasks placed; for the next, 0 of 2 nodes: 2 have 1 of its tasks, the most allowed on one node"
    )
    assert (reason.code, reason.by, reason.cure) == ("max-per-node", "max_per_node", "change")


def test_a_pool_without_nodes():
    reason = reason_of(decide([node("a").pool("other")], workload("w")))
    assert (reason.message, reason.code, reason.cure) == ("pool 'default' has no nodes", "no-nodes", "change")


def test_an_explanation_is_as_current_as_the_nodes():
    lab = scheduler([node("a").cpu(4).used(cpu=3)])
    asks = workload("w").cpu(4)
    assert "(best has 1)" in reason_of(run(lab, asks).decisions[0]).message
    lab.cluster.upsert(node("a").cpu(4).used(cpu=2).node)
    assert "(best has 2)" in reason_of(run(lab, asks).decisions[0]).message


def test_every_built_in_filter_says_why():
    nodes = [
        node("a").runtimes("container"),
        node("b").architecture("arm64"),
        node("c").owner("ann"),
        node("d").owner("ben"),
        node("e").tasks(2, at_most=2),
    ]
    reason = reason_of(decide(nodes, workload("w").architecture("x86_64")))
    assert reason.message == (
        "0 of 5 nodes: 1 has reached its task limit (at most 2), 2 belong to another user, "
        "1 without the process runtime, 1 of another architecture (needs x86_64)"
    )
    assert reason.details["rejected"] == {"owner": 2, "runtime": 1, "architecture": 1, "tasks_per_node": 1}
    assert reason.cure == "release"


def test_numbers_of_nodes_are_readable():
    nodes = [node(f"n{number}").cpu(8).slot("gpu", 1) for number in range(1200)]
    reason = reason_of(decide(nodes, workload("w").slot("gpu", 2)))
    assert reason.message == "0 of 1,200 nodes: 1,200 lack 2 gpu (best has 1)"


def test_the_reason_says_if_others_of_the_pass_freed_capacity():
    near_web = Constraints(affinity=(TaskTerm(NODE_NAME_FIELD, equal_to({"app": "web"})),))
    follower = replace(workload("follower").cpu(1).priority(90).workload, constraints=near_web)
    web = replace(workload("web").cpu(1).priority(10).workload, constraints=Constraints(labels=(("app", "web"),)))
    first, second = Scheduler([node("a").cpu(4).node]).run([follower, web], NOW).decisions
    assert (first.outcome, second.outcome) == (Outcome.WAITING, Outcome.PLACED)
    assert reason_of(first).code == "room-since"
    assert reason_of(first).message == "1 of 1 node; there is capacity since others of the same pass were placed"


@pytest.mark.parametrize("compiled", [False, True])
def test_reasons_describe_the_nodes_as_they_are_after_the_pass(compiled):
    lab = Scheduler([node("a").cpu(4).node], compiled=compiled)
    large, small = workload("large").cpu(8).priority(90), workload("small").cpu(3).priority(10)
    decision = run(lab, large, small).decisions[0]
    assert reason_of(decision).message == "0 of 1 node: 1 lacks 8 cpu (best has 1, 4 when empty)"


@pytest.mark.parametrize("compiled", [False, True])
def test_placements_can_be_bound_before_reasons_are_computed(compiled):
    lab = Scheduler([node("a").cpu(4).node], compiled=compiled)
    queue = [workload("large").cpu(8).priority(90).workload, workload("two").cpu(3).replicas(2).workload]
    placed = lab.place(queue, NOW)
    assert [(decision.outcome, decision.reason) for decision in placed.decisions] == [
        (Outcome.WAITING, None),
        (Outcome.PLACED, None),
    ]
    assert [position for position, _ in placed.short] == [0, 1]
    result = lab.explained(placed)
    assert result == Scheduler([node("a").cpu(4).node], compiled=compiled).run(queue, NOW)
    assert result.decisions[1].placements == placed.decisions[1].placements
    assert all(decision.reason is not None for decision in result.decisions)
    assert (result.short, lab.explained(result)) == ((), result)


def test_workloads_that_are_alike_have_one_reason_until_the_nodes_change():
    lab = scheduler([node("a").cpu(4)])
    first, second = (decision.reason for decision in run(lab, workload("v").cpu(8), workload("w").cpu(8)).decisions)
    assert first is second
    gang = workload("x").cpu(8).replicas(2).gang()
    assert reason_of(run(lab, gang).decisions[0]).details["tasks"] == {"need": 2, "found": 0}
    lab.cluster.upsert(node("b").cpu(2).node)
    assert reason_of(run(lab, workload("v").cpu(8)).decisions[0]).details["nodes"] == 2


def test_an_explanation_shows_the_candidates_what_was_removed_the_winner_and_the_runner_up():
    nodes = [
        node("best").cpu(16).memory("16Gi"),
        node("second").cpu(8).memory("8Gi"),
        node("full").cpu(8).memory("8Gi").used(cpu=7),
        node("fuller").cpu(8).memory("8Gi").used(cpu=8),
        node("closed").cpu(8).memory("8Gi").unschedulable().used(cpu=8),
    ]
    lab = scheduler(nodes)
    work = workload("w").cpu(4).memory("1Gi").workload
    found = lab.explain(work, NOW)
    assert (found.outcome, found.nodes, found.candidates) == (Outcome.PLACED, 5, 2)
    assert found.summary == "2 of 5 nodes: 2 lack 4 cpu (best has 1), 1 not ready"
    assert [(removed.by, removed.nodes, removed.cure) for removed in found.removed] == [
        ("resources", 2, "release"),
        ("ready", 1, "change"),
    ]
    assert found.removed[0].details["lacking"]["cpu"]["most_free"] == 1000
    assert found.winner is not None
    assert found.runner_up is not None
    assert (found.winner.node, found.runner_up.node) == ("best", "second")
    # The total is the weighted mean of the parts.
    parts = sum(found.weights[name] * score for name, score in found.winner.scores.items())
    assert found.winner.score == parts // sum(found.weights.values())
    assert found.winner.score == found.placements[0].score == lab.decide(work, NOW).placements[0].score
    # Two filters turn the closed one down; of the others the one that lacks less comes first.
    assert [miss.node for miss in found.nearest_misses] == ["full", "fuller", "closed"]
    assert [rejection.by for rejection in found.nearest_misses[2].rejections] == ["ready", "resources"]


def test_an_explanation_places_nothing_and_advances_no_selector():
    lab = Scheduler([node(name).cpu(4).node for name in "abc"], selector=RoundRobin(), compiled=False)
    ported = replace(workload("w").cpu(1).replicas(2).workload, constraints=Constraints(ports_wanted=2))
    before = lab.cluster.taken.copy()
    for _ in range(2):
        found = lab.explain(ported, NOW)
        assert [placement.node_name for placement in found.placements] == ["a", "b"]
        assert found.placements[0].ports == (2000, 2001)
        assert (found.winner and found.winner.node, found.runner_up and found.runner_up.node) == ("a", "b")
    assert np.array_equal(lab.cluster.taken, before)
    assert lab.cluster.tasks.sum() == 0
    assert not lab.cluster.placed_tasks.ports(0)
    assert chosen(lab.decide(ported, NOW)) == ["a", "b"]


def test_an_explanation_of_what_waits_has_the_reason_of_the_pass():
    lab = scheduler([node("a").cpu(4), node("b").cpu(4)])
    gang = workload("w").cpu(3).replicas(3).gang()
    found = lab.explain(gang.workload, NOW)
    assert found.outcome is Outcome.WAITING
    assert found.reason == run(lab, gang).decisions[0].reason
    # What is counted is the first task; the reason is about the one that fits nowhere.
    assert (found.candidates, found.placements) == (2, ())
    shown = found.as_dict()
    assert shown["reason"]["code"] == "insufficient-resources"
    assert json.loads(json.dumps(shown)) == shown


def test_an_explanation_names_the_plugin_that_fails():
    lab = scheduler([node("a")], profile=with_filter(Gives(lambda count: 1 // 0)))
    found = lab.explain(workload("w").workload, NOW)
    assert found.outcome is Outcome.ERROR
    assert found.reason is not None
    assert found.reason.code == "constraint-evaluation-failed"


def test_the_nodes_of_a_placed_workload_are_compared_as_if_it_were_not_there():
    alone = Constraints(labels=(("app", "web"),), anti_affinity=(TaskTerm(NODE_NAME_FIELD, equal_to({"app": "web"})),))
    cluster = Cluster([node("own").cpu(4).used(cpu=4).tasks(1).node, node("other").cpu(8).node])
    cluster.set_tasks(id_of("own"), [(alone, 1)])
    lab = Scheduler(cluster=cluster)
    work = replace(workload("w").cpu(4).workload, occupied={id_of("own"): 1}, constraints=alone)
    taken = cluster.taken.copy()
    found = lab.explain_placed(work)
    assert [scored.node for scored in found.placed_on] == ["own"]
    assert found.winner == found.placed_on[0]
    assert found.runner_up is not None
    assert found.runner_up.node == "other"
    assert found.candidates == 2
    assert np.array_equal(cluster.taken, taken)
    # It is there again: no other task of its kind may be placed.
    assert chosen(lab.decide(replace(work, name="second", id=id_of("second"), occupied={}), NOW)) == ["other"]


def test_a_full_node_leads_the_reason_before_more_nodes_that_are_not_ready():
    nodes = [
        node("full").cpu(8).used(cpu=8),
        *(node(f"closed-{number}").cpu(8).unschedulable() for number in range(3)),
    ]
    reason = reason_of(decide(nodes, workload("w").cpu(4)))
    assert (reason.code, reason.cure) == ("insufficient-resources", "release")
    assert reason.message == "0 of 4 nodes: 1 lacks 4 cpu (best has 0), 3 not ready"


def test_a_drained_node_reads_drained():
    reason = reason_of(decide([node("a").cpu(8).status(NodeStatus.DRAINING)], workload("w").cpu(4)))
    assert (reason.code, reason.message) == ("node-not-ready", "0 of 1 node: 1 drained")
