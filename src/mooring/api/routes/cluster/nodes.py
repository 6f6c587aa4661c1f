"""Nodes: everybody sees them, admins change them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query

from mooring.api.auth.request_access import Served, is_name, needs
from mooring.api.middleware.errors import problems
from mooring.api.serializers import node_view
from mooring.api.services import Services
from mooring.model.errors import NotFound
from mooring.model.tenancy.access import Action, not_there
from mooring.model.tenancy.tenants import Principal
from mooring.store.views import nodes as views
from mooring.wire.cluster.nodes import (
    DrainPreview,
    DrainRequest,
    NodeChange,
    NodeList,
    NodeRequest,
    NodeView,
    TaintsChange,
)
from mooring.wire.fields import Name

router = APIRouter(prefix="/api/nodes", tags=["nodes"], responses=problems(401, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]
Admin = Annotated[Principal, needs(Action.CHANGE_NODES)]
_NO_LIMIT = DrainRequest()


@router.get("", operation_id="list_nodes")
async def list_nodes(services: Served, _principal: Reader, pool: Name | None = None) -> NodeList:
    """List all nodes with their capacity and allocations."""
    async with services.database.read() as connection:
        rows = await views.all_nodes(connection, pool=pool)
    return NodeList(nodes=[node_view(row) for row in rows])


@router.post("", status_code=201, operation_id="add_node", responses=problems(403, 404, 409))
async def add_node(services: Served, admin: Admin, request: NodeRequest) -> NodeView:
    """Add a simulated node; real ones join through `mooring agent`."""
    await services.nodes.add_simulated(admin, request)
    return await _view(services, request.name)


@router.get("/{name}", operation_id="get_node", responses=problems(404))
async def get_node(services: Served, _principal: Reader, name: str) -> NodeView:
    return await _view(services, name)


@router.get("/{name}/drain", operation_id="preview_drain", responses=problems(403, 404))
async def preview_drain(
    services: Served,
    admin: Admin,
    name: str,
    timeout: Annotated[bool, Query(description="With a timeout, at which the remaining tasks are ended")] = False,
) -> DrainPreview:
    """Show which tasks a drain of the node would move, and the nodes that would take them now. Nothing changes."""
    services.rates.query(admin)
    return await services.queries.drain_preview(_checked(name), timeout=timeout)


@router.post("/{name}/drain", operation_id="drain_node", responses=problems(403, 404, 409))
async def drain_node(
    services: Served, admin: Admin, name: str, request: Annotated[DrainRequest, Body()] = _NO_LIMIT
) -> NodeView:
    """Drain a node: place nothing new there and move its tasks elsewhere; with a timeout, end the remaining ones."""
    await services.nodes.drain(admin, _checked(name), request)
    return await _view(services, name)


@router.post("/{name}/resume", operation_id="resume_node", responses=problems(403, 404, 409))
async def resume_node(services: Served, admin: Admin, name: str) -> NodeView:
    """Place tasks on the node again."""
    await services.nodes.resume(admin, _checked(name))
    return await _view(services, name)


@router.patch("/{name}", operation_id="change_node", responses=problems(403, 404))
async def change_node(services: Served, admin: Admin, name: str, request: NodeChange) -> NodeView:
    """Set labels and the region of a node; placement sees them from the next pass on."""
    await services.nodes.change(admin, _checked(name), request)
    return await _view(services, name)


@router.patch("/{name}/taints", operation_id="change_taints", responses=problems(403, 404))
async def change_taints(services: Served, admin: Admin, name: str, request: TaintsChange) -> NodeView:
    """Add taints to a node and remove others. Taints that Mooring set itself stay."""
    await services.nodes.change_taints(admin, _checked(name), request)
    return await _view(services, name)


@router.delete("/{name}", status_code=204, operation_id="remove_node", responses=problems(403, 404, 409))
async def remove_node(
    services: Served,
    admin: Admin,
    name: str,
    force: Annotated[bool, Query(description="Even if tasks are still charged to it")] = False,
) -> None:
    """Remove a node from the cluster permanently."""
    await services.nodes.remove(admin, _checked(name), force)


def _checked(name: str) -> str:
    if not is_name(name):
        raise _unknown(name)
    return name


async def _view(services: Services, name: str) -> NodeView:
    async with services.database.read() as connection:
        row = await views.by_name(connection, _checked(name))
    if row is None:
        raise _unknown(name)
    return node_view(row)


def _unknown(name: str) -> NotFound:
    return not_there(f"node {name[:63]!r}")
