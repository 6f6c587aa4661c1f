"""Insert unless present, or replace: single statements that stay correct when two servers run them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_new(connection: AsyncConnection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row; return False if a unique constraint shows that it already exists.

    On PostgreSQL it waits for another transaction that is inserting the same row; the next statement can read that row.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    found = await connection.execute(
        insert(table).values(**values).on_conflict_do_nothing().returning(*table.primary_key.columns)
    )
    return found.first() is not None


async def insert_or_replace(
    connection: AsyncConnection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Insert a row, or set these values where a row with this key exists."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    await connection.execute(
        insert(table).values(**key, **values).on_conflict_do_update(index_elements=list(key), set_=dict(values))
    )
