"""The operations on the size of pools: node templates, requests for nodes, and advice."""

from __future__ import annotations

from mooring.client.operation import Operation, given, segment
from mooring.wire.scaling import ScalingView, TemplateList, TemplateRequest, TemplateView


def node_templates(pool: str) -> Operation[TemplateList]:
    """The kinds of nodes that a pool can be given more of."""
    return Operation("GET", f"/api/pools/{segment(pool)}/templates", TemplateList)


def put_node_template(pool: str, name: str, request: TemplateRequest) -> Operation[TemplateView]:
    """Make a template, or another of one that there is."""
    return Operation("PUT", _path(pool, name), TemplateView, body=request)


def remove_node_template(pool: str, name: str) -> Operation[None]:
    return Operation("DELETE", _path(pool, name), type(None))


def scaling(*, pool: str | None = None, limit: int | None = None) -> Operation[ScalingView]:
    """Requests for nodes, work that none are asked for and why, and nodes that may go."""
    return Operation("GET", "/api/scaling", ScalingView, query=given(pool=pool, limit=limit))


def _path(pool: str, name: str) -> str:
    return f"/api/pools/{segment(pool)}/templates/{segment(name)}"
