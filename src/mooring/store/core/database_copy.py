"""Copies of whole databases: from SQLite to PostgreSQL, and backups of SQLite files in use."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import Integer, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, InvalidInput
from mooring.store.core.engine import Database
from mooring.store.core.high_water import SUFFIX
from mooring.store.tables import metadata

_ROWS = 1000


async def copy(source: Database, target: Database) -> dict[str, int]:
    """Copy all rows of all tables into an empty database, in one transaction; return the number of rows by table."""
    copied: dict[str, int] = {}
    async with source.snapshot() as reading, target.engine.begin() as writing:
        for table in metadata.sorted_tables:
            if (await writing.execute(select(table).limit(1))).first() is not None:
                raise Conflict(f"the target is not empty: it has rows in {table.name}", code="target-not-empty")
        for table in metadata.sorted_tables:
            number = 0
            rows = await reading.stream(select(table))
            async for part in rows.partitions(_ROWS):
                await writing.execute(insert(table), [dict(row._mapping) for row in part])
                number += len(part)
            copied[table.name] = number
        if writing.dialect.name == "postgresql":
            await _advance_sequences(writing)
    return copied


async def count(database: Database) -> dict[str, int]:
    """Return the number of rows by table."""
    async with database.read() as connection:
        return {
            table.name: int((await connection.execute(select(func.count()).select_from(table))).scalar_one())
            for table in metadata.sorted_tables
        }


async def _advance_sequences(connection: AsyncConnection) -> None:
    """Let sequences continue after the copied numbers."""
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
    """Copy a SQLite database as of one moment, while others read and write it."""
    if not file.exists():
        raise InvalidInput(f"there is no database {file}", code="no-database")
    try:
        # It contains password hashes.
        to.touch(0o600, exist_ok=False)
    except FileExistsError:
        raise InvalidInput(f"{to} already exists; choose another name", code="file-exists") from None
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


def put_in_place(copy: Path, file: Path, previous: Path) -> None:
    """Replace the database `file` by `copy`; keep the old one, with its log and its mark, as `previous`."""
    for part in ("", "-wal", "-shm", SUFFIX):
        with suppress(FileNotFoundError):
            Path(f"{file}{part}").replace(f"{previous}{part}")
    with suppress(FileNotFoundError):
        Path(f"{copy}{SUFFIX}").replace(f"{file}{SUFFIX}")
    copy.replace(file)
