"""The feed: nothing is missed and nothing comes twice, whatever the order of commits."""

import asyncio
from datetime import timedelta
from uuid import UUID

from mooring.clock import now
from mooring.store import events
from mooring.store.engine import Connection, Database
from mooring.store.ids import new_id
from tests.store.databases import on_postgresql


async def append(database: Database, *ids: UUID) -> None:
    await database.write(lambda c: events.append(c, [events.NewEvent("node", i, 1, "x") for i in ids], now()))


async def read(database: Database, position: int) -> tuple[list[UUID], int]:
    async with database.read() as connection:
        news, position = await events.since(connection, position)
    return [event.object_id for event in news], position


async def start(database: Database) -> int:
    async with database.read() as connection:
        return await events.position(connection)


async def test_a_reader_gets_what_was_committed_since_its_position_once(database: Database):
    await append(database, new_id())
    position = await start(database)
    assert await read(database, position) == ([], position)
    first, second, third = new_id(), new_id(), new_id()
    await append(database, first, second)
    found, position = await read(database, position)
    assert found == [first, second]
    await append(database, third)
    found, position = await read(database, position)
    assert found == [third]
    assert (await read(database, position))[0] == []


async def test_what_was_rolled_back_is_never_told(database: Database):
    position = await start(database)

    async def work(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", new_id(), 1, "x")], now())
        raise ValueError("no")

    await asyncio.gather(database.write(work), return_exceptions=True)
    assert (await read(database, position))[0] == []


@on_postgresql
async def test_a_slow_transaction_that_commits_late_is_not_missed(database: Database):
    """A takes the lower revision and stays open, B commits: a reader that went on behind B would never see A."""
    position = await start(database)
    slow, quick = new_id(), new_id()
    inserted, commit = asyncio.Event(), asyncio.Event()

    async def slow_work(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", slow, 1, "slow")], now())
        inserted.set()
        await commit.wait()

    writing = asyncio.create_task(database.write(slow_work))
    await inserted.wait()
    await append(database, quick)
    seen, position = await read(database, position)
    commit.set()
    await writing
    more, position = await read(database, position)
    assert sorted([*seen, *more]) == sorted([slow, quick])
    assert (await read(database, position))[0] == []


@on_postgresql
async def test_a_reader_that_starts_during_a_slow_transaction_sees_it_later(database: Database):
    slow = new_id()
    inserted, commit = asyncio.Event(), asyncio.Event()

    async def slow_work(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", slow, 1, "slow")], now())
        inserted.set()
        await commit.wait()

    writing = asyncio.create_task(database.write(slow_work))
    await inserted.wait()
    position = await start(database)
    commit.set()
    await writing
    assert (await read(database, position))[0] == [slow]


@on_postgresql
async def test_many_writers_and_one_reader_lose_and_double_nothing(database: Database):
    position = await start(database)
    written = [new_id() for _ in range(60)]
    found: list[UUID] = []
    done = asyncio.Event()

    async def write_some(part: list[UUID]) -> None:
        for one in part:
            await append(database, one)

    async def follow() -> None:
        nonlocal position
        while not done.is_set():
            news, position = await read(database, position)
            found.extend(news)

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write_some(written[start::6]) for start in range(6)))
    done.set()
    await following
    found.extend((await read(database, position))[0])
    assert sorted(found) == sorted(written)


async def test_old_events_are_forgotten(database: Database):
    old, new = new_id(), new_id()
    day = timedelta(days=1)
    await database.write(lambda c: events.append(c, [events.NewEvent("node", old, 1, "x")], now() - day))
    await append(database, new)
    assert await database.write(lambda c: events.purge(c, now() - day / 2)) == 1
    assert (await read(database, 0))[0] == [new]


async def test_positions_survive_a_purge_of_everything(database: Database):
    """Revisions are not used again after the newest row was deleted."""
    await append(database, new_id())
    position = await start(database)
    await database.write(lambda c: events.purge(c, now() + timedelta(days=1)))
    late = new_id()
    await append(database, late)
    assert (await read(database, position))[0] == [late]
