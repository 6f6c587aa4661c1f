"""Bring a database to the schema of this version, or back."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from mooring.store.engine import without_haste

_LOCK = 0x6D6F6F72
_MIGRATIONS = Path(__file__).parent / "migrations"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


async def upgrade(engine: AsyncEngine, revision: str = "head") -> None:
    async with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            await without_haste(connection)
            await connection.execute(text("SET LOCAL lock_timeout = 0"))
            # Servers that start at once upgrade one after the other.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(lambda sync: command.upgrade(_config(sync), revision))


async def downgrade(engine: AsyncEngine, revision: str) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(lambda sync: command.downgrade(_config(sync), revision))


async def check(engine: AsyncEngine) -> None:
    """Raise where the migrations and the tables of this version disagree."""
    async with engine.begin() as connection:
        await connection.run_sync(lambda sync: command.check(_config(sync)))


async def current(engine: AsyncEngine) -> str | None:
    async with engine.begin() as connection:
        return await connection.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())


def newest() -> str:
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def is_known(revision: str) -> bool:
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())
