"""Queries that are compiled once: frequent ones would spend most of their time in SQLAlchemy's execution of them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Dialect, Float, Select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import iterate

from mooring.store.core.postgres import execute
from mooring.store.core.sqlite import fetch_each
from mooring.store.core.types import AnyRow

_Convert = Callable[[Any], Any]


class Query:
    """A SELECT, compiled once per kind of database. Its parameters are those of `bindparam`, by name."""

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    async def rows(self, connection: AsyncConnection, **parameters: Any) -> list[AnyRow]:
        """Return the rows, whose columns are read by position or by name."""
        [found] = await rows_of(connection, (self, parameters))
        return found

    def compiled(self, dialect: Dialect) -> _Compiled:
        if dialect.name not in self._compiled:
            self._compiled[dialect.name] = _Compiled.of(self._statement, dialect)
        return self._compiled[dialect.name]


async def rows_of(connection: AsyncConnection, *asked: tuple[Query, dict[str, Any]]) -> list[list[AnyRow]]:
    """Return the rows of each query with its parameters; on SQLite in one call to the thread of the connection."""
    compiled = [(query.compiled(connection.dialect), parameters) for query, parameters in asked]
    statements = [(one.sql, one.values(parameters)) for one, parameters in compiled]
    if connection.dialect.name == "postgresql":
        answers: list[Sequence[Any]] = [(await execute(connection, *statement)).rows for statement in statements]
    else:
        answers = await fetch_each(connection, statements)
    return [one.converted(rows) for (one, _), rows in zip(compiled, answers, strict=True)]


class _Compiled(NamedTuple):
    sql: str
    parameters: list[tuple[str, Any, _Convert | None]]
    """By position: the name, the default, and the conversion to the value that the driver takes."""
    columns: list[tuple[int, _Convert]]
    """The columns that are converted from the values of the driver."""
    row: Any

    @classmethod
    def of(cls, statement: Select[Any], dialect: Dialect) -> _Compiled:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        # It expands lists of constants, but only if every parameter has some value.
        unset = {each.key: None for each in iterate(statement) if isinstance(each, BindParameter) and each.required}
        expanded = compiled.construct_expanded_state(unset)
        given = expanded.parameters
        converts: Any = {**compiled._bind_processors, **expanded.processors}
        columns: list[Any] = list(compiled._result_columns)
        results = [_result_processor(column.type, dialect) for column in columns]
        return cls(
            expanded.statement,
            [(name, given.get(name), converts.get(name)) for name in expanded.positiontup or ()],
            [(number, convert) for number, convert in enumerate(results) if convert is not None],
            namedtuple("Row", [column.keyname for column in columns], rename=True),
        )

    def values(self, parameters: dict[str, Any]) -> tuple[Any, ...]:
        values = ((parameters.get(name, default), convert) for name, default, convert in self.parameters)
        return tuple(value if convert is None else convert(value) for value, convert in values)

    def converted(self, rows: Sequence[Any]) -> list[AnyRow]:
        """Return the rows as the types of their columns give them."""
        if self.columns and rows:
            columns = list(zip(*rows, strict=True))
            for number, convert in self.columns:
                columns[number] = tuple(map(convert, columns[number]))
            rows = list(zip(*columns, strict=True))
        return list(map(self.row._make, rows))


def _result_processor(kind: Any, dialect: Dialect) -> _Convert | None:
    # Both drivers return floats as such; SQLAlchemy would ask for the driver's own type of the column first.
    return None if isinstance(kind, Float) else kind._cached_result_processor(dialect, None)
