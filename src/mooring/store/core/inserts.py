"""Insert unless it is there: the one statement that stays correct when two servers do it at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


async def insert_new(connection: AsyncConnection, table: Table, values: Mapping[str, Any]) -> bool:
    """True if the row is new, False if a unique constraint of the table already holds it.

    On PostgreSQL it waits for another transaction that is inserting the same row; what that one committed can be read
    by the next statement.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    found = await connection.execute(
        insert(table).values(**values).on_conflict_do_nothing().returning(*table.primary_key.columns)
    )
    return found.first() is not None
