"""Placed tasks are counted as they are added and removed; counts stay current once requested."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mooring.model.labels import Selector, equal_to
from mooring.model.nodes.node import Node
from mooring.model.workloads.constraints import (
    Constraints,
    HostPort,
    PreferredTasks,
    TaskTerm,
)
from mooring.scheduling import Cluster
from mooring.scheduling.cluster.placed_tasks import (
    Matcher,
    PlacedTasks,
    matcher_of,
    matcher_of_all,
)

WEB = Constraints(labels=(("app", "web"),))
OURS = frozenset({"default"})
TERM = TaskTerm("zone", equal_to({"app": "web"}))


def test_occupied_ports_stay_when_the_tasks_of_a_row_are_set_again_and_leave_with_the_node():
    used, foreign = HostPort(2000), HostPort(2001)
    cluster = Cluster([Node(name="a", port_range=(2000, 2002), occupied_ports=(used, foreign))])
    placed = cluster.placed_tasks
    cluster.set_tasks(cluster.node(0).id, [(Constraints(host_ports=(used,)), 1)])
    assert (placed.range_used[0], placed.conflicts(used)[0], placed.conflicts(foreign)[0]) == (2, 2, 1)
    cluster.set_tasks(cluster.node(0).id, [])
    assert placed.lowest_free_ports(0, 3) == (2002,)
    copied = Cluster([cluster.node(0)])
    copied.placed_tasks.copy_row(0, placed, 0)
    assert copied.placed_tasks.conflicts(foreign)[0] == 1
    cluster.remove(cluster.node(0).id)
    assert (placed.range_used[0], placed.conflicts(foreign)[0]) == (0, 0)


def test_counts_are_the_same_whether_requested_before_or_after_changes():
    random = Random(1)
    kinds = [
        Constraints(labels=labels, project=project)
        for labels in ((), (("app", "web"),), (("app", "db"),))
        for project in ("default", "other")
    ]
    early = PlacedTasks(8)
    matchers = [
        Matcher(Selector(), OURS),
        Matcher(equal_to({"app": "web"}), OURS),
        Matcher(equal_to({"app": "web"}), frozenset(), Selector()),
        Matcher(None, OURS),
        Matcher(Selector(), OURS, staying=True),
    ]
    for matcher in matchers:
        early.counts(matcher)
    late = PlacedTasks(8)
    present: list[tuple[int, Constraints, bool]] = []
    for _ in range(300):
        if present and random.random() < 0.4:
            row, kind, leaving = present.pop(random.randrange(len(present)))
            for placed in (early, late):
                placed.remove(row, kind, leaving=leaving)
        else:
            row, kind, leaving = random.randrange(8), random.choice(kinds), random.random() < 0.2
            present.append((row, kind, leaving))
            for placed in (early, late):
                placed.add(row, kind, leaving=leaving)
    for matcher in matchers:
        assert np.array_equal(early.counts(matcher), late.counts(matcher))
    assert early.counts(matchers[0]).sum() == sum(kind.project == "default" for _, kind, _ in present)
    assert early.counts(matchers[3]).sum() == 0


def test_removing_more_tasks_than_were_added_is_an_error():
    placed = PlacedTasks(4)
    placed.add(1, WEB)
    with pytest.raises(ValueError, match="fewer than 2"):
        placed.remove(1, WEB, 2)


def test_terms_of_placed_tasks_are_counted_per_row_and_stay_known():
    placed = PlacedTasks(4)
    before = placed.vocabulary
    carrier = Constraints(anti_affinity=(TERM,), preferred_tasks=(PreferredTasks(3, TERM),))
    placed.add(2, carrier, 2)
    assert placed.vocabulary > before
    ((term, project, counts),) = placed.terms("anti_affinity")
    assert (term, project, counts.tolist()) == (TERM, "default", [0, 0, 2, 0])
    placed.clear(2)
    ((_, _, counts),) = placed.terms("preferred_tasks")
    assert not counts.any()


def test_all_terms_must_match_the_same_task():
    other = TaskTerm("rack", equal_to({"tier": "front"}))
    placed = PlacedTasks(4)
    placed.add(0, WEB)
    placed.add(1, Constraints(labels=(("app", "web"), ("tier", "front"))))
    assert placed.counts(matcher_of_all((TERM, other), "default")).tolist() == [0, 1, 0, 0]
    assert placed.counts(matcher_of(TERM, "default")).tolist() == [1, 1, 0, 0]


def test_project_labels_may_be_set_later():
    placed = PlacedTasks(4)
    placed.add(0, Constraints(project="theirs"))
    matcher = Matcher(Selector(), frozenset(), equal_to({"team": "one"}))
    assert placed.counts(matcher).sum() == 0
    placed.label_project("theirs", {"team": "one"})
    assert placed.counts(matcher).tolist() == [1, 0, 0, 0]


def test_counts_grow_with_the_columns_and_end_with_the_node():
    nodes = [Node(name=f"n{number}", labels={"zone": "a"}) for number in range(100)]
    cluster = Cluster(nodes[:10])
    constraints = Constraints(labels=WEB.labels, anti_affinity=(TERM,), host_ports=(HostPort(80),))
    cluster.set_tasks(nodes[0].id, [(constraints, 2)])
    matcher = matcher_of(TERM, "default")
    assert cluster.placed_tasks.counts(matcher).sum() == 2
    codes, _ = cluster.domains("zone")
    for node in nodes[10:]:
        cluster.upsert(node)
    assert len(cluster.placed_tasks.counts(matcher)) == len(cluster.domains("zone")[0]) == cluster.capacity > len(codes)
    assert cluster.placed_tasks.conflicts(HostPort(80)).sum() == 2
    cluster.remove(nodes[0].id)
    assert cluster.placed_tasks.counts(matcher).sum() == 0
    assert cluster.placed_tasks.conflicts(HostPort(80)).sum() == 0
    assert int((cluster.domains("zone")[0] >= 0).sum()) == 99


def test_set_tasks_replaces_assumed_tasks():
    cluster = Cluster([Node(name="a", allocatable={"cpu": 1000})])
    matcher = Matcher(Selector(), OURS)
    cluster.assume(cluster.rows, cluster.demand((("cpu", 100),)), WEB)
    assert cluster.placed_tasks.counts(matcher)[0] == 1
    cluster.set_tasks(cluster.node(0).id, [(WEB, 1)])
    assert cluster.placed_tasks.counts(matcher)[0] == 1
    cluster.set_tasks(cluster.node(0).id, [])
    assert cluster.placed_tasks.counts(matcher)[0] == 0
