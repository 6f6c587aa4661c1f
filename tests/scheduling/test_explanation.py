from __future__ import annotations

from mooring.model.decisions import Decision, Outcome
from mooring.model.reasons import Reason
from tests.scheduling.builders import decide, node, run, scheduler, workload


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


def test_a_gang_that_finds_room_for_a_part_says_how_much():
    nodes = [node("a").cpu(4), node("b").cpu(4)]
    reason = reason_of(decide(nodes, workload("w").cpu(3).replicas(3).gang()))
    assert reason.message == (
        "room for 2 of 3 tasks, which start together; for the next, 0 of 2 nodes: 2 lack 3 cpu (best has 1)"
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
        "0 of 5 nodes: 2 belong to another user, 1 without the process runtime, "
        "1 of another architecture (needs x86_64), 1 has as many tasks as it may (at most 2)"
    )
    assert reason.details["rejected"] == {"owner": 2, "runtime": 1, "architecture": 1, "tasks_per_node": 1}
    assert reason.cure == "release"
