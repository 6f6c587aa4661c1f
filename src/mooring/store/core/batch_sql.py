"""Batch statements: a set of rows is sent with one execution, so that a thousand rows need one round trip.

In the SQL text the rows are the table `{rows}`, with the position of a row, from 0, as `ordinal`. PostgreSQL gets
arrays and combines them with `unnest`; SQLite gets one JSON text and splits it with `json_each`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self, TypeVar
from uuid import UUID

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

from mooring.model.events import Topic
from mooring.store.core.engine import origin_of, writes_ledger_copies, written_topics
from mooring.store.core.postgres import execute
from mooring.store.core.sqlite import defer, driver_connection, fetch_each
from mooring.store.core.types import UtcDateTime

V = TypeVar("V")

_LARGE = 50
"""From this number of rows on, a specialised SQL text pays off."""
# A rejected row rolls back the transaction, so SQLite does not need to be able to undo the statement alone.
_UPDATE = re.compile(r"^\s*UPDATE ")
# Of the given rows alone, so that it does not matter what other statements have written.
_PLAIN_WRITE = re.compile(
    r"\s*(?:INSERT INTO (\w+)\s+\([^()]*\)|SELECT (pg_notify)\([^()]*\))[^()]*\bFROM \{rows\} i\s*"
)
_SUBQUERY = re.compile(r"\bSELECT\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\$(\d+)")
_DIGITS = 32
"""The length of an id in hexadecimal."""
_encode = msgspec.json.Encoder(uuid_format="hex").encode


class Statement:
    """SQL with `{rows}`, and `{name}` for single values; `rows` and `values` give the PostgreSQL types by name."""

    def __init__(
        self, sql: str, rows: Mapping[str, str], *, lock: str = "", only: str | None = None, **values: str
    ) -> None:
        """`lock`: the text of `{lock}` on PostgreSQL. SQLite has one writer at a time and needs no locks.

        `only`: the table that it writes, where it reads no other one.
        """
        self._sql, self._lock = sql, lock
        plain = _PLAIN_WRITE.fullmatch(sql)
        self.target: str | None = only or (plain and (plain[1] or plain[2]))
        """The only table that it reads and writes, so that it can run together with writes of others."""
        self._rows = tuple(rows.items())
        self._values = {name: kind for name, kind in values.items() if f"{{{name}}}" in sql}
        self._json = [number for number, kind in enumerate(rows.values()) if kind == "jsonb"]
        self._instants = [number for number, kind in enumerate(rows.values()) if kind == "timestamptz"]
        self._shared = [number for number in range(len(rows)) if number not in self._instants]
        self._texts: dict[tuple[str, tuple[int, ...], bool], str] = {}

    async def read(
        self, connection: AsyncConnection, rows: Sequence[tuple[Any, ...]], **values: Any
    ) -> Sequence[Sequence[Any]]:
        """Run the query once for all rows, at least one, and return the result."""
        sql, parameters = self.prepared(connection.dialect.name, rows, values)
        if connection.dialect.name == "postgresql":
            return (await execute(connection, sql, parameters)).rows
        return list(await driver_connection(connection).execute_fetchall(sql, parameters))

    def read_in_thread(
        self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]
    ) -> Sequence[Sequence[Any]]:
        """As `read`, on a SQLite connection in its own thread."""
        return connection.execute(*self.prepared("sqlite", rows, {})).fetchall()

    def prepared(
        self, dialect: str, rows: Sequence[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """Return SQL and parameters for these rows."""
        return self.of_columns(dialect, list(zip(*rows, strict=True)), values)

    def of_columns(
        self, dialect: str, columns: list[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        """As `prepared`, by columns. In a large set, a column with one value in all rows is sent as a single value."""
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
        """Return the columns with one value in all rows; at least one other column must give the number of rows."""
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
            placeholders = {name: f"${number}::{casts.get(kind, kind)}" for number, (name, kind) in kinds}
        else:
            placeholders = {name: f"?{number}" for number, name in enumerate((*once, *self._values), start=2)}
        shared, given = ({name: placeholders[name] for name in names} for names in (once, self._values))
        if dialect == "postgresql":
            return self._sql.format(rows=_unnest(varying, shared), lock=self._lock, **given)
        sql = _UPDATE.sub("UPDATE OR FAIL ", self._sql, count=1)
        return sql.format(rows=_json_each(varying, shared, packed=packed), lock="", **given)


async def read_each(
    connection: AsyncConnection, *asked: tuple[Statement, Sequence[tuple[Any, ...]]]
) -> list[Sequence[Sequence[Any]]]:
    """As `Statement.read` for several statements, each with its rows, if it has any; on SQLite in one call."""
    if connection.dialect.name == "postgresql":
        return [await statement.read(connection, rows) if rows else () for statement, rows in asked]
    given = [statement.prepared("sqlite", rows, {}) for statement, rows in asked if rows]
    found = iter(await fetch_each(connection, given) if given else ())
    return [next(found) if rows else () for _, rows in asked]


class Update:
    """UPDATE by key that sets only columns that a row of the batch changes, so that other indexes are not updated.

    `always` is set for every batch; an entry of `changes` only if its column is neither null, false nor 0 in some row.
    """

    def __init__(
        self, head: str, where: str, rows: Mapping[str, str], *, always: str, changes: Mapping[str, str], **values: str
    ) -> None:
        self._head, self._where = head, where
        own = not any(_SUBQUERY.search(text) for text in (where, always, *changes.values()))
        self.target = head.split()[0] if own else None
        """See `Statement.target`."""
        self._rows, self._values = rows, values
        self._always, self._changes = always, changes
        self._positions = {name: position for position, name in enumerate(rows)}
        self._variants: dict[tuple[str, ...], tuple[Statement, list[int]]] = {}

    def prepared(
        self, dialect: str, rows: Sequence[tuple[Any, ...]], values: Mapping[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        columns = list(zip(*rows, strict=True))
        changed = tuple(name for name in self._changes if any(columns[self._positions[name]]))
        if changed not in self._variants:
            self._variants[changed] = self._variant(changed)
        statement, positions = self._variants[changed]
        return statement.of_columns(dialect, [columns[position] for position in positions], values)

    def _variant(self, changed: tuple[str, ...]) -> tuple[Statement, list[int]]:
        """Return the statement for batches that change these columns, and the positions of its columns."""
        settings = ", ".join(part for part in (self._always, *(self._changes[name] for name in changed)) if part)
        sql = f"UPDATE {self._head} SET {settings} FROM {{rows}} i WHERE {self._where}"
        needed = set(re.findall(r"\bi\.(\w+)", sql))
        rows = {name: kind for name, kind in self._rows.items() if name in needed}
        return Statement(sql, rows, **self._values), [self._positions[name] for name in rows]


def among(column: ColumnElement[UUID], ids: Collection[UUID] | None = None) -> ColumnElement[bool]:
    """Return the condition that the column is one of these ids, of any number: they are sent as one value.

    Without `ids`, the statement has a parameter `ids`, so that it can be built once and reused.
    """
    given = bindparam("ids", type_=_Ids()) if ids is None else literal(ids, _Ids())
    return _Among(column, given)


def by_other_index(column: ColumnElement[V]) -> ColumnElement[V]:
    """Return the column for a condition that SQLite shall not look up in an index.

    It has no statistics, and would rather read all tasks with a status than those of a few ids.
    """
    return _ByOtherIndex(column)


class _ByOtherIndex(FunctionElement[Any]):
    inherit_cache = True

    def __init__(self, column: ColumnElement[Any]) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(_ByOtherIndex)
def _plain_column(element: _ByOtherIndex, compiler: SQLCompiler, **options: Any) -> str:
    [column] = element.clauses
    return str(compiler.process(column, **options))


@compiles(_ByOtherIndex, "sqlite")
def _column_without_index(element: _ByOtherIndex, compiler: SQLCompiler, **options: Any) -> str:
    return f"+{_plain_column(element, compiler, **options)}"


class _Among(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True
    # Otherwise SQLAlchemy appends `= 1` on SQLite, which then uses no index for it.
    _is_implicitly_boolean = True


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
    """A write did not find the rows that it expected; its transaction has to be rolled back."""


class _Prepared(NamedTuple):
    sql: str
    parameters: tuple[Any, ...]
    expected: int | None = None
    """Required number of rows: written, or counted by a query."""
    is_query: bool = False
    target: str | None = None
    """Of a small set of rows that can be written together with those of other tables."""


class Writes:
    """The writes of one transaction, in order: collected first, then executed at once.

    On SQLite the thread of the connection executes all of them in one call.
    """

    def __init__(self, dialect: str, *, copies: bool = True, origin: str = "") -> None:
        """`copies`: also write the readable copies of the ledger. `origin`: marks the notifications of this process."""
        self.dialect, self.copies, self.origin = dialect, copies, origin
        self.topics: set[Topic] = set()
        """The topics of the events among these writes."""
        self._prepared: list[_Prepared] = []

    @classmethod
    def on(cls, connection: AsyncConnection) -> Self:
        return cls(connection.dialect.name, copies=writes_ledger_copies(connection), origin=origin_of(connection))

    def add(
        self,
        statement: Statement | Update,
        rows: Sequence[tuple[Any, ...]],
        *,
        expected: int | None = None,
        **values: Any,
    ) -> None:
        """Add a statement, executed once for all rows, at least one.

        `expected`: raise NotAsExpected unless this number of rows is written.
        """
        sql, parameters = statement.prepared(self.dialect, rows, values)
        target = statement.target if len(rows) < _LARGE else None
        self._prepared.append(_Prepared(sql, parameters, expected, target=target))

    def add_runs(self, statement: Statement, rows: Sequence[tuple[Any, ...]], *, alike: int, **values: Any) -> None:
        """As `add`, for rows with long runs of one value in the column `alike`, and often in others.

        Each run becomes a statement of its own, so that the shared values are sent once.
        """
        runs = [list(run) for _, run in groupby(rows, key=itemgetter(alike))]
        for run in runs if len(rows) >= _LARGE * len(runs) else [rows]:
            self.add(statement, run, **values)

    def expect(self, count: Statement, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add a query; raise NotAsExpected unless it counts as many rows as it is given."""
        sql, parameters = count.prepared(self.dialect, rows, {})
        self._prepared.append(_Prepared(sql, parameters, len(rows), is_query=True))

    def ask(self, statement: Statement, rows: Sequence[tuple[Any, ...]], **values: Any) -> None:
        """Add a query that sees the writes before it; `execute` returns its result."""
        sql, parameters = statement.prepared(self.dialect, rows, values)
        self._prepared.append(_Prepared(sql, parameters, is_query=True))

    def extend(self, others: Writes) -> None:
        self._prepared += others._prepared
        self.topics |= others.topics

    async def execute(self, connection: AsyncConnection, *, last: bool = False) -> list[Sequence[Sequence[Any]]]:
        """Execute the writes in order, and return the results of the queries that `ask` added.

        `last`: nothing follows in this transaction, so that SQLite executes them together with the commit, which then
        raises their errors. There may be no queries of `ask` among them.
        """
        if not self._prepared:
            return []
        if self.topics:
            written_topics(connection).update(self.topics)
        if last and self.dialect == "sqlite":
            prepared = tuple(self._prepared)
            defer(connection, lambda opened: _require_no_answers(_execute_all(opened, prepared)))
            return []
        if self.dialect == "postgresql":
            answers: list[Sequence[Sequence[Any]]] = []
            for group in _in_few_round_trips(self._prepared):
                one = group[0] if len(group) == 1 else _joined(group)
                outcome = await execute(connection, one.sql, one.parameters)
                if len(group) == 1:
                    answers += _checked(one, outcome.rows if one.is_query else [(outcome.rowcount,)])
                else:
                    for part, number in zip(group, outcome.rows[0], strict=True):
                        _checked(part, [(number,)])
            return answers
        opened: Any = driver_connection(connection)
        try:
            # In one call to the thread of the connection: each call waits for the other threads of this process.
            made: list[Sequence[Sequence[Any]]] = await opened._execute(_execute_all, opened._conn, self._prepared)
        except sqlite3.Error as error:
            raise DBAPIError.instance(None, None, error, sqlite3.Error) from error
        return made


def _in_few_round_trips(prepared: Sequence[_Prepared]) -> list[list[_Prepared]]:
    """Group neighbours that write different tables, and read no other, for one statement of PostgreSQL each.

    Its foreign keys are checked at the end of the statement, so that rows may refer to each other. Its parts run in
    their order, which is that of the locks that they take.
    """
    groups: list[list[_Prepared]] = []
    for one in prepared:
        targets = {other.target for other in groups[-1]} if groups else {None}
        if one.target is None or targets & {None, one.target}:
            groups.append([one])
        else:
            groups[-1].append(one)
    return groups


def _joined(group: Sequence[_Prepared]) -> _Prepared:
    """Return the statement of a group. It returns how many rows each part has written."""
    sql = _joined_text(tuple((one.sql, len(one.parameters)) for one in group))
    return _Prepared(sql, tuple(value for one in group for value in one.parameters))


@lru_cache(maxsize=256)
def _joined_text(statements: tuple[tuple[str, int], ...]) -> str:
    """Return one statement for several, each given with the number of its parameters."""
    parts: list[str] = []
    before = 0
    for position, (sql, number) in enumerate(statements):
        text = _PARAMETER.sub(partial(_renumbered, before), sql)
        # A SELECT, which notifies, is executed only because its rows are counted.
        written = f"MATERIALIZED ({text})" if text.lstrip().startswith("SELECT") else f"({text} RETURNING 1)"
        parts.append(f"part_{position} AS {written}")
        before += number
    counts = ", ".join(f"(SELECT count(*) FROM part_{position})" for position in range(len(parts)))
    return f"WITH {', '.join(parts)} SELECT {counts}"


def _renumbered(before: int, parameter: re.Match[str]) -> str:
    return f"${int(parameter[1]) + before}"


def _require_no_answers(answers: Sequence[object]) -> None:
    assert not answers, "nobody gets the answers to queries among the last writes of a transaction"


def _execute_all(connection: sqlite3.Connection, prepared: Sequence[_Prepared]) -> list[Sequence[Sequence[Any]]]:
    answers: list[Sequence[Sequence[Any]]] = []
    for one in prepared:
        cursor = connection.execute(one.sql, one.parameters)
        answers += _checked(one, cursor.fetchall() if one.is_query else [(cursor.rowcount,)])
    return answers


def _checked(one: _Prepared, found: Sequence[Sequence[Any]]) -> list[Sequence[Sequence[Any]]]:
    """Check the number of rows, and return the result if `ask` added the query."""
    if one.expected is not None and found[0][0] != one.expected:
        raise NotAsExpected
    return [found] if one.is_query and one.expected is None else []


def insert(writes: Writes, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns; there may be none."""
    if rows:
        writes.add(_insertion(table, tuple(rows[0])), [tuple(row.values()) for row in rows])


@lru_cache(maxsize=100)
def _insertion(table: Table, columns: tuple[str, ...]) -> Statement:
    names = ", ".join(map(_quoted, columns))
    kinds = {name: _kind(table.c[name].type) for name in columns}
    return Statement(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {{rows}} i", kinds)


def _kind(column: TypeEngine[Any]) -> str:
    """Return the PostgreSQL type, or one that PostgreSQL converts to it."""
    for kind, types in _KINDS.items():
        if isinstance(column, types):
            return kind
    raise TypeError(f"{column!r} cannot be a column of a batch")


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
    values = [f"value ->> {number}" for number in range(len(rows))] if len(rows) > 1 else ["value"]
    if packed:
        starts = [1 + number * _DIGITS for number in range(len(rows))]
        values = [*(f"substr(value, {start}, {_DIGITS})" for start in starts[:-1]), f"substr(value, {starts[-1]})"]
    taken = [f"{value} AS {_quoted(name)}" for value, name in zip(values, rows, strict=True)]
    return f"(SELECT {', '.join(['key AS ordinal', *taken, *_as(once)])} FROM json_each(?1))"


def _pack(kinds: Sequence[str], columns: Sequence[tuple[Any, ...]]) -> list[str] | None:
    """Return ids, and at most one text after them, as one text per row, which SQLite splits in half the time of JSON.

    Return None for other columns, and if a value is missing.
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
    return [f"{placeholder} AS {_quoted(name)}" for name, placeholder in once.items()]


def _quoted(name: str) -> str:
    """Quote a name: a column may have the name of an SQL keyword."""
    return f'"{name}"'


def _sqlite_value(value: Any) -> Any:
    """Return a value as the column types store it."""
    if isinstance(value, datetime):
        return _instant(value)
    return value.hex if isinstance(value, UUID) else value


@lru_cache(maxsize=100)
def _instant(value: datetime) -> str:
    """Return the stored text of a timestamp; most rows of a batch have the same ones."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
