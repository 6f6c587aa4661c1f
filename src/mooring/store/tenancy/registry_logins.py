"""Logins of projects to image registries. Passwords are stored sealed and opened only for nodes that pull images."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import not_there
from mooring.security.encryption import SecretBox
from mooring.store.tables import registry_logins
from mooring.store.tenancy import admin_actions, sealed_rows
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.projects import Project
from mooring.store.tenancy.sealed_rows import SealedRow


@dataclass(frozen=True, slots=True)
class StoredLogin:
    registry: str
    username: str
    created_at: datetime
    updated_at: datetime


async def put(
    connection: AsyncConnection,
    project: Project,
    registry: str,
    username: str,
    password: str,
    secret_box: SecretBox,
    *,
    actor: Actor,
    now: datetime,
) -> StoredLogin:
    value = password.encode()
    before = await sealed_rows.put(
        connection, registry_logins, project.id, registry, value, secret_box, now, username=username
    )
    await admin_actions.record(
        connection,
        actor,
        "create" if before is None else "change",
        "registry",
        _object(project, registry),
        now=now,
        before=None if before is None else {"username": before.username},
        after={"username": username},
    )
    return StoredLogin(registry, username, now if before is None else before.created_at, now)


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[StoredLogin]:
    own = registry_logins.c
    rows = await connection.execute(
        select(own.registry, own.username, own.created_at, own.updated_at)
        .where(own.project_id == project_id)
        .order_by(own.registry)
    )
    return [StoredLogin(*row) for row in rows]


async def named(
    connection: AsyncConnection, wanted: Mapping[UUID, Collection[str]]
) -> dict[tuple[UUID, str], SealedRow]:
    """Return the sealed logins of projects to the given registries; logins that do not exist are absent."""
    return await sealed_rows.named(connection, registry_logins, wanted)


async def remove(connection: AsyncConnection, project: Project, registry: str, *, actor: Actor, now: datetime) -> None:
    gone = await sealed_rows.remove(connection, registry_logins, project.id, registry, now)
    if gone is None:
        raise not_there(f"login of project {project.name!r} to {registry!r}")
    before = {"username": gone.username}
    await admin_actions.record(
        connection, actor, "remove", "registry", _object(project, registry), now=now, before=before
    )


def _object(project: Project, registry: str) -> str:
    return f"{project.path}/{registry}"
