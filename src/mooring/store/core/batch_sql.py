"""Statements over a set of rows that travels with one execution, so that a thousand rows cost one round trip.

In the text of a statement the rows are the table `{rows}`, with `ordinal` for a row's place in the set from 0 on: on
PostgreSQL arrays that `unnest` puts side by side, on SQLite one JSON text that `json_each` takes apart.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self
from uuid import UUID

import aiosqlite
import msgspec
from sqlalchemy import (
    ARRAY,
    JSON,
    Boolean,
    ColumnElement,
    Dialect,
    Integer,
    String,
    Table,
    TypeDecorator,
    Uuid,
    bindparam,
    literal,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from mooring.store.engine import keeps_copies
from mooring.store.types import UtcDateTime

_LARGE = 50
"""Rows from which on a text of its own is worth it for a statement."""
# A row that is refused undoes the transaction, so SQLite need not be able to undo the statement alone.
_UPDATE = re.compile(r"^\s*UPDATE ")
_DIGITS = 32
"""Of an id."""
_encode = msgspec.json.Encoder(uuid_format="hex").encode


class Statement:
    """SQL with `{rows}`, and `{name}` for a value; `rows` and `values` give PostgreSQL's types by name."""

    def __init__(self, sql: str, rows: Mapping[str, str], *, lock: str = "", **values: str) -> None:
        """`lock`: what stands for `{lock}` on PostgreSQL; on SQLite one writer at a time needs no locks."""
        self._sql, self._lock = sql, lock
        self._rows = tuple(rows.items())
        self._values = {name: kind for name, kind in values.items() if f"{{{name}}}" in sql}
        self._json = [number for number, kind in enumerate(rows.values()) if kind == "jsonb"]
        self._instants = [number for number, kind in enumerate(rows.values()) if kind == "timestamptz"]
        self._shared = [number for number in range(len(rows)) if number not in self._instants]
        self._texts: dict[tuple[str, tuple[int, ...], bool], str] = {}

    async def read(
        self, connection: AsyncConnection, rows: Sequence[tuple[Any, ...]], **values: Any
    ) -> Sequence[Sequence[Any]]:
        """Ask it once for all rows, of which there must be some."""
        sql, parameters = self.prepared(connection.dialect.name, rows, values)
        if connection.dialect.name == "postgresql":
            return (await connection.exec_driver_sql(sql, parameters)).all()
        return list(await driver(connection).execute_fetchall(sql, parameters))

    def prepared(
        self, dialect: str, rows: Sequence[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """What the driver is given for these rows."""
        return self.of_columns(dialect, list(zip(*rows, strict=True)), values)

    def of_columns(
        self, dialect: str, columns: list[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """As `prepared`; a column that is the same in all rows of a large set travels as one value."""
        large = len(columns[0]) >= _LARGE
        same = self._same(columns) if large else ()
        for number in same:
            columns[number] = columns[number][:1]
        for number in self._json:
            if dialect == "postgresql" or number in same:
                columns[number] = tuple(None if value is None else _encode(value).decode() for value in columns[number])
        for number in self._instants if dialect == "sqlite" else ():
            columns[number] = tuple(None if value is None else _instant(value) for value in columns[number])
        given = [*(columns[number][0] for number in same), *(values[name] for name in self._values)]
        varying = [column for number, column in enumerate(columns) if number not in same] if same else columns
        if dialect == "postgresql":
            return self._text(dialect, same), (*varying, *given)
        kinds = [kind for number, (_, kind) in enumerate(self._rows) if number not in same]
        packed = _pack(kinds, varying) if large else None
        rows: Sequence[Any] = packed or (varying[0] if len(varying) == 1 else list(zip(*varying, strict=True)))
        text = self._text(dialect, same, packed=packed is not None)
        return text, (_encode(rows).decode(), *map(_sqlite_value, given))

    def _same(self, columns: Sequence[tuple[Any, ...]]) -> tuple[int, ...]:
        """Not all of them: something has to say how many rows there are."""
        found = [n for n in self._shared if columns[n][0] == columns[n][-1]]
        found = [n for n in found if columns[n].count(columns[n][0]) == len(columns[n])]
        return tuple(found[len(found) == len(columns) :])

    def _text(self, dialect: str, same: tuple[int, ...], *, packed: bool = False) -> str:
        if (dialect, same, packed) not in self._texts:
            self._texts[dialect, same, packed] = self._new_text(dialect, same, packed=packed)
        return self._texts[dialect, same, packed]

    def _new_text(self, dialect: str, same: tuple[int, ...], *, packed: bool) -> str:
        varying = dict(row for number, row in enumerate(self._rows) if number not in same)
        once = dict(self._rows[number] for number in same)
        if dialect == "postgresql":
            kinds = enumerate((once | self._values).items(), start=len(varying) + 1)
            casts = {"jsonb": "text::jsonb"}
            places = {name: f"${number}::{casts.get(kind, kind)}" for number, (name, kind) in kinds}
        else:
            places = {name: f"?{number}" for number, name in enumerate((*once, *self._values), start=2)}
        shared, given = ({name: places[name] for name in names} for names in (once, self._values))
        if dialect == "postgresql":
            return self._sql.format(rows=_unnest(varying, shared), lock=self._lock, **given)
        sql = _UPDATE.sub("UPDATE OR FAIL ", self._sql, count=1)
        return sql.format(rows=_json_each(varying, shared, packed=packed), lock="", **given)


class Update:
    """UPDATE by key that writes only what some row of the batch changes: an index that is not touched costs nothing.

    `always` is set for every batch; the text in `changes` only if its column is neither null, false nor 0 in some row.
    """

    def __init__(
        self, head: str, where: str, rows: Mapping[str, str], *, always: str, changes: Mapping[str, str], **values: str
    ) -> None:
        self._head, self._where = head, where
        self._rows, self._values = rows, values
        self._always, self._changes = always, changes
        self._places = {name: place for place, name in enumerate(rows)}
        self._variants: dict[tuple[str, ...], tuple[Statement, list[int]]] = {}

    def prepared(
        self, dialect: str, rows: Sequence[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        columns = list(zip(*rows, strict=True))
        changed = tuple(name for name in self._changes if any(columns[self._places[name]]))
        if changed not in self._variants:
            self._variants[changed] = self._variant(changed)
        statement, places = self._variants[changed]
        return statement.of_columns(dialect, [columns[place] for place in places], values)

    def _variant(self, changed: tuple[str, ...]) -> tuple[Statement, list[int]]:
        """The statement for batches that change these, and the columns that it needs."""
        settings = ", ".join(part for part in (self._always, *(self._changes[name] for name in changed)) if part)
        sql = f"UPDATE {self._head} SET {settings} FROM {{rows}} i WHERE {self._where}"
        needed = set(re.findall(r"\bi\.(\w+)", sql))
        rows = {name: kind for name, kind in self._rows.items() if name in needed}
        return Statement(sql, rows, **self._values), [self._places[name] for name in rows]


def among(column: ColumnElement[UUID], ids: Collection[UUID] | None = None) -> ColumnElement[bool]:
    """`column` is one of these ids, of which there may be any number: they travel as one value.

    Without `ids` they are the parameter `ids` of the statement, which then need not be built anew for each question.
    """
    given = bindparam("ids", type_=_Ids()) if ids is None else literal(ids, _Ids())
    return _Among(column, given)


class _Among(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True


@compiles(_Among, "postgresql")
def _among_array(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, ids = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} = ANY ({ids})"


@compiles(_Among, "sqlite")
def _among_json(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, ids = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({ids}))"


class _Ids(TypeDecorator[Collection[UUID]]):
    impl = String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(ARRAY(Uuid()) if dialect.name == "postgresql" else String())

    def process_bind_param(self, value: Collection[UUID] | None, dialect: Dialect) -> Any:
        assert value is not None
        return list(value) if dialect.name == "postgresql" else _encode(list(value)).decode()


class NotAsExpected(Exception):
    """Some row is not as a write expected it; what was written with it has to be rolled back."""


class _Prepared(NamedTuple):
    sql: str
    parameters: tuple[Any, ...]
    expected: int | None = None
    """So many rows must be written, or counted by a question."""
    question: bool = False


class Writes:
    """The writes of one transaction, in order: put together first, then made at one go.

    SQLite makes them in its connection's thread without a word to Python in between.
    """

    def __init__(self, dialect: str, *, copies: bool = True) -> None:
        """`copies`: the copies that only people read are written, too."""
        self.dialect, self.copies = dialect, copies
        self._prepared: list[_Prepared] = []

    @classmethod
    def on(cls, connection: AsyncConnection) -> Self:
        return cls(connection.dialect.name, copies=keeps_copies(connection))

    def add(
        self,
        statement: Statement | Update,
        rows: Sequence[tuple[Any, ...]],
        *,
        expected: int | None = None,
        **values: Any,
    ) -> None:
        """A statement, once for all rows, of which there must be some.

        `expected`: so many are written, or it is NotAsExpected.
        """
        sql, parameters = statement.prepared(self.dialect, rows, values)
        self._prepared.append(_Prepared(sql, parameters, expected))

    def add_runs(self, statement: Statement, rows: Sequence[tuple[Any, ...]], *, alike: int, **values: Any) -> None:
        """As `add`, for rows of which long runs have one value in the column `alike`, and with it in others.

        Each run is a statement of its own, so that what its rows share travels once.
        """
        runs = [list(run) for _, run in groupby(rows, key=itemgetter(alike))]
        for run in runs if len(rows) >= _LARGE * len(runs) else [rows]:
            self.add(statement, run, **values)

    def expect(self, count: Statement, rows: Sequence[tuple[Any, ...]]) -> None:
        """NotAsExpected unless the statement counts as many rows as it is given."""
        sql, parameters = count.prepared(self.dialect, rows, {})
        self._prepared.append(_Prepared(sql, parameters, len(rows), question=True))

    def ask(self, statement: Statement, rows: Sequence[tuple[Any, ...]], **values: Any) -> None:
        """A question about what is written by then; `make` gives the answer."""
        sql, parameters = statement.prepared(self.dialect, rows, values)
        self._prepared.append(_Prepared(sql, parameters, question=True))

    def extend(self, others: Writes) -> None:
        self._prepared += others._prepared

    async def make(self, connection: AsyncConnection) -> list[Sequence[Sequence[Any]]]:
        """The answers to what was asked, in order."""
        if self.dialect == "postgresql":
            answers: list[Sequence[Sequence[Any]]] = []
            for one in self._prepared:
                result = await connection.exec_driver_sql(one.sql, one.parameters)
                answers += _checked(one, result.all()) if one.question else _checked(one, [(result.rowcount,)])
            return answers
        opened: Any = driver(connection)
        try:
            # In one turn of the connection's thread, which has to wait for the others of this process at each.
            made: list[Sequence[Sequence[Any]]] = await opened._execute(_make, opened._conn, self._prepared)
        except sqlite3.Error as error:
            raise DBAPIError.instance(None, None, error, sqlite3.Error) from error
        return made


def _make(connection: sqlite3.Connection, prepared: Sequence[_Prepared]) -> list[Sequence[Sequence[Any]]]:
    answers: list[Sequence[Sequence[Any]]] = []
    for one in prepared:
        cursor = connection.execute(one.sql, one.parameters)
        answers += _checked(one, cursor.fetchall() if one.question else [(cursor.rowcount,)])
    return answers


def _checked(one: _Prepared, found: Sequence[Sequence[Any]]) -> list[Sequence[Sequence[Any]]]:
    """The answer, where somebody waits for it."""
    if one.expected is not None and found[0][0] != one.expected:
        raise NotAsExpected
    return [found] if one.question and one.expected is None else []


def driver(connection: AsyncConnection) -> aiosqlite.Connection:
    """SQLite's own connection: it answers in one turn of its thread, without a cursor that is opened and closed."""
    assert connection.sync_connection is not None
    found = connection.sync_connection.connection.driver_connection
    assert isinstance(found, aiosqlite.Connection)
    return found


def insert(writes: Writes, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all name the same columns; there may be none."""
    if rows:
        writes.add(_insertion(table, tuple(rows[0])), [tuple(row.values()) for row in rows])


@lru_cache(maxsize=100)
def _insertion(table: Table, columns: tuple[str, ...]) -> Statement:
    names = ", ".join(map(_quoted, columns))
    kinds = {name: _kind(table.c[name].type) for name in columns}
    return Statement(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {{rows}} i", kinds)


def _kind(column: TypeEngine[Any]) -> str:
    """What PostgreSQL calls the type, or one that it turns into it."""
    for kind, types in _KINDS.items():
        if isinstance(column, types):
            return kind
    raise TypeError(f"{column!r} cannot be a column of a set")


_KINDS: dict[str, tuple[type[Any], ...]] = {
    "uuid": (Uuid,),
    "timestamptz": (UtcDateTime,),
    "jsonb": (JSON,),
    "text": (String,),
    "boolean": (Boolean,),
    "bigint": (Integer,),
}


def _unnest(rows: Mapping[str, str], once: Mapping[str, str]) -> str:
    arrays = ", ".join(
        f"${number}::{'text' if kind == 'jsonb' else kind}[]" for number, kind in enumerate(rows.values(), start=1)
    )
    given = {_quoted(name): kind for name, kind in rows.items()}
    taken = [f"{name}::jsonb AS {name}" if kind == "jsonb" else name for name, kind in given.items()]
    selected = ", ".join(["ordinality - 1 AS ordinal", *taken, *_as(once)])
    names = ", ".join([*given, "ordinality"])
    return f"(SELECT {selected} FROM unnest({arrays}) WITH ORDINALITY AS given({names}))"


def _json_each(rows: Mapping[str, str], once: Mapping[str, str], *, packed: bool) -> str:
    places = [f"value ->> {number}" for number in range(len(rows))] if len(rows) > 1 else ["value"]
    if packed:
        starts = [1 + number * _DIGITS for number in range(len(rows))]
        places = [*(f"substr(value, {start}, {_DIGITS})" for start in starts[:-1]), f"substr(value, {starts[-1]})"]
    taken = [f"{place} AS {_quoted(name)}" for place, name in zip(places, rows, strict=True)]
    return f"(SELECT {', '.join(['key AS ordinal', *taken, *_as(once)])} FROM json_each(?1))"


def _pack(kinds: Sequence[str], columns: Sequence[tuple[Any, ...]]) -> list[str] | None:
    """Ids, and at most one text behind them, as one text per row: SQLite cuts it in half the time that JSON takes.

    None where the columns are others, or something is missing.
    """
    *ids, last = columns
    if not ids or {*kinds[:-1]} != {"uuid"} or kinds[-1] not in ("uuid", "text"):
        return None
    try:
        parts = [[id.hex for id in column] for column in ids]
        tail = [id.hex for id in last] if kinds[-1] == "uuid" else last
        return list(map("".join, zip(*parts, tail, strict=True)))
    except (AttributeError, TypeError):
        return None


def _as(once: Mapping[str, str]) -> list[str]:
    return [f"{place} AS {_quoted(name)}" for name, place in once.items()]


def _quoted(name: str) -> str:
    """A column may be called as a word of SQL."""
    return f'"{name}"'


def _sqlite_value(value: Any) -> Any:
    """As the column types write it."""
    if isinstance(value, datetime):
        return _instant(value)
    return value.hex if isinstance(value, UUID) else value


@lru_cache(maxsize=100)
def _instant(value: datetime) -> str:
    """Most rows of a set have the same ones."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
