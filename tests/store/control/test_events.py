"""The event feed: no event is missed or delivered twice, whatever the order of commits."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.errors import EventsPurged, InvalidInput
from mooring.model.events import Cursor, parse_cursor
from mooring.store.control import events, feed
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.views.events import Page, Watch, page
from tests.store.databases import on_postgresql


async def append(database: Database, *ids: UUID) -> None:
    await database.write(lambda c: events.append(c, [events.NewEvent("node", i, 1, "x") for i in ids], now()))


async def read(database: Database, position: int) -> tuple[list[UUID], int]:
    async with database.read() as connection:
        news = await events.since(connection, position)
    return [event.object_id for event in news.events], news.position


async def start(database: Database) -> int:
    async with database.read() as connection:
        return await events.position(connection)


async def test_a_reader_gets_each_event_after_its_position_once(database: Database):
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


async def test_rolled_back_events_are_never_delivered(database: Database):
    position = await start(database)

    async def work(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", new_id(), 1, "x")], now())
        raise ValueError("no")

    await asyncio.gather(database.write(work), return_exceptions=True)
    assert (await read(database, position))[0] == []


@on_postgresql
async def test_events_of_a_slow_transaction_are_not_missed(database: Database):
    """A takes the lower revision and stays open, B commits: a reader that continued after B would never see A."""
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
async def test_a_reader_that_starts_during_a_slow_transaction_gets_its_events_later(database: Database):
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
async def test_no_event_of_many_writers_is_lost_or_delivered_twice(database: Database):
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


async def test_old_events_are_purged(database: Database):
    old, new = new_id(), new_id()
    day = timedelta(days=1)
    await database.write(lambda c: events.append(c, [events.NewEvent("node", old, 1, "x")], now() - day))
    await append(database, new)
    assert await database.write(lambda c: feed.purge(c, now() - day / 2)) == 1
    assert (await read(database, 0))[0] == [new]


async def test_positions_survive_a_purge_of_everything(database: Database):
    """Revisions are not reused after the newest row was deleted."""
    await append(database, new_id())
    position = await start(database)
    await database.write(lambda c: feed.purge(c, now() + timedelta(days=1)))
    late = new_id()
    await append(database, late)
    assert (await read(database, position))[0] == [late]


async def page_after(database: Database, since: Cursor | None, limit: int = 100) -> Page:
    async with database.read() as connection:
        return await page(connection, since, watch=Watch(), limit=limit)


async def test_a_cursor_before_purged_events_is_refused(database: Database):
    day = timedelta(days=1)
    before = (await page_after(database, None)).next
    for age in (3, 2, 1):
        await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now() - day * age))  # noqa: B023
    first, second, third = (await page_after(database, before)).events
    assert await database.write(lambda c: feed.purge(c, now() - day * 1.5)) == 2
    for gone in (before, first.cursor):
        with pytest.raises(EventsPurged):
            await page_after(database, gone)
    # A reader that has read all purged events misses nothing, and purged events are not sent again.
    assert (await page_after(database, second.cursor)).events == [third]
    assert (await page_after(database, None)).events == [third]
    assert await database.write(lambda c: feed.purge(c, now() - day * 1.5)) == 0


async def test_a_cursor_beyond_the_end_of_the_feed_is_refused(database: Database):
    end = (await page_after(database, None)).next
    with pytest.raises(EventsPurged):
        await page_after(database, Cursor(end.transaction + 1000, end.revision + 1000))


async def test_only_the_beginning_of_the_feed_is_purged_whatever_the_timestamps_say(database: Database):
    """An event with an old timestamp after a newer one stays: a gap in the middle could not be detected."""
    for age in (2, 0, 2):
        at = now() - timedelta(days=age)
        await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], at))  # noqa: B023
    found = (await page_after(database, None)).events
    assert await database.write(lambda c: feed.purge(c, now() - timedelta(days=1))) == 1
    assert (await page_after(database, None)).events == found[1:]


@pytest.mark.parametrize(
    "text", ["", "1", "a-b", "1-2-3", "-1-2", "99999999999999999999-1", "9999999999999999999-1", "١-1"]
)
def test_an_invalid_cursor_is_refused(text: str):
    with pytest.raises(InvalidInput, match="is not a position in the event feed"):
        parse_cursor(text)
