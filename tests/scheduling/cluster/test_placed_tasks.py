"""What runs where is counted as it comes and goes; a question that was asked once stays current."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from mooring.model.constraints import Constraints, HostPort, PreferredTasks, TaskTerm
from mooring.model.labels import Selector, equal_to
from mooring.model.nodes import Node
from mooring.scheduling import Cluster
from mooring.scheduling.placed import Matcher, Placed, matcher_of, matcher_of_all

WEB = Constraints(labels=(("app", "web"),))
OURS = frozenset({"default"})
TERM = TaskTerm("zone", equal_to({"app": "web"}))


def test_counts_asked_before_and_after_are_the_same():
    random = Random(1)
    kinds = [
        Constraints(labels=labels, project=project)
        for labels in ((), (("app", "web"),), (("app", "db"),))
        for project in ("default", "other")
    ]
    early = Placed(8)
    matchers = [
        Matcher(Selector(), OURS),
        Matcher(equal_to({"app": "web"}), OURS),
        Matcher(equal_to({"app": "web"}), frozenset(), Selector()),
        Matcher(None, OURS),
        Matcher(Selector(), OURS, staying=True),
    ]
    for matcher in matchers:
        early.counts(matcher)
    late = Placed(8)
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


def test_more_cannot_leave_than_came():
    placed = Placed(4)
    placed.add(1, WEB)
    with pytest.raises(ValueError, match="fewer than 2"):
        placed.remove(1, WEB, 2)


def test_terms_that_placed_tasks_carry_are_counted_per_row_and_stay_known():
    placed = Placed(4)
    before = placed.vocabulary
    carrier = Constraints(anti_affinity=(TERM,), preferred_tasks=(PreferredTasks(3, TERM),))
    placed.add(2, carrier, 2)
    assert placed.vocabulary > before
    ((term, project, counts),) = placed.owners("anti_affinity")
    assert (term, project, counts.tolist()) == (TERM, "default", [0, 0, 2, 0])
    placed.clear(2)
    ((_, _, counts),) = placed.owners("preferred_tasks")
    assert not counts.any()


def test_all_terms_must_mean_the_same_task():
    other = TaskTerm("rack", equal_to({"tier": "front"}))
    placed = Placed(4)
    placed.add(0, WEB)
    placed.add(1, Constraints(labels=(("app", "web"), ("tier", "front"))))
    assert placed.counts(matcher_of_all((TERM, other), "default")).tolist() == [0, 1, 0, 0]
    assert placed.counts(matcher_of(TERM, "default")).tolist() == [1, 1, 0, 0]


def test_project_labels_may_come_later():
    placed = Placed(4)
    placed.add(0, Constraints(project="theirs"))
    matcher = Matcher(Selector(), frozenset(), equal_to({"team": "one"}))
    assert placed.counts(matcher).sum() == 0
    placed.label_project("theirs", {"team": "one"})
    assert placed.counts(matcher).tolist() == [1, 0, 0, 0]


def test_everything_grows_with_the_columns_and_leaves_with_the_node():
    nodes = [Node(name=f"n{number}", labels={"zone": "a"}) for number in range(100)]
    cluster = Cluster(nodes[:10])
    constraints = Constraints(labels=WEB.labels, anti_affinity=(TERM,), host_ports=(HostPort(80),))
    cluster.tell_tasks(nodes[0].id, [(constraints, 2)])
    matcher = matcher_of(TERM, "default")
    assert cluster.placed.counts(matcher).sum() == 2
    codes, _ = cluster.domains("zone")
    for node in nodes[10:]:
        cluster.upsert(node)
    assert len(cluster.placed.counts(matcher)) == len(cluster.domains("zone")[0]) == cluster.capacity > len(codes)
    assert cluster.placed.conflicts(HostPort(80)).sum() == 2
    cluster.remove(nodes[0].id)
    assert cluster.placed.counts(matcher).sum() == 0
    assert cluster.placed.conflicts(HostPort(80)).sum() == 0
    assert int((cluster.domains("zone")[0] >= 0).sum()) == 99


def test_what_is_told_replaces_what_was_assumed():
    cluster = Cluster([Node(name="a", allocatable={"cpu": 1000})])
    matcher = Matcher(Selector(), OURS)
    cluster.assume(cluster.rows, cluster.demand((("cpu", 100),)), WEB)
    assert cluster.placed.counts(matcher)[0] == 1
    cluster.tell_tasks(cluster.node(0).id, [(WEB, 1)])
    assert cluster.placed.counts(matcher)[0] == 1
    cluster.tell_tasks(cluster.node(0).id, [])
    assert cluster.placed.counts(matcher)[0] == 0
