"""Statements over sets of rows: any number in one statement, written in order, and what is refused is told."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from mooring.clock import now
from mooring.store import sets
from mooring.store.engine import Connection, Database, is_refused
from mooring.store.ids import new_id
from mooring.store.sets import NotAsExpected, Statement, Writes, among
from mooring.store.tables import domains

_COUNT = Statement("SELECT count(*) FROM {rows} i JOIN domains d ON d.id = i.id", {"id": "uuid"})
_RENAME = Statement(
    "UPDATE domains AS d SET name = i.name FROM {rows} i WHERE d.id = i.id", {"id": "uuid", "name": "text"}
)


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
