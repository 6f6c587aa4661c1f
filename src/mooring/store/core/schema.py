"""Upgrades and downgrades of the database schema."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from mooring.store.core.engine import allow_long_statements

_LOCK = 0x6D6F6F72
_IDLE_MINUTES = 5
_MIGRATIONS = Path(__file__).parent / "migrations"
# A migration's file is named after its revision.
_REVISIONS = sorted(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))
_UNRELEASED_REVISIONS = frozenset(f"{number:04}" for number in range(1, 19))


async def upgrade(engine: AsyncEngine, revision: str = "head") -> None:
    async with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            await allow_long_statements(connection)
            await connection.execute(text("SET LOCAL lock_timeout = 0"))
            # On a busy machine the server takes seconds between two statements, and it cannot start without its tables.
            await connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE_MINUTES}min'"))
            # The tables are planned in this process between statements, which takes long on a busy machine.
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            # Servers that start at once upgrade one after the other.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_migrate, "upgrade", revision)


async def downgrade(engine: AsyncEngine, revision: str) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(_migrate, "downgrade", revision)


async def check(engine: AsyncEngine) -> None:
    """Raise if the schema of the database differs from the table definitions of this version."""
    async with engine.begin() as connection:
        await connection.run_sync(_migrate, "check")


async def current(engine: AsyncEngine) -> str | None:
    async with engine.begin() as connection:
        if not await connection.run_sync(lambda sync: inspect(sync).has_table("alembic_version")):
            return None
        found: str | None = await connection.scalar(text("SELECT version_num FROM alembic_version"))
        return found


def newest() -> str:
    return _REVISIONS[-1]


def is_known(revision: str) -> bool:
    return revision in _REVISIONS


def is_unreleased(revision: str) -> bool:
    """Return whether the schema belongs to a version that was never released and from which no upgrade exists."""
    return revision in _UNRELEASED_REVISIONS


def _migrate(connection: Connection, how: Literal["upgrade", "downgrade", "check"], *revision: str) -> None:
    # Imported here to keep alembic out of the start of a server whose schema is current.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(command, how)(config, *revision)
