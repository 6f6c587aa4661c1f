"""Signals reach their waiters, and a leader term begins and ends."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import asyncpg
import pytest

from mooring.clock import now
from mooring.concurrency.background import BackgroundTasks
from mooring.coordination import postgres
from mooring.coordination.leadership import Leadership
from mooring.coordination.signals import Signal, Subscription
from mooring.model.errors import LeadershipLost
from mooring.model.events import Topics
from mooring.store.control import events
from mooring.store.core.engine import Database
from mooring.store.core.ids import new_id
from tests.store.databases import on_postgresql, on_sqlite

LONG = 60.0


async def test_a_signal_reaches_every_waiter():
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


async def test_without_a_signal_the_timer_ends_the_wait():
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


def subscribed(signal: Signal, **options: Any) -> Subscription:
    return signal.subscribe(Subscription(lambda: {("task", "RUNNING"), ("pool", "placed")}, **options))


async def test_a_subscription_is_signalled_unless_every_topic_is_ignored():
    signal = Signal()
    subscription = subscribed(signal)
    signal.send({("task", "RUNNING")})
    signal.send({("task", "RUNNING"), ("pool", "placed")})
    assert subscription.count == 0
    signal.send({("task", "RUNNING"), ("task", "FAILED")})
    assert subscription.count == 1
    signal.send()
    assert (subscription.count, signal.count) == (2, 4)


async def test_topics_that_can_wait_are_signalled_together_and_later():
    signal = Signal()
    subscription = subscribed(signal, can_wait={("task", "READY")}, wait_seconds=0.001)
    for _ in range(3):
        signal.send({("task", "READY"), ("task", "RUNNING")})
    assert subscription.count == 0
    assert await subscription.wait(LONG, 0) == 1
    patient = subscribed(signal, can_wait={("task", "READY")}, wait_seconds=LONG)
    signal.send({("task", "READY")})
    signal.send({("task", "FAILED")})
    assert (patient.count, patient._later) == (1, None), "the signal at once covers the one that waited"


@pytest.fixture
async def listening(database: Database) -> AsyncIterator[Signal]:
    signal = Signal()
    task = asyncio.create_task(postgres.listen(database.url, signal))
    # The first one says that there is a listener.
    await signal.wait(LONG, 0)
    yield signal
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@on_postgresql
async def test_a_commit_with_events_signals_other_processes(database: Database, listening: Signal):
    seen = listening.count
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await listening.wait(LONG, seen) > seen


class _Recorder(Signal):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[Topics] = []

    def send(self, topics: Topics = None) -> None:
        self.received.append(topics)
        super().send(topics)


@on_postgresql
async def test_notifications_carry_topics_and_leave_out_the_own_ones(database: Database):
    heard, others = _Recorder(), Database(database.url.render_as_string(hide_password=False))
    listening = asyncio.create_task(postgres.listen(database.url, heard, own=database.origin))
    try:
        await heard.wait(LONG, 0)
        heard.received.clear()
        seen = heard.count
        await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "mine")], now()))
        await others.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "theirs")], now()))
        await heard.wait(LONG, seen)
        assert heard.received == [{("node", "theirs")}]
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await others.close()


@on_postgresql
async def test_a_lost_connection_is_reopened_and_sends_a_signal(database: Database, listening: Signal):
    seen = listening.count
    async with database.engine.begin() as connection:
        ended = await connection.exec_driver_sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        assert ended.scalar_one() == 1
    # Commits made without a listener are looked for at once.
    seen_again = await listening.wait(LONG, seen)
    assert seen_again > seen
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await listening.wait(LONG, seen_again) > seen_again


@on_postgresql
@pytest.mark.parametrize("error", [asyncpg.InterfaceError("the connection is closed"), RuntimeError("odd")])
async def test_listening_survives_an_error_while_it_is_set_up(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    really = asyncpg.Connection.add_listener
    errors = [error]

    async def add_listener(self: asyncpg.Connection, *arguments: Any) -> None:
        if errors:
            raise errors.pop()
        await really(self, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", add_listener)
    monkeypatch.setattr("mooring.concurrency.background._FIRST_SECONDS", 0.01)
    tasks, signal = BackgroundTasks(), Signal()
    tasks.start("signals", partial(postgres.listen, database.url, signal))
    seen = await signal.wait(LONG, 0)
    assert seen
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await signal.wait(LONG, seen) > seen
    await tasks.close()


@on_sqlite
async def test_leadership_is_held_from_election_to_loss(database: Database):
    leadership = Leadership(database, "a")
    assert not leadership.held
    with pytest.raises(LeadershipLost, match="a does not lead"):
        _ = leadership.term
    term = await leadership.begin_term()
    assert (leadership.held, leadership.term) == (True, term)
    leadership.end_term()
    assert not leadership.held
    assert await Leadership(database, "b").begin_term() > term
