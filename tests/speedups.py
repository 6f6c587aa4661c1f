"""What the tests of one process share so that each of them is quick; it has no part in what they prove."""

import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.ext.asyncio import create_async_engine

from mooring.store import engine

_LONGEST = [Path(__file__).parent / room for room in ("simulation", "system", "properties")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: at the end no worker waits for the last long one of another."""
    items.sort(
        key=lambda item: next((at for at, folder in enumerate(_LONGEST) if folder in item.path.parents), len(_LONGEST))
    )


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not go through it again and again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once() -> Iterator[None]:
    """Each test opens a database of its own, which would compile the same statements again."""
    with pytest.MonkeyPatch.context() as patch:
        shared = partial(create_async_engine, execution_options={"compiled_cache": {}})
        patch.setattr(engine, "create_async_engine", shared)
        # Compiled statements belong to a dialect, and an engine makes its own.
        for dialect in (SQLiteDialect_aiosqlite, PGDialect_asyncpg):
            patch.setattr(dialect, "get_async_dialect_cls", _made_once(dialect))
        yield


def _made_once(dialect: Any) -> Any:
    made: dict[Any, Any] = {}

    class Once(dialect):  # type: ignore[misc]
        supports_statement_cache = True

        def __new__(cls, *, json_deserializer: Any = None, **_options: Any) -> Any:
            return made.setdefault(json_deserializer, super().__new__(cls))

        def __init__(self, **options: Any) -> None:
            if not vars(self):
                super().__init__(**options)

    return lambda url: Once
