"""The append-only log of administrative actions, each written in the transaction of the change that it records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.tenants import Principal
from mooring.store.tables import admin_actions

LOGIN = "login"
"""The noun of login rows, the only rows that may be purged."""
State = Mapping[str, Any]
"""An object as JSON, without its secrets."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The user that made a change, with its address."""

    user_id: UUID | None
    username: str
    address: str | None = None

    @classmethod
    def of(cls, principal: Principal) -> Actor:
        return cls(principal.user_id, principal.username, principal.address)


SERVER = Actor(None, "mooring")
"""The actor of the server's own changes, such as those of its first start."""


class Recorded(Protocol):
    """The object of an action: it has a state to record and a version that every change increments."""

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
    """Record a change; `version` is the version of the object after it. The states are JSON without secrets."""
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
    """Return the matching actions, newest first; `before_id` is the id of the last action of the previous page."""
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


async def has_logged_in(connection: AsyncConnection, username: str, address: str | None, since: datetime) -> bool:
    """Return whether the user has logged in from this address since the given time."""
    own = admin_actions.c
    found = await connection.execute(
        select(own.id)
        .where(own.noun == LOGIN, own.object == username, own.action == "login")
        .where(own.address == address, own.at >= since)
        .limit(1)
    )
    return found.first() is not None


async def purge_logins(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete the oldest login rows from before the given time and return their number.

    The database refuses to delete other rows.
    """
    oldest = (
        select(admin_actions.c.id)
        .where(admin_actions.c.at < before, admin_actions.c.noun == LOGIN)
        .order_by(admin_actions.c.at)
        .limit(limit)
    )
    gone = await connection.execute(delete(admin_actions).where(admin_actions.c.id.in_(oldest)))
    return gone.rowcount


async def latest_version(connection: AsyncConnection, noun: str, object: str) -> int:
    """Return the version of an object that stores none: that of its last recorded change, or 1 if it has none."""
    this = (admin_actions.c.noun == noun) & (admin_actions.c.object == object)
    found = await connection.execute(select(func.coalesce(func.max(admin_actions.c.version), 1)).where(this))
    return int(found.scalar_one())


async def state_at(connection: AsyncConnection, noun: str, object: str, version: int) -> State | None:
    """Return the state of an object at a version, or None if it is not recorded.

    It is the state after the change to that version, or else the state before the next change.
    """
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
