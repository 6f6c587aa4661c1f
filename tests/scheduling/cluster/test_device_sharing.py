"""Requests are shared out over single devices, in the library's own terms and through decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import (
    WHOLE,
    Device,
    DeviceDemand,
    DeviceShare,
)
from mooring.model.resources.slots import slot_type
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Registry, Scheduler
from mooring.scheduling.cluster.device_sharing import (
    Sharing,
    allocate,
    check_request,
    fits,
)
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.explain.explanation import forget
from mooring.scheduling.plugins.filters.devices import DevicesFilter
from tests.selection import examples

HUNDREDTH = 10
"""A hundredth of a device, the quantum of the published cases."""


@pytest.mark.parametrize(
    ("free", "request_", "options", "given_"),
    [
        ([1000, 500, 400], 300, {}, [(2, 300)]),  # the tightest fit
        ([400, 500, 400], 300, {}, [(0, 300)]),  # the lowest index among equals
        ([1000, 1000, 1000], 1500, {}, [(0, 750), (1, 750)]),
        ([1000, 800, 760], 1500, {}, [(1, 750), (2, 750)]),
        ([600, 600, 600], 1000, {"fragmentation": True}, [(0, 500), (1, 500)]),
        ([600, 600, 600], 1000, {}, None),  # at most one device must fit on one
        ([1000, 900, 1000], 2000, {}, [(0, 1000), (2, 1000)]),  # a whole number asks for wholly free devices
        ([1000, 900], 2000, {}, None),
        ([350, 350, 350], 1000, {"fragmentation": True}, [(0, 340), (1, 330), (2, 330)]),
        ([330, 350, 340], 1000, {"fragmentation": True}, [(0, 330), (1, 330), (2, 340)]),
        ([300, 350, 340], 1000, {"fragmentation": True}, None),
        ([1000], 1500, {"fragmentation": True}, None),
        ([], 100, {}, None),
        ([4, 4], 5, {"capacity": 4, "quantum": 1}, [(0, 3), (1, 2)]),
        ([4, 4], 5, {"capacity": 4, "quantum": 1, "sharing": Sharing.FILL}, [(0, 4), (1, 1)]),
        ([3, 4], 5, {"capacity": 4, "quantum": 1, "sharing": Sharing.FILL}, [(0, 1), (1, 4)]),
        ([2, 2, 2], 5, {"capacity": 4, "quantum": 1, "sharing": Sharing.FILL}, None),
        (
            [2, 2, 2],
            5,
            {"capacity": 4, "quantum": 1, "sharing": Sharing.FILL, "fragmentation": True},
            [(0, 2), (1, 2), (2, 1)],
        ),
    ],
)
def test_a_request_is_divided_over_devices(
    free: list[int], request_: int, options: dict[str, Any], given_: list[tuple[int, int]] | None
) -> None:
    assert allocate(free, request_, **{"quantum": HUNDREDTH, **options}) == given_


def test_an_amount_that_is_no_multiple_of_the_quantum_is_never_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = replace(slot_type("gpu"), quantum=HUNDREDTH)
    monkeypatch.setattr("mooring.scheduling.cluster.device_columns.slot_type", lambda name: coarse)
    decision = decide([machine("a", 1000)], work(305))
    assert decision.reason is not None
    assert decision.reason.message == "0 of 1 node: 1 cannot allocate 0.305 gpu: amounts are multiples of 0.01"
    assert devices(decide([machine("a", 1000)], work(310))) == [[(0, 310)]]


@pytest.mark.parametrize("request_", [5, 15, 0, -10])
def test_an_amount_that_is_no_multiple_of_the_quantum_is_rejected(request_: int) -> None:
    with pytest.raises(InvalidInput) as error:
        allocate([1000], request_, quantum=HUNDREDTH)
    assert error.value.code == "invalid-device-request"
    with pytest.raises(InvalidInput, match="5 units of gpu cannot be allocated: amounts are multiples of 10"):
        check_request(5, HUNDREDTH, what="gpu")


@given(
    st.lists(st.lists(st.sampled_from([-100, 0, 300, 330, 340, 500, 1000]), min_size=4, max_size=4), min_size=1),
    st.sampled_from([100, 300, 340, 500, 1000, 1500, 2000, 3000]),
    st.booleans(),
    st.none() | st.lists(st.sampled_from([0, 200, 500, 1 << 60]), min_size=4, max_size=4),
)
def test_rows_fit_where_devices_are_found_and_every_share_fits_on_its_device(
    free: list[list[int]], request_: int, fragmentation: bool, least: list[int] | None
) -> None:
    found = fits(
        np.array(free),
        request_,
        np.full(len(free), WHOLE),
        quantum=HUNDREDTH,
        fragmentation=fragmentation,
        least=None if least is None else np.array([least] * len(free)),
    )
    for row, fitting in zip(free, found.tolist(), strict=True):
        shares = allocate(row, request_, quantum=HUNDREDTH, fragmentation=fragmentation, least=least)
        assert fitting == (shares is not None)
        if shares is not None:
            assert sum(share for _, share in shares) == request_
            assert all(row[device] >= share for device, share in shares)
            assert least is None or all(least[device] <= share for device, share in shares)
            assert max(share for _, share in shares) - min(share for _, share in shares) <= HUNDREDTH
            if not fragmentation:
                assert len(shares) == -(-request_ // WHOLE)


def gpus(*free: int, **fields: Any) -> tuple[Device, ...]:
    return tuple(Device(index, taken=WHOLE - left, **fields) for index, left in enumerate(free))


def machine(name: str, *free: int, **fields: Any) -> Node:
    """A node whose devices have so much left."""
    offered = {"cpu": 8000, "gpu": WHOLE * len(free)}
    return Node(name=name, allocatable=offered, devices={"gpu": gpus(*free, **fields)})


def work(gpu: int, tasks: int = 1, name: str = "w", *, demand: DeviceDemand | None = None, **fields: Any) -> Workload:
    constraints = Constraints(devices=() if demand is None else (demand,))
    return Workload(
        name=name, request={"cpu": 100, "gpu": gpu}, tasks=new_tasks(name, tasks), constraints=constraints, **fields
    )


def decide(nodes: Sequence[Node], workload: Workload, *, pool_may_split: bool = False) -> Decision:
    """The decision, which must be the same with and without the kernels."""
    decisions = []
    for compiled in (False, True):
        cluster = Cluster(nodes)
        cluster.allow_fragmentation("default", pool_may_split)
        decisions.append(Scheduler(cluster=cluster, compiled=compiled).decide(workload))
    assert decisions[0] == decisions[1]
    return decisions[0]


def devices(decision: Decision) -> list[list[tuple[int, int]]]:
    return [[(share.device, share.amount) for share in placement.devices] for placement in decision.placements]


def test_shares_fill_devices_in_use_before_free_ones():
    assert devices(decide([machine("a", 1000, 1000, 600)], work(300, 5))) == [
        [(2, 300)],
        [(2, 300)],
        [(0, 300)],
        [(0, 300)],
        [(0, 300)],
    ]


def test_a_node_without_listed_devices_has_whole_ones_of_which_the_first_are_taken():
    node = Node(name="a", allocatable={"cpu": 8000, "gpu": 3500}, used={"gpu": 1200})
    cluster = Cluster([node])
    column = cluster.devices.columns["gpu"]
    assert column.capacity[cluster.rows, :5].tolist() == [[1000, 1000, 1000, 500, 0]]
    assert column.free[cluster.rows, :5].tolist() == [[0, 800, 1000, 500, 0]]
    assert devices(decide([node], work(500, 2))) == [[(3, 500)], [(1, 500)]]


def test_devices_are_named_by_their_own_index():
    node = Node(name="a", allocatable={"cpu": 8000, "gpu": 2000}, devices={"gpu": (Device(7), Device(3, taken=100))})
    assert decide([node], work(1000)).placements[0].devices == (DeviceShare("gpu", 7, 1000),)
    assert decide([node], work(900)).placements[0].devices == (DeviceShare("gpu", 3, 900),)


def test_a_fraction_that_fits_on_no_single_device_is_rejected_with_a_reason():
    decision = decide([machine("a", 200, 200), machine("b", 200, 200)], work(300))
    assert decision.outcome is Outcome.WAITING
    assert decision.reason is not None
    assert decision.reason.code == "insufficient-devices"
    assert decision.reason.by == "devices"
    assert decision.reason.message == "0 of 2 nodes: 2 have no single device with 0.3 gpu free (best has 0.2)"
    assert decision.reason.cure == "release"
    assert decision.reason.details["devices"] == {"gpu": {"nodes": 2, "needs": 300, "most_free": 200}}


def test_the_nearest_misses_include_devices():
    nodes = [machine("a", 200, 200), Node(name="b", allocatable={"cpu": 8000})]
    misses = Scheduler(nodes).explain(work(300)).nearest_misses
    assert [(miss.node, [rejection.words for rejection in miss.rejections]) for miss in misses] == [
        ("a", ["1 has no single device with 0.3 gpu free (best has 0.2)"]),
        ("b", ["1 lacks 0.3 gpu (best has 0)", "1 has no gpu devices"]),
    ]


def test_whole_devices_must_be_wholly_free():
    decision = decide([machine("a", 1000, 900, 900, 200)], work(2000))
    assert decision.reason is not None
    assert decision.reason.message == "0 of 1 node: 1 has fewer than 2 devices with 1 gpu free each (best has 1)"


def test_a_request_too_large_for_empty_devices_waits_for_other_nodes():
    node = Node(name="a", allocatable={"cpu": 8000, "gpu": 1000}, devices={"gpu": (Device(0, 500), Device(1, 500))})
    decision = decide([node], work(600))
    assert devices(decision) == [[(0, 300), (1, 300)]], "as few as can hold it, of the node's own size"
    decision = decide([replace(node, devices={"gpu": (Device(0, 1000, taken=0), Device(1, 100))})], work(1100))
    assert decision.reason is not None
    assert decision.reason.cure == "change"


def test_a_pool_may_allow_requests_to_be_split_over_more_devices():
    nodes = [machine("a", 600, 600, 600)]
    assert devices(decide(nodes, work(1000))) == []
    assert devices(decide(nodes, work(1000), pool_may_split=True)) == [[(0, 500), (1, 500)]]
    cluster = Cluster(nodes)
    scheduler = Scheduler(cluster=cluster, compiled=True)
    assert scheduler.decide(work(1000)).outcome is Outcome.WAITING
    cluster.allow_fragmentation("default")
    assert scheduler.explain(work(1000)).outcome is Outcome.PLACED
    cluster.allow_fragmentation("default", False)
    assert scheduler.decide(work(1000)).outcome is Outcome.WAITING


def test_only_devices_of_the_requested_models_are_allocated():
    old, new = machine("a", 1000, 1000, model="old"), machine("b", 1000, model="new")
    mixed = replace(machine("c", 1000, 1000), devices={"gpu": (Device(0, model="old"), Device(1, model="new"))})
    wants_new = DeviceDemand("gpu", frozenset({"new", "newer"}))
    assert decide([old, new], work(500, demand=wants_new)).placements[0].node_name == "b"
    assert devices(decide([old, mixed], work(500, demand=wants_new))) == [[(1, 500)]]
    decision = decide([old], work(500, demand=wants_new))
    assert decision.reason is not None
    assert decision.reason.code == "unsuitable-devices"
    assert decision.reason.message == "0 of 1 node: 1 lacks gpu devices of model new or newer"
    assert decision.reason.cure == "change"


def test_a_share_must_include_the_requested_device_memory():
    small, large = machine("a", 1000, 1000, memory=16 << 30), machine("b", 1000, memory=80 << 30)
    unknown = machine("c", 1000)
    wants = DeviceDemand("gpu", memory=20 << 30)
    assert decide([small, large, unknown], work(250, demand=wants)).placements[0].node_name == "b"
    assert decide([small, unknown], work(1000, demand=wants)).outcome is Outcome.WAITING
    decision = decide([large], work(200, demand=wants))
    assert decision.reason is not None
    assert decision.reason.message == "0 of 1 node: 1 lacks gpu devices with 20Gi of memory for the task"


def test_devices_of_several_units_are_divided_evenly():
    node = Node(name="a", allocatable={"lanes": 8}, devices={"lanes": (Device(0, 4), Device(1, 4))})
    plain = Node(name="b", allocatable={"lanes": 2})
    five = Workload(name="five", request={"lanes": 5})
    assert decide([node, plain], five).placements[0].devices == (DeviceShare("lanes", 0, 3), DeviceShare("lanes", 1, 2))
    two = decide([plain, replace(node, schedulable=False)], Workload(name="two", request={"lanes": 2}))
    assert two.placements[0].devices == (), "a node that names no devices of such a slot has none to tell apart"


def test_a_gang_that_does_not_fit_on_devices_changes_nothing():
    for compiled in (False, True):
        scheduler = Scheduler([machine("a", 1000, 700)], compiled=compiled)
        assert scheduler.decide(work(600, 3, gang=True)).outcome is Outcome.WAITING
        assert scheduler.decide(work(1000, name="after")).placements[0].devices == (DeviceShare("gpu", 0, 1000),)
        assert scheduler.decide(work(700, name="last")).placements[0].devices == (DeviceShare("gpu", 1, 700),)


def test_capacity_for_all_tasks_is_counted_per_device():
    """Three tasks of 0.6 fit on three devices, however empty; 1.8 would fit on two by the sum."""
    decision = decide([machine("a", 1000, 1000)], work(600, 3, gang=True))
    assert decision.reason is not None
    assert decision.reason.message == (
        "capacity for 2 of 3 tasks, which start together; for the next, "
        "0 of 1 node: 1 has no single device with 0.6 gpu free (best has 0.4)"
    )
    assert decision.reason.cure == "change"
    assert decide([machine("a", 1000, 1000, 300)], work(600, 3, gang=True)).reason.cure == "release"  # type: ignore[union-attr]


def test_one_task_per_node_gets_devices_too():
    nodes = [machine("a", 400, 1000), machine("b", 1000, 300)]
    assert sorted(devices(decide(nodes, work(300, 2, max_per_node=1)))) == [[(0, 300)], [(1, 300)]]


def test_a_reverted_trial_and_an_explanation_return_devices():
    cluster = Cluster([machine("a", 1000, 600)])
    column = cluster.devices.columns["gpu"]
    before = column.free.copy()
    trial = Trial(cluster)
    demand = cluster.demand((("cpu", 100), ("gpu", 300)))
    trial.assume(cluster.rows, demand, None, [(DeviceShare("gpu", 1, 300),)])
    assert column.free[cluster.rows, :2].tolist() == [[1000, 300]]
    trial.revert()
    assert np.array_equal(column.free, before)
    explanation = Scheduler(cluster=cluster).explain(work(300))
    assert explanation.placements[0].devices == (DeviceShare("gpu", 1, 300),)
    assert np.array_equal(column.free, before)


def test_a_placed_workload_is_explained_as_if_its_devices_were_free():
    cluster = Cluster([machine("a", 1000), machine("b", 1000)])
    scheduler = Scheduler(cluster=cluster)
    placed = scheduler.decide(work(1000)).placements[0]
    before = cluster.devices.columns["gpu"].free.copy()
    occupied = replace(work(1000), occupied={placed.node_id: 1})
    explanation = scheduler.explain_placed(occupied, devices={placed.node_id: placed.devices})
    assert [scored.node for scored in explanation.placed_on] == [placed.node_name]
    assert scheduler.explain_placed(occupied).placed_on == (), "where nothing is told of its devices"
    assert np.array_equal(cluster.devices.columns["gpu"].free, before)


def test_upserting_a_node_overwrites_assumed_devices():
    scheduler = Scheduler([machine("a", 1000)], compiled=True)
    assert scheduler.decide(work(700)).placements
    assert not scheduler.decide(work(700, name="second")).placements
    scheduler.cluster.upsert(machine("a", 1000))
    assert scheduler.decide(work(700, name="third")).placements
    scheduler.cluster.upsert(machine("a", *[1000] * 70))
    assert len(scheduler.decide(work(1000, 70, name="many")).placements) == 70, "more than one number has bits"
    scheduler.cluster.remove(machine("a", 1).id)
    scheduler.cluster.upsert(machine("b", 200))
    assert scheduler.decide(work(100, name="fourth")).placements[0].devices == (DeviceShare("gpu", 0, 100),)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([100, 300, 500, 700, 1000, 1500, 2000]), st.integers(1, 4), st.booleans())),
    st.randoms(use_true_random=False),
    st.sampled_from(["locality", "gpu"]),
    st.booleans(),
)
def test_no_device_is_allocated_twice_in_any_sequence_of_starts_and_ends(steps, random, profile, compiled):
    cluster = Cluster([machine("a", *[1000] * 4), machine("b", 1000, 1000)])
    scheduler = Scheduler(cluster=cluster, profile=Registry().profile(profile), compiled=compiled)
    column = cluster.devices.columns["gpu"]
    running: list[Decision] = []
    for number, (gpu, tasks, gang) in enumerate(steps):
        running.append(scheduler.decide(work(gpu, tasks, f"w{number}", gang=gang)))
        if random.random() < 0.4:
            forget(cluster, running.pop(random.randrange(len(running))))
        given_out: Counter[tuple[Any, int]] = Counter()
        for decision in running:
            for placement in decision.placements:
                assert sum(share.amount for share in placement.devices) == decision.workload.request["gpu"]
                for share in placement.devices:
                    given_out[placement.node_id, share.device] += share.amount
        for row in cluster.rows.tolist():
            for position in np.flatnonzero(column.capacity[row]).tolist():
                taken = given_out[cluster.node(row).id, int(column.index[row, position])]
                assert 0 <= column.free[row, position] == WHOLE - taken


def test_a_profile_without_the_devices_filter_allocates_no_devices():
    filters = tuple(each for each in Registry().profile().filters if not isinstance(each, DevicesFilter))
    for compiled in (False, True):
        decision = Scheduler([machine("a", 500, 500)], filters=filters, compiled=compiled).decide(work(1000))
        assert decision.placements[0].devices == ()


def test_an_absurd_amount_does_not_affect_other_nodes():
    absurd = Node(name="a", allocatable={"cpu": 8000, "gpu": (1 << 63) - 1}, used={"gpu": (1 << 63) - 1})
    assert decide([absurd, machine("b", 1000)], work(1000)).placements[0].node_name == "b"
