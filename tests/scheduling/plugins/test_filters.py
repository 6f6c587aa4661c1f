from __future__ import annotations

import pytest

from mooring.model.decisions import Outcome
from mooring.model.lifecycle import NodeStatus
from tests.scheduling.builders import chosen, decide, node, run, scheduler, workload

ROOMY = node("a").cpu(8).memory("16Gi")


@pytest.mark.parametrize(
    ("name", "on", "asks", "rejected_by"),
    [
        ("a ready node", ROOMY, workload("w"), None),
        ("a suspect node", ROOMY.status(NodeStatus.SUSPECT), workload("w"), "ready"),
        ("a draining node", ROOMY.status(NodeStatus.DRAINING), workload("w"), "ready"),
        ("a lost node", ROOMY.status(NodeStatus.LOST), workload("w"), "ready"),
        ("a node closed for new tasks", ROOMY.unschedulable(), workload("w"), "ready"),
        ("the runtime is there", ROOMY.runtimes("process", "container"), workload("w").runtime("container"), None),
        ("the runtime is missing", ROOMY.runtimes("process"), workload("w").runtime("container"), "runtime"),
        ("no runtime at all", ROOMY.runtimes(), workload("w"), "runtime"),
        ("the architecture asked for", ROOMY.architecture("arm64"), workload("w").architecture("arm64"), None),
        ("another architecture", ROOMY.architecture("arm64"), workload("w").architecture("x86_64"), "architecture"),
        ("any architecture will do", ROOMY.architecture("riscv64"), workload("w"), None),
        ("more isolation than required", ROOMY.isolation("namespaces", required="user"), workload("w"), None),
        ("exactly the isolation required", ROOMY.isolation("namespaces", required="namespaces"), workload("w"), None),
        ("less isolation than required", ROOMY.isolation("user", required="namespaces"), workload("w"), "isolation"),
        (
            "a container isolates itself",
            ROOMY.runtimes("container").isolation("none", required="namespaces"),
            workload("w").runtime("container"),
            None,
        ),
        ("one's own node", ROOMY.owner("ann"), workload("w").user("ann"), None),
        ("another user's node", ROOMY.owner("ann"), workload("w").user("ben"), "owner"),
        ("exactly what is left", ROOMY.used(cpu=5).held(cpu="500m"), workload("w").cpu("2500m"), None),
        ("a thousandth too much", ROOMY.used(cpu=5).held(cpu="500m"), workload("w").cpu("2501m"), "resources"),
        ("held counts", ROOMY.held(memory="16Gi"), workload("w").memory(1), "resources"),
        ("reserved counts", ROOMY.reserved(memory="16Gi"), workload("w").memory(1), "resources"),
        ("used counts", ROOMY.used(memory="16Gi"), workload("w").memory(1), "resources"),
        ("a slot that the node lacks", ROOMY, workload("w").slot("gpu", 1), "resources"),
        ("nothing of a slot that the node lacks", ROOMY, workload("w").slot("gpu", 0), None),
        ("any other countable slot", ROOMY.slot("licences", 3), workload("w").slot("licences", 3), None),
        ("more than int64 can add", ROOMY.used(cpu=1), workload("w").memory(2**63 - 1), "resources"),
        ("room for one more task", ROOMY.tasks(3, at_most=4), workload("w"), None),
        ("as many tasks as it may have", ROOMY.tasks(4, at_most=4), workload("w"), "tasks_per_node"),
        ("no limit of tasks", ROOMY.tasks(4000), workload("w"), None),
    ],
)
def test_a_node_is_rejected_by(name, on, asks, rejected_by):
    decision = decide([on], asks)
    if rejected_by is None:
        assert decision.outcome is Outcome.PLACED, name
    else:
        assert decision.outcome is Outcome.WAITING, name
        assert decision.reason is not None
        assert decision.reason.details["rejected"] == {rejected_by: 1}, name
        assert decision.reason.by == rejected_by, name


def test_the_limit_of_tasks_per_node_counts_all_tasks_of_a_placement():
    decision = decide([ROOMY.tasks(2, at_most=4)], workload("w").replicas(3))
    assert len(decision.placements) == 2
    assert decision.reason is not None
    assert decision.reason.code == "tasks-per-node"


def test_a_user_who_gets_a_node_no_longer_shares_the_shape_of_others():
    """Users without nodes share one shape; that must not outlive the arrival of a node of their own."""
    lab = scheduler([node("bens").cpu(8).owner("ben")])
    before = run(lab, workload("w").user("ann").cpu(1)).decisions[0]
    assert before.outcome is Outcome.WAITING
    lab.cluster.upsert(node("anns").cpu(8).owner("ann").node)
    assert chosen(run(lab, workload("w").user("ann").cpu(1)).decisions[0]) == ["anns"]
    assert run(lab, workload("v").user("cid").cpu(1)).decisions[0].outcome is Outcome.WAITING
