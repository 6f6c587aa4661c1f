from __future__ import annotations

import pytest

from mooring.model.decisions import Outcome
from tests.scheduling.builders import chosen, decide, node, workload

# Equal nodes of different size: the larger keeps the larger share free and scores higher.
BIG, MIDDLE, SMALL = (node(name).cpu(cores).memory("64Gi") for name, cores in (("big", 16), ("mid", 8), ("small", 4)))
NODES = [SMALL, BIG, MIDDLE]


@pytest.mark.parametrize(
    ("name", "asks", "expected"),
    [
        ("the highest score wins", workload("w").cpu(2), ["big"]),
        # After one task of 4 cores big has 12 of 16 left and would have 8/16 = 0.5; mid would have 4/8 = 0.5 too, and
        # "big" is the lower name. Then big would have 4/16 against mid 4/8; then big 4/16 and mid 0/8.
        (
            "each placement counts before the next is chosen",
            workload("w").cpu(4).replicas(4),
            ["big", "big", "mid", "big"],
        ),
        ("one per node", workload("w").cpu(2).replicas(3).max_per_node(1), ["big", "mid", "small"]),
        (
            "at most two per node",
            workload("w").cpu("100m").replicas(5).max_per_node(2),
            ["big", "big", "mid", "mid", "small"],
        ),
        (
            "tasks placed before count for the limit",
            workload("w").cpu(2).replicas(2).max_per_node(1).occupying(big=1),
            ["mid", "small"],
        ),
        (
            "spreading comes before any score",
            workload("w").cpu("100m").replicas(4).spread(),
            ["big", "mid", "small", "big"],
        ),
        (
            "spreading counts tasks placed before",
            workload("w").cpu("100m").replicas(3).spread().occupying(big=2, mid=1),
            ["small", "mid", "small"],
        ),
        ("tasks on nodes that have left count for nothing", workload("w").cpu(1).spread().occupying(gone=1), ["big"]),
    ],
)
def test_the_nodes_chosen(name, asks, expected):
    decision = decide(NODES, asks)
    assert decision.outcome is Outcome.PLACED
    assert chosen(decision) == expected, name


def test_spreading_does_not_override_capacity():
    """small has no task of the workload, and no free capacity either."""
    decision = decide(NODES, workload("w").cpu(6).replicas(3).spread())
    assert chosen(decision) == ["big", "mid", "big"]


def test_placements_carry_what_binding_needs():
    decision = decide([node("a").cpu(2).generation(7)], workload("w").cpu(1).replicas(2))
    assert [placement.task_id for placement in decision.placements] == [
        task.id for task in workload("w").replicas(2).workload.tasks
    ]
    assert {(p.node_name, p.node_id, p.node_generation) for p in decision.placements} == {
        ("a", node("a").node.id, 7),
    }
    assert decision.feasible_nodes == 1


def test_feasible_nodes_are_those_that_could_take_the_first_task():
    assert decide(NODES, workload("w").cpu(8)).feasible_nodes == 2
    assert decide(NODES, workload("w").cpu(1).spread().replicas(2).occupying(big=1)).feasible_nodes == 3
    assert decide(NODES, workload("w").cpu(1).max_per_node(1).occupying(big=1)).feasible_nodes == 2
