"""The match between joined nodes and the scale requests that asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import mean

from mooring.model.nodes.node import Node
from mooring.model.nodes.node_templates import OPEN, NodeTemplate, ScaleRequest


def expected(
    newcomers: Iterable[tuple[Node, datetime]],
    requests: Sequence[ScaleRequest],
    templates: Mapping[tuple[str, str], NodeTemplate],
) -> list[tuple[Node, ScaleRequest]]:
    """Return the new nodes that match a request, each with that request; `templates` is keyed by pool and name.

    Open requests come first, then those whose template is nearest to the node, then the oldest.
    """
    left = {request.id: len(request.coming) for request in requests}
    found: list[tuple[Node, ScaleRequest]] = []
    for node, joined_at in newcomers:
        fitting: list[tuple[bool, float, datetime, ScaleRequest]] = []
        for request in requests:
            template = templates.get((request.pool, request.template))
            if template is None or not left[request.id] or request.created_at > joined_at:
                continue
            if template.describes(node):
                closed = request.status not in OPEN
                fitting.append((closed, _excess(node, template), request.created_at, request))
        if fitting:
            *_, request = min(fitting, key=lambda each: each[:3])
            left[request.id] -= 1
            found.append((node, request))
    return found


def _excess(node: Node, template: NodeTemplate) -> float:
    """Return the mean ratio of the node's amounts to those of the template."""
    return mean(node.allocatable[slot] / amount for slot, amount in template.allocatable.items() if amount)
