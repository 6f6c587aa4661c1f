"""The scorer that keeps the remaining capacity of devices useful for typical requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mooring.model.decisions import SCORE_ONE
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import WHOLE, Device
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.plugins.scorers.fragmentation import FragmentationScorer, fragment

FRAGMENTATION = Registry().profile("gpu", weights={"fragmentation": 100})
HALF_OR_WHOLE = [TypicalRequest({"gpu": 500}, 3), TypicalRequest({"gpu": 1000}, 1)]


def machine(name: str, *free: int, cpu: int = 8000, model: str | None = None) -> Node:
    devices = tuple(Device(index, model=model, taken=WHOLE - left) for index, left in enumerate(free))
    return Node(name=name, allocatable={"cpu": cpu, "gpu": WHOLE * len(free)}, devices={"gpu": devices})


def cluster_of(nodes: Sequence[Node], typical: Sequence[TypicalRequest] = HALF_OR_WHOLE) -> Cluster:
    cluster = Cluster(nodes)
    cluster.set_typical_requests("default", typical)
    return cluster


def work(tasks: int = 1, name: str = "w", **request: int) -> Workload:
    return Workload(name=name, request=request, tasks=new_tasks(name, tasks))


@pytest.mark.parametrize(
    ("free", "cpu", "typical", "expected"),
    [
        ((1000, 1000), 8000, HALF_OR_WHOLE, 0),
        ((600, 1000), 8000, HALF_OR_WHOLE, 600),  # a whole one finds the second, and 600 of no use; once
        ((400, 1000), 8000, HALF_OR_WHOLE, 3 * 400 + 400),
        ((600, 600), 8000, HALF_OR_WHOLE, 1200),  # a whole one finds nothing: all is lost, once
        ((300, 300), 8000, HALF_OR_WHOLE, 4 * 600),
        ((1000, 1000), 8000, [TypicalRequest({"gpu": 3000})], 2000),
        ((1000, 1000), 8000, [TypicalRequest({"gpu": 1500})], 0),
        ((1000, 700), 8000, [TypicalRequest({"gpu": 1500})], 1700),
        ((1000,), 500, [TypicalRequest({"gpu": 500, "cpu": 1000}), TypicalRequest({"gpu": 500, "cpu": 500}, 0)], 1000),
        ((1000,), 500, [TypicalRequest({"cpu": 100})], 1000),  # what asks for no device uses none of it
        ((1000,), 500, [TypicalRequest({"gpu": 1000}, models=frozenset({"new"}))], 1000),
        ((1000,), 500, [TypicalRequest({"gpu": 1000}, models=frozenset({"new", "old"}))], 0),
    ],
)
def test_fragmentation_is_the_capacity_that_typical_requests_cannot_use(
    free: tuple[int, ...], cpu: int, typical: list[TypicalRequest], expected: int
) -> None:
    cluster = cluster_of([machine("a", *free, cpu=cpu, model="old")], typical)
    assert fragment(typical, cluster, cluster.rows).tolist() == [expected]


def test_the_score_is_half_without_change_and_falls_with_fragmentation():
    nodes = [machine("a", 1000, 1000), machine("b", 1000, 500), Node(name="c", allocatable={"cpu": 8000})]
    cluster = cluster_of(nodes)
    shape = shape_of(work(gpu=500), cluster)
    rows = np.array([cluster.row_of(node.id) for node in nodes])
    # a: 0 -> 500 of the first device lost for the whole one: 500 / (4 devices + 500) = 1/9 below half, in whole points.
    # b: 500 -> 0, as much above half.
    scores = FragmentationScorer().score(shape, cluster, rows[:2])
    assert scores.tolist() == [SCORE_ONE * 44 // 100, SCORE_ONE * 55 // 100]
    without = FragmentationScorer().score(shape_of(work(cpu=100), cluster), cluster, rows)
    assert without.tolist() == [SCORE_ONE // 2] * 3


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_the_profile_takes_the_device_that_keeps_the_others_useful(compiled: bool) -> None:
    """The tightest fit for 0.3 is the device with 0.5; what is asked for here are halves, and 0.9 leaves one."""
    profile = FRAGMENTATION
    scheduler = Scheduler(cluster=cluster_of([machine("a", 500, 900)]), profile=profile, compiled=compiled)
    assert [share.device for share in scheduler.decide(work(gpu=300)).placements[0].devices] == [1]
    tightest = Scheduler(cluster=cluster_of([machine("a", 500, 900)]), compiled=compiled)
    assert [share.device for share in tightest.decide(work(gpu=300)).placements[0].devices] == [0]


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_tasks_without_devices_avoid_nodes_whose_devices_would_lose_their_cpu(compiled: bool) -> None:
    nodes = [machine("a", 1000, cpu=4000), Node(name="b", allocatable={"cpu": 4000})]
    typical = [TypicalRequest({"gpu": 1000, "cpu": 2000})]
    scheduler = Scheduler(cluster=cluster_of(nodes, typical), profile=FRAGMENTATION, compiled=compiled)
    assert [placement.node_name for placement in scheduler.decide(work(3, cpu=1500)).placements] == ["a", "b", "b"]


def test_typical_requests_may_change_between_passes():
    for compiled in (False, True):
        cluster = Cluster([machine("a", 500, 900), machine("b", 500, 900)])
        scheduler = Scheduler(cluster=cluster, profile=FRAGMENTATION, compiled=compiled)
        cluster.set_typical_requests("default", [TypicalRequest({"gpu": 900})])
        assert [share.device for share in scheduler.decide(work(gpu=300)).placements[0].devices] == [0]
        cluster.set_typical_requests("default", HALF_OR_WHOLE)
        assert [share.device for share in scheduler.decide(work(gpu=300, name="x")).placements[0].devices] == [1]


@pytest.mark.parametrize(
    "typical",
    [
        [TypicalRequest({"gpu": 500}, -1)],
        [TypicalRequest({"gpu": 500}, 0)],
        [TypicalRequest({"gpu": 500}, 1_000_000), TypicalRequest({}, 1)],
    ],
)
def test_invalid_weights_are_rejected_and_change_nothing(typical: list[TypicalRequest]) -> None:
    cluster = cluster_of([machine("a", 1000)])
    with pytest.raises(InvalidInput) as error:
        cluster.set_typical_requests("default", typical)
    assert error.value.code == "invalid-typical"
    assert cluster.devices.typical["default"] == tuple(HALF_OR_WHOLE)


def test_packing_takes_devices_in_use_first():
    nodes = [machine("a", 1000, 1000), machine("b", 1000, 400), machine("c", 1000, 100)]
    scheduler = Scheduler(nodes, profile=Registry().profile(weights={"device_packing": 1}))
    scores = {each.node: each.score // 10_000 for each in scheduler.inspect(work(gpu=300)).candidates}
    # b: 100 - 40 % / 10; c takes a free device of a node in use; a is a free node with two.
    assert scores == {"b": 96, "c": 49, "a": 31}
    assert scheduler.decide(work(cpu=100)).placements[0].node_name == "a", "no devices are asked for: by name"
