"""Keypairs: credentials for programs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.auth.request_access import Served, User
from mooring.api.lookup.tenants import find_keypair, find_user
from mooring.api.middleware.errors import problems
from mooring.model.errors import NotAllowed
from mooring.model.tenancy.access import (
    Action,
    Target,
    may,
    require,
)
from mooring.model.tenancy.tenants import KeyScope
from mooring.store.core.engine import Connection
from mooring.store.tenancy import keypairs, users
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.keypairs import Keypair
from mooring.wire.fields import Name
from mooring.wire.tenancy.tenants import (
    KeypairChange,
    KeypairCreated,
    KeypairRequest,
    KeypairView,
)

router = APIRouter(prefix="/api/keypairs", tags=["tenants"], responses=problems(401, 422, 503))


@router.post("", status_code=201, operation_id="create_keypair", responses=problems(403, 404, 409))
async def create_keypair(services: Served, principal: User, new: KeypairRequest, response: Response) -> KeypairCreated:
    """Create a keypair: an access key and a secret, which only this response contains.

    A keypair can create only keypairs that allow no more than itself and end with it.
    """
    now = services.now()
    lifetime = new.expires_in_seconds

    async def work(connection: Connection) -> tuple[Keypair, str]:
        user = await find_user(connection, principal, new.user or principal.username)
        require(principal, Action.CHANGE_KEYPAIR, user.target)
        parent = None
        if principal.by_keypair:
            await keypairs.lock(connection, principal.access_key)
            parent = await keypairs.find(connection, principal.access_key)
        expires_at = None if lifetime is None else now + timedelta(seconds=lifetime)
        if parent is not None:
            expires_at = await _bounded(connection, parent, new, expires_at)
        project = new.project or (user.project if parent is None else parent.project)
        project_id = await users.project_of_member(connection, user, project)
        return await keypairs.create(
            connection,
            user_id=user.id,
            project_id=project_id,
            scope=KeyScope(new.scope),
            name=new.name,
            expires_at=expires_at,
            parent_key=None if parent is None else parent.access_key,
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
    user: Annotated[Name | None, Query(description="Keypairs of this user (default: the caller)")] = None,
    everyone: Annotated[bool, Query(description="Include those of all users that the caller may see (admins)")] = False,
    unused_days: Annotated[
        int | None, Query(ge=0, le=36600, description="Only active ones with a secret, unused for this many days")
    ] = None,
) -> list[KeypairView]:
    async with services.database.read() as connection:
        if everyone:
            everything = may(principal, Action.SEE_KEYPAIR, Target())
            require(principal, Action.SEE_KEYPAIR, Target(principal.domain_id))
            found = await keypairs.every(connection, domain_id=None if everything else principal.domain_id)
        else:
            of_user = await find_user(connection, principal, user or principal.username)
            found = await keypairs.every(connection, user_id=of_user.id)
    if unused_days is not None:
        since = services.now() - timedelta(days=unused_days)
        found = [each for each in found if each.active and each.unused_since is not None and each.unused_since <= since]
    return [_view(keypair) for keypair in found if may(principal, Action.SEE_KEYPAIR, keypair.target)]


@router.get("/{access_key}", operation_id="get_keypair", responses=problems(404))
async def get_keypair(services: Served, principal: User, access_key: str) -> KeypairView:
    async with services.database.read() as connection:
        return _view(await find_keypair(connection, principal, access_key))


@router.patch("/{access_key}", operation_id="change_keypair", responses=problems(403, 404, 409))
async def change_keypair(services: Served, principal: User, access_key: str, change: KeypairChange) -> KeypairView:
    """Activate or deactivate a keypair, or change its scope or policy."""

    async def work(connection: Connection) -> Keypair:
        found = await find_keypair(connection, principal, access_key, Action.CHANGE_KEYPAIR)
        if principal.by_keypair:
            _check_narrows(found, change)
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
    """Remove a keypair that no workload refers to. Any other can be deactivated."""

    async def work(connection: Connection) -> None:
        await find_keypair(connection, principal, access_key, Action.CHANGE_KEYPAIR)
        await keypairs.remove(connection, access_key, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


async def _bounded(
    connection: Connection, parent: Keypair, new: KeypairRequest, expires_at: datetime | None
) -> datetime | None:
    """Return the end of a keypair made with another; raise NotAllowed if it would allow more or last longer."""
    if new.project not in (None, parent.project):
        raise NotAllowed(
            f"this keypair works in another project than {new.project!r}; log in to create one for it",
            code="keypair-project",
        )
    if not parent.scope.covers(KeyScope(new.scope)):
        raise NotAllowed(
            f"this keypair has the scope {parent.scope.value!r} and cannot create one with the scope {new.scope!r}",
            code="keypair-scope",
        )
    if await keypairs.has_limits(connection, parent.access_key):
        raise NotAllowed(
            "this keypair has its own limits, which a keypair created with it would not have; log in to create one",
            code="keypair-scope",
        )
    if parent.expires_at is None:
        return expires_at
    if expires_at is not None and expires_at > parent.expires_at:
        raise NotAllowed(
            f"a keypair created with this one ends with it, at {parent.expires_at.isoformat(timespec='seconds')} at the"
            f" latest, and not at {expires_at.isoformat(timespec='seconds')}",
            code="keypair-scope",
        )
    return expires_at or parent.expires_at


def _check_narrows(found: Keypair, change: KeypairChange) -> None:
    """With a keypair, others are deactivated or narrowed; to widen or activate one takes a login."""
    widens = change.scope is not None and not found.scope.covers(KeyScope(change.scope))
    if widens or (change.active and not found.active):
        raise NotAllowed(
            "with a keypair no other can be activated or widened: log in by password", code="keypair-scope"
        )


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
        unused_since=keypair.unused_since,
        parent_key=keypair.parent_key,
        policy=keypair.policy,
        created_at=keypair.created_at,
        version=keypair.version,
    )
