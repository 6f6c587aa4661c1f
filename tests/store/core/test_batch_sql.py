"""Statements over sets of rows: any number in one statement, written in order, and what is refused is told."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from mooring.clock import now
from mooring.model.events import Noun
from mooring.store import events, sets
from mooring.store.engine import Connection, Database, is_refused
from mooring.store.ids import new_id
from mooring.store.sets import NotAsExpected, Statement, Writes, among
from mooring.store.tables import domains
from mooring.store.types import as_uuid

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


async def test_writes_are_made_in_the_order_in_which_they_were_added(database: Database):
    first, second = domain("first"), domain("second")

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        sets.insert(writes, domains, [first, second])
        writes.add(_RENAME, [(first["id"], "other")], expected=1)
        sets.insert(writes, domains, [domain("first")])
        await writes.make(connection)

    await database.write(work)
    assert await names(database) >= {"other", "second", "first"}


@pytest.mark.parametrize("ask", [False, True])
async def test_a_row_that_is_not_as_expected_undoes_the_writes(database: Database, ask: bool):
    there = domain("there")

    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        sets.insert(writes, domains, [there])
        if ask:
            writes.expect(_COUNT, [(there["id"],), (new_id(),)])
        else:
            writes.add(_RENAME, [(there["id"], "other"), (new_id(), "nobody")], expected=2)
        await writes.make(connection)

    with pytest.raises(NotAsExpected):
        await database.write(work)
    assert await names(database) & {"there", "other"} == set()


async def test_a_row_that_the_database_refuses_is_told_and_nothing_stays(database: Database):
    async def work(connection: Connection) -> None:
        writes = Writes.on(connection)
        sets.insert(writes, domains, [domain("new")])
        sets.insert(writes, domains, [domain("twice"), domain("twice")])
        sets.insert(writes, domains, [domain("later")])
        await writes.make(connection)

    with pytest.raises(IntegrityError) as refused:
        await database.write(work)
    assert is_refused(refused.value)
    assert await names(database) & {"new", "twice", "later"} == set()


async def test_what_is_asked_among_writes_is_answered_by_what_was_written_before(database: Database):
    first, second = domain("first"), domain("second")

    async def work(connection: Connection) -> list[list[str]]:
        writes = Writes.on(connection)
        sets.insert(writes, domains, [first])
        writes.ask(_NAMES, [(first["id"],), (second["id"],)])
        sets.insert(writes, domains, [second])
        writes.add(_RENAME, [(first["id"], "other")])
        writes.ask(_NAMES, [(first["id"],)])
        return [[row[0] for row in answer] for answer in await writes.make(connection)]

    assert await database.write(work) == [["first"], ["other"]]


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("number", [3, 200])
async def test_rows_arrive_as_they_were_given(database: Database, number: int, missing: bool, same: bool):
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


async def test_runs_of_rows_are_written_in_their_order(database: Database):
    async with database.read() as connection:
        before = await events.position(connection)
    told = [events.NewEvent(noun, new_id(), 1, "k") for noun in _NOUNS for _ in range(100)]
    await database.write(lambda c: events.append(c, told, now()))
    async with database.read() as connection:
        found, _ = await events.since(connection, before)
    assert [(event.noun, event.object_id) for event in found] == [event[:2] for event in told]


async def test_any_number_of_ids_can_be_asked_for_at_once(database: Database):
    added = [domain(f"d{number}") for number in range(3)]

    async def work(connection: Connection) -> list[UUID]:
        writes = Writes.on(connection)
        sets.insert(writes, domains, added)
        await writes.make(connection)
        asked = [*(new_id() for _ in range(40_000)), added[0]["id"], added[2]["id"]]
        query = select(domains.c.id).where(among(domains.c.id, asked)).order_by(domains.c.id)
        return list((await connection.execute(query)).scalars())

    assert await database.write(work) == [added[0]["id"], added[2]["id"]]
