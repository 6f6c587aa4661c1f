"""The pending queue: which work a change requeues, and the reasons meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from mooring.model.labels import equal_to
from mooring.model.lifecycle import NodeStatus, WorkloadStatus
from mooring.model.policy.pools import HeadOfLine
from mooring.model.reasons import Reason
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    Spread,
    Taint,
    TaskTerm,
)
from mooring.model.workloads.dependencies import Condition, Dependency
from mooring.scheduling import Cluster, Profile, Registry
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.tenant_usage import Usage
from tests.scheduling.builders import NOW, NodeBuilder, WorkloadBuilder, id_of, node, workload
from tests.scheduling.queue.queue_world import World


def constrained(builder: WorkloadBuilder, **constraints: object) -> WorkloadBuilder:
    return WorkloadBuilder(replace(builder.workload, constraints=Constraints(**constraints)))  # type: ignore[arg-type]


def full_world() -> World:
    """Two nodes with 4 cores, one task of 3 on each."""
    world = World([node("n1").cpu(4), node("n2").cpu(4)])
    world.submit(workload("a").cpu(3), workload("b").cpu(3))
    assert len(world.iterate().placed) == 2
    return world


def test_an_unschedulable_workload_is_not_tried_again_while_nothing_changes():
    world = full_world()
    world.submit(workload("late").cpu(2))
    assert world.iterate().tried == ["late"]
    assert world.iterate().tried == []
    assert world.pending_queue.tries == 0


def test_a_release_requeues_only_workloads_that_fit_there_now():
    world = full_world()
    world.submit(workload("four").cpu(4), workload("five").cpu(5), workload("gpu").cpu(1).slot("gpu", 1))
    world.iterate()
    world.end(world.running[0])
    assert world.iterate().tried == ["four"]


def test_a_release_that_is_too_small_requeues_nothing():
    world = World([node("n1").cpu(4)])
    world.submit(workload("a").cpu(1), workload("b").cpu(3))
    world.iterate()
    world.submit(workload("large").cpu(4))
    world.iterate()
    world.end(world.running[0])
    assert world.iterate().tried == []
    world.end(world.running[0])
    assert world.iterate().placed == ["large"]


def test_a_placement_elsewhere_requeues_nothing():
    world = full_world()
    world.submit(workload("late").cpu(2))
    world.iterate()
    world.submit(workload("small").cpu(1))
    assert world.iterate().tried == ["small"]
    assert world.iterate().tried == []


def test_a_release_on_an_infeasible_node_requeues_nothing():
    world = full_world()
    world.submit(constrained(workload("elsewhere").cpu(1), node_selector=(("disk", "ssd"),)))
    world.iterate()
    world.end(world.running[0])
    assert world.iterate().tried == []
    world.change("n1", labels={"disk": "ssd"}, generation=2)
    assert world.iterate().placed == ["elsewhere"]


def test_an_assumed_placement_that_was_not_committed_is_free_capacity_again():
    """The pass placed one and found the other wanting; the first was not bound after all."""
    world = World([node("n1").cpu(4)])
    world.submit(workload("first").cpu(3), workload("second").cpu(2))
    assert world.iterate().placed == ["first"]
    world.running.clear()
    world.update_node("n1")
    assert world.iterate().placed == ["second"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"schedulable": False}, {"schedulable": True}),
        ({"status": NodeStatus.LOST}, {"status": NodeStatus.READY}),
        ({"taints": (Taint("dedicated", "db"),)}, {"taints": ()}),
        ({"architecture": "arm64"}, {"architecture": "x86_64"}),
        ({"runtimes": frozenset({"container"})}, {"runtimes": frozenset({"process"})}),
        ({"owner": id_of("another")}, {"owner": id_of("someone")}),
        ({"owner": id_of("another")}, {"owner": None}),
        ({"pool": "other"}, {"pool": "default"}),
        ({"max_tasks": 0}, {"max_tasks": 1}),
        ({"allocatable": {"cpu": 500}}, {"allocatable": {"cpu": 1000}}),
    ],
)
def test_a_node_that_becomes_usable_requeues_workloads_that_fit_on_it(
    before: dict[str, object], after: dict[str, object]
):
    world = World()
    world.add(node("n1").cpu(4))
    world.change("n1", **before)
    world.submit(workload("w").cpu(1).architecture("x86_64"), workload("large").cpu(64).user("third"))
    world.iterate()
    assert world.iterate().tried == []
    world.change("n1", **after)
    iteration = world.iterate()
    assert iteration.tried == ["w"]
    assert iteration.placed == ["w"]


def test_a_new_node_requeues_workloads_that_fit_on_it():
    world = World()
    world.submit(workload("small").cpu(1), workload("large").cpu(8))
    world.iterate()
    world.add(node("n1").cpu(4))
    assert world.iterate().placed == ["small"]
    assert world.pending_queue.tries == 1


def test_work_that_is_alike_is_tried_once_per_change_however_much_there_is():
    """As many are tried as there may be capacity for, the oldest first."""
    world = full_world()
    world.submit(*(workload(f"w{number}").cpu(2).created(number) for number in range(50)))
    world.iterate()
    world.end(world.running[0])
    iteration = world.iterate()
    assert iteration.tried == iteration.placed == ["w49", "w48"]
    assert world.iterate().tried == []
    assert world.pending_queue.tries == 1


def test_a_gang_waits_until_there_is_capacity_for_all_of_it():
    world = World([node("n1").cpu(4), node("n2").cpu(4)])
    world.submit(*(workload(name).cpu(3) for name in ("a", "b")))
    world.iterate()
    world.submit(workload("gang").cpu(2).replicas(4).gang())
    world.iterate()
    world.end(world.running[0])
    assert world.iterate().tried == []
    world.end(world.running[0])
    assert world.iterate().placed == ["gang"]


def test_capacity_on_a_node_at_the_limit_per_node_requeues_nothing():
    world = World([node("n1").cpu(4)])
    world.submit(workload("spread").cpu(1).replicas(2).max_per_node(1), workload("other").cpu(2))
    world.iterate()
    world.iterate()
    world.end(next(task for task in world.running if task.request["cpu"] == 2000))
    assert world.iterate().tried == []
    world.add(node("n2").cpu(1))
    assert world.iterate().placed == ["spread"]


def test_the_end_of_its_backoff_requeues_a_task():
    world = World([node("n1").cpu(4)])
    world.submit(workload("w").cpu(1).backing_off(8))
    assert world.iterate().tried == []
    assert world.pending_queue.next_time() == NOW + timedelta(seconds=8)
    assert world.iterate(NOW + timedelta(seconds=7)).tried == []
    assert world.iterate(NOW + timedelta(seconds=8)).placed == ["w"]
    assert world.pending_queue.next_time() is None


def test_a_gang_that_backs_off_in_part_is_tried_when_all_of_it_may_be():
    world = World([node("n1").cpu(4)])
    world.submit(workload("w").cpu(1).backing_off(None, 8).gang())
    assert world.iterate().tried == ["w"]
    assert world.iterate().tried == []
    assert world.iterate(NOW + timedelta(seconds=8)).placed == ["w"]


def test_changed_work_is_tried_and_work_that_only_looks_changed_is_not():
    world = full_world()
    world.submit(workload("w").cpu(2))
    world.iterate()
    again = replace(world.waiting["w"], version=2, waiting_reason="something")
    world.submit(WorkloadBuilder(again))
    assert world.iterate().tried == []
    world.submit(workload("w").cpu(1))
    assert world.iterate().placed == ["w"]


def test_withdrawn_work_is_not_handed_out():
    world = full_world()
    world.submit(workload("w").cpu(2))
    world.iterate()
    world.withdraw("w")
    world.end(world.running[0])
    assert world.iterate().tried == []


def test_work_behind_gates_is_not_tried_until_they_are_lifted():
    world = World([node("n1").cpu(4)])
    gated = WorkloadBuilder(replace(workload("w").cpu(1).workload, gates=("approval",)))
    world.submit(gated)
    world.iterate()
    world.submit(gated)
    assert world.iterate().tried == []
    assert world.iterate_by_timer().placed == []
    world.submit(workload("w").cpu(1))
    assert world.iterate().placed == ["w"]


def test_the_policy_of_a_pool_makes_everything_in_it_worth_a_try():
    world = full_world()
    world.submit(workload("here").cpu(2), workload("there").cpu(2).pool("other"))
    world.iterate()
    world.pending_queue.reconsider({"default"})
    assert world.iterate().tried == ["here"]


LABELS = (("app", "web"),)
WEB = TaskTerm("zone", equal_to({"app": "web"}))


def zones() -> World:
    """Two nodes in zone a and one in zone b, with 8 cores each."""
    node_zones = (("n1", "a"), ("n2", "a"), ("n3", "b"))
    return World(NodeBuilder(replace(node(name).cpu(8).node, labels={"zone": zone})) for name, zone in node_zones)


def test_task_affinity_workload_is_requeued_when_a_matching_task_arrives():
    world = zones()
    world.submit(constrained(workload("near").cpu(1), affinity=(WEB,)))
    world.iterate()
    world.iterate()
    world.submit(constrained(workload("other").cpu(1), labels=(("app", "db"),)))
    assert world.iterate().tried == ["other"]
    assert world.iterate().tried == []
    world.submit(constrained(workload("web").cpu(1), labels=LABELS))
    assert world.iterate().tried == ["web"]
    assert world.iterate().placed == ["near"]


def test_the_possible_first_task_of_a_group_is_requeued_when_the_last_one_ends():
    """It may go to one zone only, and its like run in the other."""
    world = zones()
    world.submit(constrained(workload("web").cpu(1), labels=LABELS, node_selector=(("zone", "a"),)))
    world.iterate()
    world.submit(constrained(workload("near").cpu(1), labels=LABELS, affinity=(WEB,), node_selector=(("zone", "b"),)))
    world.iterate()
    world.iterate()
    assert world.iterate().tried == []
    world.end(world.running[0])
    assert world.iterate().placed == ["near"]


def test_anti_affinity_workload_is_requeued_when_the_matching_task_ends_or_a_label_changes():
    world = zones()
    for zone in ("a", "b"):
        world.submit(
            constrained(workload(f"web-{zone}").cpu(1), labels=LABELS, node_selector=(("zone", zone),)),
            constrained(workload(f"db-{zone}").cpu(1), labels=(("app", "db"),), node_selector=(("zone", zone),)),
        )
    world.iterate()
    world.submit(*(constrained(workload(name).cpu(1), anti_affinity=(WEB,)) for name in ("one", "two")))
    world.iterate()
    world.iterate()
    world.end(next(task for task in world.running if task.constraints.labels != LABELS))
    assert world.iterate().tried == []
    world.relabel(next(task for task in world.running if task.constraints.labels == LABELS), app="db")
    assert sorted(world.iterate().placed) == ["one", "two"]


def test_workload_excluded_by_anti_affinity_of_others_is_requeued_when_they_end():
    world = zones()
    world.submit(constrained(workload("loner").cpu(1), anti_affinity=(TaskTerm("all", equal_to({"app": "web"})),)))
    for name in ("n1", "n2", "n3"):
        world.change(name, labels={**world.nodes[name].labels, "all": "one"})
    world.iterate()
    world.submit(constrained(workload("web").cpu(1), labels=LABELS))
    world.iterate()
    world.iterate()
    assert world.iterate().tried == []
    world.end(world.running[0])
    assert world.iterate().placed == ["web"]


def test_an_uneven_spread_is_cured_where_the_fewest_are():
    world = zones()
    even = Spread("zone", 1, equal_to({"app": "web"}), honor_node_affinity=False)
    one_zone = {"labels": LABELS, "node_selector": (("zone", "a"),)}
    world.submit(constrained(workload("first").cpu(1), **one_zone))
    world.iterate()
    world.submit(constrained(workload("second").cpu(1), spread=(even,), **one_zone))
    world.iterate()
    world.iterate()
    assert world.iterate().tried == []
    world.submit(constrained(workload("web").cpu(1), labels=LABELS, node_selector=(("zone", "b"),)))
    world.iterate()
    assert world.iterate().placed == ["second"]


def test_a_released_port_requeues_workloads_that_need_it():
    world = World([node("n1").cpu(8)])
    world.submit(constrained(workload("holder").cpu(1), host_ports=(HostPort(80),)), workload("other").cpu(1))
    world.iterate()
    world.submit(constrained(workload("w").cpu(1), host_ports=(HostPort(80),)))
    world.iterate()
    world.end(next(task for task in world.running if not task.constraints.host_ports))
    assert world.iterate().tried == []
    world.end(world.running[0])
    assert world.iterate().placed == ["w"]


def test_ports_of_other_programs_are_not_assigned_until_their_node_reports_them_free():
    world = World([node("n1").cpu(8)])
    world.change("n1", port_range=(2000, 2001), occupied_ports=(HostPort(2000), HostPort(80)))
    world.submit(
        constrained(workload("named").cpu(1), host_ports=(HostPort(80),)),
        constrained(workload("two").cpu(1), ports_wanted=2),
        constrained(workload("one").cpu(1), ports_wanted=1),
    )
    assert world.iterate().placed == ["one"]
    assert [port.port for task in world.running for port in task.constraints.host_ports] == [2001]
    world.end(world.running[0])
    assert world.iterate().placed == []
    world.change("n1", occupied_ports=(HostPort(80),))
    assert world.iterate().placed == ["two"]
    world.change("n1", occupied_ports=())
    assert world.iterate().placed == ["named"]


class OddTaskCount:
    """A user's filter that says nothing about what cures it: the nodes together must have an odd number of tasks."""

    name = "odd"

    def __init__(self, depends_on: DependsOn) -> None:
        self.depends_on = depends_on

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        odd = int(cluster.tasks.sum()) % 2 == 1
        return np.full(len(rows), odd or not shape.constraints.labels, dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("even", f"{len(rows)} with an even number of tasks")


@pytest.mark.parametrize("depends_on", ["cluster", "domain"])
def test_a_filter_that_gives_no_hint_is_asked_again_after_every_change(depends_on: DependsOn):
    given = Registry().profile()
    profile = Profile("own", (*given.filters, OddTaskCount(depends_on)), given.scorers)
    world = World([node("n1").cpu(1), node("n2").cpu(4)], profile)
    world.submit(constrained(workload("w").cpu(2), labels=LABELS))
    world.iterate()
    assert world.iterate().tried == []
    world.submit(workload("other").cpu(1))
    assert world.iterate().placed == ["other"]
    assert world.iterate().placed == ["w"]


class LargeOnlyOnBig:
    """A user's static filter that looks at the amounts of the request."""

    name = "large_only_on_big"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        big = np.array([cluster.node(row).labels.get("size") == "big" for row in rows.tolist()], dtype=np.bool_)
        return big if dict(shape.request)["cpu"] > 1000 else ~big

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("wrong-size", f"{len(rows)} of the wrong size")


def test_a_static_filter_may_look_at_what_is_asked_for():
    given = Registry().profile()
    profile = Profile("own", (LargeOnlyOnBig(), *given.filters), given.scorers)
    world = World([node("n1").cpu(0)], profile)
    world.submit(workload("small").cpu(1), workload("large").cpu(2))
    world.iterate()
    world.change("n1", allocatable={"cpu": 8000})
    assert world.iterate().placed == ["small"]
    world.change("n1", labels={"size": "big"})
    assert world.iterate().placed == ["large"]


def test_a_workload_that_may_preempt_is_tried_after_every_change_in_its_pool():
    world = full_world()
    world.add(node("far").cpu(1).pool("other"))
    urgent = workload("urgent").cpu(2).workload
    result = world.scheduler.place([urgent], NOW)
    world.pending_queue.take(NOW)
    world.pending_queue.add_unschedulable(result, world.scheduler.profile, NOW, eager=True)
    assert world.pending_queue.take(NOW) == []
    world.change("far", max_tasks=7)
    assert world.pending_queue.take(NOW) == []
    world.change("n1", max_tasks=7)
    assert world.pending_queue.take(NOW) == [urgent]


def test_everything_is_tried_by_the_timer_and_a_cure_that_was_missed_is_counted():
    world = full_world()
    world.submit(workload("w").cpu(2))
    world.iterate()
    assert world.iterate_by_timer().tried == ["w"]
    assert world.pending_queue.found_by_timer == 0
    # A release that the queue takes for known.
    world.end(world.running[0])
    world.pending_queue._requeue_index.settle()
    assert world.iterate().tried == []
    assert world.iterate_by_timer().placed == ["w"]
    assert world.pending_queue.found_by_timer == 1


def test_an_unschedulable_reason_is_computed_once_per_shape():
    world = full_world()
    world.submit(workload("one").cpu(2), workload("two").cpu(2), workload("three").cpu(3))
    reasons = world.iterate().reasons
    assert set(reasons) == {"one", "two", "three"}
    assert reasons["one"] is reasons["two"]
    assert reasons["one"].details["waits_for"] == {"release": ["resources"]}
    assert world.iterate().reasons == {}


def test_changed_amounts_are_reported_only_for_workloads_that_were_tried():
    world = full_world()
    world.submit(workload("waits").cpu(3))
    world.iterate()
    world.submit(workload("small").cpu(1))
    assert world.iterate().reasons == {}
    world.submit(workload("new").cpu(3))
    assert set(world.iterate().reasons) == {"new"}


def test_other_nodes_are_a_new_reason_though_nothing_is_tried():
    world = full_world()
    world.submit(workload("waits").cpu(3))
    world.iterate()
    world.add(node("n3").cpu(1))
    iteration = world.iterate()
    assert iteration.tried == []
    assert iteration.reasons["waits"].details["rejected"] == {"resources": 3}


# --- what is not let in, and what is behind others -----------------------------------------------------------------

SOMEONE = Tenant(Scope.USER, str(id_of("someone")))


def limited_world(cores: int) -> World:
    """Plenty of capacity, and a user with a limit of this many cores."""
    usage = Usage()
    usage.update(SOMEONE, limits={"cpu": cores * 1000}, name="someone")
    return World([node("n").cpu(64)], usage=usage)


def test_work_over_a_limit_is_requeued_when_its_tenant_uses_less_and_not_before():
    world = limited_world(2)
    world.submit(*(workload(f"w{number}").cpu(1).created(9 - number) for number in range(4)))
    iteration = world.iterate()
    assert iteration.placed == ["w0", "w1"]
    assert iteration.reasons["w3"].code == "user-quota-exceeded"
    world.pending_queue.requeue_tenants([Tenant(Scope.USER, "another")])
    assert world.iterate().tried == []
    world.end(world.running[0])
    iteration = world.iterate()
    assert (sorted(iteration.tried), iteration.placed) == (["w2", "w3"], ["w2"])
    assert world.iterate_by_timer().placed == []
    assert world.pending_queue.found_by_timer == 0


def test_work_with_a_start_time_is_tried_when_it_is_due():
    world = limited_world(9)
    later = NOW + timedelta(minutes=5)
    world.submit(WorkloadBuilder(replace(workload("later").cpu(1).workload, starts_at=later)))
    assert world.iterate().placed == []
    assert world.pending_queue.next_time() == later
    assert world.iterate(NOW + timedelta(minutes=4)).tried == []
    assert world.iterate(later).placed == ["later"]


def test_work_with_dependencies_is_tried_when_it_is_read_again():
    world = limited_world(9)
    waits = workload("after").cpu(1).workload
    first = Dependency(id_of("first"), "first", Condition.AFTER_OK, WorkloadStatus.RUNNING)
    world.submit(WorkloadBuilder(replace(waits, dependencies=(first,))))
    assert world.iterate().placed == []
    assert world.iterate().tried == []
    ended = replace(first, status=WorkloadStatus.SUCCEEDED)
    world.submit(WorkloadBuilder(replace(waits, dependencies=(ended,))))
    assert world.iterate().placed == ["after"]


def test_one_refused_out_of_many_alike_does_not_hide_those_behind_it():
    world = limited_world(5)
    world.add(node("n").cpu(4))
    world.submit(workload("first").cpu(4).created(99))
    world.iterate()
    # All are unschedulable at first and share a class; then the limit of one user is lowered.
    world.submit(*(workload(f"mine{number}").cpu(1).created(50 - number) for number in range(20)))
    world.submit(workload("other").user("other").cpu(1).created(1))
    world.iterate()
    assert world.usage is not None
    world.usage.update(SOMEONE, limits={"cpu": 1})
    world.end(world.running[0])
    placed = [name for _ in range(4) for name in world.iterate().placed]
    assert placed == ["other"]


def strict_world() -> World:
    """Four cores, one of them in use; a large one waits, and a small one behind it."""
    world = World([node("n").cpu(4)], head_of_line=HeadOfLine.STRICT)
    world.submit(workload("running").cpu(1).created(99))
    world.iterate()
    world.submit(workload("large").cpu(4).created(50), workload("small").cpu(1).created(40))
    assert world.iterate().reasons["small"].code == "blocked"
    return world


def test_work_behind_a_head_is_not_tried_while_nothing_changes():
    world = strict_world()
    assert world.iterate().tried == []
    assert world.iterate_by_timer().placed == []
    assert world.pending_queue.found_by_timer == 0


def test_work_behind_a_head_is_requeued_when_the_head_is_placed_or_gone():
    world = strict_world()
    world.end(world.running[0])
    assert world.iterate().placed == ["large"]
    world.end(world.running[0])
    assert world.iterate().placed == ["small"]
    world = strict_world()
    world.withdraw("large")
    assert world.iterate().placed == ["small"]


def test_a_later_workload_does_not_pass_one_that_lacks_capacity():
    world = World([node("n").cpu(4)], head_of_line=HeadOfLine.STRICT)
    world.submit(workload("running").cpu(1).created(99))
    world.iterate()
    world.submit(workload("large").cpu(4).created(50))
    world.iterate()
    world.submit(workload("late").cpu(1))
    assert world.iterate().placed == []
    world.submit(workload("urgent").priority(99).cpu(1))
    assert world.iterate().placed == ["urgent"]


@pytest.fixture(params=[HeadOfLine.STRICT, HeadOfLine.BACKFILL])
def half(request: pytest.FixtureRequest) -> World:
    """A world whose pass has placed half of what is first in line; its other half is not back yet."""
    world = World([node("a").cpu(4), node("b").cpu(4)], head_of_line=request.param)
    world.submit(workload("running").cpu(1).limit(60).created(99))
    world.iterate()
    world.submit(workload("large").cpu(4).limit(60).replicas(2).created(50), workload("small").cpu(1).created(40))
    result = world.scheduler.place(world.pending_queue.take(world.now), world.now)
    assert [len(decision.placements) for decision in result.decisions] == [1, 0]
    world.pending_queue.add_unschedulable(result, world.scheduler.profile, world.now, eager=world.strict)
    for group in world.pending_queue.unexplained(9):
        world.pending_queue.explained(group, Reason("insufficient-resources", "too little", "resources", "release"))
    return world


def test_work_does_not_pass_the_rest_of_work_about_to_be_requeued(half: World):
    assert half.iterate().tried == []
    assert half.iterate_by_timer().tried == []
    assert not half.pending_queue.has_more_work
    half.submit(workload("large").cpu(4).limit(60).created(50))
    assert half.iterate().placed == []
    half.submit(workload("urgent").priority(99).cpu(1))
    assert half.iterate().placed == ["urgent"]


def test_work_behind_a_head_that_was_removed_is_tried(half: World):
    half.withdraw("large")
    assert half.iterate().placed == ["small"]


def test_a_planned_start_that_is_gone_when_everybody_was_tried_asks_for_no_other_pass():
    world = World([node("n").cpu(4)], head_of_line=HeadOfLine.BACKFILL)
    world.submit(workload("running").cpu(1).limit(60).created(99))
    world.iterate()
    world.submit(workload("head").cpu(4).limit(60).created(50))
    world.iterate()
    assert list(world.pending_queue.starts.values()) == [NOW + timedelta(seconds=60)]
    world.running[0].ends = None
    world.update_node("n")
    world.iterate_by_timer()
    assert world.pending_queue.starts == {}
    assert not world.pending_queue.has_more_work


def test_the_next_workload_is_planned_where_the_start_of_the_head_cannot_be():
    world = World([node("a").cpu(4), node("b").cpu(2)], head_of_line=HeadOfLine.BACKFILL)
    world.submit(workload("endless").cpu(4).created(99), workload("running").cpu(1).limit(60).created(98))
    assert world.iterate().placed == ["endless", "running"]
    world.submit(workload("unplanned").cpu(4).created(50))
    world.iterate()
    world.submit(workload("head").cpu(2).limit(60).created(40))
    world.iterate()
    planned = {world.waiting["head"].id: NOW + timedelta(seconds=60)}
    assert world.pending_queue.starts == planned
    # The plan stands while others come, and is not passed.
    world.submit(workload("long").cpu(1).limit(61).created(30))
    assert world.iterate().placed == []
    assert world.pending_queue.starts == planned
    while world.pending_queue.has_more_work:
        world.iterate()
    assert world.pending_queue.starts == planned


def test_a_head_that_loses_its_plan_lets_the_next_one_be_planned():
    world = World([node("a").cpu(4), node("b").cpu(2)], head_of_line=HeadOfLine.BACKFILL)
    world.submit(workload("first").cpu(4).limit(60).created(99), workload("running").cpu(1).limit(60).created(98))
    assert world.iterate().placed == ["first", "running"]
    world.submit(workload("head").cpu(4).limit(60).created(50), workload("next").cpu(2).limit(60).created(40))
    world.iterate()
    assert list(world.pending_queue.starts) == [world.waiting["head"].id]
    world.running[0].ends = None
    world.update_node("a")
    world.submit(workload("other").cpu(4).limit(60).created(30))
    for _ in range(9):
        world.iterate()
        if not world.pending_queue.has_more_work:
            break
    assert list(world.pending_queue.starts) == [world.waiting["next"].id]
