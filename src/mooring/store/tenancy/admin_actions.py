"""What administrators did: rows that are only ever added, each in the transaction of the change that it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenants import Principal
from mooring.store.tables import admin_actions

State = Mapping[str, Any]
"""An object as JSON, without its secrets."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who made a change, and from where."""

    user_id: UUID | None
    username: str
    address: str | None = None

    @classmethod
    def of(cls, principal: Principal) -> Actor:
        return cls(principal.user_id, principal.username, principal.address)


SERVER = Actor(None, "mooring")
"""What the server does by itself, as at its first start."""


class Recorded(Protocol):
    """What actions are about: it has a state to show and a version that every change raises."""

    @property
    def state(self) -> State: ...

    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class AdminAction:
    id: int
    at: datetime
    user_id: UUID | None
    username: str
    address: str | None
    action: str
    noun: str
    object: str
    version: int | None
    before: State | None
    after: State | None


async def record(
    connection: AsyncConnection,
    actor: Actor,
    action: str,
    noun: str,
    object: str,
    *,
    now: datetime,
    before: State | None = None,
    after: State | None = None,
    version: int | None = None,
) -> None:
    """Tell of a change; `version` is the object's after it. The states are as JSON, without secrets."""
    await connection.execute(
        insert(admin_actions).values(
            at=now,
            user_id=actor.user_id,
            username=actor.username,
            address=actor.address,
            action=action,
            noun=noun,
            object=object,
            version=version,
            before=None if before is None else dict(before),
            after=None if after is None else dict(after),
        )
    )


async def created(
    connection: AsyncConnection, actor: Actor, noun: str, object: str, made: Recorded, now: datetime
) -> None:
    await record(connection, actor, "create", noun, object, now=now, after=made.state, version=made.version)


async def changed(
    connection: AsyncConnection,
    actor: Actor,
    noun: str,
    object: str,
    before: Recorded,
    after: Recorded,
    now: datetime,
    action: str = "change",
) -> None:
    await record(
        connection, actor, action, noun, object, now=now, before=before.state, after=after.state, version=after.version
    )


async def removed(
    connection: AsyncConnection, actor: Actor, noun: str, object: str, gone: Recorded, now: datetime
) -> None:
    await record(connection, actor, "remove", noun, object, now=now, before=gone.state)


async def page(
    connection: AsyncConnection,
    *,
    noun: str | None = None,
    object: str | None = None,
    since: datetime | None = None,
    before_id: int | None = None,
    limit: int,
) -> list[AdminAction]:
    """The newest first; `before_id` goes on behind the last one of an earlier page."""
    query = select(admin_actions)
    if noun is not None:
        query = query.where(admin_actions.c.noun == noun)
    if object is not None:
        query = query.where(admin_actions.c.object == object)
    if since is not None:
        query = query.where(admin_actions.c.at >= since)
    if before_id is not None:
        query = query.where(admin_actions.c.id < before_id)
    rows = await connection.execute(query.order_by(admin_actions.c.id.desc()).limit(limit))
    return [AdminAction(**row._mapping) for row in rows]


async def latest_version(connection: AsyncConnection, noun: str, object: str) -> int:
    """Of what has no version of its own: that of the last change, 1 where nobody changed it."""
    this = (admin_actions.c.noun == noun) & (admin_actions.c.object == object)
    found = await connection.execute(select(func.coalesce(func.max(admin_actions.c.version), 1)).where(this))
    return int(found.scalar_one())


async def state_at(connection: AsyncConnection, noun: str, object: str, version: int) -> State | None:
    """An object as it was at a version: as the change to it left it, or as the next change found it."""
    row = (
        await connection.execute(
            select(admin_actions.c.version, admin_actions.c.before, admin_actions.c.after)
            .where(
                admin_actions.c.noun == noun,
                admin_actions.c.object == object,
                admin_actions.c.version.in_((version, version + 1)),
            )
            .order_by(admin_actions.c.version == version + 1, admin_actions.c.id.desc())
            .limit(1)
        )
    ).one_or_none()
    if row is None:
        return None
    found: State | None = row.after if row.version == version else row.before
    return found
