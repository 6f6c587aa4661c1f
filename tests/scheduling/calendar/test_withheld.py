"""A start is planned only for a moment at which the work fits in every respect, and withholds what it needs alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from mooring.model.decisions import Decision
from mooring.model.labels import Operator, Requirement, Selector
from mooring.model.resources.devices import Device, DeviceDemand
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    TaskTerm,
)
from mooring.scheduling import Scheduler
from mooring.scheduling.explain.explanation import forget
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, decision_of, node, workload
from tests.scheduling.calendar.test_backfill import (
    EITHER_WAY,
    HOUR,
    backfilling,
    decided,
    limited,
    placed,
)

GPU = 1000


def gpu_node(name: str, cores: int, *models: str) -> NodeBuilder:
    devices = tuple(Device(index, GPU, model=model or None) for index, model in enumerate(models))
    made = node(name).cpu(cores).slot("gpu", len(models)).node
    return NodeBuilder(replace(made, devices={"gpu": devices}))


def asking(builder: WorkloadBuilder, **constraints: Any) -> WorkloadBuilder:
    return WorkloadBuilder(replace(builder.workload, constraints=Constraints(**constraints)))


def start(scheduler: Scheduler, *builders: WorkloadBuilder) -> dict[str, Decision]:
    """Place work that has the nodes for itself."""
    decisions = decided(scheduler, *builders)
    assert placed(decisions) == set(decisions)
    return decisions


def app(name: str) -> Selector:
    return Selector((Requirement("app", Operator.IN, (name,)),))


def message(decisions: dict[str, Decision], name: str) -> str:
    reason = decisions[name].reason
    assert reason is not None
    return reason.message


@EITHER_WAY
def test_replicas_that_need_a_licence_no_node_has_hold_nothing_back(compiled: bool):
    nodes = [node(name).cpu(10) for name in ("a", "b", "c")]
    scheduler = backfilling(*nodes, compiled=compiled)
    head = asking(workload("head").cpu(1).replicas(3).created(2 * HOUR), licence="enterprise")
    jobs = [workload(f"job{number}").cpu(1).created(9) for number in range(30)]
    decisions = decided(scheduler, head, *jobs)
    assert placed(decisions) == {f"job{number}" for number in range(30)}
    assert decisions["head"].planned_start is None


@EITHER_WAY
def test_a_head_that_waits_for_a_gpu_withholds_its_own_cores_and_no_more(compiled: bool):
    scheduler = backfilling(gpu_node("n", 32, ""), compiled=compiled)
    start(scheduler, limited(workload("running").cpu(2).slot("gpu", 1), HOUR))
    # Two cores come back with the device, and it needs one more.
    head = limited(workload("head").cpu(3).slot("gpu", 1).created(HOUR), HOUR)
    jobs = [workload(f"job{number:02}").cpu(1).created(99 - number) for number in range(30)]
    decisions = decided(scheduler, head, *jobs)
    assert placed(decisions) == {f"job{number:02}" for number in range(29)}
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)


def test_a_gpu_model_that_no_node_has_is_never_planned():
    scheduler = backfilling(gpu_node("n", 8, "a100"))
    start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))
    head = asking(
        limited(workload("head").cpu(1).slot("gpu", 1).created(2 * HOUR), HOUR),
        devices=(DeviceDemand("gpu", frozenset({"h100"})),),
    )
    decisions = decided(scheduler, head, workload("open").cpu(7))
    assert placed(decisions) == {"open"}
    assert decisions["head"].planned_start is None


def test_a_head_behind_work_without_an_end_has_no_plan_says_so_and_holds_nothing():
    scheduler = backfilling(node("n").cpu(4))
    port = {"host_ports": (HostPort(8080),)}
    start(scheduler, asking(workload("running").cpu(1), **port))
    head = asking(limited(workload("head").cpu(1).created(2 * HOUR), HOUR), **port)
    decisions = decided(scheduler, head, workload("open").cpu(3))
    assert placed(decisions) == {"open"}
    assert decisions["head"].planned_start is None
    reason = decisions["head"].reason
    assert reason is not None
    assert reason.details["plan"]["code"] == "no-planned-start"
    assert "its start cannot be planned: once all work with a time limit" in reason.details["plan"]["message"]


def test_a_head_that_waits_for_a_device_without_an_end_holds_nothing_back_however_long_it_waits():
    scheduler = backfilling(gpu_node("n", 4, ""), max_bypass_seconds=0)
    start(scheduler, workload("running").cpu(1).slot("gpu", 1))
    decisions = decided(scheduler, workload("head").cpu(1).slot("gpu", 1).created(2 * HOUR), workload("open").cpu(3))
    assert placed(decisions) == {"open"}


@EITHER_WAY
def test_a_gang_for_the_whole_pool_behind_an_endless_task_blocks_nothing(compiled: bool):
    for head in (
        workload("head").cpu(4).replicas(2).gang(),
        workload("head").cpu(2).replicas(4).gang(),
        limited(workload("head").cpu(4).replicas(2).gang(), HOUR),
    ):
        scheduler = backfilling(node("a").cpu(4), node("b").cpu(4), compiled=compiled)
        start(scheduler, workload("running").cpu(1))
        behind = [workload(f"behind{number}").cpu(1) for number in range(7)]
        decisions = decided(scheduler, head.created(2 * HOUR), *behind)
        assert placed(decisions) == {f"behind{number}" for number in range(7)}
        assert decisions["head"].planned_start is None


@EITHER_WAY
def test_a_port_is_planned_for_when_its_holder_ends_and_other_ports_stay_free(compiled: bool):
    scheduler = backfilling(node("n").cpu(4), compiled=compiled)
    start(scheduler, asking(limited(workload("running").cpu(1), HOUR), host_ports=(HostPort(8080),)))
    decisions = decided(
        scheduler,
        asking(limited(workload("head").cpu(1).created(9), HOUR), host_ports=(HostPort(8080),)),
        asking(workload("other").cpu(1).created(8), host_ports=(HostPort(8081),)),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"other"}


@EITHER_WAY
def test_a_free_device_that_the_plan_needs_goes_to_work_that_ends_in_time_alone(compiled: bool):
    for seconds, expected in ((HOUR, {"other"}), (HOUR + 1, set()), (None, set())):
        scheduler = backfilling(gpu_node("n", 8, "", ""), compiled=compiled)
        start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))
        decisions = decided(
            scheduler,
            limited(workload("head").cpu(1).slot("gpu", 2).created(9), HOUR),
            limited(workload("other").cpu(1).slot("gpu", 1).created(8), seconds),
        )
        assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
        assert placed(decisions) == expected


@EITHER_WAY
def test_work_gets_the_device_that_the_plan_does_not_need(compiled: bool):
    scheduler = backfilling(gpu_node("n", 8, "a100", "a100", "t4"), compiled=compiled)
    a100 = (DeviceDemand("gpu", frozenset({"a100"})),)
    start(scheduler, asking(limited(workload("running").cpu(1).slot("gpu", 1), HOUR), devices=a100))
    decisions = decided(
        scheduler,
        asking(limited(workload("head").cpu(1).slot("gpu", 2).created(9), HOUR), devices=a100),
        workload("any").cpu(1).slot("gpu", 1).created(8),
        asking(workload("same").cpu(1).slot("gpu", 1).created(7), devices=a100),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"any"}
    [placement] = decisions["any"].placements
    assert [share.device for share in placement.devices] == [2]
    assert "promised to others" in message(decisions, "same")


def test_shares_of_a_device_are_withheld_as_far_as_the_plan_needs_them():
    scheduler = backfilling(gpu_node("n", 8, ""))
    start(scheduler, limited(workload("running").cpu(1).slot("gpu", "0.4"), HOUR))
    decisions = decided(
        scheduler,
        limited(workload("head").cpu(1).slot("gpu", "0.7").created(9), HOUR),
        workload("other").cpu(1).slot("gpu", "0.3").created(8),
        workload("more").cpu(1).slot("gpu", "0.3").created(7),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"other"}


@EITHER_WAY
def test_a_full_node_by_number_of_tasks_is_planned_and_its_amounts_stay_free(compiled: bool):
    scheduler = backfilling(node("n").cpu(32).tasks(0, at_most=2), node("m").cpu(1), compiled=compiled)
    start(
        scheduler,
        limited(workload("one").cpu(2), HOUR),
        limited(workload("two").cpu(2), 2 * HOUR),
    )
    decisions = decided(
        scheduler,
        limited(workload("head").cpu(2).created(9), HOUR),
        limited(workload("next").cpu(1).created(8), HOUR),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"next"}


@EITHER_WAY
def test_the_last_task_that_a_node_may_have_is_withheld_where_the_plan_needs_it(compiled: bool):
    for seconds, expected in ((HOUR, {"other"}), (HOUR + 1, set())):
        scheduler = backfilling(node("n").cpu(8).tasks(0, at_most=3), compiled=compiled)
        start(scheduler, limited(workload("one").cpu(6), HOUR))
        decisions = decided(
            scheduler,
            limited(workload("head").cpu(3).replicas(2).gang().created(9), HOUR),
            limited(workload("beside").cpu(1).created(8), 2 * HOUR),
            limited(workload("other").cpu(1).created(7), seconds),
        )
        assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
        assert placed(decisions) == {"beside", *expected}


@EITHER_WAY
def test_work_with_anti_affinity_to_planned_work_avoids_its_domain(compiled: bool):
    nodes = [node("a").cpu(4).labels(zone="x"), node("b").cpu(8).labels(zone="x"), node("c").cpu(1).labels(zone="y")]
    apart = {"project": "p", "anti_affinity": (TaskTerm("zone", app("noise")),), "labels": (("app", "quiet"),)}
    for labels, seconds, expected in (
        ("noise", HOUR, {"other"}),
        ("noise", HOUR + 1, set()),
        ("other", HOUR + 1, {"other"}),
    ):
        scheduler = backfilling(*nodes, compiled=compiled)
        noisy = {"project": "p", "labels": (("app", "noise"),)}
        start(scheduler, asking(limited(workload("running").cpu(5), HOUR), **noisy))
        decisions = decided(
            scheduler,
            asking(limited(workload("head").cpu(2).created(9), HOUR), **apart),
            asking(limited(workload("other").cpu(2).created(8), seconds), project="p", labels=(("app", labels),)),
        )
        assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
        assert placed(decisions) == expected


def test_a_hard_spread_is_planned_for_when_the_fuller_domain_has_emptied():
    nodes = [node("a").cpu(8).labels(zone="x"), node("b").cpu(1).labels(zone="y")]
    scheduler = backfilling(*nodes)
    spread = {
        "project": "p",
        "labels": (("app", "web"),),
        "spread": (Spread("zone", 1, app("web")),),
    }
    start(scheduler, asking(limited(workload("running").cpu(2), HOUR), **spread))
    decisions = decided(
        scheduler,
        asking(limited(workload("head").cpu(2).created(9), HOUR), **spread),
        workload("open").cpu(4).created(8),
    )
    assert decisions["head"].planned_start == NOW + timedelta(seconds=HOUR)
    assert placed(decisions) == {"open"}


def test_two_heads_do_not_plan_with_the_same_device():
    scheduler = backfilling(gpu_node("n", 8, ""), depth=2)
    start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))
    heads = [limited(workload(name).cpu(1).slot("gpu", 1).created(9 - at), HOUR) for at, name in enumerate("ab")]
    decisions = decided(scheduler, *heads)
    starts = [decisions[name].planned_start for name in "ab"]
    assert starts == [NOW + timedelta(seconds=HOUR), NOW + timedelta(seconds=2 * HOUR)]


def test_a_later_head_does_not_take_a_device_over_the_start_of_an_earlier_one():
    scheduler = backfilling(gpu_node("n", 8, "", ""), depth=2)
    start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))
    both = limited(workload("both").cpu(1).slot("gpu", 2).created(9), HOUR)
    long = limited(workload("long").cpu(1).slot("gpu", 1).created(8), 2 * HOUR)
    decisions = decided(scheduler, both, long)
    assert decisions["both"].planned_start == NOW + timedelta(seconds=HOUR)
    assert decisions["long"].planned_start == NOW + timedelta(seconds=2 * HOUR)


def test_tasks_that_start_one_by_one_are_planned_one_after_the_other():
    scheduler = backfilling(gpu_node("n", 8, "", ""))
    start(scheduler, limited(workload("one").cpu(1).slot("gpu", 1), HOUR))
    start(scheduler, limited(workload("two").cpu(1).slot("gpu", 1), 2 * HOUR))
    head = limited(workload("head").cpu(1).slot("gpu", 1).replicas(2).created(9), HOUR)
    assert decided(scheduler, head)["head"].planned_start == NOW + timedelta(seconds=HOUR)
    starts = sorted(promise.start or 0 for promise in scheduler.cluster.timeline.planned)
    assert starts[1] - starts[0] == HOUR


def test_nothing_stays_withheld_after_a_pass():
    scheduler = backfilling(gpu_node("n", 8, "", ""))
    running = start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))["running"]
    decided(scheduler, limited(workload("head").cpu(1).slot("gpu", 2).created(9), HOUR))
    cluster = scheduler.cluster
    free = cluster.devices.columns["gpu"].free
    row = cluster.row_of(running.placements[0].node_id)
    assert row is not None
    assert sorted(free[row, :2].tolist()) == [0, GPU]
    forget(cluster, running)
    assert free[row, :2].tolist() == [GPU, GPU]
    assert cluster.tasks[row] == 0
    head = decision_of(scheduler.run([workload("head").cpu(1).slot("gpu", 2).workload], NOW).decisions, "head")
    assert head.placements
    assert not cluster.timeline.planned


def test_a_dry_run_of_other_work_respects_withheld_capacity():
    scheduler = backfilling(gpu_node("n", 8, "", ""))
    start(scheduler, limited(workload("running").cpu(1).slot("gpu", 1), HOUR))
    decided(scheduler, limited(workload("head").cpu(1).slot("gpu", 2).created(9), HOUR))
    explained = scheduler.explain(workload("other").cpu(1).slot("gpu", 1).workload, NOW)
    assert not explained.placements
    assert explained.reason is not None
    assert explained.reason.code == "booked"
