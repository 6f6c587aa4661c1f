"""Keypairs: accounts that the work of a user in a project is charged to, and, with a secret, credentials of programs.

A secret has 256 random bits, so a plain hash of it cannot be reversed by guessing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.tenancy.access import Target, not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import KeyScope, Role
from mooring.store.core.types import AnyRow
from mooring.store.tables import domains, keypairs, policies, projects, tenant_resources, users, workloads
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.policies import id_of, notify
from mooring.store.tenancy.tenant_cleanup import forget

_ACCESS_KEY = re.compile(r"MK[A-Z2-7]{18}")
_SECRET_BYTES = 32
MAX_PER_USER = 1_000
"""Maximum keypairs with a secret of one user; each request may list all of them."""
_NOTED = timedelta(minutes=1)
"""Minimum interval between two updates of `last_used_at`."""


@dataclass(frozen=True, slots=True)
class Keypair:
    access_key: str
    name: str | None
    user_id: UUID
    username: str
    role: Role
    """The role of its user."""
    domain_id: UUID
    domain: str
    project_id: UUID
    project: str
    active: bool
    scope: KeyScope
    has_secret: bool
    expires_at: datetime | None
    last_used_at: datetime | None
    policy: str | None
    parent_key: str | None
    """The keypair that created it: it limits the scope of this one, and its end deactivates this one."""
    created_at: datetime
    version: int

    @property
    def unused_since(self) -> datetime | None:
        """The last use, or the creation if it was never used; None for a keypair without a secret."""
        return (self.last_used_at or self.created_at) if self.has_secret else None

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.project_id, self.user_id, self.role)

    @property
    def state(self) -> admin_actions.State:
        return {
            "name": self.name,
            "user": self.username,
            "project": self.project,
            "active": self.active,
            "scope": self.scope.value,
            "expires_at": None if self.expires_at is None else self.expires_at.isoformat(),
            "policy": self.policy,
        }


@dataclass(frozen=True, slots=True)
class ProjectAccess:
    """A project in the user's domain, with the user's keypair there; None means that one must be created first."""

    project_id: UUID
    project: str
    active: bool
    access_key: str | None


async def create(
    connection: AsyncConnection,
    *,
    user_id: UUID,
    project_id: UUID,
    scope: KeyScope,
    name: str | None = None,
    expires_at: datetime | None = None,
    parent_key: str | None = None,
    actor: Actor,
    now: datetime,
) -> tuple[Keypair, str]:
    """Create a keypair and return it with its secret, of which only the hash is stored: it cannot be shown again.

    `parent_key` is the keypair that creates it; deactivating or removing the parent deactivates it too.
    """
    await _check_number(connection, user_id)
    access_key, secret = _new_access_key(), secrets.token_urlsafe(_SECRET_BYTES)
    await connection.execute(
        insert(keypairs).values(
            access_key=access_key,
            secret_hash=_hash(secret),
            user_id=user_id,
            project_id=project_id,
            active=True,
            name=name,
            scope=scope.value,
            expires_at=expires_at,
            parent_key=parent_key,
            created_at=now,
        )
    )
    made = await find(connection, access_key)
    await admin_actions.created(connection, actor, "keypair", access_key, made, now)
    return made, secret


async def _check_number(connection: AsyncConnection, user_id: UUID) -> None:
    query = select(func.count()).where(keypairs.c.user_id == user_id, keypairs.c.secret_hash.is_not(None))
    number = int((await connection.execute(query)).scalar_one())
    if number >= MAX_PER_USER:
        raise Conflict(
            f"the user has {number:,} keypairs, which is the limit; remove unused ones",
            code="too-many-keypairs",
            details={"limit": MAX_PER_USER, "present": number},
        )


async def ensure(connection: AsyncConnection, user_id: UUID, project_id: UUID, now: datetime) -> str:
    """Return the keypair that work submitted after a login is charged to; create one without a secret if needed."""
    found = (await connection.execute(oldest_keypair(user_id, project_id))).scalar_one_or_none()
    if found is not None:
        return str(found)
    access_key = _new_access_key()
    await connection.execute(
        insert(keypairs).values(
            access_key=access_key, user_id=user_id, project_id=project_id, active=True, created_at=now
        )
    )
    return access_key


async def project_access(connection: AsyncConnection, user_id: UUID, project: str | UUID) -> ProjectAccess | None:
    """Return the project of this name or id in the user's domain, with the keypair that work there is charged to."""
    this = projects.c.name == project if isinstance(project, str) else projects.c.id == project
    row = (
        await connection.execute(
            select(
                projects.c.id,
                projects.c.name,
                projects.c.active,
                oldest_keypair(users.c.id, projects.c.id).correlate(users, projects).scalar_subquery(),
            )
            .join(users, users.c.domain_id == projects.c.domain_id)
            .where(users.c.id == user_id, this)
        )
    ).one_or_none()
    return ProjectAccess(*row) if row is not None else None


async def verified(connection: AsyncConnection, access_key: str, secret: str, now: datetime) -> Keypair | None:
    """Return the keypair if the secret matches and the keypair is valid now; the caller checks whether its user is."""
    row = await _row(connection, access_key)
    known = row.secret_hash if row is not None else None
    # Compare even for an unknown access key, so that the response time does not reveal whether it exists.
    same = hmac.compare_digest(_hash(secret), known or _hash(""))
    return _keypair(row) if row is not None and known is not None and same and _is_good(row, now) else None


async def valid(connection: AsyncConnection, access_keys: Collection[str], now: datetime) -> dict[str, Keypair]:
    """Return those of the given keypairs that are valid now, by access key."""
    rows = await connection.execute(_keypairs().where(keypairs.c.access_key.in_(access_keys)))
    return {row.access_key: _keypair(row) for row in rows if _is_good(row, now)}


async def note_use(connection: AsyncConnection, keypair: Keypair, now: datetime) -> None:
    this = keypairs.c.access_key == keypair.access_key
    long_ago = or_(keypairs.c.last_used_at.is_(None), keypairs.c.last_used_at <= now - _NOTED)
    await connection.execute(update(keypairs).where(this, long_ago).values(last_used_at=now))


def use_is_noted(keypair: Keypair, now: datetime) -> bool:
    """Return whether the stored last use is recent enough to need no update."""
    return keypair.last_used_at is not None and keypair.last_used_at > now - _NOTED


async def find(connection: AsyncConnection, access_key: str) -> Keypair:
    row = await _row(connection, access_key)
    if row is None:
        raise not_there(f"keypair {access_key[:40]!r}")
    return _keypair(row)


async def every(
    connection: AsyncConnection, *, user_id: UUID | None = None, domain_id: UUID | None = None
) -> list[Keypair]:
    """Return all keypairs, or those of one user or of the users of one domain."""
    query = _keypairs().order_by(users.c.name, keypairs.c.created_at, keypairs.c.access_key)
    if user_id is not None:
        query = query.where(keypairs.c.user_id == user_id)
    if domain_id is not None:
        query = query.where(users.c.domain_id == domain_id)
    return [_keypair(row) for row in await connection.execute(query)]


async def change(
    connection: AsyncConnection,
    access_key: str,
    *,
    active: bool | None = None,
    scope: KeyScope | None = None,
    policy: str | None = None,
    actor: Actor,
    now: datetime,
) -> Keypair:
    """Change the given attributes; the policy "" removes the policy.

    Keypairs created with this one are deactivated with it and never keep a wider scope.
    """
    await lock(connection, access_key)
    before = await find(connection, access_key)
    values: dict[str, Any] = {}
    if active is not None:
        values["active"] = active
    if scope is not None:
        values["scope"] = scope.value
    if policy is not None:
        values["policy_id"] = await id_of(connection, policy)
    await connection.execute(
        update(keypairs).where(keypairs.c.access_key == access_key).values(**values, version=keypairs.c.version + 1)
    )
    after = await find(connection, access_key)
    await admin_actions.changed(connection, actor, "keypair", access_key, before, after, now)
    if not after.active or scope is not None:
        await _bound_descendants(connection, after, actor=actor, now=now)
    if policy is not None:
        await end_unlimited_descendants(connection, access_key, actor=actor, now=now)
        await notify(connection, after.user_id, after.version, now)
    return after


async def lock(connection: AsyncConnection, access_key: str) -> None:
    """Lock the keypair until the end of the transaction against changes, new limits and the creation of descendants."""
    await connection.execute(select(keypairs.c.access_key).where(keypairs.c.access_key == access_key).with_for_update())


async def end_unlimited_descendants(
    connection: AsyncConnection, access_key: str, *, actor: Actor, now: datetime
) -> None:
    """Deactivate the descendants of a keypair that has limits of its own, because its limits do not apply to them.

    A keypair with limits cannot create others; this ends those that it created before it got the limits.
    """
    await lock(connection, access_key)
    if await has_limits(connection, access_key):
        parent = await find(connection, access_key)
        await _bound_descendants(connection, replace(parent, active=False), actor=actor, now=now)


async def remove(connection: AsyncConnection, access_key: str, *, actor: Actor, now: datetime) -> None:
    """Remove the keypair and deactivate its descendants; raise Conflict if a stored workload is charged to it."""
    found = await find(connection, access_key)
    charged = await connection.execute(
        select(func.count()).select_from(workloads).where(workloads.c.access_key == access_key)
    )
    if count := charged.scalar_one():
        raise Conflict(
            f"{count} recorded workloads belong to keypair {access_key!r}; deactivate it instead",
            code="in-use",
            details={"workloads": count},
        )
    await _bound_descendants(connection, replace(found, active=False), actor=actor, now=now)
    await forget(connection, [Tenant(Scope.KEYPAIR, access_key)])
    await connection.execute(delete(keypairs).where(keypairs.c.access_key == access_key))
    await admin_actions.removed(connection, actor, "keypair", access_key, found, now)


async def revoke_all(connection: AsyncConnection, user_id: UUID, *, actor: Actor, now: datetime) -> int:
    """Deactivate every active keypair of the user that has a secret, and return their number."""
    found = [each for each in await every(connection, user_id=user_id) if each.active and each.has_secret]
    for keypair in found:
        await change(connection, keypair.access_key, active=False, actor=actor, now=now)
    return len(found)


async def has_limits(connection: AsyncConnection, access_key: str) -> bool:
    """Return whether the keypair has limits of its own, from a policy, a quota or a temporary override."""
    quota = select(tenant_resources.c.slot_name).where(
        tenant_resources.c.scope == Scope.KEYPAIR.value,
        tenant_resources.c.tenant_id == access_key,
        or_(tenant_resources.c.limit.is_not(None), tenant_resources.c.override_limit.is_not(None)),
    )
    limited = select(keypairs.c.access_key).where(
        keypairs.c.access_key == access_key, or_(keypairs.c.policy_id.is_not(None), quota.exists())
    )
    return (await connection.execute(limited)).first() is not None


async def _bound_descendants(connection: AsyncConnection, parent: Keypair, *, actor: Actor, now: datetime) -> None:
    """Deactivate the descendants of an inactive keypair, and narrow their scopes to its own."""
    rows = await connection.execute(_keypairs().where(keypairs.c.parent_key == parent.access_key, keypairs.c.active))
    for child in [_keypair(row) for row in rows]:
        narrower = child.scope if parent.scope.covers(child.scope) else parent.scope
        if not parent.active or narrower is not child.scope:
            ends = None if parent.active else False
            await change(connection, child.access_key, active=ends, scope=narrower, actor=actor, now=now)


def is_access_key(text: str) -> bool:
    """Return whether the text has the form of an access key."""
    return _ACCESS_KEY.fullmatch(text) is not None


async def _row(connection: AsyncConnection, access_key: str) -> AnyRow | None:
    if not is_access_key(access_key):
        return None
    found = await connection.execute(_keypairs().where(keypairs.c.access_key == access_key))
    row: AnyRow | None = found.one_or_none()
    return row


def _is_good(row: AnyRow, now: datetime) -> bool:
    return bool(row.active) and (row.expires_at is None or row.expires_at > now)


def oldest_keypair(user_id: UUID | ColumnElement[UUID], project_id: UUID | ColumnElement[UUID]) -> Select[Any]:
    """Return a query for the oldest active keypair of a user in a project that has no expiry."""
    return (
        select(keypairs.c.access_key)
        .where(
            keypairs.c.user_id == user_id,
            keypairs.c.project_id == project_id,
            keypairs.c.active,
            keypairs.c.expires_at.is_(None),
        )
        .order_by(keypairs.c.created_at, keypairs.c.access_key)
        .limit(1)
    )


def _keypairs() -> Select[Any]:
    return (
        select(
            keypairs.c.access_key,
            keypairs.c.name,
            keypairs.c.user_id,
            users.c.name.label("username"),
            users.c.role,
            users.c.domain_id,
            domains.c.name.label("domain"),
            keypairs.c.project_id,
            projects.c.name.label("project"),
            keypairs.c.active,
            keypairs.c.scope,
            keypairs.c.secret_hash,
            keypairs.c.expires_at,
            keypairs.c.last_used_at,
            policies.c.name.label("policy"),
            keypairs.c.parent_key,
            keypairs.c.created_at,
            keypairs.c.version,
        )
        .join(users, users.c.id == keypairs.c.user_id)
        .join(domains, domains.c.id == users.c.domain_id)
        .join(projects, projects.c.id == keypairs.c.project_id)
        .join(policies, policies.c.id == keypairs.c.policy_id, isouter=True)
    )


def _keypair(row: AnyRow) -> Keypair:
    fields = dict(row._mapping)
    has_secret = fields.pop("secret_hash") is not None
    return Keypair(**fields | {"role": Role(row.role), "scope": KeyScope(row.scope), "has_secret": has_secret})


def _new_access_key() -> str:
    return "MK" + base64.b32encode(secrets.token_bytes(12)).decode()[:18]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "backslashreplace")).hexdigest()
