"""On SQLite, statements that name their rows by id read those rows alone, however many others there are."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import CompoundSelect, Select
from sqlalchemy.dialects import sqlite

import mooring.store
from mooring.store.workloads import expiry

_IN_LIST = re.compile(r"\(__\[POSTCOMPILE_\w+\]\)")


def _statements() -> Iterator[Any]:
    for module in pkgutil.walk_packages(mooring.store.__path__, "mooring.store."):
        if ".migrations" in module.name:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Select | CompoundSelect) and "ids" in value.compile(dialect=sqlite.dialect()).params:
                yield pytest.param(value, id=f"{module.name.removeprefix('mooring.store.')}.{name}")


def _plan(database: Path, statement: Any) -> list[str]:
    written = _IN_LIST.sub("('a', 'b')", str(statement.compile(dialect=sqlite.dialect()))).replace("?", "NULL")
    with closing(sqlite3.connect(database)) as connection:
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {written}")]


@pytest.mark.parametrize("statement", list(_statements()))
def test_statement_with_ids_uses_an_index_for_them(sqlite_template: Path, statement: Any) -> None:
    plan = _plan(sqlite_template, statement)
    read = [step for step in plan if step.startswith(("SCAN", "SEARCH")) and "json_each" not in step]
    assert not [step for step in read if step.startswith("SCAN") or "_status (status" in step], plan


def test_tasks_with_a_deadline_are_found_without_reading_the_others(sqlite_template: Path) -> None:
    assert "ix_tasks_deadline_at_alive" in _plan(sqlite_template, expiry._WITH_DEADLINE)[0]
