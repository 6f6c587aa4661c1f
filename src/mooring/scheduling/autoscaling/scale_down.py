"""Scale-down: idle nodes without a booking are drained first, then removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.nodes.node_templates import NodeTemplate, ScalingRules


class Step(StrEnum):
    DRAIN = "drain"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The use of a node, as far as scale-down depends on it."""

    id: UUID
    name: str
    template: str | None
    """The template that it was requested by; a node without a template is never removed."""
    idle_since: datetime | None
    """The start of its idle time; None while it has tasks."""
    booked: bool = False
    """A timeslot that is not over has capacity on it."""
    drained: bool = False
    """It accepts no new tasks."""


@dataclass(frozen=True, slots=True)
class Advice:
    node: NodeUse
    step: Step


def scale_down(
    nodes: Sequence[NodeUse],
    templates: Iterable[NodeTemplate],
    *,
    now: datetime,
    rules: ScalingRules | None = None,
    changed_at: datetime | None = None,
    wanted: bool = False,
) -> tuple[Advice, ...]:
    """Return the next step for each node that the pool can release: drained nodes first, then the most expensive.

    `changed_at`: the time of the pool's last change of size; `wanted`: pending workloads need more nodes.
    """
    rules = ScalingRules() if rules is None else rules
    if wanted or (changed_at is not None and now < changed_at + timedelta(seconds=rules.shrink_cooldown_seconds)):
        return ()
    known = {template.name: template for template in templates}
    left = Counter(node.template for node in nodes)
    in_pool = len(nodes)
    advice: list[Advice] = []
    idle = [(known[node.template], node) for node in nodes if node.template in known and _idle(node, now, rules)]
    idle.sort(key=lambda each: (not each[1].drained, -each[0].cost, each[1].name))
    for template, node in idle:
        if left[template.name] <= template.least or in_pool <= rules.least or node.booked:
            continue
        left[template.name] -= 1
        in_pool -= 1
        advice.append(Advice(node, Step.REMOVE if node.drained else Step.DRAIN))
    return tuple(advice)


def _idle(node: NodeUse, now: datetime, rules: ScalingRules) -> bool:
    return node.idle_since is not None and now >= node.idle_since + timedelta(seconds=rules.idle_seconds)
