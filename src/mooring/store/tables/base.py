"""The metadata of all tables, and columns and indexes that several of them share."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, text

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite autoincrements only a column of type INTEGER.
serial = BigInteger().with_variant(Integer, "sqlite")


def amount(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def ended_index(table: str) -> Index:
    """Return an index on the time of the end; rows that have not ended are not in it and cost nothing."""
    ended = text("ended_at IS NOT NULL")
    return Index(f"ix_{table}_ended_at", "ended_at", sqlite_where=ended, postgresql_where=ended)
