"""Users, for admins: of everything, or of their domain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.auth.passwords import new_password
from mooring.api.auth.request_access import Served, User
from mooring.api.lookup.tenants import find_domain, find_user
from mooring.api.middleware.errors import problems
from mooring.api.serializers import user_view
from mooring.model.tenancy.access import (
    Action,
    Target,
    may,
    require,
)
from mooring.model.tenancy.tenants import Principal, Role
from mooring.store.core.engine import Connection
from mooring.store.tenancy import users
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.tenants import DEFAULT_PROJECT
from mooring.wire.fields import Name
from mooring.wire.tenancy.users import UserChange, UserCreated, UserRequest, UserView

router = APIRouter(prefix="/api/users", tags=["tenants"], responses=problems(401, 403, 404, 422, 503))


@router.post("", status_code=201, operation_id="create_user", responses=problems(409))
async def create_user(services: Served, principal: User, new: UserRequest, response: Response) -> UserCreated:
    """Create a user. Without a password, one is generated; only this response contains it."""
    require(principal, Action.CHANGE_USER, Target(principal.domain_id, role=Role(new.role)))
    if new.os_user:
        require(principal, Action.MAP_ACCOUNT)
    made_up = new_password() if new.password is None else None
    password_hash = await services.passwords.hash(new.password or made_up or "")

    async def work(connection: Connection) -> users.User:
        domain = await find_domain(connection, principal, new.domain)
        require(principal, Action.CHANGE_USER, Target(domain.id, role=Role(new.role)))
        await users.create(
            connection,
            username=new.username,
            role=Role(new.role),
            domain_id=domain.id,
            project=new.project or DEFAULT_PROJECT,
            password_hash=password_hash,
            now=services.now(),
            os_user=new.os_user or None,
            actor=Actor.of(principal),
        )
        return await users.find(connection, new.username)

    user = await services.database.write(work)
    response.headers["Cache-Control"] = "no-store"
    return UserCreated(**dict(user_view(user)), password=made_up)


@router.get("", operation_id="list_users")
async def list_users(
    services: Served,
    principal: User,
    domain: Annotated[Name | None, Query(description="Only those of this domain")] = None,
) -> list[UserView]:
    """List all users, or those of the caller's domain."""
    async with services.database.read() as connection:
        if domain is None and may(principal, Action.SEE_USER, Target()):
            found = await users.every(connection)
        else:
            of_domain = await find_domain(connection, principal, domain)
            require(principal, Action.SEE_USER, of_domain.target)
            found = await users.every(connection, domain_id=of_domain.id)
    return [user_view(user) for user in found]


@router.get("/{username}", operation_id="get_user")
async def get_user(services: Served, principal: User, username: str) -> UserView:
    async with services.database.read() as connection:
        return user_view(await find_user(connection, principal, username))


@router.patch("/{username}", operation_id="change_user", responses=problems(409))
async def change_user(services: Served, principal: User, username: str, change: UserChange) -> UserView:
    """Change a user. A new password and a deactivation end the user's tokens, `revoke_keypairs` its keypairs."""
    async with services.database.read() as connection:
        await _changeable(connection, principal, username, change)
    # Hashing takes long, so it is done outside of the transaction and only for those who may.
    password_hash = await services.passwords.hash(change.password) if change.password is not None else None

    async def work(connection: Connection) -> users.User:
        await _changeable(connection, principal, username, change)
        return await users.change(
            connection,
            username,
            role=Role(change.role) if change.role is not None else None,
            active=change.active,
            os_user=change.os_user,
            password_hash=password_hash,
            project=change.project,
            policy=change.policy,
            revoke_keypairs=change.revoke_keypairs,
            now=services.now(),
            actor=Actor.of(principal),
        )

    return user_view(await services.database.write(work))


@router.delete("/{username}", status_code=204, operation_id="remove_user", responses=problems(409))
async def remove_user(services: Served, principal: User, username: str) -> None:
    """Remove a user without any work. A user that has submitted work can be deactivated instead."""

    async def work(connection: Connection) -> None:
        await find_user(connection, principal, username, Action.CHANGE_USER)
        await users.remove(connection, username, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


async def _changeable(connection: Connection, principal: Principal, username: str, change: UserChange) -> None:
    found = await find_user(connection, principal, username, Action.CHANGE_USER)
    if change.role is not None:
        require(principal, Action.CHANGE_USER, Target(found.domain_id, role=Role(change.role)))
    if change.os_user is not None:
        require(principal, Action.MAP_ACCOUNT)
    if change.policy is not None:
        require(principal, Action.CHANGE_POLICIES)
