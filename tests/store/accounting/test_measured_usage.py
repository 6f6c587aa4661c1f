"""Measured use in the database: averages of tasks, and sums of days beside what was given out."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import select, update

from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.access import EVERYTHING
from mooring.model.tenancy.accounting import By
from mooring.store.accounting import measured_usage, usage
from mooring.store.accounting.measured_usage import Average
from mooring.store.core.types import AnyRow
from mooring.store.tables import domains, measured_buckets, resource_allocations, task_usage, tasks, workloads
from mooring.store.views import usage as views
from tests.store.accounting.test_usage import become, count
from tests.store.harness import Harness

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GIGABYTE = 1 << 30


@pytest.fixture(autouse=True)
async def founded_on_monday(harness: Harness) -> None:
    await harness.database.write(lambda c: c.execute(update(domains).values(created_at=MONDAY)))


async def running(harness: Harness, name: str = "job") -> AnyRow:
    workload_id = await harness.submit(name, cpu=8, memory="4Gi")
    await harness.place()
    [task] = await harness.tasks(workload_id)
    await become(harness, task.id, TaskStatus.RUNNING, MONDAY)
    return task


async def write(harness: Harness, *averages: Average, active: dict[UUID, datetime] | None = None) -> None:
    await harness.database.write(lambda c: measured_usage.write(c, list(averages), active or {}))


async def days(harness: Harness) -> dict[tuple[datetime, str], int]:
    rows = await harness.rows(select(measured_buckets))
    return {(row.starts_at, row.slot_name): row.amount_minutes for row in rows}


async def test_averages_add_up_by_day_once_however_often_they_are_written(harness: Harness):
    await harness.node("n1")
    task = await running(harness)
    first = Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 1300, 60)
    memory = Average(task.id, task.node_id, MONDAY + MINUTE, "memory", GIGABYTE, 60)
    flow = Average(task.id, task.node_id, MONDAY + MINUTE, "read", 4096, 60)
    for _ in range(2):
        await write(harness, first, memory, flow)
    await write(harness, Average(task.id, task.node_id, MONDAY + 2 * MINUTE, "cpu", 100, 30))
    await write(harness, Average(task.id, task.node_id, MONDAY + timedelta(days=1), "cpu", 700, 60))
    # 1300 for a minute and 100 for half of one
    tuesday = MONDAY + timedelta(days=1)
    expected = {(MONDAY, "cpu"): 1350, (MONDAY, "memory"): GIGABYTE, (tuesday, "cpu"): 700}
    assert await days(harness) == expected
    async with harness.database.read() as connection:
        found = await measured_usage.newest(connection, [task.id], MONDAY)
        assert found[task.id] == measured_usage.Newest(tuesday, {"cpu": 700})
        assert await measured_usage.newest(connection, [task.id], tuesday + MINUTE) == {}


async def test_a_node_speaks_for_its_own_tasks_only(harness: Harness):
    await harness.node("n1")
    task = await running(harness)
    await write(harness, Average(task.id, UUID(int=1), MONDAY + MINUTE, "cpu", 1300, 60))
    await write(harness, Average(UUID(int=2), task.node_id, MONDAY + MINUTE, "cpu", 1300, 60))
    assert await days(harness) == {}
    assert await harness.rows(select(task_usage)) == []


async def test_measured_usage_is_shown_beside_allocations_and_never_in_the_ledger(harness: Harness):
    await harness.node("n1")
    task = await running(harness)
    await write(harness, Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 1300, 60))
    await count(harness, MONDAY + 2 * MINUTE)
    async with harness.database.read() as connection:
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
    [entry] = await harness.rows(select(resource_allocations.c.used).where(resource_allocations.c.slot_name == "cpu"))
    assert entry.used == 8000


async def test_the_use_of_a_workload_over_time_is_that_of_its_tasks_since_then(harness: Harness):
    await harness.node("n1", cpu=32)
    task, other = await running(harness), await running(harness, "other")
    for minute, amount in ((1, 1300), (2, 1500)):
        at = MONDAY + minute * MINUTE
        await write(harness, Average(task.id, task.node_id, at, "cpu", amount, 60))
        await write(harness, Average(other.id, other.node_id, at, "cpu", 7000, 60))
    async with harness.database.read() as connection:
        found = await measured_usage.series(connection, task.workload_id, MONDAY)
        late = await measured_usage.series(connection, task.workload_id, MONDAY + MINUTE)
    assert found == [(MONDAY + MINUTE, "cpu", 1300), (MONDAY + 2 * MINUTE, "cpu", 1500)]
    assert late == [(MONDAY + 2 * MINUTE, "cpu", 1500)]


async def test_counting_and_settling_days_keeps_measured_usage(harness: Harness):
    await harness.node("n1")
    task = await running(harness)
    await write(harness, Average(task.id, task.node_id, MONDAY + MINUTE, "cpu", 600, 60))
    for later in (timedelta(hours=5), timedelta(days=1, hours=3), timedelta(days=4)):
        await count(harness, MONDAY + later)
        assert await days(harness) == {(MONDAY, "cpu"): 600}
    await harness.database.write(lambda c: usage.purge(c, MONDAY + timedelta(days=2), 9))
    assert await days(harness) == {}


async def test_old_averages_are_forgotten_and_their_days_are_not(harness: Harness):
    await harness.node("n1")
    task = await running(harness)
    for minute in (1, 2, 3):
        await write(harness, Average(task.id, task.node_id, MONDAY + minute * MINUTE, "cpu", 60, 60))
    purge = measured_usage.purge
    assert await harness.database.write(lambda c: purge(c, MONDAY + 3 * MINUTE, 1)) == 1
    assert await harness.database.write(lambda c: purge(c, MONDAY + 3 * MINUTE, 100)) == 1
    assert [row.measured_at for row in await harness.rows(select(task_usage))] == [MONDAY + 3 * MINUTE]
    assert await days(harness) == {(MONDAY, "cpu"): 180}


async def test_activity_is_stored_for_workloads_with_an_idle_timeout(harness: Harness):
    await harness.node("n1")
    stored, other = await running(harness, "notebook"), await running(harness, "other")
    timeout = update(workloads).where(workloads.c.id == stored.workload_id).values(idle_timeout_seconds=600)
    await harness.database.write(lambda c: c.execute(timeout))
    for at in (MONDAY + MINUTE, MONDAY):
        await write(harness, active={stored.id: at, other.id: at})
    found = {row.id: row.active_at for row in await harness.rows(select(tasks.c.id, tasks.c.active_at))}
    assert found == {stored.id: MONDAY + MINUTE, other.id: None}
