"""Rows with a sealed (encrypted) value, each bound to its table, its project and its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Table, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.security.encryption import (
    OVERHEAD_BYTES,
    CannotOpen,
    Sealed,
    SecretBox,
)
from mooring.store.control import events
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.core.types import AnyRow
from mooring.store.tables import registry_logins, secrets

_NAMES = {secrets: "name", registry_logins: "registry"}
"""The column of each table that identifies a row within its project."""
_BATCH = 100


@dataclass(frozen=True, slots=True)
class SealedRow:
    """A row with its sealed value, which only the server's keys can open."""

    table: str
    project_id: UUID
    name: str
    username: str | None
    """The username of a registry login; None for a secret."""
    sealed: Sealed

    def open(self, secret_box: SecretBox) -> bytes:
        return secret_box.open(self.sealed, *_purpose(self.table, self.project_id, self.name))


async def put(
    connection: AsyncConnection,
    table: Table,
    project_id: UUID,
    name: str,
    value: bytes,
    secret_box: SecretBox,
    now: datetime,
    **more: Any,
) -> AnyRow | None:
    """Store a sealed value under a name and return the row that it replaces, or None if there was none."""
    sealed = secret_box.seal(value, *_purpose(table.name, project_id, name))
    this = _this(table, project_id, name)
    values = {"sealed": sealed.data, "key_id": sealed.key_id, "updated_at": now, **more}
    fresh = {"id": new_id(), "project_id": project_id, _NAMES[table]: name, "created_at": now}
    await notify(connection, project_id, now)
    while not await insert_new(connection, table, values | fresh):
        before = (await connection.execute(select(table).where(this).with_for_update())).one_or_none()
        # None: another transaction has removed the row since the insert.
        if before is not None:
            await connection.execute(update(table).where(this).values(**values))
            return before
    return None


async def remove(
    connection: AsyncConnection, table: Table, project_id: UUID, name: str, now: datetime
) -> AnyRow | None:
    """Remove a row and return it, or None if there was none."""
    gone = await connection.execute(delete(table).where(_this(table, project_id, name)).returning(*table.c))
    found = gone.one_or_none()
    if found is not None:
        await notify(connection, project_id, now)
    return found


async def remove_all(connection: AsyncConnection, project_id: UUID) -> None:
    for table in _NAMES:
        await connection.execute(delete(table).where(table.c.project_id == project_id))


async def named(
    connection: AsyncConnection, table: Table, wanted: Mapping[UUID, Collection[str]]
) -> dict[tuple[UUID, str], SealedRow]:
    """Return the rows of projects with the given names; rows that do not exist are absent."""
    found: dict[tuple[UUID, str], SealedRow] = {}
    for project_id, names in wanted.items():
        if names:
            rows = await connection.execute(
                select(table).where(table.c.project_id == project_id, table.c[_NAMES[table]].in_(sorted(names)))
            )
            sealed = (_sealed_row(table, row) for row in rows)
            found |= {(project_id, each.name): each for each in sealed}
    return found


def size_of(table: Table) -> ColumnElement[int]:
    """Return the size of the sealed value of a row, in bytes."""
    return (func.length(table.c.sealed) - OVERHEAD_BYTES).label("size")


# --- keys -----------------------------------------------------------------------------------------------------------


async def by_key(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of rows sealed with each key."""
    found: dict[str, int] = {}
    for table in _NAMES:
        rows = await connection.execute(select(table.c.key_id, func.count()).group_by(table.c.key_id))
        for key_id, count in rows:
            found[key_id] = found.get(key_id, 0) + count
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Position:
    """Progress of resealing: the index of the table and the last row handled there."""

    table: int = 0
    after: UUID | None = None


async def reseal(
    connection: AsyncConnection, *, secret_box: SecretBox, position: Position
) -> tuple[int, Position | None]:
    """Reseal a batch of rows of older keys with the first key; return their number and the next position.

    Rows that cannot be opened stay as they are. The position is None after the last batch.
    """
    table = list(_NAMES)[position.table]
    query = select(table).where(table.c.key_id != secret_box.key_ids[0]).order_by(table.c.id).limit(_BATCH)
    if position.after is not None:
        query = query.where(table.c.id > position.after)
    rows: Sequence[AnyRow] = (await connection.execute(query.with_for_update())).all()
    resealed = 0
    for row in rows:
        current = _sealed_row(table, row)
        try:
            value = current.open(secret_box)
        except CannotOpen:
            continue
        sealed = secret_box.seal(value, *_purpose(table.name, current.project_id, current.name))
        # A value that was stored since the read is already sealed with the first key: leave it.
        same = (table.c.id == row.id) & (table.c.sealed == row.sealed)
        await connection.execute(update(table).where(same).values(sealed=sealed.data, key_id=sealed.key_id))
        resealed += 1
    if len(rows) == _BATCH:
        return resealed, Position(position.table, rows[-1].id)
    return resealed, Position(position.table + 1) if position.table + 1 < len(_NAMES) else None


async def notify(connection: AsyncConnection, project_id: UUID, now: datetime) -> None:
    """Append an event, so that tasks of the project that have not started receive the current values."""
    await events.append(connection, [events.NewEvent("tenant", project_id, 1, events.SECRETS)], now)


def _this(table: Table, project_id: UUID, name: str) -> ColumnElement[bool]:
    return (table.c.project_id == project_id) & (table.c[_NAMES[table]] == name)


def _sealed_row(table: Table, row: AnyRow) -> SealedRow:
    sealed = Sealed(row.key_id, bytes(row.sealed))
    return SealedRow(table.name, row.project_id, getattr(row, _NAMES[table]), getattr(row, "username", None), sealed)


def _purpose(table: str, project_id: UUID, name: str) -> tuple[str, ...]:
    return table, str(project_id), name
