"""Bring a database to the schema of this version, or back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from mooring.store.engine import without_haste

_LOCK = 0x6D6F6F72
_MIGRATIONS = Path(__file__).parent / "migrations"
# A migration's file is named after its revision.
_REVISIONS = sorted(file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


async def upgrade(engine: AsyncEngine, revision: str = "head") -> None:
    async with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            await without_haste(connection)
            await connection.execute(text("SET LOCAL lock_timeout = 0"))
            # Servers that start at once upgrade one after the other.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_migrate, "upgrade", revision)


async def downgrade(engine: AsyncEngine, revision: str) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(_migrate, "downgrade", revision)


async def check(engine: AsyncEngine) -> None:
    """Raise where the migrations and the tables of this version disagree."""
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


def _migrate(connection: Connection, how: Literal["upgrade", "downgrade", "check"], *revision: str) -> None:
    # Imported here: a server that finds its tables as they should be starts without it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    getattr(command, how)(config, *revision)
