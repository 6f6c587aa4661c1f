"""Sessions that nobody uses: told so, ended, and left alone as soon as somebody does, or nothing is known."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.api.orders import desired_task
from mooring.clock import now as really_now
from mooring.controllers import idleness as idleness_loop
from mooring.controllers.idleness import IdlenessLoop
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads import Kind
from mooring.store import agents, measured
from mooring.store.measured import Average
from mooring.store.tables import events, leadership
from mooring.wire.agent import EndWarning
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

MINUTES = 60
TIMEOUT = 10 * MINUTES


class Day:
    """A clock that stands still, and what is measured of tasks as it moves."""

    def __init__(self, harbour: Harbour) -> None:
        self.at = self.start = really_now()
        self._harbour = harbour
        self.loop = IdlenessLoop(harbour.database, harbour.office)

    def now(self) -> datetime:
        return self.at

    async def minutes(self, number: float, *quiet: Any, busy: tuple[Any, ...] = ()) -> None:
        """Later: these tasks were measured all the time and did nothing, or something at the end; others were not."""
        self.at += timedelta(minutes=number)
        averages = [Average(task.id, task.node_id, self.at, "cpu", 0, 60) for task in (*quiet, *busy)]
        active = {task.id: self.at for task in busy}
        await self._harbour.database.write(lambda c: measured.write(c, averages, active))
        await self.loop.once()


@pytest.fixture
async def day(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Day:
    day = Day(harbour)
    monkeypatch.setattr(idleness_loop, "now", day.now)
    return day


async def session(harbour: Harbour, name: str = "notebook", **columns: Any) -> tuple[UUID, list[Any]]:
    await harbour.node(f"node-of-{name}")
    workload_id = await harbour.submit(name, kind=Kind.SESSION, replicas=columns.pop("replicas", 1))
    await harbour.set(workload_id, idle_timeout_seconds=TIMEOUT, **columns)
    return workload_id, await harbour.run(workload_id)


async def told(harbour: Harbour, workload_id: UUID) -> list[str]:
    kinds = select(events.c.kind).where(events.c.object_id == workload_id).order_by(events.c.revision)
    return [row.kind for row in await harbour.rows(kinds) if row.kind in ("idle-warning", "active-again")]


async def test_an_idle_session_is_told_and_then_ended_with_the_reason(harbour: Harbour, day: Day):
    workload_id, [task] = await session(harbour)
    await day.minutes(7, task)
    assert await told(harbour, workload_id) == []
    await day.minutes(1.1, task)
    await day.minutes(1, task)
    assert await told(harbour, workload_id) == ["idle-warning"]
    assert (await harbour.workload(workload_id)).status == "RUNNING"
    await day.minutes(2, task)
    [stopping] = await harbour.tasks(workload_id)
    assert (stopping.status, stopping.reason["code"]) == ("TERMINATING", "idle-timeout")
    await harbour.move(task, TaskStatus.CANCELLED)
    ended = await harbour.workload(workload_id)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "idle-timeout")
    assert ended.reason["message"] == "Its tasks did nothing for 10m"


@on_sqlite
async def test_who_does_something_after_the_warning_stays_and_is_warned_anew(harbour: Harbour, day: Day):
    workload_id, [task] = await session(harbour)
    await day.minutes(9, task)
    await day.minutes(0.5, busy=(task,))
    await day.minutes(2, task)
    assert await told(harbour, workload_id) == ["idle-warning", "active-again"]
    await day.minutes(6.5, task)
    assert await told(harbour, workload_id) == ["idle-warning", "active-again", "idle-warning"]
    assert (await harbour.workload(workload_id)).status == "RUNNING"


@on_sqlite
async def test_one_busy_task_keeps_all_of_its_session(harbour: Harbour, day: Day):
    workload_id, [first, second] = await session(harbour, replicas=2)
    for _ in range(4):
        await day.minutes(5, first, busy=(second,))
    assert await told(harbour, workload_id) == []
    for _ in range(3):
        await day.minutes(5, first, second)
    assert {task.status for task in await harbour.tasks(workload_id)} == {"TERMINATING"}


@on_sqlite
async def test_silence_of_the_node_is_no_proof_of_idleness(harbour: Harbour, day: Day):
    never_id, [first, _never_measured] = await session(harbour, replicas=2)
    once_id, [measured_once] = await session(harbour, "other")
    await day.minutes(5, first, measured_once)
    for _ in range(5):
        await day.minutes(10, first)
    assert await told(harbour, never_id) == await told(harbour, once_id) == []


@on_sqlite
async def test_sessions_without_such_a_timeout_are_left_alone(harbour: Harbour, day: Day):
    await harbour.node("n1")
    workload_id = await harbour.submit("job", kind=Kind.SESSION)
    [task] = await harbour.run(workload_id)
    for _ in range(5):
        await day.minutes(60, task)
    assert (await harbour.workload(workload_id)).status == "RUNNING"


@on_sqlite
async def test_the_signal_that_a_session_asked_for_is_sent_with_the_warning(harbour: Harbour, day: Day):
    _, [task] = await session(harbour, warning_signal="USR1", warning_seconds=60)

    async def warning() -> EndWarning | None:
        async with harbour.database.read() as connection:
            [row] = await agents.desired(connection, task.node_id)
        return desired_task(row).warning

    assert await warning() is None
    await day.minutes(9, task)
    assert await warning() == EndWarning(at=day.at.timestamp(), signal="USR1")
    news = select(events.c.node_id).where(events.c.object_id == task.id, events.c.kind == "idle-warning")
    assert [row.node_id for row in await harbour.rows(news)] == [task.node_id]
    await day.minutes(0.5, busy=(task,))
    assert await warning() is None


@on_sqlite
async def test_a_deposed_leader_neither_warns_nor_ends(harbour: Harbour, day: Day):
    workload_id, [task] = await session(harbour)
    await harbour.database.write(lambda c: c.execute(update(leadership).values(term=99)))
    with pytest.raises(LeadershipLost):
        await day.minutes(9, task)
    assert await told(harbour, workload_id) == []
