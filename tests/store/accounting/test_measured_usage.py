"""Measured use in the database: averages of tasks, and sums of days beside what was given out."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.model.access import EVERYTHING
from mooring.model.accounting import By
from mooring.model.lifecycle import TaskStatus
from mooring.store import measured, usage
from mooring.store.measured import Average
from mooring.store.tables import domains, measured_buckets, resource_allocations, task_usage, tasks, workloads
from mooring.store.types import AnyRow
from mooring.store.views import usage as views
from tests.store.harbour import Harbour
from tests.store.test_usage import become, count

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GIGABYTE = 1 << 30


@pytest.fixture(autouse=True)
async def founded_on_monday(harbour: Harbour) -> None:
    await harbour.database.write(lambda c: c.execute(update(domains).values(created_at=MONDAY)))


async def running(harbour: Harbour, name: str = "job") -> AnyRow:
    workload_id = await harbour.submit(name, cpu=8, memory="4Gi")
    await harbour.place()
    [task] = await harbour.tasks(workload_id)
    await become(harbour, task.id, TaskStatus.RUNNING, MONDAY)
    return task


async def write(harbour: Harbour, *averages: Average, active: dict[UUID, datetime] | None = None) -> None:
    await harbour.database.write(lambda c: measured.write(c, list(averages), active or {}))


async def days(harbour: Harbour) -> dict[tuple[datetime, str], int]:
    rows = await harbour.rows(select(measured_buckets))
    return {(row.starts_at, row.slot_name): row.amount_minutes for row in rows}


async def test_averages_add_up_by_day_once_however_often_they_are_written(harbour: Harbour):
    await harbour.node("n1")
    task = await running(harbour)
    first = Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 1300, 60)
    memory = Average(task.id, task.node_id, MONDAY + MINUTE, "memory", GIGABYTE, 60)
    flow = Average(task.id, task.node_id, MONDAY + MINUTE, "read", 4096, 60)
    for _ in range(2):
        await write(harbour, first, memory, flow)
    await write(harbour, Average(task.id, task.node_id, MONDAY + 2 * MINUTE, "cpu", 100, 30))
    await write(harbour, Average(task.id, task.node_id, MONDAY + timedelta(days=1), "cpu", 700, 60))
    # 1300 for a minute and 100 for half of one
    tuesday = MONDAY + timedelta(days=1)
    expected = {(MONDAY, "cpu"): 1350, (MONDAY, "memory"): GIGABYTE, (tuesday, "cpu"): 700}
    assert await days(harbour) == expected
    async with harbour.database.read() as connection:
        found = await measured.newest(connection, [task.id], MONDAY)
        assert found[task.id] == measured.Newest(tuesday, {"cpu": 700})
        assert await measured.newest(connection, [task.id], tuesday + MINUTE) == {}


async def test_a_node_speaks_for_its_own_tasks_only(harbour: Harbour):
    await harbour.node("n1")
    task = await running(harbour)
    await write(harbour, Average(task.id, UUID(int=1), MONDAY + MINUTE, "cpu", 1300, 60))
    await write(harbour, Average(UUID(int=2), task.node_id, MONDAY + MINUTE, "cpu", 1300, 60))
    assert await days(harbour) == {}
    assert await harbour.rows(select(task_usage)) == []


async def test_what_was_measured_stands_beside_what_was_given_and_never_in_the_ledger(harbour: Harbour):
    await harbour.node("n1")
    task = await running(harbour)
    await write(harbour, Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 1300, 60))
    await count(harbour, MONDAY + 2 * MINUTE)
    async with harbour.database.read() as connection:
        rows = await views.usage(connection, By.PROJECT, MONDAY, MONDAY, sight=EVERYTHING)
        by_pool = await views.usage(connection, By.POOL, MONDAY, MONDAY, sight=EVERYTHING, pool="default")
        by_day = await views.usage(connection, By.DAY, MONDAY, MONDAY, sight=EVERYTHING)
    assert {(row.slot, row.amount_seconds, row.measured_seconds) for row in rows} == {
        ("cpu", 8000 * 120, 1300 * 60),
        ("memory", 4 * GIGABYTE * 120, None),
    }
    assert [row.name for row in by_pool] == ["default", "default"]
    assert [(row.name, row.slot, row.measured_seconds) for row in by_day] == [
        ("2026-03-02", "cpu", 1300 * 60),
        ("2026-03-02", "memory", None),
    ]
    [entry] = await harbour.rows(select(resource_allocations.c.used).where(resource_allocations.c.slot_name == "cpu"))
    assert entry.used == 8000


async def test_counting_and_settling_days_keeps_what_was_measured(harbour: Harbour):
    await harbour.node("n1")
    task = await running(harbour)
    await write(harbour, Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 600, 60))
    for later in (timedelta(hours=5), timedelta(days=1, hours=3), timedelta(days=4)):
        await count(harbour, MONDAY + later)
        assert await days(harbour) == {(MONDAY, "cpu"): 600}
    await harbour.database.write(lambda c: usage.purge(c, MONDAY + timedelta(days=2), 9))
    assert await days(harbour) == {}


async def test_old_averages_are_forgotten_and_their_days_are_not(harbour: Harbour):
    await harbour.node("n1")
    task = await running(harbour)
    for minute in (1, 2, 3):
        await write(harbour, Average(task.id, task.node_id, MONDAY + minute * MINUTE, "cpu", 60, 60))
    purge = measured.purge
    assert await harbour.database.write(lambda c: purge(c, MONDAY + 3 * MINUTE, 1)) == 1
    assert await harbour.database.write(lambda c: purge(c, MONDAY + 3 * MINUTE, 100)) == 1
    assert [row.measured_at for row in await harbour.rows(select(task_usage))] == [MONDAY + 3 * MINUTE]
    assert await days(harbour) == {(MONDAY, "cpu"): 180}


async def test_activity_is_kept_of_those_whose_idleness_has_an_end(harbour: Harbour):
    await harbour.node("n1")
    kept, other = await running(harbour, "notebook"), await running(harbour, "other")
    timeout = update(workloads).where(workloads.c.id == kept.workload_id).values(idle_timeout_seconds=600)
    await harbour.database.write(lambda c: c.execute(timeout))
    for at in (MONDAY + MINUTE, MONDAY):
        await write(harbour, active={kept.id: at, other.id: at})
    found = {row.id: row.active_at for row in await harbour.rows(select(tasks.c.id, tasks.c.active_at))}
    assert found == {kept.id: MONDAY + MINUTE, other.id: None}
