"""The leader as a whole: it takes office, works, and says what is wrong when it cannot."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from mooring.clock import now
from mooring.controllers.leader import Leader
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.coordination.election import Alone
from mooring.coordination.signals import Signal
from mooring.model.heartbeats import Pace
from mooring.store import events
from mooring.store.engine import Database
from mooring.store.ids import new_id
from mooring.store.tables import events as events_table
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


def leader_of(database: Database, signal: Signal) -> Leader:
    database.on_commit.append(signal.send)
    return Leader(database, signal, "me", Alone(), reconcile_interval=3600, pace=Pace(), retention=Retention())


async def until(signal: Signal, condition: Callable[[], Awaitable[bool]]) -> None:
    seen = signal.count
    while not await condition():
        seen = await signal.wait(30, seen)


async def test_a_leader_brings_work_from_its_submission_to_running(harbour: Harbour):
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    assert (leader.role, leader.problem) == ("standby", "not started yet")
    leading = asyncio.create_task(leader.run())
    await harbour.node("sim", simulated=True)
    workload_id = await harbour.submit("web", replicas=2)

    async def runs() -> bool:
        return await harbour.statuses(workload_id) == ["RUNNING", "RUNNING"]

    await until(signal, runs)
    assert (leader.role, leader.problem) == ("leader", None)
    names = {"scheduling", "holds", "lifecycle", "simulation", "nodes", "accounting", "retention", "limits"}
    assert {loop.name: loop.error for loop in leader.loops} == dict.fromkeys(names)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert (leader.role, leader.problem) == ("standby", "stopped")
    assert await harbour.findings() == []


@on_sqlite
async def test_a_leader_that_is_deposed_ends_and_says_who_leads(harbour: Harbour):
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    leading = asyncio.create_task(leader.run())
    await harbour.node("sim", simulated=True)
    first = await harbour.submit("first")

    async def runs() -> bool:
        return await harbour.statuses(first) == ["RUNNING"]

    await until(signal, runs)
    await harbour.take_office("newer")
    second = await harbour.submit("second")
    await leading
    assert leader.role == "standby"
    assert leader.problem is not None
    assert "held by newer" in leader.problem
    assert await harbour.statuses(second) == ["PENDING"]


async def test_a_leader_that_cannot_start_says_why_and_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}")
    leader = leader_of(database, Signal())
    problems: list[str | None] = []

    async def pause(seconds: float) -> None:
        problems.append(leader.problem)
        assert leader.role == "standby"
        if len(problems) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("mooring.controllers.leader.asyncio.sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await leader.run()
    await database.close()
    assert len(problems) == 2
    assert all(problem and "no such table" in problem for problem in problems)


@on_sqlite
async def test_old_events_are_forgotten_by_the_leader_alone(harbour: Harbour):
    old = now() - timedelta(hours=25)
    await harbour.database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "old")], old))

    async def kinds() -> int:
        query = select(func.count()).select_from(events_table).where(events_table.c.kind == "old")
        return int((await harbour.rows(query))[0][0])

    assert await kinds() == 1
    loop = RetentionLoop(harbour.database, harbour.office, Retention())
    assert [await loop.once(), await loop.once()] == [True, False]
    assert await kinds() == 0
