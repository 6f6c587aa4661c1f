"""Caches that the tests of one process share. They save time and change no result."""

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.ext.asyncio import create_async_engine

from mooring.store.core import engine


def pytest_collection_finish() -> None:
    """Exempt imported modules from garbage collection: they live until the process ends."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def shared_statement_cache() -> Iterator[None]:
    """Compile each SQL statement once per process. Every test opens its own database, which would compile it again."""
    with pytest.MonkeyPatch.context() as patch:
        shared = partial(create_async_engine, execution_options={"compiled_cache": {}})
        patch.setattr(engine, "create_async_engine", shared)
        # Compiled statements belong to a dialect, and each engine creates its own dialect.
        for dialect in (SQLiteDialect_aiosqlite, PGDialect_asyncpg):
            patch.setattr(dialect, "get_async_dialect_cls", _singleton(dialect))
        yield


def _singleton(dialect: Any) -> Any:
    instances: dict[Any, Any] = {}

    class Singleton(dialect):  # type: ignore[misc]
        supports_statement_cache = True

        def __new__(cls, *, json_deserializer: Any = None, **_options: Any) -> Any:
            return instances.setdefault(json_deserializer, super().__new__(cls))

        def __init__(self, **options: Any) -> None:
            if not vars(self):
                super().__init__(**options)

    return lambda url: Singleton
