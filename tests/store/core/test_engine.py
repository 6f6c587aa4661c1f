"""Transactions: retried after temporary errors only, and no update of another process is lost."""

import asyncio
import sqlite3
import sys

import pytest
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from mooring.clock import now
from mooring.coordination.postgres import listen
from mooring.coordination.signals import Signal
from mooring.model.errors import InvalidInput
from mooring.model.events import Topics
from mooring.store.control import events
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core import configuration, postgres
from mooring.store.core.engine import (
    DISK_FULL,
    Connection,
    Database,
    allow_long_statements,
    is_disk_full,
    is_temporary,
    is_unique_violation,
    retry,
)
from mooring.store.core.ids import new_id
from mooring.store.tables import domains
from tests.servers import free_port
from tests.store.databases import on_postgresql, on_sqlite


class Failure(Exception):
    def __init__(self, sqlstate: str | None = None, sqlite_errorcode: int | None = None) -> None:
        super().__init__("words that may change with the version of the driver")
        self.sqlstate = sqlstate
        self.sqlite_errorcode = sqlite_errorcode


def database_error(sqlstate: str, *, lost_connection: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", None, Failure(sqlstate), connection_invalidated=lost_connection)


def sqlite_error(code: int) -> DBAPIError:
    return OperationalError("BEGIN IMMEDIATE", None, Failure(sqlite_errorcode=code))


LOCKED = sqlite_error(sqlite3.SQLITE_BUSY)


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
        pytest.param(sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), True, id="SQLite is locked, extended code"),
        pytest.param(sqlite_error(sqlite3.SQLITE_LOCKED), True, id="a table is locked"),
        pytest.param(NoConnectionFree(), True, id="no connection is free"),
        pytest.param(database_error("23505"), False, id="unique violation"),
        pytest.param(database_error("22003"), False, id="number too large"),
        pytest.param(sqlite_error(sqlite3.SQLITE_ERROR), False, id="no such table"),
        pytest.param(ValueError(), False, id="not the database's"),
    ],
)
def test_only_errors_that_a_retry_may_cure_are_temporary(error: Exception, temporary: bool):
    assert is_temporary(error) is temporary


class Waits(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def test_a_failing_transaction_is_tried_twenty_times_with_growing_delays():
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


async def test_retries_stop_after_a_success():
    waits = Waits()

    async def attempt() -> str:
        if len(waits) < 3:
            raise LOCKED
        return "done"

    assert await retry(attempt, waits) == "done"
    assert len(waits) == 3


@pytest.mark.parametrize("error", [database_error("23505"), ValueError("a bug")])
async def test_a_permanent_error_is_raised_without_a_retry(error: Exception):
    waits = Waits()

    async def attempt() -> None:
        raise error

    with pytest.raises(type(error)):
        await retry(attempt, waits)
    assert waits == []


async def test_a_failed_attempt_leaves_nothing_in_the_database(database: Database):
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


async def test_a_commit_names_the_topics_of_its_events_and_none_without_events(database: Database):
    received: list[Topics] = []
    database.on_commit.append(received.append)

    async def work(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", new_id(), 1, "x")], now())
        await events.append(connection, [events.NewEvent("task", new_id(), 1, "RUNNING")], now())

    async def fails(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("pool", new_id(), 1, "lost")], now())
        raise ValueError("no")

    await database.write(work)
    with pytest.raises(ValueError):
        await database.write(fails)
    await database.write(lambda c: c.execute(text("SELECT 1")))
    assert received == [{("node", "x"), ("task", "RUNNING")}, None]


async def test_listeners_are_called_only_after_a_commit(database: Database):
    received: list[str] = []
    database.on_commit.append(lambda _topics: received.append("committed"))

    async def work(connection: Connection) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError):
        await database.write(work)
    assert received == []
    await database.write(lambda c: c.execute(text("SELECT 1")))
    assert received == ["committed"]


async def test_a_unique_violation_is_distinguished_from_other_errors(database: Database):
    async def add(name: str | None) -> None:
        await database.write(lambda c: c.execute(insert(domains).values(id=new_id(), name=name, created_at=now())))

    await add("taken")
    with pytest.raises(IntegrityError) as twice:
        await add("taken")
    assert is_unique_violation(twice.value)
    with pytest.raises(IntegrityError) as empty:
        await add(None)
    assert not is_unique_violation(empty.value)


def test_an_unsupported_database_is_refused():
    with pytest.raises(InvalidInput, match="mysql"):
        Database("mysql://host/name")


def test_a_postgresql_url_without_a_driver_gets_asyncpg():
    assert Database("postgresql://host/name").url.drivername == "postgresql+asyncpg"


COUNT_UP = """
import asyncio, sys
from sqlalchemy import select, update
from mooring.store.core.engine import Database
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
async def test_a_statement_that_times_out_is_not_retried(migrated_url: str):
    database = Database(migrated_url, statement_timeout_seconds=1.0)
    try:
        with pytest.raises(DBAPIError, match="statement timeout") as ended:
            await database.write(lambda c: c.execute(text("SELECT pg_sleep(60)")))
        assert not is_temporary(ended.value)

        async def long(connection: Connection) -> None:
            await allow_long_statements(connection)
            await connection.execute(text("SELECT pg_sleep(1.2)"))

        await database.write(long)
    finally:
        await database.close()


@on_postgresql
async def test_a_lock_timeout_is_retried(migrated_url: str, database: Database, retried: list[Exception]):
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


async def test_a_snapshot_sees_one_state(database: Database):
    number = select(func.count()).select_from(domains)
    async with database.snapshot() as connection:
        before = (await connection.execute(number)).scalar_one()
        await database.write(lambda c: c.execute(insert(domains).values(id=new_id(), name="new", created_at=now())))
        assert (await connection.execute(number)).scalar_one() == before
    async with database.read() as connection:
        assert (await connection.execute(number)).scalar_one() == before + 1


@on_postgresql
async def test_connections_that_broke_while_idle_are_replaced(
    migrated_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgres, "_PING_AFTER_SECONDS", -1.0)
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
async def test_concurrent_read_modify_write_loses_no_update(database: Database):
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


async def test_a_database_that_answers_with_an_error_is_reachable(postgres_url: str):
    for url in (postgres_url, f"{postgres_url}-that-is-not-there"):
        database = Database(url)
        await database.ping()
        await database.close()


async def test_a_missing_database_is_not_reachable():
    database = Database(f"postgresql+asyncpg://mooring@127.0.0.1:{free_port()}/nothing")
    with pytest.raises(OSError):
        await database.ping()
    await database.close()


@on_postgresql
async def test_a_full_postgresql_disk_is_not_retried_and_is_reported_until_a_write_succeeds(database: Database):
    attempts: list[int] = []

    async def no_space(connection: Connection) -> None:
        attempts.append(1)
        await connection.execute(
            text("DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$")
        )

    with pytest.raises(DBAPIError) as caught:
        await database.write(no_space)
    assert is_disk_full(caught.value)
    assert (len(attempts), database.problem) == (1, DISK_FULL)

    async def nothing(_connection: Connection) -> None: ...

    await database.write(nothing)
    assert database.problem is None


async def test_commit_that_writes_tenants_has_the_topic_of_the_configuration(database: Database):
    heard: list[Topics] = []
    database.on_commit.append(heard.append)
    await database.write(
        lambda c: c.execute(insert(domains).values(id=new_id(), name="a", created_at=now(), active=True))
    )
    await database.write(lambda c: c.execute(select(domains.c.id)))
    assert heard == [{configuration.TENANTS}, None]


@on_postgresql
async def test_no_statement_of_a_request_waits_for_a_compiler(database: Database):
    compiled = select(func.current_setting("jit"))
    async with database.read() as reader, database.snapshot() as snapshot:
        for connection in (reader, snapshot):
            assert (await connection.execute(compiled)).scalar_one() == "off"
    assert (await database.write(lambda c: c.execute(compiled))).scalar_one() == "off"


@on_postgresql
async def test_change_of_the_configuration_is_notified_to_other_processes(database: Database):
    signal, version = Signal(), ConfigurationVersion()
    signal.subscribe(version)
    listening = asyncio.create_task(listen(database.url, signal))
    try:
        async with asyncio.timeout(30):
            seen = await signal.wait(30, 0)
            before = version.number
            await database.write(
                lambda c: c.execute(insert(domains).values(id=new_id(), name="a", created_at=now(), active=True))
            )
            await signal.wait(30, seen)
    finally:
        listening.cancel()
    assert version.number == before + 1


@on_sqlite
async def test_concurrent_writes_announce_their_own_topics(database: Database):
    announced: list[Topics] = []
    database.on_commit.append(announced.append)

    async def write(kind: str) -> None:
        async def work(connection: Connection) -> None:
            await events.append(connection, [events.NewEvent("task", new_id(), 1, kind)], now())

        await database.write(work)

    kinds = [f"kind-{number}" for number in range(8)]
    await asyncio.gather(*map(write, kinds))
    assert sorted(announced, key=str) == sorted(({("task", kind)} for kind in kinds), key=str)
