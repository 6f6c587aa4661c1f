"""Domains, for admins; members of a domain can see it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import (
    Served,
    User,
    needs,
)
from mooring.api.lookup.tenants import find_domain
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import (
    Action,
    Target,
    may,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Connection
from mooring.store.tenancy import domains
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.domains import Domain
from mooring.wire.tenancy.tenants import DomainRequest, DomainView, TenantChange

router = APIRouter(prefix="/api/domains", tags=["tenants"], responses=problems(401, 422, 503))

Admin = Annotated[Principal, needs(Action.CHANGE_DOMAIN)]


@router.post("", status_code=201, operation_id="create_domain", responses=problems(403, 409))
async def create_domain(services: Served, admin: Admin, new: DomainRequest) -> DomainView:
    made = await services.database.write(
        lambda c: domains.create(c, new.name, actor=Actor.of(admin), now=services.now())
    )
    return _view(made)


@router.get("", operation_id="list_domains")
async def list_domains(services: Served, principal: User) -> list[DomainView]:
    """List the domains that the caller may see."""
    everything = may(principal, Action.SEE_DOMAIN, Target())
    async with services.database.read() as connection:
        found = await domains.every(connection, only=None if everything else principal.domain_id)
    return [_view(domain) for domain in found]


@router.get("/{name}", operation_id="get_domain", responses=problems(404))
async def get_domain(services: Served, principal: User, name: str) -> DomainView:
    async with services.database.read() as connection:
        return _view(await find_domain(connection, principal, name))


@router.patch("/{name}", operation_id="change_domain", responses=problems(403, 404, 409))
async def change_domain(services: Served, principal: User, name: str, change: TenantChange) -> DomainView:
    """Activate or deactivate a domain, or set its policy. Users of an inactive domain cannot log in."""

    async def work(connection: Connection) -> Domain:
        await find_domain(connection, principal, name, Action.CHANGE_DOMAIN)
        return await domains.change(
            connection,
            name,
            active=change.active,
            policy=change.policy,
            actor=Actor.of(principal),
            now=services.now(),
        )

    return _view(await services.database.write(work))


@router.delete("/{name}", status_code=204, operation_id="remove_domain", responses=problems(403, 404, 409))
async def remove_domain(services: Served, principal: User, name: str) -> None:
    """Remove a domain that has no projects and no users."""

    async def work(connection: Connection) -> None:
        await find_domain(connection, principal, name, Action.CHANGE_DOMAIN)
        await domains.remove(connection, name, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


def _view(domain: Domain) -> DomainView:
    return DomainView(
        name=domain.name,
        active=domain.active,
        policy=domain.policy,
        created_at=domain.created_at,
        version=domain.version,
    )
