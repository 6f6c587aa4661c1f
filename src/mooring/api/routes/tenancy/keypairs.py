"""Keypairs: credentials for programs, one's own or, for admins, those of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.access import Served, User
from mooring.api.errors import problems
from mooring.api.users import find_user
from mooring.model.access import Action, Target, may, require, require_seen
from mooring.model.tenants import KeyScope, Principal
from mooring.store import keypairs, users
from mooring.store.actions import Actor
from mooring.store.engine import Connection
from mooring.store.keypairs import Keypair
from mooring.wire.fields import Name
from mooring.wire.tenants import KeypairChange, KeypairCreated, KeypairRequest, KeypairView

router = APIRouter(prefix="/api/keypairs", tags=["tenants"], responses=problems(401, 422, 503))


@router.post("", status_code=201, operation_id="create_keypair", responses=problems(400, 403, 404, 409, 413))
async def create_keypair(services: Served, principal: User, new: KeypairRequest, response: Response) -> KeypairCreated:
    """Make a keypair: an access key and a secret, which is shown in this answer only."""
    now = services.now()
    lifetime = new.expires_in_seconds
    expires_at = None if lifetime is None else now + timedelta(seconds=lifetime)

    async def work(connection: Connection) -> tuple[Keypair, str]:
        user = await find_user(connection, principal, new.user or principal.username)
        require(principal, Action.CHANGE_KEYPAIR, user.target)
        project_id = await users.project_of_member(connection, user, new.project or user.project)
        return await keypairs.create(
            connection,
            user_id=user.id,
            project_id=project_id,
            scope=KeyScope(new.scope),
            name=new.name,
            expires_at=expires_at,
            actor=Actor.of(principal),
            now=now,
        )

    made, secret = await services.database.write(work)
    response.headers["Cache-Control"] = "no-store"
    return KeypairCreated(**dict(_view(made)), secret=secret)


@router.get("", operation_id="list_keypairs", responses=problems(403, 404))
async def list_keypairs(
    services: Served,
    principal: User,
    user: Annotated[Name | None, Query(description="Of one user; one's own if not given")] = None,
    everyone: Annotated[bool, Query(description="Of all users that one may see, for admins")] = False,
) -> list[KeypairView]:
    async with services.database.read() as connection:
        if everyone:
            everything = may(principal, Action.SEE_KEYPAIR, Target())
            require(principal, Action.SEE_KEYPAIR, Target(principal.domain_id))
            found = await keypairs.every(connection, domain_id=None if everything else principal.domain_id)
        else:
            of_user = await find_user(connection, principal, user or principal.username)
            found = await keypairs.every(connection, user_id=of_user.id)
    return [_view(keypair) for keypair in found]


@router.get("/{access_key}", operation_id="get_keypair", responses=problems(404))
async def get_keypair(services: Served, principal: User, access_key: str) -> KeypairView:
    async with services.database.read() as connection:
        return _view(await find_keypair(connection, principal, access_key))


@router.patch("/{access_key}", operation_id="change_keypair", responses=problems(400, 403, 404, 409, 413))
async def change_keypair(services: Served, principal: User, access_key: str, change: KeypairChange) -> KeypairView:
    """Activate or deactivate a keypair, or change its scope or policy."""

    async def work(connection: Connection) -> Keypair:
        await find_keypair(connection, principal, access_key, Action.CHANGE_KEYPAIR)
        if change.policy is not None:
            require(principal, Action.CHANGE_POLICIES)
        return await keypairs.change(
            connection,
            access_key,
            active=change.active,
            scope=None if change.scope is None else KeyScope(change.scope),
            policy=change.policy,
            actor=Actor.of(principal),
            now=services.now(),
        )

    return _view(await services.database.write(work))


@router.delete("/{access_key}", status_code=204, operation_id="remove_keypair", responses=problems(403, 404, 409))
async def remove_keypair(services: Served, principal: User, access_key: str) -> None:
    """Remove a keypair that no workload tells of any more; otherwise it can be deactivated."""

    async def work(connection: Connection) -> None:
        await find_keypair(connection, principal, access_key, Action.CHANGE_KEYPAIR)
        await keypairs.remove(connection, access_key, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


async def find_keypair(
    connection: Connection, principal: Principal, access_key: str, action: Action = Action.SEE_KEYPAIR
) -> Keypair:
    found = await keypairs.find(connection, access_key)
    require_seen(principal, action, found.target, f"keypair {access_key!r}")
    return found


def _view(keypair: Keypair) -> KeypairView:
    return KeypairView(
        access_key=keypair.access_key,
        name=keypair.name,
        user=keypair.username,
        domain=keypair.domain,
        project=keypair.project,
        active=keypair.active,
        scope=keypair.scope.value,
        has_secret=keypair.has_secret,
        expires_at=keypair.expires_at,
        last_used_at=keypair.last_used_at,
        policy=keypair.policy,
        created_at=keypair.created_at,
        version=keypair.version,
    )
