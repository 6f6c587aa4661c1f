"""Tenants: domains, projects, users with their identities and keypairs.

A password is one identity of a user: issuer `mooring`, the username as subject, its hash as the secret.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, NotFound
from mooring.model.tenants import Principal, Role
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import domains, identities, keypairs, projects, users
from mooring.store.types import AnyRow

PASSWORD_ISSUER = "mooring"
DEFAULT_DOMAIN = "default"
DEFAULT_PROJECT = "default"
FIRST_ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class User:
    """A user with the names of its tenancy."""

    id: UUID
    username: str
    role: Role
    active: bool
    domain: str
    project: str
    os_user: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a login by password is checked against."""

    user_id: UUID
    active: bool
    token_epoch: int
    password_hash: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Who a user is at this moment, and which tokens of it still count."""

    principal: Principal
    active: bool
    token_epoch: int


async def has_admin(connection: AsyncConnection) -> bool:
    """Whether the first start is over."""
    found = await connection.execute(select(users.c.id).where(users.c.name == FIRST_ADMIN))
    return found.first() is not None


async def bootstrap(connection: AsyncConnection, *, password_hash: str, now: datetime) -> bool:
    """The tenants of a first start: domain and project `default`, and the user `admin`. True if the admin is new.

    Of two servers that start at once one makes them; the other waits at the domain's name and then finds them.
    """
    domain_id = await ensure_domain(connection, DEFAULT_DOMAIN, now)
    if await has_admin(connection):
        return False
    await create_user(
        connection,
        username=FIRST_ADMIN,
        role=Role.ADMIN,
        domain_id=domain_id,
        project=DEFAULT_PROJECT,
        password_hash=password_hash,
        now=now,
    )
    return True


async def ensure_domain(connection: AsyncConnection, name: str, now: datetime) -> UUID:
    await insert_new(connection, domains, {"id": new_id(), "name": name, "created_at": now})
    domain_id: UUID = (await connection.execute(select(domains.c.id).where(domains.c.name == name))).scalar_one()
    return domain_id


async def ensure_project(connection: AsyncConnection, domain_id: UUID, name: str, now: datetime) -> UUID:
    """The project, made with the next free number if it does not exist."""
    this = (projects.c.domain_id == domain_id) & (projects.c.name == name)
    while True:
        found = (await connection.execute(select(projects.c.id).where(this))).one_or_none()
        if found is not None:
            project_id: UUID = found.id
            return project_id
        number = (await connection.execute(select(func.coalesce(func.max(projects.c.number), 0) + 1))).scalar_one()
        # Nothing is inserted where another transaction took the name or the number first: look again.
        await insert_new(
            connection,
            projects,
            {"id": new_id(), "domain_id": domain_id, "name": name, "number": number, "created_at": now},
        )


async def create_user(
    connection: AsyncConnection,
    *,
    username: str,
    role: Role,
    domain_id: UUID,
    project: str,
    password_hash: str | None,
    now: datetime,
    os_user: str | None = None,
) -> UUID:
    """A user with a keypair, and with a password if its hash is given; the project is made if it does not exist."""
    project_id = await ensure_project(connection, domain_id, project, now)
    user_id = new_id()
    is_new = await insert_new(
        connection,
        users,
        {
            "id": user_id,
            "name": username,
            "role": role.value,
            "active": True,
            "domain_id": domain_id,
            "project_id": project_id,
            "os_user": os_user,
            "created_at": now,
        },
    )
    if not is_new:
        raise Conflict(f"there is a user {username!r} already", code="user-exists")
    if password_hash is not None:
        await connection.execute(
            insert(identities).values(
                id=new_id(), user_id=user_id, issuer=PASSWORD_ISSUER, subject=username, secret_hash=password_hash
            )
        )
    await connection.execute(
        insert(keypairs).values(
            access_key=new_access_key(), user_id=user_id, project_id=project_id, active=True, created_at=now
        )
    )
    return user_id


def new_access_key() -> str:
    return "MK" + base64.b32encode(secrets.token_bytes(12)).decode()[:18]


async def credentials(connection: AsyncConnection, username: str) -> Credentials | None:
    row = (
        await connection.execute(
            select(users.c.id, users.c.active, users.c.token_epoch, identities.c.secret_hash)
            .join(identities, identities.c.user_id == users.c.id)
            .where(identities.c.issuer == PASSWORD_ISSUER, identities.c.subject == username)
        )
    ).one_or_none()
    return Credentials(*row) if row is not None else None


async def standing(connection: AsyncConnection, user_id: UUID) -> Standing | None:
    """The user as a principal; its workloads carry its oldest active keypair."""
    row = (
        await connection.execute(
            select(
                users.c.id,
                users.c.name,
                users.c.role,
                users.c.domain_id,
                users.c.active,
                users.c.token_epoch,
                keypairs.c.project_id,
                keypairs.c.access_key,
            )
            .join(keypairs, keypairs.c.user_id == users.c.id)
            .where(users.c.id == user_id, keypairs.c.active)
            .order_by(keypairs.c.created_at, keypairs.c.access_key)
            .limit(1)
        )
    ).one_or_none()
    if row is None:
        return None
    principal = Principal(row.id, row.name, Role(row.role), row.domain_id, row.project_id, row.access_key)
    return Standing(principal, row.active, row.token_epoch)


async def find_user(connection: AsyncConnection, username: str) -> User:
    row = (await connection.execute(_users().where(users.c.name == username))).one_or_none()
    if row is None:
        raise _unknown(username)
    return _user(row)


async def list_users(connection: AsyncConnection) -> list[User]:
    return [_user(row) for row in await connection.execute(_users().order_by(users.c.name))]


async def change_password(connection: AsyncConnection, user_id: UUID, *, old_hash: str | None, new_hash: str) -> int:
    """Replace the password that was verified as `old_hash`; every token given out so far ends. The new epoch."""
    changed = await connection.execute(
        update(identities)
        .where(
            identities.c.user_id == user_id,
            identities.c.issuer == PASSWORD_ISSUER,
            identities.c.secret_hash == old_hash,
        )
        .values(secret_hash=new_hash)
    )
    if changed.rowcount != 1:
        raise Conflict("the password was changed by someone else at the same time; log in again")
    return await _end_tokens(connection, user_id)


async def change_user(
    connection: AsyncConnection,
    username: str,
    *,
    role: Role | None = None,
    active: bool | None = None,
    os_user: str | None = None,
    password_hash: str | None = None,
) -> None:
    """Change what is given; `os_user` "" takes the mapping away. A new password and a deactivation end all tokens."""
    # Locking every admin first lets two admins who dismiss each other find out that one must stay.
    admins = (
        await connection.execute(
            select(users.c.id)
            .where(users.c.role == Role.ADMIN.value, users.c.active)
            .order_by(users.c.id)
            .with_for_update()
        )
    ).scalars()
    admin_ids = set(admins)
    row = (await connection.execute(select(users.c.id).where(users.c.name == username).with_for_update())).one_or_none()
    if row is None:
        raise _unknown(username)
    if admin_ids == {row.id} and (active is False or role is Role.USER):
        raise Conflict(f"{username!r} is the only active admin; make another user an admin first", code="last-admin")
    values: dict[str, Any] = {}
    if role is not None:
        values["role"] = role.value
    if active is not None:
        values["active"] = active
    if os_user is not None:
        values["os_user"] = os_user or None
    if values:
        await connection.execute(
            update(users).where(users.c.id == row.id).values(**values, version=users.c.version + 1)
        )
    if password_hash is not None:
        await _set_password(connection, row.id, username, password_hash)
    if password_hash is not None or active is False:
        await _end_tokens(connection, row.id)


async def _set_password(connection: AsyncConnection, user_id: UUID, username: str, password_hash: str) -> None:
    is_new = await insert_new(
        connection,
        identities,
        {
            "id": new_id(),
            "user_id": user_id,
            "issuer": PASSWORD_ISSUER,
            "subject": username,
            "secret_hash": password_hash,
        },
    )
    if not is_new:
        await connection.execute(
            update(identities)
            .where(identities.c.user_id == user_id, identities.c.issuer == PASSWORD_ISSUER)
            .values(secret_hash=password_hash)
        )


async def _end_tokens(connection: AsyncConnection, user_id: UUID) -> int:
    found = await connection.execute(
        update(users)
        .where(users.c.id == user_id)
        .values(token_epoch=users.c.token_epoch + 1, version=users.c.version + 1)
        .returning(users.c.token_epoch)
    )
    return int(found.scalar_one())


def _users() -> Select[Any]:
    return (
        select(
            users.c.id,
            users.c.name,
            users.c.role,
            users.c.active,
            domains.c.name.label("domain"),
            projects.c.name.label("project"),
            users.c.os_user,
            users.c.created_at,
        )
        .join(domains, domains.c.id == users.c.domain_id)
        .join(projects, projects.c.id == users.c.project_id)
    )


def _user(row: AnyRow) -> User:
    return User(row.id, row.name, Role(row.role), row.active, row.domain, row.project, row.os_user, row.created_at)


def _unknown(username: str) -> NotFound:
    return NotFound(f"there is no user {username[:63]!r}")
