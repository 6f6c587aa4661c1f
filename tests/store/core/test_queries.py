"""Queries that are compiled once return what SQLAlchemy returns."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Select, bindparam, column, exists, select, table
from sqlalchemy.exc import DBAPIError

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.store.core.batch_sql import among
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.core.queries import Query, rows_of
from mooring.store.tables import domains, nodes, policies, tasks, workloads

_ADDED: dict[str, Any] = {"rules": {"limits": {"cpu": 5}, "names": ["a", "b"]}, "created_at": now(), "version": 3}
_IDS = select(domains.c.id, domains.c.name).where(among(domains.c.id)).order_by(domains.c.id)
_QUERIES: tuple[Select[Any], ...] = (
    select(policies).where(policies.c.name == bindparam("name")).order_by(policies.c.id),
    select(policies.c.id, policies.c.rules["limits"]["cpu"].as_integer().label("cpu"), policies.c.id.is_(None)),
    select(policies.c.name, exists().where(policies.c.name.in_(["q", "r"])).label("found")).order_by(policies.c.name),
    select(tasks.c.id, workloads.c.labels)
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .where(tasks.c.status.in_([TaskStatus.PENDING]), workloads.c.status.not_in([WorkloadStatus.FAILED])),
    select(nodes.c.id, nodes.c.simulated).limit(3),
)


@pytest.fixture
async def added(database: Database) -> None:
    async def work(connection: Connection) -> None:
        rows = [{"id": new_id(), "name": name, **_ADDED} for name in ("p", "q")]
        await connection.execute(policies.insert(), rows)

    await database.write(work)


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("statement", _QUERIES)
async def test_rows_and_their_names_are_those_of_sqlalchemy(database: Database, statement: Select[Any]):
    query, given = Query(statement), {"name": "p"} if "name" in statement.compile().params else {}
    async with database.read() as connection:
        expected = (await connection.execute(statement, given)).all()
        for _ in range(2):
            found = await query.rows(connection, **given)
            assert found == [tuple(row) for row in expected]
    for row, same in zip(found, expected, strict=True):
        assert {name: getattr(row, name) for name in same._fields if name.isidentifier()} == {
            name: value for name, value in same._mapping.items() if name.isidentifier()
        }


async def test_query_takes_other_parameters_each_time(database: Database):
    ids = sorted(new_id() for _ in range(3))
    rows = [{"id": id, "name": id.hex, "created_at": now()} for id in ids]
    await database.write(lambda connection: connection.execute(domains.insert(), rows))
    query = Query(_IDS)

    async def found(*asked: UUID) -> list[UUID]:
        async with database.read() as connection:
            return [row.id for row in await query.rows(connection, ids=asked)]

    assert await found(*ids) == ids
    assert await found(ids[2], new_id()) == [ids[2]]
    assert await found() == []
    async with database.read() as connection:
        both = await rows_of(connection, (query, {"ids": ids[:1]}), (query, {"ids": ids[1:]}))
    assert [[row.id for row in each] for each in both] == [ids[:1], ids[1:]]


async def test_failing_query_raises_the_error_of_sqlalchemy(database: Database):
    query = Query(select(column("id")).select_from(table("nowhere")))
    async with database.read() as connection:
        with pytest.raises(DBAPIError, match="nowhere"):
            await query.rows(connection)
        assert await Query(_IDS).rows(connection, ids=[]) == []
