"""Batch statements: any number of rows in one statement, in order, with errors for rejected rows."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from mooring.clock import now
from mooring.model.events import Noun
from mooring.store.control import events
from mooring.store.core import batch_sql, postgres
from mooring.store.core.batch_sql import (
    NotAsExpected,
    Statement,
    Writes,
    among,
)
from mooring.store.core.engine import Connection, Database, is_rejected_row
from mooring.store.core.ids import new_id
from mooring.store.core.types import as_uuid
from mooring.store.tables import domains, projects
from tests.store.databases import on_postgresql

_COUNT = Statement("SELECT count(*) FROM {rows} i JOIN domains d ON d.id = i.id", {"id": "uuid"})
_RENAME = Statement(
    "UPDATE domains AS d SET name = i.name FROM {rows} i WHERE d.id = i.id", {"id": "uuid", "name": "text"}
)
_NAMES = Statement("SELECT d.name FROM {rows} i JOIN domains d ON d.id = i.id", {"id": "uuid"})
_GIVEN = Statement(
    "SELECT i.id, i.other, CAST(i.facts AS text), i.number, i.name FROM {rows} i ORDER BY i.ordinal",
    {"id": "uuid", "other": "uuid", "facts": "jsonb", "number": "bigint", "name": "text"},
)
_NOUNS: tuple[Noun, ...] = ("task", "workload", "task")
_NAMED = Statement("SELECT i.id, i.name FROM {rows} i ORDER BY i.ordinal", {"id": "uuid", "name": "text"})


def domain(name: str) -> dict[str, Any]:
    return {"id": new_id(), "name": name, "created_at": now()}


async def names(database: Database) -> set[str]:
    async with database.read() as connection:
        return set((await connection.execute(select(domains.c.name))).scalars())


async def test_writes_are_executed_in_the_order_in_which_they_were_added(database: Database):
    first, second = domain("first"), domain("second")

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [first, second])
        writes.add(_RENAME, [(first["id"], "other")], expected=1)
        batch_sql.insert(writes, domains, [domain("first")])
        await writes.execute(connection)

    await database.write(work)
    assert await names(database) >= {"other", "second", "first"}


@pytest.mark.parametrize("ask", [False, True])
async def test_an_unexpected_row_rolls_back_all_writes(database: Database, ask: bool):
    there = domain("there")

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [there])
        if ask:
            writes.expect(_COUNT, [(there["id"],), (new_id(),)])
        else:
            writes.add(_RENAME, [(there["id"], "other"), (new_id(), "nobody")], expected=2)
        await writes.execute(connection)

    with pytest.raises(NotAsExpected):
        await database.write(work)
    assert await names(database) & {"there", "other"} == set()


async def test_a_rejected_row_raises_an_error_and_rolls_back_all_writes(database: Database):
    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [domain("new")])
        batch_sql.insert(writes, domains, [domain("twice"), domain("twice")])
        batch_sql.insert(writes, domains, [domain("later")])
        await writes.execute(connection)

    with pytest.raises(IntegrityError) as refused:
        await database.write(work)
    assert is_rejected_row(refused.value)
    assert await names(database) & {"new", "twice", "later"} == set()


async def test_a_query_among_writes_sees_the_writes_before_it(database: Database):
    first, second = domain("first"), domain("second")

    async def work(connection: Connection) -> list[list[str]]:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [first])
        writes.ask(_NAMES, [(first["id"],), (second["id"],)])
        batch_sql.insert(writes, domains, [second])
        writes.add(_RENAME, [(first["id"], "other")])
        writes.ask(_NAMES, [(first["id"],)])
        return [[row[0] for row in answer] for answer in await writes.execute(connection)]

    assert await database.write(work) == [["first"], ["other"]]


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("number", [3, 200])
async def test_rows_arrive_unchanged(database: Database, number: int, missing: bool, same: bool):
    shared = (new_id(), {"a": [1, None]}, 7, 'Zoë\'s "node" \\ 0')
    own = [(new_id(), {"a": index}, index, f"n{index}") for index in range(number)]
    rows: list[tuple[Any, ...]] = [(new_id(), *(shared if same else own[index])) for index in range(number)]
    if missing:
        rows[-2] = (rows[-2][0], None, None, None, None)
    async with database.read() as connection:
        found = await _GIVEN.read(connection, rows)
        named = await _NAMED.read(connection, [(row[0], row[4]) for row in rows])
        ids = await _NAMES.read(connection, [row[:1] for row in rows])
    assert [_as_given(row) for row in found] == rows
    assert [(as_uuid(id), name) for id, name in named] == [(row[0], row[4]) for row in rows]
    assert list(ids) == []


def _as_given(row: Sequence[Any]) -> tuple[Any, ...]:
    id, other, facts, number, name = row
    return (as_uuid(id), other and as_uuid(other), facts and json.loads(facts), number, name)


async def test_runs_of_rows_are_written_in_order(database: Database):
    async with database.read() as connection:
        before = await events.position(connection)
    received = [events.NewEvent(noun, new_id(), 1, "k") for noun in _NOUNS for _ in range(100)]
    await database.write(lambda c: events.append(c, received, now()))
    async with database.read() as connection:
        found = (await events.since(connection, before)).events
    assert [(event.noun, event.object_id) for event in found] == [event[:2] for event in received]


async def test_a_query_takes_any_number_of_ids(database: Database):
    added = [domain(f"d{number}") for number in range(3)]

    async def work(connection: Connection) -> list[UUID]:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, added)
        await writes.execute(connection)
        asked = [*(new_id() for _ in range(40_000)), added[0]["id"], added[2]["id"]]
        query = select(domains.c.id).where(among(domains.c.id, asked)).order_by(domains.c.id)
        return list((await connection.execute(query)).scalars())

    assert await database.write(work) == [added[0]["id"], added[2]["id"]]


@on_postgresql
async def test_small_inserts_into_different_tables_are_one_round_trip(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    first, second = domain("first"), domain("second")
    project = {"id": new_id(), "name": "p", "number": 1_000_000, "domain_id": first["id"], "created_at": now()}
    sent: list[str] = []

    async def execute(connection: Connection, sql: str, parameters: Sequence[Any]) -> postgres.Outcome:
        sent.append(sql)
        return await postgres.execute(connection, sql, parameters)

    monkeypatch.setattr(batch_sql, "execute", execute)

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [first])
        # It refers to the row before it.
        batch_sql.insert(writes, projects, [project])
        batch_sql.insert(writes, domains, [second])
        await writes.execute(connection)

    await database.write(work)
    assert [sql.count("INSERT INTO") for sql in sent] == [2, 1], "the same table twice keeps its order"
    assert await names(database) >= {"first", "second"}
    async with database.read() as connection:
        assert (await connection.execute(select(projects.c.domain_id))).scalars().all() == [first["id"]]


@on_postgresql
async def test_notification_between_other_writes_is_delivered(database: Database):
    first, second = domain("first"), domain("second")
    project = {"id": new_id(), "name": "p", "number": 1_000_000, "domain_id": first["id"], "created_at": now()}

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        batch_sql.insert(writes, domains, [first])
        events.add(writes, [events.NewEvent("node", second["id"], 1, "added")], now())
        batch_sql.insert(writes, projects, [project])
        await writes.execute(connection)

    received: asyncio.Queue[str] = asyncio.Queue()
    async with database.read() as listener:
        opened: Any = (await listener.get_raw_connection()).driver_connection

        def heard(*notification: Any) -> None:
            received.put_nowait(notification[-1])

        await opened.add_listener(postgres.CHANNEL, heard)
        await database.write(work)
        async with asyncio.timeout(30):
            assert "node" in await received.get()
        await opened.remove_listener(postgres.CHANNEL, heard)


@on_postgresql
async def test_joined_writes_raise_where_one_of_them_does_not_find_its_rows(database: Database):
    first, unknown = domain("first"), domain("unknown")
    await database.write(lambda connection: connection.execute(domains.insert(), [first]))
    renamed = [(first["id"], "renamed"), (unknown["id"], "unknown")]
    rename = Statement(
        "UPDATE domains AS d SET name = i.name FROM {rows} i WHERE d.id = i.id",
        {"id": "uuid", "name": "text"},
        only="domains",
    )
    project = {"id": new_id(), "name": "p", "number": 1_000_000, "domain_id": first["id"], "created_at": now()}

    async def work(connection: Connection, expected: int) -> None:
        writes = Writes.on(connection)
        writes.add(rename, renamed, expected=expected)
        batch_sql.insert(writes, projects, [project])
        await writes.execute(connection)

    with pytest.raises(NotAsExpected):
        await database.write(lambda connection: work(connection, 2))
    assert "renamed" not in await names(database)
    await database.write(lambda connection: work(connection, 1))
    assert "renamed" in await names(database)
