"""Nodes that a pool can do without: idle, not booked, more than its least; drained before they go."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from mooring.model.nodes.node_templates import NodeTemplate, ScalingRules
from mooring.model.resources.slots import amounts
from mooring.scheduling.autoscaling.scale_down import NodeUse, Step, scale_down
from tests.scheduling.builders import NOW, id_of

SMALL = NodeTemplate("small", allocatable=amounts(cpu=4), cost=10, boot_seconds=1200)
LARGE = NodeTemplate("large", allocatable=amounts(cpu=16), cost=36)
RULES = ScalingRules(idle_seconds=600, shrink_cooldown_seconds=300)


def use(name: str, template: str | None = "small", *, idle_seconds: float | None = 600) -> NodeUse:
    idle_since = None if idle_seconds is None else NOW - timedelta(seconds=idle_seconds)
    return NodeUse(id_of(name), name, template, idle_since)


def advised(
    *nodes: NodeUse,
    small: NodeTemplate = SMALL,
    rules: ScalingRules = RULES,
    changed_at: datetime | None = None,
    wanted: bool = False,
) -> list[tuple[str, Step]]:
    advice = scale_down(nodes, [small, LARGE], now=NOW, rules=rules, changed_at=changed_at, wanted=wanted)
    return [(each.node.name, each.step) for each in advice]


def test_an_idle_node_is_drained_before_it_goes() -> None:
    assert advised(use("a")) == [("a", Step.DRAIN)]
    assert advised(replace(use("a"), drained=True)) == [("a", Step.REMOVE)]


def test_a_node_that_works_or_was_idle_for_a_moment_stays() -> None:
    assert advised(use("works", idle_seconds=None), use("moment", idle_seconds=599)) == []
    assert advised(replace(use("works", idle_seconds=None), drained=True)) == []


def test_a_node_of_no_template_stays() -> None:
    assert advised(use("own", None), use("unknown", "of another pool")) == []


def test_a_booked_node_stays() -> None:
    assert advised(replace(use("a"), booked=True), use("b")) == [("b", Step.DRAIN)]


def test_templates_and_the_pool_keep_their_least() -> None:
    nodes = [use("a"), use("b"), use("c", "large"), use("own", None)]
    assert advised(*nodes, small=replace(SMALL, least=1)) == [("c", Step.DRAIN), ("a", Step.DRAIN)]
    assert advised(*nodes, rules=replace(RULES, least=3)) == [("c", Step.DRAIN)]


def test_the_drained_go_first_then_the_most_expensive() -> None:
    nodes = [use("b"), use("a"), use("c", "large"), replace(use("d"), drained=True)]
    assert [name for name, _ in advised(*nodes)] == ["d", "c", "a", "b"]


def test_no_node_is_removed_while_work_waits_or_after_a_recent_change() -> None:
    assert advised(use("a"), wanted=True) == []
    assert advised(use("a"), changed_at=NOW - timedelta(seconds=299)) == []
    assert advised(use("a"), changed_at=NOW - timedelta(seconds=300)) == [("a", Step.DRAIN)]
