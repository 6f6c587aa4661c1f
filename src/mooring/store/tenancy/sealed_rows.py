"""Rows that hold something sealed, each bound to its table, its project and its name there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.sealing import OVERHEAD_BYTES, CannotOpen, Sealed, Sealing
from mooring.store import events
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import registry_logins, secrets
from mooring.store.types import AnyRow

_NAMES = {secrets: "name", registry_logins: "registry"}
"""By which column a project knows the rows of each table."""
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Kept:
    """A row as it is: to open it takes the keys of the server."""

    table: str
    project_id: UUID
    name: str
    username: str | None
    """Of a login."""
    sealed: Sealed

    def open(self, sealing: Sealing) -> bytes:
        return sealing.open(self.sealed, *_purpose(self.table, self.project_id, self.name))


async def put(
    connection: AsyncConnection,
    table: Table,
    project_id: UUID,
    name: str,
    value: bytes,
    sealing: Sealing,
    now: datetime,
    **more: Any,
) -> AnyRow | None:
    """Seal something under a name, in the place of what was there: that row, as it was."""
    sealed = sealing.seal(value, *_purpose(table.name, project_id, name))
    this = _this(table, project_id, name)
    values = {"sealed": sealed.data, "key_id": sealed.key_id, "updated_at": now, **more}
    fresh = {"id": new_id(), "project_id": project_id, _NAMES[table]: name, "created_at": now}
    await tell(connection, project_id, now)
    while not await insert_new(connection, table, values | fresh):
        before = (await connection.execute(select(table).where(this).with_for_update())).one_or_none()
        # None: somebody removed it at this very moment.
        if before is not None:
            await connection.execute(update(table).where(this).values(**values))
            return before
    return None


async def remove(
    connection: AsyncConnection, table: Table, project_id: UUID, name: str, now: datetime
) -> AnyRow | None:
    """The row that was there, if one was."""
    gone = await connection.execute(delete(table).where(_this(table, project_id, name)).returning(*table.c))
    found = gone.one_or_none()
    if found is not None:
        await tell(connection, project_id, now)
    return found


async def remove_all(connection: AsyncConnection, project_id: UUID) -> None:
    for table in _NAMES:
        await connection.execute(delete(table).where(table.c.project_id == project_id))


async def named(
    connection: AsyncConnection, table: Table, wanted: Mapping[UUID, Collection[str]]
) -> dict[tuple[UUID, str], Kept]:
    """What projects have under these names; what does not exist is not among it."""
    found: dict[tuple[UUID, str], Kept] = {}
    for project_id, names in wanted.items():
        if names:
            rows = await connection.execute(
                select(table).where(table.c.project_id == project_id, table.c[_NAMES[table]].in_(sorted(names)))
            )
            kept = (_kept(table, row) for row in rows)
            found |= {(project_id, each.name): each for each in kept}
    return found


def size_of(table: Table) -> ColumnElement[int]:
    """Bytes of what is sealed in a row."""
    return (func.length(table.c.sealed) - OVERHEAD_BYTES).label("size")


# --- keys -----------------------------------------------------------------------------------------------------------


async def by_key(connection: AsyncConnection) -> dict[str, int]:
    """How many rows are sealed with each key."""
    found: dict[str, int] = {}
    for table in _NAMES:
        rows = await connection.execute(select(table.c.key_id, func.count()).group_by(table.c.key_id))
        for key_id, count in rows:
            found[key_id] = found.get(key_id, 0) + count
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Position:
    """How far through the rows of older keys somebody is."""

    table: int = 0
    after: UUID | None = None


async def reseal(connection: AsyncConnection, *, sealing: Sealing, position: Position) -> tuple[int, Position | None]:
    """Seal some rows of older keys with the first key: how many, and where to go on. What does not open stays."""
    table = list(_NAMES)[position.table]
    query = select(table).where(table.c.key_id != sealing.key_ids[0]).order_by(table.c.id).limit(_BATCH)
    if position.after is not None:
        query = query.where(table.c.id > position.after)
    rows: Sequence[AnyRow] = (await connection.execute(query.with_for_update())).all()
    resealed = 0
    for row in rows:
        kept = _kept(table, row)
        try:
            value = kept.open(sealing)
        except CannotOpen:
            continue
        sealed = sealing.seal(value, *_purpose(table.name, kept.project_id, kept.name))
        # Whoever put something else there meanwhile sealed it with the first key.
        same = (table.c.id == row.id) & (table.c.sealed == row.sealed)
        await connection.execute(update(table).where(same).values(sealed=sealed.data, key_id=sealed.key_id))
        resealed += 1
    if len(rows) == _BATCH:
        return resealed, Position(position.table, rows[-1].id)
    return resealed, Position(position.table + 1) if position.table + 1 < len(_NAMES) else None


async def tell(connection: AsyncConnection, project_id: UUID, now: datetime) -> None:
    """Tasks of the project that have not started are to get what is there now."""
    await events.append(connection, [events.NewEvent("tenant", project_id, 1, events.SECRETS)], now)


def _this(table: Table, project_id: UUID, name: str) -> ColumnElement[bool]:
    return (table.c.project_id == project_id) & (table.c[_NAMES[table]] == name)


def _kept(table: Table, row: AnyRow) -> Kept:
    sealed = Sealed(row.key_id, bytes(row.sealed))
    return Kept(table.name, row.project_id, getattr(row, _NAMES[table]), getattr(row, "username", None), sealed)


def _purpose(table: str, project_id: UUID, name: str) -> tuple[str, ...]:
    return table, str(project_id), name
