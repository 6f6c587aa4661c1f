"""Pools that grow and shrink: node templates, requests for nodes, and nodes that may go. For admins."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, named, needs
from mooring.api.middleware.errors import problems
from mooring.model.nodes.node_templates import ScaleRequest
from mooring.model.resources.slots import format_amounts
from mooring.model.tenancy.access import Action, not_there
from mooring.model.tenancy.tenants import Principal
from mooring.store.nodes import pools
from mooring.store.scaling import node_templates
from mooring.store.scaling.node_templates import StoredTemplate
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.views import scaling as views
from mooring.wire.cluster.scaling import (
    AdviceView,
    PackingView,
    ScaleRequestView,
    ScalingView,
    TemplateDevice,
    TemplateList,
    TemplateRequest,
    TemplateTaint,
    TemplateView,
    UnmetView,
)
from mooring.wire.fields import Name

router = APIRouter(prefix="/api", tags=["pools"], responses=problems(401, 403, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_SCALING)]
Admin = Annotated[Principal, needs(Action.CHANGE_POOLS)]


@router.get("/pools/{name}/templates", operation_id="list_node_templates", responses=problems(404))
async def list_templates(services: Served, _reader: Reader, name: str) -> TemplateList:
    """List the node templates of a pool."""
    async with services.database.read() as connection:
        if await pools.by_name(connection, named("pool", name)) is None:
            raise not_there(f"pool {name!r}")
        found = await node_templates.of_pool(connection, name)
    return TemplateList(templates=[_template_view(stored) for stored in found])


@router.put("/pools/{name}/templates/{template}", operation_id="put_node_template", responses=problems(404))
async def put_template(
    services: Served, admin: Admin, name: str, template: str, request: TemplateRequest
) -> TemplateView:
    """Create or replace a template. A resource controller that refused its nodes is asked again."""
    stored = await services.pools.put_template(
        named("pool", name), named("template", template), request, Actor.of(admin)
    )
    return _template_view(stored)


@router.delete(
    "/pools/{name}/templates/{template}",
    status_code=204,
    operation_id="remove_node_template",
    responses=problems(404),
)
async def remove_template(services: Served, admin: Admin, name: str, template: str) -> None:
    """Remove a node template. Its existing nodes stay."""
    named("pool", name)
    named("template", template)
    await services.database.write(
        lambda c: node_templates.remove(c, name, template, actor=Actor.of(admin), now=services.now())
    )


@router.get("/scaling", operation_id="show_scaling")
async def show_scaling(
    services: Served,
    _reader: Reader,
    pool: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of requests")] = 100,
) -> ScalingView:
    """Get requests for nodes, unmet demand with reasons, and nodes that can be removed."""
    async with services.database.read() as connection:
        found = await views.scaling(connection, pool=pool, limit=limit)
    return ScalingView(
        requests=[_request_view(request) for request in found.requests],
        unmet=[
            UnmetView(
                pool=of,
                workload_id=each.workload_id,
                workload=found.names.get(each.workload_id),
                code=each.code,
                message=each.message,
            )
            for of, each in found.unmet
        ],
        advice=[AdviceView(pool=of, node=each.node, step=each.step, since=each.since) for of, each in found.advice],
    )


def _template_view(stored: StoredTemplate) -> TemplateView:
    template = stored.template
    return TemplateView(
        name=template.name,
        pool=template.pool,
        resources=format_amounts(template.allocatable),
        labels=dict(template.labels),
        taints=[TemplateTaint(key=each.key, value=each.value, effect=each.effect) for each in template.taints],
        architecture=template.architecture,
        runtimes=sorted(template.runtimes),
        region=template.region,
        licence=template.licence,
        machine_image=template.machine_image,
        machine_image_version=template.machine_image_version,
        devices={
            slot: [TemplateDevice(index=each.index, model=each.model, memory=each.memory) for each in own]
            for slot, own in template.devices.items()
        },
        max_tasks=template.max_tasks,
        cost=template.cost,
        boot_seconds=template.boot_seconds,
        least=template.least,
        most=template.most,
        version=stored.version,
    )


def _request_view(request: ScaleRequest) -> ScaleRequestView:
    return ScaleRequestView(
        id=request.id,
        pool=request.pool,
        template=request.template,
        status=request.status,
        nodes=len(request.wanted),
        joined=request.joined,
        workloads=sorted({workload for node in request.wanted for workload in node}),
        packing=None if request.packing is None else PackingView(**asdict(request.packing)),
        attempts=request.attempts,
        next_attempt_at=request.next_attempt_at,
        error=request.error,
        created_at=request.created_at,
        delivered_at=request.delivered_at,
        expires_at=request.expires_at,
    )
