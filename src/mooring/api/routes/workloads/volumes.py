"""Volumes: folders of a project that outlive its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.auth.request_access import Served, User, named
from mooring.api.lookup.tenants import find_project
from mooring.api.middleware.errors import problems
from mooring.api.services import Services
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import sight
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.volumes import STORAGE
from mooring.store.tenancy.projects import Project
from mooring.store.views import volumes as views
from mooring.store.views.volumes import MountingWorkload
from mooring.store.workloads.volumes import Volume
from mooring.wire.fields import Name
from mooring.wire.workloads.volumes import NewVolumeRequest, VolumeUse, VolumeView

router = APIRouter(prefix="/api/volumes", tags=["volumes"], responses=problems(401, 422, 503))

OfProject = Annotated[Name | None, Query(description="Project (default: the caller's)")]
OfDomain = Annotated[Name | None, Query(description="Domain of the project (default: the caller's)")]


@router.post("", status_code=201, operation_id="create_volume", responses=problems(403, 404, 409))
async def create_volume(services: Served, principal: User, new: NewVolumeRequest) -> VolumeView:
    """Create a volume for a project. Its size counts as storage from now on."""
    [made] = await _views(services, principal, [await services.volumes.create(principal, new)])
    return made


@router.get("", operation_id="list_volumes", responses=problems(404))
async def list_volumes(
    services: Served,
    principal: User,
    project: OfProject = None,
    domain: OfDomain = None,
    node: Annotated[Name | None, Query(description="Only volumes on this node")] = None,
) -> list[VolumeView]:
    """List the volumes of one project, or of all that the caller may see."""
    of_project = await _project(services, principal, project, domain)
    return await _views(services, principal, await services.volumes.every(principal, of_project, node))


@router.get("/{name}", operation_id="get_volume", responses=problems(404))
async def get_volume(
    services: Served, principal: User, name: str, project: OfProject = None, domain: OfDomain = None
) -> VolumeView:
    of_project = await _project(services, principal, project, domain)
    found = await services.volumes.find(principal, of_project, named("volume", name))
    [shown] = await _views(services, principal, [found])
    return shown


@router.delete(
    "/{name}",
    status_code=202,
    operation_id="remove_volume",
    responses={204: {"description": "The volume is gone"}, **problems(403, 404, 409)},
)
async def remove_volume(
    services: Served, principal: User, name: str, project: OfProject = None, domain: OfDomain = None
) -> Response:
    """Remove a volume that nothing mounts: 204 if it is gone, 202 while its node has yet to delete it."""
    of_project = await _project(services, principal, project, domain)
    gone = await services.volumes.remove(principal, of_project, named("volume", name))
    return Response(status_code=204 if gone else 202)


async def _project(services: Services, principal: Principal, name: str | None, domain: str | None) -> Project | None:
    if name is None:
        return None
    async with services.database.read() as connection:
        return await find_project(connection, principal, domain, name)


async def _views(services: Services, principal: Principal, found: Sequence[Volume]) -> list[VolumeView]:
    async with services.database.read() as connection:
        uses = await views.uses(connection, [volume.id for volume in found], sight(principal))
    return [_view(volume, uses.get(volume.id, ())) for volume in found]


def _view(volume: Volume, uses: Iterable[MountingWorkload]) -> VolumeView:
    return VolumeView(
        id=volume.id,
        name=volume.name,
        project=volume.project,
        domain=volume.domain,
        pool=volume.pool,
        size=slot_type(STORAGE).format(volume.size),
        shared=volume.shared,
        status=volume.status.value,
        node=volume.node,
        mounted_by=volume.mounted_by,
        uses=[VolumeUse(workload=use.workload, user=use.user, id=use.workload_id) for use in uses],
        created_by=volume.creator,
        created_at=volume.created_at,
    )
