"""Secrets of a project and its logins to registries: they are set, listed by name and removed, never shown."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, User, named
from mooring.api.lookup.tenants import OfDomain, find_project
from mooring.api.middleware.errors import problems
from mooring.api.services import Services
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.images import parse_registry
from mooring.store.core.engine import Connection
from mooring.store.tenancy import admin_actions, registry_logins, secrets
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.projects import Project
from mooring.store.tenancy.registry_logins import StoredLogin
from mooring.store.tenancy.secrets import StoredSecret
from mooring.wire.fields import Name
from mooring.wire.workloads.secrets import (
    RegistryLoginRequest,
    RegistryLoginView,
    SecretRequest,
    SecretView,
)

router = APIRouter(prefix="/api/projects/{project}", tags=["tenants"], responses=problems(401, 404, 422, 503))


@router.get("/secrets", operation_id="list_secrets")
async def list_secrets(services: Served, principal: User, project: str, domain: OfDomain = None) -> list[SecretView]:
    """List the secrets of a project, without their values."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        stored = await secrets.of_project(connection, found.id)
    await _record_read(services, principal, found, "list", found.path)
    return [_secret(each) for each in stored]


@router.get("/secrets/{name}", operation_id="get_secret")
async def get_secret(services: Served, principal: User, project: str, name: str, domain: OfDomain = None) -> SecretView:
    """Get the metadata of a secret. Its value is never returned."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        stored = await secrets.find(connection, found, named("secret", name))
    await _record_read(services, principal, found, "read", f"{found.path}/{name}")
    return _secret(stored)


@router.put("/secrets/{name}", operation_id="put_secret", responses=problems(403, 409))
async def put_secret(
    services: Served, principal: User, project: str, name: Name, new: SecretRequest, domain: OfDomain = None
) -> SecretView:
    """Create or replace a secret. Tasks that have started keep the old value."""
    value = new.content

    async def work(connection: Connection) -> StoredSecret:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        return await secrets.put(
            connection, found, name, value, services.secret_box, actor=Actor.of(principal), now=services.now()
        )

    return _secret(await services.database.write(work))


@router.delete("/secrets/{name}", status_code=204, operation_id="remove_secret", responses=problems(403))
async def remove_secret(services: Served, principal: User, project: str, name: str, domain: OfDomain = None) -> None:
    async def work(connection: Connection) -> None:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        await secrets.remove(connection, found, named("secret", name), actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


@router.get("/registries", operation_id="list_registry_logins")
async def list_registry_logins(
    services: Served, principal: User, project: str, domain: OfDomain = None
) -> list[RegistryLoginView]:
    """List the registry logins of a project: registries and usernames."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        stored = await registry_logins.of_project(connection, found.id)
    await _record_read(services, principal, found, "list-registries", found.path)
    return [_login(each) for each in stored]


@router.put("/registries/{registry}", operation_id="put_registry_login", responses=problems(403, 409))
async def put_registry_login(
    services: Served,
    principal: User,
    project: str,
    registry: str,
    new: RegistryLoginRequest,
    domain: OfDomain = None,
) -> RegistryLoginView:
    """Set the login of a project's tasks to a registry. It is not tested, since only nodes contact registries."""
    host = parse_registry(registry)

    async def work(connection: Connection) -> StoredLogin:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        return await registry_logins.put(
            connection,
            found,
            host,
            new.username,
            new.password,
            services.secret_box,
            actor=Actor.of(principal),
            now=services.now(),
        )

    return _login(await services.database.write(work))


@router.delete("/registries/{registry}", status_code=204, operation_id="remove_registry_login", responses=problems(403))
async def remove_registry_login(
    services: Served, principal: User, project: str, registry: str, domain: OfDomain = None
) -> None:
    host = parse_registry(registry)

    async def work(connection: Connection) -> None:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        await registry_logins.remove(connection, found, host, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


async def _record_read(services: Services, principal: Principal, project: Project, action: str, object: str) -> None:
    """Record admins who list the secrets of a project that they do not belong to."""
    if project.id in principal.projects:
        return
    await services.database.write(
        lambda c: admin_actions.record(c, Actor.of(principal), action, "secret", object, now=services.now()),
        notify=False,
    )


def _secret(secret: StoredSecret) -> SecretView:
    return SecretView(**asdict(secret))


def _login(login: StoredLogin) -> RegistryLoginView:
    return RegistryLoginView(**asdict(login))
