"""Keypairs: what the work of a user in a project is charged to, and credentials of programs where they have a secret.

A secret is 256 random bits, so that a plain hash of it tells nothing about it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import Target, not_there
from mooring.model.errors import Conflict
from mooring.model.quotas import Scope, Tenant
from mooring.model.tenants import KeyScope, Role
from mooring.store import actions
from mooring.store.actions import Actor
from mooring.store.leftovers import forget
from mooring.store.policies import id_of, tell
from mooring.store.tables import domains, keypairs, policies, projects, users, workloads
from mooring.store.types import AnyRow

_ACCESS_KEY = re.compile(r"MK[A-Z2-7]{18}")
_SECRET_BYTES = 32
_NOTED = timedelta(minutes=1)
"""The last use is written down at most so often."""


@dataclass(frozen=True, slots=True)
class Keypair:
    access_key: str
    name: str | None
    user_id: UUID
    username: str
    role: Role
    """Of its user."""
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
    created_at: datetime
    version: int

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.project_id, self.user_id, self.role)

    @property
    def state(self) -> actions.State:
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
class Place:
    """A project as a user may work in it; without a keypair there, one has to be made first."""

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
    actor: Actor,
    now: datetime,
) -> tuple[Keypair, str]:
    """A keypair with a secret; only its hash is kept, so it is shown now or never."""
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
            created_at=now,
        )
    )
    made = await find(connection, access_key)
    await actions.created(connection, actor, "keypair", access_key, made, now)
    return made, secret


async def ensure(connection: AsyncConnection, user_id: UUID, project_id: UUID, now: datetime) -> str:
    """The keypair that carries what a user hands in after a login; made without a secret where there is none."""
    found = (await connection.execute(carrying(user_id, project_id))).scalar_one_or_none()
    if found is not None:
        return str(found)
    access_key = _new_access_key()
    await connection.execute(
        insert(keypairs).values(
            access_key=access_key, user_id=user_id, project_id=project_id, active=True, created_at=now
        )
    )
    return access_key


async def place(connection: AsyncConnection, user_id: UUID, project: str | UUID) -> Place | None:
    """The project of this name or id in the user's domain, with what the user's work would be charged to there."""
    this = projects.c.name == project if isinstance(project, str) else projects.c.id == project
    row = (
        await connection.execute(
            select(
                projects.c.id,
                projects.c.name,
                projects.c.active,
                carrying(users.c.id, projects.c.id).correlate(users, projects).scalar_subquery(),
            )
            .join(users, users.c.domain_id == projects.c.domain_id)
            .where(users.c.id == user_id, this)
        )
    ).one_or_none()
    return Place(*row) if row is not None else None


async def verified(connection: AsyncConnection, access_key: str, secret: str, now: datetime) -> Keypair | None:
    """The keypair if the secret is its own and it is good now. Whether its user is, is for the caller to look up."""
    row = await _row(connection, access_key)
    known = row.secret_hash if row is not None else None
    # Compared in any case: how long it takes does not tell whether the access key exists.
    same = hmac.compare_digest(_hash(secret), known or _hash(""))
    if row is None or known is None or not same or not row.active:
        return None
    return _keypair(row) if row.expires_at is None or row.expires_at > now else None


async def note_use(connection: AsyncConnection, keypair: Keypair, now: datetime) -> None:
    this = keypairs.c.access_key == keypair.access_key
    long_ago = or_(keypairs.c.last_used_at.is_(None), keypairs.c.last_used_at <= now - _NOTED)
    await connection.execute(update(keypairs).where(this, long_ago).values(last_used_at=now))


def use_is_noted(keypair: Keypair, now: datetime) -> bool:
    """Whether the last use that is written down is recent enough."""
    return keypair.last_used_at is not None and keypair.last_used_at > now - _NOTED


async def find(connection: AsyncConnection, access_key: str) -> Keypair:
    row = await _row(connection, access_key)
    if row is None:
        raise not_there(f"keypair {access_key[:40]!r}")
    return _keypair(row)


async def every(
    connection: AsyncConnection, *, user_id: UUID | None = None, domain_id: UUID | None = None
) -> list[Keypair]:
    """All, those of one user, or those of a domain's users."""
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
    """Change what is given; the policy "" takes the policy away."""
    await connection.execute(select(keypairs.c.access_key).where(keypairs.c.access_key == access_key).with_for_update())
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
    await actions.changed(connection, actor, "keypair", access_key, before, after, now)
    if policy is not None:
        await tell(connection, after.user_id, after.version, now)
    return after


async def remove(connection: AsyncConnection, access_key: str, *, actor: Actor, now: datetime) -> None:
    """Only where no workload is charged to it any more."""
    found = await find(connection, access_key)
    charged = await connection.execute(
        select(func.count()).select_from(workloads).where(workloads.c.access_key == access_key)
    )
    if count := charged.scalar_one():
        raise Conflict(
            f"{count} workloads are remembered as those of keypair {access_key!r}; deactivate it instead",
            code="in-use",
            details={"workloads": count},
        )
    await forget(connection, [Tenant(Scope.KEYPAIR, access_key)])
    await connection.execute(delete(keypairs).where(keypairs.c.access_key == access_key))
    await actions.removed(connection, actor, "keypair", access_key, found, now)


async def _row(connection: AsyncConnection, access_key: str) -> AnyRow | None:
    if not _ACCESS_KEY.fullmatch(access_key):
        return None
    found = await connection.execute(_keypairs().where(keypairs.c.access_key == access_key))
    row: AnyRow | None = found.one_or_none()
    return row


def carrying(user_id: UUID | ColumnElement[UUID], project_id: UUID | ColumnElement[UUID]) -> Select[Any]:
    """The oldest keypair of a user in a project that does not end by itself."""
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
