"""Secrets of a project and its logins to registries: they are set, listed by name and removed, never shown."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from mooring.api.access import Served, User, named
from mooring.api.errors import problems
from mooring.api.projects import OfDomain, find_project
from mooring.model.access import Action
from mooring.model.images import parse_registry
from mooring.store import registry_logins, secrets
from mooring.store.actions import Actor
from mooring.store.engine import Connection
from mooring.store.registry_logins import KeptLogin
from mooring.store.secrets import KeptSecret
from mooring.wire.fields import Name
from mooring.wire.secrets import RegistryLoginRequest, RegistryLoginView, SecretRequest, SecretView

router = APIRouter(prefix="/api/projects/{project}", tags=["tenants"], responses=problems(401, 404, 422, 503))


@router.get("/secrets", operation_id="list_secrets")
async def list_secrets(services: Served, principal: User, project: str, domain: OfDomain = None) -> list[SecretView]:
    """What a project has for its tasks, without what it says."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        return [_secret(each) for each in await secrets.of_project(connection, found.id)]


@router.get("/secrets/{name}", operation_id="get_secret")
async def get_secret(services: Served, principal: User, project: str, name: str, domain: OfDomain = None) -> SecretView:
    """What is known of one. Nobody gets its value back."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        return _secret(await secrets.find(connection, found, named("secret", name)))


@router.put("/secrets/{name}", operation_id="put_secret", responses=problems(400, 403, 409, 413))
async def put_secret(
    services: Served, principal: User, project: str, name: Name, new: SecretRequest, domain: OfDomain = None
) -> SecretView:
    """Set a secret, new or in the place of what it was. Tasks that have started keep what they got."""
    value = new.content

    async def work(connection: Connection) -> KeptSecret:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        return await secrets.put(
            connection, found, name, value, services.sealing, actor=Actor.of(principal), now=services.now()
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
    """Where a project logs in for its images, and as whom."""
    async with services.database.read() as connection:
        found = await find_project(connection, principal, domain, project, Action.SEE_SECRETS)
        return [_login(each) for each in await registry_logins.of_project(connection, found.id)]


@router.put("/registries/{registry}", operation_id="put_registry_login", responses=problems(400, 403, 409, 413))
async def put_registry_login(
    services: Served,
    principal: User,
    project: str,
    registry: str,
    new: RegistryLoginRequest,
    domain: OfDomain = None,
) -> RegistryLoginView:
    """Set how the project's tasks log in to a registry. It is not tried here: their nodes are who reaches it."""
    host = parse_registry(registry)

    async def work(connection: Connection) -> KeptLogin:
        found = await find_project(connection, principal, domain, project, Action.CHANGE_SECRETS)
        return await registry_logins.put(
            connection,
            found,
            host,
            new.username,
            new.password,
            services.sealing,
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


def _secret(secret: KeptSecret) -> SecretView:
    return SecretView(**asdict(secret))


def _login(login: KeptLogin) -> RegistryLoginView:
    return RegistryLoginView(**asdict(login))
