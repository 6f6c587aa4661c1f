"""Projects and their members: for the admins of their domain, members for those of the project too."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, User, named
from mooring.api.lookup.tenants import OfDomain, find_domain, find_project
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import (
    Action,
    Target,
    may,
    require,
)
from mooring.model.tenancy.tenants import Role
from mooring.store.core.engine import Connection
from mooring.store.tenancy import memberships, projects, users
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.memberships import Member
from mooring.store.tenancy.projects import Project
from mooring.wire.fields import Name
from mooring.wire.tenancy.tenants import (
    MemberRequest,
    MemberView,
    ProjectRequest,
    ProjectView,
    TenantChange,
)

router = APIRouter(prefix="/api/projects", tags=["tenants"], responses=problems(401, 422, 503))


@router.post("", status_code=201, operation_id="create_project", responses=problems(403, 404, 409))
async def create_project(services: Served, principal: User, new: ProjectRequest) -> ProjectView:
    async def work(connection: Connection) -> Project:
        domain = await find_domain(connection, principal, new.domain, Action.CHANGE_PROJECT)
        return await projects.create(connection, domain, new.name, actor=Actor.of(principal), now=services.now())

    return _view(await services.database.write(work))


@router.get("", operation_id="list_projects", responses=problems(404))
async def list_projects(
    services: Served,
    principal: User,
    domain: Annotated[Name | None, Query(description="Only those of this domain")] = None,
) -> list[ProjectView]:
    """List the projects that the caller may see."""
    async with services.database.read() as connection:
        domain_id = None
        if domain is not None or not may(principal, Action.SEE_PROJECT, Target()):
            domain_id = (await find_domain(connection, principal, domain)).id
        found = await projects.every(connection, domain_id=domain_id)
    return [_view(project) for project in found if may(principal, Action.SEE_PROJECT, project.target)]


@router.get("/{name}", operation_id="get_project", responses=problems(404))
async def get_project(services: Served, principal: User, name: str, domain: OfDomain = None) -> ProjectView:
    async with services.database.read() as connection:
        return _view(await find_project(connection, principal, domain, name))


@router.patch("/{name}", operation_id="change_project", responses=problems(403, 404, 409))
async def change_project(
    services: Served, principal: User, name: str, change: TenantChange, domain: OfDomain = None
) -> ProjectView:
    """Activate or deactivate a project, or set its policy. An inactive project accepts no new work."""

    async def work(connection: Connection) -> Project:
        found = await find_project(connection, principal, domain, name, Action.CHANGE_PROJECT)
        if change.policy is not None:
            require(principal, Action.CHANGE_POLICIES)
        return await projects.change(
            connection,
            found.domain,
            name,
            active=change.active,
            policy=change.policy,
            actor=Actor.of(principal),
            now=services.now(),
        )

    return _view(await services.database.write(work))


@router.delete("/{name}", status_code=204, operation_id="remove_project", responses=problems(403, 404, 409))
async def remove_project(services: Served, principal: User, name: str, domain: OfDomain = None) -> None:
    """Remove a project that has no workloads and is no user's default."""

    async def work(connection: Connection) -> None:
        found = await find_project(connection, principal, domain, name, Action.CHANGE_PROJECT)
        await projects.remove(connection, found.domain, name, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


@router.get("/{name}/members", operation_id="list_members", responses=problems(403, 404))
async def list_members(services: Served, principal: User, name: str, domain: OfDomain = None) -> list[MemberView]:
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, name, Action.SEE_MEMBERS)
        return [_member(member) for member in await memberships.of_project(connection, found.id)]


@router.post("/{name}/members", operation_id="add_member", responses=problems(403, 404, 409))
async def add_member(
    services: Served, principal: User, name: str, new: MemberRequest, domain: OfDomain = None
) -> list[MemberView]:
    """Add a member to a project or change a member's role; return all members."""

    async def work(connection: Connection) -> list[Member]:
        project = await find_project(connection, principal, domain, name, Action.CHANGE_MEMBERS)
        user = await users.find(connection, new.username)
        await memberships.add(connection, project, user, Role(new.role), actor=Actor.of(principal), now=services.now())
        return await memberships.of_project(connection, project.id)

    return [_member(member) for member in await services.database.write(work)]


@router.delete(
    "/{name}/members/{username}", status_code=204, operation_id="remove_member", responses=problems(403, 404, 409)
)
async def remove_member(services: Served, principal: User, name: str, username: str, domain: OfDomain = None) -> None:
    """End a membership and the keypairs that belong to it."""

    async def work(connection: Connection) -> None:
        project = await find_project(connection, principal, domain, name, Action.CHANGE_MEMBERS)
        # Of a user who does not exist it says the same as of one who is no member.
        user = await users.find_member(connection, project, named("user", username))
        await memberships.remove(connection, project, user, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


def _view(project: Project) -> ProjectView:
    return ProjectView(
        name=project.name,
        domain=project.domain,
        active=project.active,
        policy=project.policy,
        members=project.members,
        created_at=project.created_at,
        version=project.version,
    )


def _member(member: Member) -> MemberView:
    return MemberView(
        username=member.username, role=member.role.value, active=member.active, created_at=member.created_at
    )
