"""Transactions: retried only where that helps, and no update of another process is lost."""

import asyncio
import sys

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from mooring.clock import now
from mooring.model.errors import InvalidInput
from mooring.store import engine
from mooring.store.engine import Connection, Database, is_taken, is_temporary, retry, without_haste
from mooring.store.ids import new_id
from mooring.store.tables import domains
from tests.servers import free_port
from tests.store.databases import on_postgresql, on_sqlite


class Failure(Exception):
    def __init__(self, sqlstate: str | None = None, words: str = "") -> None:
        super().__init__(words)
        self.sqlstate = sqlstate


def database_error(sqlstate: str, *, lost_connection: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", None, Failure(sqlstate), connection_invalidated=lost_connection)


LOCKED = OperationalError("BEGIN IMMEDIATE", None, Failure(words="database is locked"))


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        pytest.param(database_error("40001"), True, id="serialization failure"),
        pytest.param(database_error("40P01"), True, id="deadlock"),
        pytest.param(database_error("55P03"), True, id="lock not available"),
        pytest.param(database_error("57P01"), True, id="server stops"),
        pytest.param(database_error("08006", lost_connection=True), True, id="connection lost"),
        pytest.param(ConnectionRefusedError(), True, id="server is not there"),
        pytest.param(LOCKED, True, id="SQLite is locked"),
        pytest.param(NoConnectionFree(), True, id="no connection is free"),
        pytest.param(database_error("23505"), False, id="unique violation"),
        pytest.param(database_error("22003"), False, id="number too large"),
        pytest.param(OperationalError("x", None, Failure(words="no such table")), False, id="no such table"),
        pytest.param(ValueError(), False, id="not the database's"),
    ],
)
def test_only_what_may_succeed_the_next_time_is_temporary(error: Exception, temporary: bool):
    assert is_temporary(error) is temporary


class Waits(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def test_a_transaction_that_keeps_failing_is_tried_twenty_times_with_growing_waits():
    waits, attempts = Waits(), 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise database_error("40001")

    with pytest.raises(DBAPIError):
        await retry(attempt, waits)
    assert attempts == 20
    # 0.02 doubled up to 5 s, each shortened by up to a fifth so that writers do not meet again.
    longest = [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, *[5.0] * 11]
    assert len(waits) == len(longest)
    for wait, limit in zip(waits, longest, strict=True):
        assert 0.8 * limit <= wait <= limit


async def test_it_stops_trying_once_it_succeeds():
    waits = Waits()

    async def attempt() -> str:
        if len(waits) < 3:
            raise LOCKED
        return "done"

    assert await retry(attempt, waits) == "done"
    assert len(waits) == 3


@pytest.mark.parametrize("error", [database_error("23505"), ValueError("a bug")])
async def test_an_error_that_will_stay_is_raised_at_once(error: Exception):
    waits = Waits()

    async def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        await retry(attempt, waits)
    assert waits == []


async def test_an_attempt_that_failed_leaves_nothing_in_the_database(database: Database):
    seen: list[int] = []

    async def work(connection: Connection) -> None:
        seen.append((await connection.execute(select(func.count()).select_from(domains))).scalar_one())
        await connection.execute(insert(domains).values(id=new_id(), name=f"d{len(seen)}", created_at=now()))
        if len(seen) < 3:
            raise database_error("40001")

    await database.write(work)
    assert seen == [0, 0, 0]
    async with database.read() as connection:
        assert (await connection.execute(select(domains.c.name))).scalars().all() == ["d3"]


async def test_only_a_commit_is_told(database: Database):
    told: list[str] = []
    database.on_commit.append(lambda: told.append("committed"))

    async def work(connection: Connection) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError):
        await database.write(work)
    assert told == []
    await database.write(lambda c: c.execute(text("SELECT 1")))
    assert told == ["committed"]


async def test_a_name_that_is_taken_is_told_from_other_errors(database: Database):
    async def add(name: str | None) -> None:
        await database.write(lambda c: c.execute(insert(domains).values(id=new_id(), name=name, created_at=now())))

    await add("taken")
    with pytest.raises(IntegrityError) as twice:
        await add("taken")
    assert is_taken(twice.value)
    with pytest.raises(IntegrityError) as empty:
        await add(None)
    assert not is_taken(empty.value)


def test_an_unknown_kind_of_database_is_refused():
    with pytest.raises(InvalidInput, match="mysql"):
        Database("mysql://host/name")


def test_a_plain_postgresql_address_gets_the_right_driver():
    assert Database("postgresql://host/name").url.drivername == "postgresql+asyncpg"


COUNT_UP = """
import asyncio, sys
from sqlalchemy import select, update
from mooring.store.engine import Database
from mooring.store.tables import projects

async def main(url, times):
    database = Database(url)
    async def work(connection):
        number = (await connection.execute(select(projects.c.number))).scalar_one()
        await connection.execute(update(projects).values(number=number + 1))
    for _ in range(times):
        await database.write(work)
    await database.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@on_postgresql
async def test_a_statement_that_takes_too_long_is_ended_and_not_tried_again(migrated_url: str):
    database = Database(migrated_url, statement_timeout_seconds=1.0)
    try:
        with pytest.raises(DBAPIError, match="statement timeout") as ended:
            await database.write(lambda c: c.execute(text("SELECT pg_sleep(60)")))
        assert not is_temporary(ended.value)

        async def long(connection: Connection) -> None:
            await without_haste(connection)
            await connection.execute(text("SELECT pg_sleep(1.2)"))

        await database.write(long)
    finally:
        await database.close()


@on_postgresql
async def test_a_lock_that_is_not_had_in_time_is_tried_for_again(
    migrated_url: str, database: Database, retried: list[Exception]
):
    hasty = Database(migrated_url, statement_timeout_seconds=2.0)
    lock = text("SELECT pg_advisory_xact_lock(7)")
    try:
        async with database.engine.begin() as holder:
            await holder.execute(lock)
            waiting = asyncio.create_task(hasty.write(lambda c: c.execute(lock)))
            for _ in range(1000):
                await asyncio.sleep(0 if retried else 0.01)
        await waiting
    finally:
        await hasty.close()
    assert retried
    assert all("lock timeout" in str(error) for error in retried)


async def test_a_snapshot_stays_at_one_moment(database: Database):
    number = select(func.count()).select_from(domains)
    async with database.snapshot() as connection:
        before = (await connection.execute(number)).scalar_one()
        await database.write(lambda c: c.execute(insert(domains).values(id=new_id(), name="new", created_at=now())))
        assert (await connection.execute(number)).scalar_one() == before
    async with database.read() as connection:
        assert (await connection.execute(number)).scalar_one() == before + 1


@on_postgresql
async def test_connections_that_broke_while_they_rested_are_replaced(
    migrated_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "_TRUSTED_SECONDS", -1.0)
    pid = text("SELECT pg_backend_pid()")
    other = Database(migrated_url)
    try:
        async with other.read() as first, other.read() as second:
            broken = [(await connection.execute(pid)).scalar_one() for connection in (first, second)]
        async with database.read() as connection:
            await connection.execute(select(*(func.pg_terminate_backend(number) for number in broken)))
        async with other.read() as first, other.read() as second:
            found = [(await connection.execute(pid)).scalar_one() for connection in (first, second)]
        assert not set(found) & set(broken)
    finally:
        await other.close()


@on_sqlite
async def test_processes_that_read_and_then_write_lose_no_update(database: Database):
    async def seed(connection: Connection) -> None:
        await connection.execute(
            text("INSERT INTO domains (id, name, created_at) VALUES ('d', 'd', '2026-01-01 00:00:00')")
        )
        await connection.execute(
            text(
                "INSERT INTO projects (id, domain_id, name, number, created_at)"
                " VALUES ('p', 'd', 'p', 0, '2026-01-01 00:00:00')"
            )
        )

    await database.write(seed)
    url = database.url.render_as_string()
    command = [sys.executable, "-c", COUNT_UP, url, "25"]
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(3)]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    async with database.read() as connection:
        assert (await connection.execute(text("SELECT number FROM projects"))).scalar_one() == 75


async def test_a_database_is_reached_when_it_answers_even_if_with_a_refusal(postgres_url: str):
    for url in (postgres_url, f"{postgres_url}-that-is-not-there"):
        database = Database(url)
        await database.reach()
        await database.close()


async def test_a_database_that_is_not_there_is_not_reached():
    database = Database(f"postgresql+asyncpg://mooring@127.0.0.1:{free_port()}/nothing")
    with pytest.raises(OSError):
        await database.reach()
    await database.close()
