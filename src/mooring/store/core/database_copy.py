"""A whole database into another: from one machine's file to a PostgreSQL, or into a file beside a running server."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import Integer, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, InvalidInput
from mooring.store.engine import Database
from mooring.store.tables import metadata

_ROWS = 1000


async def copy(source: Database, target: Database) -> dict[str, int]:
    """Every row of every table, in one transaction, into tables that are empty; how many rows of each."""
    copied: dict[str, int] = {}
    async with source.snapshot() as reading, target.engine.begin() as writing:
        for table in metadata.sorted_tables:
            if (await writing.execute(select(table).limit(1))).first() is not None:
                raise Conflict(f"the target is not empty: there are rows in {table.name}", code="target-not-empty")
        for table in metadata.sorted_tables:
            number = 0
            rows = await reading.stream(select(table))
            async for part in rows.partitions(_ROWS):
                await writing.execute(insert(table), [dict(row._mapping) for row in part])
                number += len(part)
            copied[table.name] = number
        if writing.dialect.name == "postgresql":
            await _go_on_counting(writing)
    return copied


async def count(database: Database) -> dict[str, int]:
    """How many rows every table has."""
    async with database.read() as connection:
        return {
            table.name: int((await connection.execute(select(func.count()).select_from(table))).scalar_one())
            for table in metadata.sorted_tables
        }


async def _go_on_counting(connection: AsyncConnection) -> None:
    """Numbers that the database gives out begin after those that were copied."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None and isinstance(column.type, Integer) and len(table.primary_key) == 1:
            await connection.execute(
                text(
                    f"SELECT setval(sequence::regclass, (SELECT coalesce(max({column.name}), 0) + 1 FROM {table.name}),"
                    f" false) FROM (SELECT pg_get_serial_sequence('{table.name}', '{column.name}') AS sequence) AS s"
                    " WHERE sequence IS NOT NULL"
                )
            )


def back_up(file: Path, to: Path) -> None:
    """A copy of a SQLite database as it is at one moment, while others go on reading and writing it."""
    if not file.exists():
        raise InvalidInput(f"there is no database {file}", code="no-database")
    try:
        # There are hashes of passwords in it.
        to.touch(0o600, exist_ok=False)
    except FileExistsError:
        raise InvalidInput(f"{to} exists already; choose another name", code="file-exists") from None
    try:
        with (
            closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
            (answer,) = target.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.DatabaseError as error:
        answer = str(error)
    if answer != "ok":
        to.unlink()
        raise InvalidInput(f"the copy of {file} is damaged: {answer}", code="backup-failed")


def put_in_place(copy: Path, file: Path, aside: Path) -> None:
    """Make `copy` the database `file`; what was there is kept as `aside`, with the log that belongs to it."""
    for part in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{file}{part}").replace(f"{aside}{part}")
    copy.replace(file)
