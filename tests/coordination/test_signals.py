"""Signals wake whoever waits, and leadership is an office that is taken and lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mooring.clock import now
from mooring.coordination import postgres
from mooring.coordination.leadership import Office
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.store import events
from mooring.store.engine import Database
from mooring.store.ids import new_id
from tests.store.databases import on_postgresql, on_sqlite

LONG = 30.0


async def test_a_signal_wakes_everyone_who_waits():
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait(LONG)) for _ in range(3)]
    await asyncio.sleep(0)
    signal.send()
    assert await asyncio.gather(*waiting) == [1, 1, 1]


async def test_a_signal_that_came_before_the_wait_is_not_missed():
    signal = Signal()
    seen = signal.count
    signal.send()
    signal.send()
    assert await signal.wait(LONG, seen) == 2


async def test_without_a_signal_the_timer_wakes():
    signal = Signal()
    assert await signal.wait(0.001) == 0
    assert await signal.wait(0.001, 0) == 0
    assert signal._waiting == set()


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind():
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    signal.send()
    assert signal._waiting == set()


@pytest.fixture
async def listening(database: Database) -> AsyncIterator[Signal]:
    signal = Signal()
    task = asyncio.create_task(postgres.listen(database.url, signal))
    # The first one says that somebody listens now.
    await signal.wait(LONG, 0)
    yield signal
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_postgresql
async def test_a_commit_with_events_wakes_other_processes(database: Database, listening: Signal):
    seen = listening.count
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await listening.wait(LONG, seen) > seen


@on_postgresql
async def test_a_lost_connection_is_opened_again_and_wakes(database: Database, listening: Signal):
    seen = listening.count
    async with database.engine.begin() as connection:
        ended = await connection.exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        assert ended.scalar_one() == 1
    # What was committed while nobody listened is looked for at once.
    seen_again = await listening.wait(LONG, seen)
    assert seen_again > seen
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await listening.wait(LONG, seen_again) > seen_again


@on_sqlite
async def test_an_office_is_held_from_taking_to_losing(database: Database):
    office = Office(database, "a")
    assert not office.held
    with pytest.raises(LeadershipLost, match="a does not lead"):
        _ = office.term
    term = await office.take()
    assert (office.held, office.term) == (True, term)
    office.lose()
    assert not office.held
    assert await Office(database, "b").take() > term
