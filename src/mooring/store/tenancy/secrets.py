"""Secrets of projects: what their tasks find in files. Values go in, and come out for the tasks' nodes only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import not_there
from mooring.sealing import Sealing
from mooring.store import actions, sealed
from mooring.store.actions import Actor
from mooring.store.projects import Project
from mooring.store.sealed import Kept
from mooring.store.tables import secrets


@dataclass(frozen=True, slots=True)
class KeptSecret:
    name: str
    size: int
    """Bytes."""
    created_at: datetime
    updated_at: datetime


async def put(
    connection: AsyncConnection,
    project: Project,
    name: str,
    value: bytes,
    sealing: Sealing,
    *,
    actor: Actor,
    now: datetime,
) -> KeptSecret:
    before = await sealed.put(connection, secrets, project.id, name, value, sealing, now)
    await actions.record(
        connection,
        actor,
        "create" if before is None else "change",
        "secret",
        _object(project, name),
        now=now,
        after={"size": len(value)},
    )
    return KeptSecret(name, len(value), now if before is None else before.created_at, now)


async def find(connection: AsyncConnection, project: Project, name: str) -> KeptSecret:
    row = (await connection.execute(_secrets(project.id).where(secrets.c.name == name))).one_or_none()
    if row is None:
        raise not_there(f"secret {name!r} in project {project.name!r}")
    return KeptSecret(*row)


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[KeptSecret]:
    return [KeptSecret(*row) for row in await connection.execute(_secrets(project_id).order_by(secrets.c.name))]


async def named(connection: AsyncConnection, wanted: Mapping[UUID, Collection[str]]) -> dict[tuple[UUID, str], Kept]:
    """Secrets of projects by their names, sealed; what does not exist is not among them."""
    return await sealed.named(connection, secrets, wanted)


async def remove(connection: AsyncConnection, project: Project, name: str, *, actor: Actor, now: datetime) -> None:
    if await sealed.remove(connection, secrets, project.id, name, now) is None:
        raise not_there(f"secret {name!r} in project {project.name!r}")
    await actions.record(connection, actor, "remove", "secret", _object(project, name), now=now)


def _secrets(project_id: UUID) -> Select[Any]:
    own = secrets.c
    return select(own.name, sealed.size_of(secrets), own.created_at, own.updated_at).where(own.project_id == project_id)


def _object(project: Project, name: str) -> str:
    return f"{project.path}/{name}"
