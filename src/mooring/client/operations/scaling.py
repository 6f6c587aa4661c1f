"""Operations on autoscaling: node templates, requests for nodes, recommendations."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, given, segment
from mooring.wire.cluster.scaling import (
    ScalingView,
    TemplateList,
    TemplateRequest,
    TemplateView,
)


def node_templates(pool: str) -> Operation[TemplateList]:
    """The node templates of a pool."""
    return Operation("GET", f"/api/pools/{segment(pool)}/templates", TemplateList)


def put_node_template(pool: str, name: str, request: TemplateRequest) -> Operation[TemplateView]:
    """Create or replace a node template."""
    return Operation("PUT", _path(pool, name), TemplateView, body=request)


def remove_node_template(pool: str, name: str) -> Operation[None]:
    return Operation("DELETE", _path(pool, name), type(None))


def scaling(*, pool: str | None = None, limit: int | None = None) -> Operation[ScalingView]:
    """Requests for nodes, work without one and the reasons, and unneeded nodes."""
    return Operation("GET", "/api/scaling", ScalingView, query=given(pool=pool, limit=limit))


def _path(pool: str, name: str) -> str:
    return f"/api/pools/{segment(pool)}/templates/{segment(name)}"
