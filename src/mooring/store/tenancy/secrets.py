"""Secrets of projects, which tasks read from files. Values are stored sealed and opened only for the tasks' nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import not_there
from mooring.security.encryption import SecretBox
from mooring.store.tables import secrets
from mooring.store.tenancy import admin_actions, sealed_rows
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.projects import Project
from mooring.store.tenancy.sealed_rows import SealedRow


@dataclass(frozen=True, slots=True)
class StoredSecret:
    name: str
    size: int
    """Size of the value in bytes."""
    created_at: datetime
    updated_at: datetime


async def put(
    connection: AsyncConnection,
    project: Project,
    name: str,
    value: bytes,
    secret_box: SecretBox,
    *,
    actor: Actor,
    now: datetime,
) -> StoredSecret:
    before = await sealed_rows.put(connection, secrets, project.id, name, value, secret_box, now)
    await admin_actions.record(
        connection,
        actor,
        "create" if before is None else "change",
        "secret",
        _object(project, name),
        now=now,
        after={"size": len(value)},
    )
    return StoredSecret(name, len(value), now if before is None else before.created_at, now)


async def find(connection: AsyncConnection, project: Project, name: str) -> StoredSecret:
    row = (await connection.execute(_secrets(project.id).where(secrets.c.name == name))).one_or_none()
    if row is None:
        raise not_there(f"secret {name!r} in project {project.name!r}")
    return StoredSecret(*row)


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[StoredSecret]:
    return [StoredSecret(*row) for row in await connection.execute(_secrets(project_id).order_by(secrets.c.name))]


async def named(
    connection: AsyncConnection, wanted: Mapping[UUID, Collection[str]]
) -> dict[tuple[UUID, str], SealedRow]:
    """Return the sealed secrets of projects with the given names; secrets that do not exist are absent."""
    return await sealed_rows.named(connection, secrets, wanted)


async def remove(connection: AsyncConnection, project: Project, name: str, *, actor: Actor, now: datetime) -> None:
    if await sealed_rows.remove(connection, secrets, project.id, name, now) is None:
        raise not_there(f"secret {name!r} in project {project.name!r}")
    await admin_actions.record(connection, actor, "remove", "secret", _object(project, name), now=now)


def _secrets(project_id: UUID) -> Select[Any]:
    own = secrets.c
    return select(own.name, sealed_rows.size_of(secrets), own.created_at, own.updated_at).where(
        own.project_id == project_id
    )


def _object(project: Project, name: str) -> str:
    return f"{project.path}/{name}"
