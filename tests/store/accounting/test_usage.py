"""Daily usage from the ledger: exact, whatever is counted how often."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import delete, select, update

from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import amounts
from mooring.store.accounting import usage
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection
from mooring.store.core.types import AnyRow
from mooring.store.tables import domains, resource_allocations, settled_days, usage_buckets
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
TUESDAY, WEDNESDAY, THURSDAY = (MONDAY + usage.DAY * number for number in (1, 2, 3))
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
async def founded_on_monday(harness: Harness) -> None:
    await harness.database.write(lambda c: c.execute(update(domains).values(created_at=MONDAY)))


async def run(harness: Harness, name: str, start: datetime, end: datetime | None, **more: object) -> AnyRow:
    """A task that runs from then until then."""
    workload_id = await harness.submit(name, **more)  # type: ignore[arg-type]
    await harness.place()
    [task] = await harness.tasks(workload_id)
    await become(harness, task.id, TaskStatus.RUNNING, start)
    if end is not None:
        await become(harness, task.id, TaskStatus.FAILED, end)
    return task


async def become(harness: Harness, task_id: UUID, status: TaskStatus, at: datetime, *, freed: bool = True) -> None:
    change = Change(task_id, status, freed=freed)
    await harness.database.write(lambda c: transitions.apply(c, [change], actor="test", now=at))


async def count(harness: Harness, now: datetime) -> None:
    async def work(connection: Connection) -> None:
        days = await usage.open_days(connection, now)
        await usage.replace(connection, days, await usage.count(connection, days, now), now)

    await harness.database.write(work)


async def buckets(harness: Harness, slot: str = "cpu") -> dict[tuple[datetime, int], int]:
    """Seconds by day and amount."""
    rows = await harness.rows(select(usage_buckets).where(usage_buckets.c.slot_name == slot))
    assert {(row.pool, row.project_id, row.user_id) for row in rows} <= {
        ("default", harness.principal.project_id, harness.principal.user_id)
    }
    return {(row.starts_at, row.amount): row.seconds for row in rows}


async def test_usage_over_midnight_is_split_by_day(harness: Harness):
    await harness.node("n1")
    moment = timedelta(milliseconds=700)
    start, end = MONDAY + 22.5 * HOUR + moment, WEDNESDAY + 1.25 * HOUR + timedelta(milliseconds=200)
    await run(harness, "long", start, end, cpu=2, memory="3Gi")
    expected = {(MONDAY, 2000): 5400, (TUESDAY, 2000): 86_400, (WEDNESDAY, 2000): 4500}
    await count(harness, WEDNESDAY + 5 * HOUR)
    assert await buckets(harness) == expected
    assert await buckets(harness, "memory") == {(day, 3 << 30): seconds for (day, _), seconds in expected.items()}
    # However often, on this day and on others.
    for later in (WEDNESDAY + 5 * HOUR, WEDNESDAY + 6 * HOUR, THURSDAY, THURSDAY + 3 * HOUR):
        await count(harness, later)
        assert await buckets(harness) == expected


async def test_running_work_counts_until_now_and_equal_amounts_add_up(harness: Harness):
    await harness.node("n1")
    await run(harness, "first", MONDAY + HOUR, None)
    await count(harness, MONDAY + 2 * HOUR)
    assert await buckets(harness) == {(MONDAY, 1000): 3600}
    await run(harness, "second", MONDAY + 2 * HOUR, MONDAY + 3 * HOUR)
    await run(harness, "wide", MONDAY + 2 * HOUR, None, cpu=3)
    await harness.submit("waits")
    await count(harness, MONDAY + 4 * HOUR)
    assert await buckets(harness) == {(MONDAY, 1000): 4 * 3600, (MONDAY, 3000): 2 * 3600}


async def test_a_lost_task_costs_its_tenant_nothing_more_though_its_node_stays_charged(harness: Harness):
    await harness.node("n1")
    task = await run(harness, "gone", MONDAY, None)
    await become(harness, task.id, TaskStatus.LOST, MONDAY + HOUR, freed=False)
    await count(harness, MONDAY + 5 * HOUR)
    assert await buckets(harness) == {(MONDAY, 1000): 3600}


@on_sqlite
async def test_a_settled_day_does_not_change_with_the_ledger(harness: Harness):
    await harness.node("n1")
    task = await run(harness, "job", MONDAY, TUESDAY + HOUR)
    await count(harness, TUESDAY + HOUR - timedelta(seconds=1))
    assert await harness.rows(select(settled_days)) == []
    await count(harness, TUESDAY + HOUR)
    assert [row.starts_at for row in await harness.rows(select(settled_days))] == [MONDAY]
    await harness.database.write(
        lambda c: c.execute(delete(resource_allocations).where(resource_allocations.c.task_id == task.id))
    )
    await count(harness, TUESDAY + 2 * HOUR)
    assert await buckets(harness) == {(MONDAY, 1000): 86_400}


@on_sqlite
async def test_uncounted_days_are_caught_up(harness: Harness):
    await harness.node("n1")
    await run(harness, "job", MONDAY, None)
    await count(harness, MONDAY + HOUR)
    much_later = MONDAY + 40 * usage.DAY + HOUR
    await count(harness, much_later)
    assert (await buckets(harness))[MONDAY + 30 * usage.DAY, 1000] == 86_400
    await count(harness, much_later)
    found = await buckets(harness)
    assert sum(found.values()) == 40 * 86_400 + 3600
    assert len(found) == 41
    async with harness.database.read() as connection:
        # A clock that is behind counts nothing twice.
        assert await usage.open_days(connection, MONDAY) == []


async def test_use_is_summed_by_user_each_day_counting_its_share(harness: Harness):
    await harness.node("n1", cpu=8, memory="16Gi")
    await run(harness, "huge", MONDAY, WEDNESDAY, cpu=4, memory="16Gi")
    await count(harness, THURSDAY)
    async with harness.database.read() as connection:
        found = await usage.decayed(connection, "default", {MONDAY: 0.5, TUESDAY: 1.0, THURSDAY: 1.0})
        assert await usage.decayed(connection, "simulated", {MONDAY: 1.0}) == {}
        capacity = await usage.capacity(connection, "default")
    user = (harness.principal.project_id, harness.principal.user_id)
    # Bytes times seconds are beyond 64 bits.
    assert found == {user: {"cpu": 4000 * 86_400 * 1.5, "memory": (16 << 30) * 86_400 * 1.5}}
    assert capacity == amounts(cpu=8, memory="16Gi")


@on_sqlite
async def test_old_buckets_are_purged_except_those_still_counted(harness: Harness):
    await harness.node("n1")
    await run(harness, "job", MONDAY, WEDNESDAY)
    await count(harness, WEDNESDAY + 2 * HOUR)

    async def purge(before: datetime) -> int:
        return await harness.database.write(lambda c: usage.purge(c, before, 10))

    assert await purge(TUESDAY - timedelta(seconds=1)) == 0
    assert await purge(THURSDAY) == 1
    assert await buckets(harness) == {(TUESDAY, 1000): 86_400}
    await count(harness, THURSDAY)
    assert await buckets(harness) == {(TUESDAY, 1000): 86_400}
