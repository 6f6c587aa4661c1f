"""The scorer that prefers the placement after which the most of the demand to come still fits."""

from __future__ import annotations

import numpy as np
import pytest

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import HeadOfLine
from mooring.model.resources.devices import WHOLE, Device, DeviceDemand
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.learning import FIRST, REFRESH
from mooring.scheduling.expected_fill.node_value import POINTS
from mooring.scheduling.plugins.scorers.expected_fill import NO_COST, ExpectedFillScorer

BOTH_PATHS = pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])


def machine(name: str, *free: int, cpu: int = 64_000, model: str | None = None) -> Node:
    devices = tuple(Device(index, model=model, taken=WHOLE - left) for index, left in enumerate(free))
    return Node(name=name, allocatable={"cpu": cpu, "gpu": WHOLE * len(free)}, devices={"gpu": devices})


def work(tasks: int = 1, name: str = "w", **request: int) -> Workload:
    return Workload(name=name, request=request, tasks=new_tasks(name, tasks))


def scheduler_of(nodes: list[Node], typical: list[TypicalRequest], compiled: bool) -> Scheduler:
    cluster = Cluster(nodes)
    cluster.set_typical_requests("default", typical)
    return Scheduler(cluster=cluster, profile=Registry().profile("gpu"), compiled=compiled)


def test_the_score_falls_by_the_value_that_the_node_loses():
    cluster = Cluster([machine("a", 400), machine("b", 1000), Node(name="c", allocatable={"cpu": 8000})])
    cluster.set_typical_requests("default", [TypicalRequest({"gpu": 1000})])
    rows = np.array([cluster.row_of(node.id) for node in cluster.nodes if node is not None and node.name in "ab"])
    scores = ExpectedFillScorer().score(shape_of(work(gpu=300), cluster), cluster, rows)
    # a: its 0.4 is of no use for whole devices. b: the whole device is lost. No prices without a pass.
    assert scores.tolist() == [NO_COST, NO_COST - 1000 * POINTS]


@BOTH_PATHS
def test_a_share_takes_the_device_that_keeps_the_others_useful(compiled: bool) -> None:
    """The tightest fit for 0.3 is the device with 0.5, but halves are requested, and 0.9 still holds one afterwards."""
    typical = [TypicalRequest({"gpu": 500}, 3), TypicalRequest({"gpu": 1000}, 1)]
    scheduler = scheduler_of([machine("a", 500, 900)], typical, compiled)
    assert [share.device for share in scheduler.decide(work(gpu=300)).placements[0].devices] == [1]


@BOTH_PATHS
def test_models_in_demand_are_left_to_the_requests_that_need_them(compiled: bool) -> None:
    typical = [TypicalRequest({"gpu": 1000}, 1, frozenset({"new"})), TypicalRequest({"gpu": 1000}, 1)]
    nodes = [machine("a", 1000, 1000, model="new"), machine("b", *[1000] * 6, model="old")]
    scheduler = scheduler_of(nodes, typical, compiled)
    assert scheduler.decide(work(gpu=1000)).placements[0].node_name == "b"


@BOTH_PATHS
def test_the_last_place_for_several_devices_is_protected(compiled: bool) -> None:
    typical = [TypicalRequest({"gpu": 4000}, 1), TypicalRequest({"gpu": 1000}, 1)]
    nodes = [machine("a", *[1000] * 4), *[machine(name, 1000, 1000) for name in "bcde"]]
    scheduler = scheduler_of(nodes, typical, compiled)
    chosen = [placement.node_name for placement in scheduler.decide(work(8, gpu=1000)).placements]
    assert "a" not in chosen


@BOTH_PATHS
def test_tasks_without_devices_avoid_nodes_whose_devices_would_lose_their_cpu(compiled: bool) -> None:
    nodes = [machine("a", 1000, cpu=4000), Node(name="b", allocatable={"cpu": 4000})]
    scheduler = scheduler_of(nodes, [TypicalRequest({"gpu": 1000, "cpu": 2000})], compiled)
    assert [each.node_name for each in scheduler.decide(work(3, cpu=1500)).placements] == ["a", "b", "b"]


@BOTH_PATHS
def test_a_cluster_with_mixed_nodes_follows_the_same_rule(compiled: bool) -> None:
    mixed = Node(
        name="a",
        allocatable={"cpu": 8000, "gpu": 2 * WHOLE},
        devices={"gpu": (Device(0, model="old"), Device(1, model="new"))},
    )
    typical = [TypicalRequest({"gpu": 1000}, 1, frozenset({"new"})), TypicalRequest({"gpu": 500}, 1)]
    scheduler = scheduler_of([mixed, machine("b", 1000, 500, model="old")], typical, compiled)
    assert scheduler.decide(work(gpu=500)).placements[0].node_name == "b"
    wants = Constraints(devices=(DeviceDemand("gpu", frozenset({"new"})),))
    placed = scheduler.decide(Workload(name="n", request={"gpu": 1000}, constraints=wants)).placements[0]
    assert (placed.node_name, [share.device for share in placed.devices]) == ("a", [1])


@BOTH_PATHS
def test_demand_is_learned_from_arrivals_where_none_is_set(compiled: bool) -> None:
    cluster = Cluster([machine("a", *[1000] * 8)])
    scheduler = Scheduler(cluster=cluster, profile=Registry().profile("gpu"), compiled=compiled)
    arriving = [work(name=f"w-{number}", cpu=10, gpu=500 if number < 3 else 9000) for number in range(REFRESH + 1)]
    scheduler.place(arriving[:FIRST])
    assert "default" not in cluster.devices.learned, "too few"
    scheduler.place(arriving[:FIRST])
    assert "default" not in cluster.devices.learned, "a workload that is tried again is no other arrival"
    scheduler.place(arriving[FIRST:])
    learned = {each.request["gpu"]: each.weight for each in cluster.devices.learned["default"]}
    assert learned == {500: 3, 9000: REFRESH - 3}, "as of the last renewal, before the workload after it"
    cluster.set_typical_requests("default", [TypicalRequest({"gpu": 1000})])
    assert [each.request for each in cluster.devices.typical_of("default")] == [{"gpu": 1000}], "set demand wins"


def test_single_workloads_go_through_the_kernels_where_starts_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    typical = [TypicalRequest({"gpu": 1000}), TypicalRequest({"gpu": 300}, 3)]
    chosen: list[list[str]] = []
    for compiled in (False, True):
        cluster = Cluster([machine(name, *[1000] * 4) for name in ("a", "b", "c")])
        cluster.set_typical_requests("default", typical)
        profile, policy = Registry().profile("gpu"), HeadOfLine.BACKFILL
        scheduler = Scheduler(cluster=cluster, profile=profile, head_of_line=policy, compiled=compiled)
        if compiled:
            monkeypatch.setattr(ExpectedFillScorer, "score", None)
        arriving = [work(name=f"w-{at}", cpu=10, gpu=(300, 1000, 700, 2000)[at % 4]) for at in range(11)]
        decisions = [decision for each in arriving for decision in scheduler.place([each]).decisions]
        chosen.append([each.placements[0].node_name if each.placements else "" for each in decisions])
    assert chosen[0] == chosen[1]
    assert set(chosen[1]) == {"a", "b", "c"}, "every workload has a node, and 10 devices need all three"
