"""Requeue hints of filters, by change. The conformance tests run the cases of Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mooring.model.labels import Operator, Requirement, equal_to
from mooring.model.nodes.node import Node
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    NodeTerm,
    Spread,
    Taint,
    TaskTerm,
    Toleration,
)
from mooring.scheduling import Cluster
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape, shape_of
from mooring.scheduling.plugins.filters.host_ports import HostPortsFilter
from mooring.scheduling.plugins.filters.licence import LicenceFilter
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.taints import TaintsFilter
from mooring.scheduling.plugins.filters.task_affinity import TaskAffinityFilter
from mooring.scheduling.plugins.filters.task_anti_affinity import TaskAntiAffinityFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.plugins.protocols import DependsOn, Filter, Rejection
from mooring.scheduling.queue.requeue_hints import (
    Change,
    Described,
    NodeChange,
    OwnChange,
    TaskChange,
    Watch,
    worth_trying,
)
from tests.scheduling.builders import id_of, node, workload

WEB, DB = (("app", "web"),), (("app", "db"),)
BY_WEB = TaskTerm("zone", equal_to({"app": "web"}))
BY_DB = TaskTerm("zone", equal_to({"app": "db"}))
EVEN = Spread("zone", 1, equal_to({"app": "web"}))


def worth(
    filters: Filter | Sequence[Filter], change: Change, cluster: Cluster | None = None, **constraints: object
) -> bool:
    given = Cluster() if cluster is None else cluster
    waiting = replace(workload("w").cpu(2).workload, constraints=Constraints(**constraints))  # type: ignore[arg-type]
    asked = filters if isinstance(filters, Sequence) else (filters,)
    return worth_trying(asked, shape_of(waiting, given), given, change)


def task(cpu: int = 0, **constraints: object) -> Described:
    return Described(Constraints(**constraints), {"cpu": cpu * 1000})  # type: ignore[arg-type]


def placed_at(zone: str | None) -> Node:
    return replace(node("n").cpu(4).node, labels={} if zone is None else {"zone": zone})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, 1, False),
        (None, 2, True),
        (1, 4, True),
        (4, 1, False),
        # Nobody knows here how full it is: more than before may be enough.
        (3, 4, True),
        (4, 4, False),
    ],
)
def test_a_node_cures_a_lack_of_resources_if_it_fits_the_task_and_offers_more_than_before(
    before: int | None, after: int, expected: bool
):
    change = NodeChange(None if before is None else node("n").cpu(before).node, node("n").cpu(after).node)
    assert worth((ResourcesFilter(), TasksPerNodeFilter()), change) is expected


def test_more_tasks_allowed_on_a_node_cure_its_having_too_many():
    few, more = node("n").cpu(4).tasks(0, at_most=1).node, node("n").cpu(4).tasks(0, at_most=2).node
    assert worth(TasksPerNodeFilter(), NodeChange(few, more))
    assert not worth(TasksPerNodeFilter(), NodeChange(more, few))
    assert not worth((ResourcesFilter(), TasksPerNodeFilter()), NodeChange(few, replace(more, allocatable={})))


def test_a_task_that_releases_a_requested_slot_cures_a_lack_of_resources():
    assert worth(ResourcesFilter(), TaskChange(task(1), None))
    assert worth(ResourcesFilter(), TaskChange(task(2), task(1)))
    assert not worth(ResourcesFilter(), TaskChange(task(1), task(2)))
    assert not worth(ResourcesFilter(), TaskChange(None, task(1)))
    shrunk = TaskChange(Described(Constraints(), {"gpu": 2}), Described(Constraints(), {"gpu": 1}))
    assert not worth(ResourcesFilter(), shrunk)


def test_smaller_work_may_fit():
    assert worth(ResourcesFilter(), OwnChange(task(2), task(1)))
    assert not worth(ResourcesFilter(), OwnChange(task(1), task(2)))


def test_a_removed_taint_and_a_new_toleration_requeue_the_work():
    tainted = replace(node("n").node, taints=(Taint("dedicated", "db"),))
    assert worth(TaintsFilter(), NodeChange(tainted, node("n").node))
    assert not worth(TaintsFilter(), NodeChange(node("n").node, tainted))
    assert not worth(TaintsFilter(), NodeChange(None, tainted))
    assert not worth(TaintsFilter(), TaskChange(task(1), None))
    assert worth(TaintsFilter(), OwnChange(task(), task(tolerations=(Toleration("dedicated", exists=True),))))
    assert not worth(TaintsFilter(), OwnChange(task(), task(labels=WEB)))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), None, False),
        ((HostPort(81),), None, False),
        ((HostPort(80),), None, True),
        ((HostPort(80, address="10.0.0.1"),), None, True),
        ((HostPort(80, "UDP"),), None, False),
        ((HostPort(80),), (HostPort(80),), False),
        ((HostPort(80),), (HostPort(81),), True),
    ],
)
def test_a_port_is_cured_by_the_task_that_gives_it_up(
    before: tuple[HostPort, ...], after: tuple[HostPort, ...] | None, expected: bool
):
    change = TaskChange(task(host_ports=before), None if after is None else task(host_ports=after))
    assert worth(HostPortsFilter(), change, host_ports=(HostPort(80),)) is expected


def test_any_released_port_requeues_work_that_needs_ports_of_the_range():
    assert worth(HostPortsFilter(), TaskChange(task(host_ports=(HostPort(2000),)), None), ports_wanted=1)


def test_a_licence_is_cured_by_a_session_that_ends():
    assert worth(LicenceFilter(), TaskChange(task(licence="personal"), None), licence="personal")
    assert not worth(LicenceFilter(), TaskChange(task(), None), licence="personal")
    licensed = replace(node("n").node, licence="personal")
    assert worth(LicenceFilter(), NodeChange(node("n").node, licensed), licence="personal")
    assert not worth(LicenceFilter(), NodeChange(licensed, licensed), licence="personal")


def test_one_task_must_match_every_term_of_an_affinity():
    both = (TaskTerm("host", equal_to({"a": "1"})), TaskTerm("host", equal_to({"b": "1"})))
    one, all_of_them = task(labels=(("a", "1"),)), task(labels=(("a", "1"), ("b", "1")))
    assert not worth(TaskAffinityFilter(), TaskChange(None, one), affinity=both)
    assert worth(TaskAffinityFilter(), TaskChange(one, all_of_them), affinity=both)
    assert not worth(TaskAffinityFilter(), TaskChange(all_of_them, one), affinity=both)


def test_work_that_may_be_first_of_its_group_is_requeued_when_the_last_of_the_group_ends():
    leaves = TaskChange(task(labels=WEB), None)
    assert not worth(TaskAffinityFilter(), leaves, affinity=(BY_WEB,))
    assert worth(TaskAffinityFilter(), leaves, affinity=(BY_WEB,), labels=WEB)
    moves = NodeChange(placed_at("a"), placed_at(None))
    assert not worth(TaskAffinityFilter(), moves, affinity=(BY_WEB,))
    assert worth(TaskAffinityFilter(), moves, affinity=(BY_WEB,), labels=WEB)


def test_one_anti_affinity_term_is_enough_to_exclude_a_node():
    leaves = TaskChange(task(labels=DB), None)
    assert worth(TaskAntiAffinityFilter(), leaves, anti_affinity=(BY_WEB, BY_DB))


def test_the_end_of_a_task_with_anti_affinity_cures_a_rejection():
    cluster = Cluster([placed_at("a")])
    loner = Constraints(anti_affinity=(BY_WEB,))
    cluster.set_tasks(id_of("n"), [(loner, 1)])
    leaves = TaskChange(Described(loner, {}), None)
    assert worth(TaskAntiAffinityFilter(), leaves, cluster, labels=WEB)
    assert not worth(TaskAntiAffinityFilter(), leaves, cluster, labels=DB)


def test_a_spread_is_cured_by_another_set_of_nodes_that_count():
    there, elsewhere = placed_at("a"), placed_at("b")
    assert worth(TopologySpreadFilter(), NodeChange(there, elsewhere), spread=(EVEN,))
    assert worth(TopologySpreadFilter(), NodeChange(there, None), spread=(EVEN,))
    assert not worth(TopologySpreadFilter(), NodeChange(there, there), spread=(EVEN,))
    ssd = replace(there, labels={"zone": "a", "disk": "ssd"})
    assert not worth(TopologySpreadFilter(), NodeChange(there, ssd), spread=(EVEN,))
    wanted = (NodeTerm((Requirement("disk", Operator.IN, ("ssd",)),)),)
    assert worth(TopologySpreadFilter(), NodeChange(there, ssd), spread=(EVEN,), node_terms=wanted)


def test_a_spread_is_cured_by_labels_and_tolerations_of_the_work_itself():
    assert worth(TopologySpreadFilter(), OwnChange(task(), task(labels=WEB)), spread=(EVEN,))
    assert not worth(TopologySpreadFilter(), OwnChange(task(), task(labels=DB)), spread=(EVEN,))
    tolerant = OwnChange(task(), task(tolerations=(Toleration(exists=True),)))
    assert not worth(TopologySpreadFilter(), tolerant, spread=(EVEN,))
    assert worth(TopologySpreadFilter(), tolerant, spread=(replace(EVEN, honor_node_taints=True),))


class Silent:
    """A user's filter without hints."""

    name = "silent"

    def __init__(self, depends_on: DependsOn) -> None:
        self.depends_on = depends_on

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return np.array([cluster.node(row).labels.get("open") == "yes" for row in rows.tolist()], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("closed", f"{len(rows)} closed")


def test_without_hints_what_a_filter_depends_on_decides():
    open_node, closed = replace(node("n").node, labels={"open": "yes"}), node("n").node
    leaves = TaskChange(task(1), None)
    assert worth(Silent("static"), NodeChange(closed, open_node))
    assert not worth(Silent("static"), NodeChange(open_node, open_node))
    assert not worth(Silent("static"), leaves)
    assert worth(Silent("row"), NodeChange(open_node, open_node))
    assert not worth(Silent("row"), NodeChange(closed, closed))
    assert worth(Silent("row"), leaves)
    assert worth(Silent("cluster"), NodeChange(open_node, None))
    assert worth(Silent("cluster"), leaves)
    assert worth(Silent("static"), OwnChange(task(1), task(2)))


class Failing(Silent):
    """A user's filter whose hints raise."""

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        raise RuntimeError("out of order")

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        raise RuntimeError("out of order")


def test_a_hint_that_fails_is_a_yes():
    assert worth(Failing("cluster"), TaskChange(task(1), None))
    assert worth(Failing("cluster"), NodeChange(node("n").node, None))
