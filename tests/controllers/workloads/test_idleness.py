"""Idle sessions: warned, then ended; left alone when they are used or no measurement exists."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.api.agents.orders import desired_task
from mooring.clock import now as really_now
from mooring.controllers.workloads import idleness as idleness_loop
from mooring.controllers.workloads.idleness import IdlenessLoop
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Kind
from mooring.store.accounting import measured_usage
from mooring.store.accounting.measured_usage import Average
from mooring.store.nodes import desired_tasks
from mooring.store.tables import events, leadership
from mooring.wire.agents.desired_tasks import EndWarning
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

MINUTES = 60
TIMEOUT = 10 * MINUTES


class Day:
    """A clock that stands still, and what is measured of tasks as it moves."""

    def __init__(self, harness: Harness) -> None:
        self.at = self.start = really_now()
        self._harness = harness
        self.loop = IdlenessLoop(harness.fenced)

    def now(self) -> datetime:
        return self.at

    async def minutes(self, number: float, *quiet: Any, busy: tuple[Any, ...] = ()) -> None:
        """Later: these tasks were measured all the time and did nothing, or something at the end; others were not."""
        self.at += timedelta(minutes=number)
        averages = [Average(task.id, task.node_id, self.at, "cpu", 0, 60) for task in (*quiet, *busy)]
        active = {task.id: self.at for task in busy}
        await self._harness.database.write(lambda c: measured_usage.write(c, averages, active))
        await self.loop.once()


@pytest.fixture
async def day(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Day:
    day = Day(harness)
    monkeypatch.setattr(idleness_loop, "now", day.now)
    return day


async def session(harness: Harness, name: str = "notebook", **columns: Any) -> tuple[UUID, list[Any]]:
    await harness.node(f"node-of-{name}")
    workload_id = await harness.submit(name, kind=Kind.SESSION, replicas=columns.pop("replicas", 1))
    await harness.set(workload_id, idle_timeout_seconds=TIMEOUT, **columns)
    return workload_id, await harness.run(workload_id)


async def received(harness: Harness, workload_id: UUID) -> list[str]:
    kinds = select(events.c.kind).where(events.c.object_id == workload_id).order_by(events.c.revision)
    return [row.kind for row in await harness.rows(kinds) if row.kind in ("idle-warning", "active-again")]


async def test_an_idle_session_is_warned_and_then_ended_with_the_reason(harness: Harness, day: Day):
    workload_id, [task] = await session(harness)
    await day.minutes(7, task)
    assert await received(harness, workload_id) == []
    await day.minutes(1.1, task)
    await day.minutes(1, task)
    assert await received(harness, workload_id) == ["idle-warning"]
    assert (await harness.workload(workload_id)).status == "RUNNING"
    await day.minutes(2, task)
    [stopping] = await harness.tasks(workload_id)
    assert (stopping.status, stopping.reason["code"]) == ("TERMINATING", "idle-timeout")
    await harness.move(task, TaskStatus.CANCELLED)
    ended = await harness.workload(workload_id)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "idle-timeout")
    assert ended.reason["message"] == "Its tasks were idle for 10m"


@on_sqlite
async def test_activity_after_the_idle_warning_keeps_the_session_and_resets_the_warning(harness: Harness, day: Day):
    workload_id, [task] = await session(harness)
    await day.minutes(9, task)
    await day.minutes(0.5, busy=(task,))
    await day.minutes(2, task)
    assert await received(harness, workload_id) == ["idle-warning", "active-again"]
    await day.minutes(6.5, task)
    assert await received(harness, workload_id) == ["idle-warning", "active-again", "idle-warning"]
    assert (await harness.workload(workload_id)).status == "RUNNING"


@on_sqlite
async def test_one_busy_task_keeps_all_of_its_session(harness: Harness, day: Day):
    workload_id, [first, second] = await session(harness, replicas=2)
    for _ in range(4):
        await day.minutes(5, first, busy=(second,))
    assert await received(harness, workload_id) == []
    for _ in range(3):
        await day.minutes(5, first, second)
    assert {task.status for task in await harness.tasks(workload_id)} == {"TERMINATING"}


@on_sqlite
async def test_silence_of_the_node_is_no_proof_of_idleness(harness: Harness, day: Day):
    never_id, [first, _never_measured] = await session(harness, replicas=2)
    once_id, [measured_once] = await session(harness, "other")
    await day.minutes(5, first, measured_once)
    for _ in range(5):
        await day.minutes(10, first)
    assert await received(harness, never_id) == await received(harness, once_id) == []


@on_sqlite
async def test_sessions_without_an_idle_timeout_are_not_changed(harness: Harness, day: Day):
    await harness.node("n1")
    workload_id = await harness.submit("job", kind=Kind.SESSION)
    [task] = await harness.run(workload_id)
    for _ in range(5):
        await day.minutes(60, task)
    assert (await harness.workload(workload_id)).status == "RUNNING"


@on_sqlite
async def test_the_signal_that_a_session_asked_for_is_sent_with_the_warning(harness: Harness, day: Day):
    _, [task] = await session(harness, warning_signal="USR1", warning_seconds=60)

    async def warning() -> EndWarning | None:
        async with harness.database.read() as connection:
            [row] = await desired_tasks.desired(connection, task.node_id)
        return desired_task(row).warning

    assert await warning() is None
    await day.minutes(9, task)
    assert await warning() == EndWarning(at=day.at.timestamp(), signal="USR1")
    news = select(events.c.node_id).where(events.c.object_id == task.id, events.c.kind == "idle-warning")
    assert [row.node_id for row in await harness.rows(news)] == [task.node_id]
    await day.minutes(0.5, busy=(task,))
    assert await warning() is None


@on_sqlite
async def test_a_deposed_leader_neither_warns_nor_ends(harness: Harness, day: Day):
    workload_id, [task] = await session(harness)
    await harness.database.write(lambda c: c.execute(update(leadership).values(term=99)))
    with pytest.raises(LeadershipLost):
        await day.minutes(9, task)
    assert await received(harness, workload_id) == []
