"""How projects log in to registries of images. Passwords go in, and come out for the nodes that pull only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import not_there
from mooring.sealing import Sealing
from mooring.store import actions, sealed
from mooring.store.actions import Actor
from mooring.store.projects import Project
from mooring.store.sealed import Kept
from mooring.store.tables import registry_logins


@dataclass(frozen=True, slots=True)
class KeptLogin:
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
    sealing: Sealing,
    *,
    actor: Actor,
    now: datetime,
) -> KeptLogin:
    value = password.encode()
    before = await sealed.put(connection, registry_logins, project.id, registry, value, sealing, now, username=username)
    await actions.record(
        connection,
        actor,
        "create" if before is None else "change",
        "registry",
        _object(project, registry),
        now=now,
        before=None if before is None else {"username": before.username},
        after={"username": username},
    )
    return KeptLogin(registry, username, now if before is None else before.created_at, now)


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[KeptLogin]:
    own = registry_logins.c
    rows = await connection.execute(
        select(own.registry, own.username, own.created_at, own.updated_at)
        .where(own.project_id == project_id)
        .order_by(own.registry)
    )
    return [KeptLogin(*row) for row in rows]


async def named(connection: AsyncConnection, wanted: Mapping[UUID, Collection[str]]) -> dict[tuple[UUID, str], Kept]:
    """Logins of projects by the registries, sealed; what does not exist is not among them."""
    return await sealed.named(connection, registry_logins, wanted)


async def remove(connection: AsyncConnection, project: Project, registry: str, *, actor: Actor, now: datetime) -> None:
    gone = await sealed.remove(connection, registry_logins, project.id, registry, now)
    if gone is None:
        raise not_there(f"login of project {project.name!r} to {registry!r}")
    before = {"username": gone.username}
    await actions.record(connection, actor, "remove", "registry", _object(project, registry), now=now, before=before)


def _object(project: Project, registry: str) -> str:
    return f"{project.path}/{registry}"
