"""PostgreSQL's statistics of tables that have grown: its plans depend on them.

Prepared statements keep plans that were made for nearly empty tables until the tables are analyzed. Autovacuum does
this about a minute after a table has grown. Until then statements scan tables in which they should look rows up.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_FEWEST_ROWS = 500
"""A table with fewer rows needs no statistics: any plan is fast."""
# The number of live rows is counted as they are written; `reltuples` is that of the last analysis, or -1. Since a table
# must double, it is analyzed a few times while it grows, however fast that is.
_GROWN = text(
    f"""
    SELECT quote_ident(activity.schemaname) || '.' || quote_ident(activity.relname)
    FROM pg_stat_user_tables AS activity
    JOIN pg_class AS analyzed ON analyzed.oid = activity.relid
    WHERE activity.schemaname = current_schema()
      AND activity.n_live_tup > {_FEWEST_ROWS} + 2 * greatest(analyzed.reltuples, 0)
    ORDER BY activity.relname
    """
)


async def analyze_grown_tables(connection: AsyncConnection) -> list[str]:
    """Analyze every table that has more than doubled since its last analysis, and return these tables."""
    grown = list((await connection.execute(_GROWN)).scalars())
    for table in grown:
        await connection.execute(text(f"ANALYZE {table}"))
    return grown
