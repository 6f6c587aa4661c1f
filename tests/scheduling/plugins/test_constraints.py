"""Constraints of tasks on nodes: the reason of a rejection, and its cure."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from mooring.model.decisions import Decision, Outcome
from mooring.model.errors import InvalidInput
from mooring.model.labels import Operator, Requirement, Selector, equal_to
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.versions import allows, version_key
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    HostPort,
    MachineImage,
    MountedVolume,
    NodeTerm,
    PreferredNodes,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
    check_constraints,
)
from mooring.model.workloads.workload import Workload, new_tasks
from mooring.scheduling import Cluster, Scheduler
from mooring.scheduling.plugins.profiles import PRESETS, Registry

ZONE = "zone"
WEB = Constraints(labels=(("app", "web"),))
SIZES = (("small", 50), ("large", 100))
NEAR_WEB = TaskTerm(ZONE, equal_to({"app": "web"}))


def machine(name: str, **more: object) -> Node:
    return Node(name=name, allocatable={"cpu": 4000, "memory": 1 << 33}, **more)  # type: ignore[arg-type]


def decide(cluster: Cluster, constraints: Constraints, tasks: int = 1) -> Decision:
    work = Workload(name="work", request={"cpu": 500}, tasks=new_tasks("work", tasks), constraints=constraints)
    return Scheduler(cluster=cluster).decide(work)


def where(decision: Decision) -> list[str]:
    return [placement.node_name for placement in decision.placements]


def in_zones(**running: int) -> Cluster:
    """One node per zone, named as the zone, with so many tasks of the web."""
    nodes = [machine(zone, labels={ZONE: zone}) for zone in running]
    cluster = Cluster(nodes)
    for node in nodes:
        cluster.set_tasks(node.id, [(WEB, running[node.name])])
    return cluster


@pytest.mark.parametrize(
    ("node", "constraints", "code", "cure"),
    [
        (machine("a"), Constraints(node_name="b"), "node-name-mismatch", "change"),
        (
            machine("a"),
            Constraints(designated=frozenset({"b"}), designated_strictly=True),
            "node-not-designated",
            "change",
        ),
        (machine("a"), Constraints(node_selector=(("disk", "ssd"),)), "node-selector-mismatch", "change"),
        (
            machine("a", labels={"size": "3"}),
            Constraints(node_terms=(NodeTerm((Requirement("size", Operator.GT, ("3",)),)),)),
            "node-affinity-mismatch",
            "change",
        ),
        (machine("a"), Constraints(node_terms=()), "node-affinity-mismatch", "change"),
        (machine("a", taints=(Taint("gpu"),)), Constraints(), "taint-not-tolerated", "change"),
        (
            machine("a", taints=(Taint("gpu", effect=Effect.NO_EXECUTE),)),
            Constraints(tolerations=(Toleration("gpu", effect=Effect.NO_SCHEDULE),)),
            "taint-not-tolerated",
            "change",
        ),
        (
            machine("a", machine_image="lab", machine_image_version="2.9"),
            Constraints(machine_image=MachineImage("lab", ">=2.10")),
            "machine-image-mismatch",
            "change",
        ),
        (
            machine("a", labels={ZONE: "z2"}),
            Constraints(volume_zones=((ZONE, frozenset({"z1"})),)),
            "volume-zone",
            "change",
        ),
        (machine("a"), Constraints(volumes=(MountedVolume("data", None, "b"),)), "volume-elsewhere", "change"),
        (
            machine("a"),
            Constraints(volumes=(MountedVolume("data", machine("a").id, "a"), MountedVolume("logs", None, "b"))),
            "volumes-apart",
            "change",
        ),
        (machine("a", licence="evaluation"), Constraints(licence="personal"), "licence-missing", "change"),
        (machine("a", port_range=(2000, 2001)), Constraints(ports_wanted=3), "ports-in-use", "change"),
        (machine("a"), Constraints(affinity=(NEAR_WEB,)), "task-affinity", "change"),
        (machine("a"), Constraints(spread=(Spread(ZONE, 1, Selector()),)), "topology-spread", "change"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_filter_explains_its_rejection(node, constraints, code, cure):
    decision = decide(Cluster([node]), constraints)
    assert decision.outcome is Outcome.WAITING
    assert decision.reason is not None
    assert (decision.reason.code, decision.reason.cure) == (code, cure)
    assert decision.reason.message.startswith("0 of 1 node: 1 ")


@pytest.mark.parametrize(
    ("constraints", "code"),
    [
        (Constraints(host_ports=(HostPort(80),)), "ports-in-use"),
        (Constraints(anti_affinity=(TaskTerm("metadata.name", equal_to({"app": "web"})),)), "task-anti-affinity"),
        (Constraints(licence="personal"), "licence-sessions-used"),
    ],
)
def test_rejections_by_other_tasks_are_cured_by_release(constraints, code):
    cluster = Cluster([machine("a", licence="personal")])
    running = replace(WEB, host_ports=(HostPort(80),), licence="personal")
    cluster.set_tasks(cluster.node(0).id, [(running, 1)])
    reason = decide(cluster, constraints).reason
    assert reason is not None
    assert (reason.code, reason.cure) == (code, "release")


def test_an_enterprise_licence_covers_personal_but_not_evaluation():
    nodes = [machine("a", licence="evaluation"), machine("b", licence="enterprise")]
    assert where(decide(Cluster(nodes), Constraints(licence="personal"), tasks=2)) == ["b", "b"]
    assert where(decide(Cluster(nodes), Constraints(licence="evaluation"))) == ["a"]
    assert where(decide(Cluster([machine("p", licence="personal")]), Constraints(licence="personal"), tasks=2)) == ["p"]


def test_the_spread_after_the_placement_must_be_within_the_skew():
    # zones a 3, b 1, c 1 and max_skew 1: a would be 4 - 1 = 3, b and c 2 - 1 = 1
    spread = Constraints(labels=WEB.labels, spread=(Spread(ZONE, 1, equal_to({"app": "web"})),))
    assert where(decide(in_zones(a=3, b=1, c=1), spread, tasks=3)) == ["b", "c", "b"]


def test_only_domains_with_eligible_nodes_count_for_the_lowest_number():
    # zones a 1 and b 0: with b out of reach by node selector, a is the smallest itself
    cluster = in_zones(a=1, b=0)
    spread = Spread(ZONE, 1, equal_to({"app": "web"}))
    bound = Constraints(labels=WEB.labels, spread=(spread,), node_selector=((ZONE, "a"),))
    assert where(decide(cluster, bound)) == ["a"]
    every = replace(bound, spread=(replace(spread, honor_node_affinity=False),))
    assert where(decide(in_zones(a=1, b=0), every)) == []


def test_placements_count_for_later_ones_of_the_same_pass():
    apart = Constraints(labels=WEB.labels, anti_affinity=(NEAR_WEB,))
    assert where(decide(in_zones(a=0, b=0, c=0), apart, tasks=4)) == ["a", "b", "c"]


def test_the_anti_affinity_of_a_placed_task_rejects_matching_tasks():
    cluster = Cluster([machine("a", labels={ZONE: "a"}), machine("b", labels={ZONE: "b"})])
    cluster.set_tasks(cluster.node(0).id, [(Constraints(anti_affinity=(NEAR_WEB,)), 1)])
    assert where(decide(cluster, WEB)) == ["b"]


def test_the_first_task_of_an_affinity_group_goes_anywhere_and_the_rest_follow():
    cluster = in_zones(a=0, b=0)
    assert set(where(decide(cluster, replace(WEB, affinity=(NEAR_WEB,)), tasks=4))) == {"a"}
    assert where(decide(in_zones(a=0, b=0), Constraints(affinity=(NEAR_WEB,)))) == []


def test_a_project_selector_selects_projects_by_their_labels():
    cluster = in_zones(a=0, b=0)
    other = replace(WEB, project="theirs")
    cluster.set_tasks(cluster.node(1).id, [(other, 1)])
    near = replace(NEAR_WEB, project_selector=equal_to({"team": "one"}))
    wants = Constraints(project="ours", affinity=(near,))
    assert where(decide(cluster, wants)) == []
    cluster.label_project("theirs", {"team": "one"})
    assert where(decide(cluster, wants)) == ["b"]


def test_the_lowest_free_ports_of_each_node_are_allocated():
    cluster = Cluster([machine("a", port_range=(2000, 2003)), machine("b", port_range=(2000, 2003))])
    cluster.set_tasks(cluster.node(0).id, [(Constraints(host_ports=(HostPort(2001),)), 1)])
    placements = decide(cluster, Constraints(ports_wanted=2), tasks=4).placements
    assert [(p.node_name, p.ports) for p in placements] == [
        ("a", (2000, 2002)),
        ("b", (2000, 2001)),
        ("b", (2002, 2003)),
    ]


def test_preferred_designated_nodes_come_before_every_score_and_failed_ones_last():
    nodes = [machine("a"), machine("busy", used={"cpu": 3000}), machine("c")]
    assert where(decide(Cluster(nodes), Constraints(designated=frozenset({"busy"})))) == ["busy"]
    assert where(decide(Cluster(nodes), Constraints(failed_on=frozenset({nodes[0].id, nodes[2].id})))) == ["busy"]
    both = Constraints(designated=frozenset({"a", "busy"}), failed_on=frozenset({nodes[0].id}))
    assert where(decide(Cluster(nodes), both)) == ["busy"]


def test_preferences_change_the_choice_and_reject_nothing():
    nodes = [machine("a"), machine("b", labels={"disk": "ssd"})]
    wish = PreferredNodes(5, NodeTerm((Requirement("disk", Operator.EXISTS),)))
    assert where(decide(Cluster(nodes), Constraints(preferred_nodes=(wish,)))) == ["b"]
    assert where(decide(Cluster(nodes[:1]), Constraints(preferred_nodes=(wish,)))) == ["a"]
    soft = machine("a", taints=(Taint("old", effect=Effect.PREFER_NO_SCHEDULE),))
    assert where(decide(Cluster([soft, machine("b")]), Constraints())) == ["b"]
    assert where(decide(Cluster([soft, machine("b")]), Constraints(tolerations=(Toleration("old"),)))) == ["a"]
    away = Constraints(spread=(Spread(ZONE, 1, equal_to({"app": "web"}), hard=False),))
    assert where(decide(in_zones(a=2, b=1), away)) == ["b"]
    present = machine("b", images={"docker.io/library/tool:latest": 1})
    assert where(decide(Cluster([machine("a"), present]), Constraints(images=("tool",)))) == ["b"]


@pytest.mark.parametrize("profile", PRESETS)
def test_every_profile_avoids_a_node_with_a_soft_taint(profile: str):
    soft = machine("a", taints=(Taint("old", effect=Effect.PREFER_NO_SCHEDULE),))
    work = Workload(name="w", request={"cpu": 500}, tasks=new_tasks("w", 1))
    for others, expected in ((["b", "c"], "b"), ([], "a")):
        cluster = Cluster([soft, *map(machine, others)])
        scheduler = Scheduler(cluster=cluster, profile=Registry().profile(profile), compiled=False)
        assert where(scheduler.decide(work)) == [expected]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "reference"])
@pytest.mark.parametrize("profile", PRESETS)
def test_no_difference_in_use_or_load_sends_work_to_a_node_with_a_soft_taint(profile: str, compiled: bool):
    idle = {"cpu_percent": 0.0, "memory_percent": 0.0}
    busy = {"cpu_percent": 100.0, "memory_percent": 100.0, "used": {"cpu": 3400, "memory": 7 << 30}}
    avoided = (Taint("mooring/failing", effect=Effect.PREFER_NO_SCHEDULE),)
    work = Workload(name="w", request={"cpu": 500}, tasks=new_tasks("w", 1))
    for of_avoided, of_other in ((idle, busy), (busy, idle)):
        cluster = Cluster([machine("a", taints=avoided, **of_avoided), machine("b", **of_other)])
        scheduler = Scheduler(cluster=cluster, profile=Registry().profile(profile), compiled=compiled)
        assert where(scheduler.decide(work)) == ["b"]


def test_a_cordoned_node_takes_tasks_that_tolerate_it():
    cluster = Cluster([machine("a", schedulable=False)])
    assert where(decide(cluster, Constraints())) == []
    assert where(decide(cluster, Constraints(tolerations=(Toleration("node.kubernetes.io/unschedulable"),)))) == ["a"]


def test_only_compressible_slots_are_overcommitted():
    node = machine("a")
    twice = Cluster([node], overcommit={"default": {"cpu": Fraction(2)}})
    assert len(where(decide(twice, Constraints(), tasks=20))) == 16
    with pytest.raises(InvalidInput, match="overcommit of memory"):
        Cluster([node], overcommit={"default": {"memory": Fraction(2)}})


@pytest.mark.parametrize(
    ("pattern", "version", "allowed"),
    [
        ("*", "1.0", True),
        ("2.*", "2.10.1", True),
        ("2.*", "20.1", False),
        (">=2.9", "2.10", True),
        (">=2.4,<3", "3.0", False),
        (">=2.4,<3", "2.10.3", True),
        ("==2.0", "2", True),
        (">=2.0", "2.0-rc1", False),
        (">=1", "", False),
        ("2.[0-9]", "2.9", True),
    ],
)
def test_versions_are_compared_as_versions(pattern, version, allowed):
    assert allows(pattern, version) is allowed


def test_versions_are_ordered_numerically():
    versions = ["2.10", "2.9", "2.9.1", "2.9-rc1", "10.0"]
    assert sorted(versions, key=version_key) == ["2.9-rc1", "2.9", "2.9.1", "2.10", "10.0"]


@pytest.mark.parametrize(
    "wrong",
    [
        Constraints(labels=(("app", "not a value!"),)),
        Constraints(node_terms=(NodeTerm((Requirement("size", Operator.GT, ("many",)),)),)),
        Constraints(node_terms=(NodeTerm(fields=(Requirement("metadata.name", Operator.IN, ("a", "b")),)),)),
        Constraints(affinity=(TaskTerm("", Selector()),)),
        Constraints(anti_affinity=(TaskTerm(ZONE, Selector((Requirement("app", Operator.IN),))),)),
        Constraints(spread=(Spread(ZONE, 0, Selector()),)),
        Constraints(tolerations=(Toleration(value="x"),)),
        Constraints(host_ports=(HostPort(70_000),)),
        Constraints(ports_wanted=-1),
    ],
)
def test_invalid_constraints_are_rejected(wrong):
    with pytest.raises(InvalidInput):
        check_constraints(wrong)


def test_inspection_shows_every_nodes_verdict():
    cluster = Cluster([machine("a"), machine("b", taints=(Taint("gpu"),)), machine("c", used={"cpu": 3800})])
    work = Workload(name="work", request={"cpu": 500})
    inspection = Scheduler(cluster=cluster).inspect(work)
    assert [verdict.node for verdict in inspection.candidates] == ["a"]
    assert inspection.winner is not None
    assert set(inspection.winner.scores or {}) >= {"resources", "load", "locality"}
    assert inspection.runner_up is None
    assert inspection.removed == {"taints": 1, "resources": 1}
    assert inspection.of("c").rejections["resources"].cure == "release"
    assert cluster.tasks.sum() == 0


def test_a_message_names_what_each_group_of_nodes_lacks():
    nodes = [
        *(machine(f"full-{number}", used={"cpu": 3800}) for number in range(3)),
        *(machine(f"gpu-{number}", taints=(Taint("gpu", "yes"),)) for number in range(2)),
        machine("far", labels={ZONE: "z2"}),
    ]
    wants = Constraints(volume_zones=((ZONE, frozenset({"z1"})),))
    labelled = [replace(node, labels={ZONE: "z1"}) if node.name != "far" else node for node in nodes]
    reason = decide(Cluster(labelled), wants).reason
    assert reason is not None
    assert reason.message == (
        "0 of 6 nodes: 3 lack 0.5 cpu (best has 0.2), "
        "2 with untolerated taint gpu=yes:NoSchedule, 1 wrong zone for its volumes (zone z1)"
    )
    assert reason.cure == "release"
    assert reason.details["rejected"] == {"resources": 3, "taints": 2, "volume_zone": 1}


def test_a_task_runs_on_the_node_of_its_volume_and_waits_for_it():
    nodes = [machine("a"), machine("b", used={"cpu": 3800}), machine("c", status=NodeStatus.LOST)]
    data = [MountedVolume("data", node.id, node.name) for node in nodes]
    assert where(decide(Cluster(nodes), Constraints(volumes=(data[0], MountedVolume("new"))))) == ["a"]
    full = decide(Cluster(nodes), Constraints(volumes=(data[1],))).reason
    assert full is not None
    assert "1 elsewhere: volume data is on node b, which is full" in full.message
    assert full.cure == "release"
    lost = decide(Cluster(nodes), Constraints(volumes=(data[2],))).reason
    assert lost is not None
    assert "2 elsewhere: volume data is on node c, which is lost" in lost.message


def test_a_task_with_a_new_volume_needs_storage_for_both():
    small, large = (replace(machine(name), allocatable={"cpu": 4000, "storage": size}) for name, size in SIZES)
    brings = Constraints(volumes=(MountedVolume("data"),), volume_bytes=80)
    assert where(decide(Cluster([small, large]), brings)) == ["large"]
    reason = decide(Cluster([small]), brings).reason
    assert reason is not None
    assert reason.code == "insufficient-resources"
