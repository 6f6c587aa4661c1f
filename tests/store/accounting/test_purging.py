"""Retention: what is old goes as a whole, what still counts stays, and no sum changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update

from mooring.clock import now
from mooring.controllers.upkeep.retention import Retention, RetentionLoop
from mooring.model.calendar.timeslots import TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Kind
from mooring.store.accounting import purging, usage
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.reservations import due_timeslots, timeslots
from mooring.store.reservations.timeslots import TimeslotUpdate
from mooring.store.tables import (
    attempts,
    dependencies,
    domains,
    resource_allocations,
    status_history,
    tasks,
    usage_buckets,
    workload_records,
    workloads,
)
from mooring.store.tables import timeslots as timeslots_table
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.reservations.test_timeslots import slot

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY = usage.DAY
LATER = MONDAY + 10 * DAY


@pytest.fixture(autouse=True)
async def founded_on_monday(harness: Harness) -> None:
    await harness.database.write(lambda c: c.execute(update(domains).values(created_at=MONDAY)))
    await harness.node("n1", cpu=64, memory="64Gi")


async def ended(harness: Harness, name: str, at: datetime, *, kind: Kind = Kind.SESSION, freed: bool = True) -> UUID:
    """A workload that ran for an hour until then."""
    workload_id = await harness.submit(name, kind=kind)
    await harness.place()
    [task] = await harness.tasks(workload_id)
    for status, when in (
        (TaskStatus.RUNNING, at - DAY / 24),
        (TaskStatus.LOST if not freed else TaskStatus.FAILED, at),
    ):
        change = Change(task.id, status, freed=freed)
        await harness.database.write(lambda c: transitions.apply(c, [change], actor="test", now=when))  # noqa: B023
    return workload_id


async def count_usage(harness: Harness, now: datetime = LATER) -> None:
    async def work(connection: Connection) -> None:
        days = await usage.open_days(connection, now)
        await usage.replace(connection, days, await usage.count(connection, days, now), now)

    await harness.database.write(work)


async def purge(harness: Harness, before: datetime, most: int = 100) -> int:
    return await harness.database.write(lambda c: purging.purge_workloads(c, before, most))


async def left(harness: Harness) -> list[str]:
    return sorted(row.name for row in await harness.rows(select(workloads.c.name)))


async def test_an_ended_workload_goes_with_all_that_belongs_to_it_and_its_record_stays(harness: Harness):
    old = await ended(harness, "old", MONDAY + DAY)
    stored = await ended(harness, "kept", MONDAY + 2 * DAY)
    row = {
        "id": new_id(),
        "workload_id": old,
        "phase": "place",
        "result": "waited",
        "first_at": LATER,
        "last_at": LATER,
    }

    async def write(connection: Connection) -> None:
        await connection.execute(insert(attempts), [row])
        link = {"workload_id": stored, "depends_on": old, "condition": "after-ok"}
        await connection.execute(insert(dependencies), [link])

    await harness.database.write(write)
    await count_usage(harness)
    sums = await harness.rows(select(usage_buckets))
    # The moment of its end is not before itself.
    assert await purge(harness, MONDAY + DAY) == 0
    assert await purge(harness, MONDAY + 2 * DAY) == 1
    assert await left(harness) == ["kept"]
    [task] = await harness.rows(select(tasks))
    assert {row.task_id for row in await harness.rows(select(resource_allocations))} == {task.id}
    assert {row.workload_id for row in await harness.rows(select(status_history))} == {stored, None}
    assert await harness.rows(select(attempts)) == []
    assert await harness.rows(select(dependencies)) == []
    assert {row.name for row in await harness.rows(select(workload_records))} == {"old", "kept"}
    await count_usage(harness)
    assert await harness.rows(select(usage_buckets)) == sums
    assert await harness.findings() == []


@on_sqlite
async def test_rows_that_still_count_stay_however_old(harness: Harness):
    await ended(harness, "charged", MONDAY + DAY, freed=False)
    awaited = await ended(harness, "awaited", MONDAY + DAY)
    waiting = await harness.submit("waiting")
    link = {"workload_id": waiting, "depends_on": awaited, "condition": "after-any"}
    await harness.database.write(lambda c: c.execute(insert(dependencies), [link]))
    await count_usage(harness)
    assert await purge(harness, LATER) == 0
    assert await left(harness) == ["awaited", "charged", "waiting"]


@on_sqlite
async def test_a_day_that_is_not_settled_keeps_its_ledger(harness: Harness):
    await ended(harness, "job", MONDAY + 2 * DAY)
    assert await purge(harness, LATER) == 0
    await count_usage(harness, MONDAY + 2.5 * DAY)
    assert await purge(harness, LATER) == 0
    await count_usage(harness, LATER)
    assert await purge(harness, LATER) == 1


@on_sqlite
async def test_batches_are_small_and_the_oldest_go_first(harness: Harness):
    for number in (3, 1, 2):
        await ended(harness, f"job-{number}", MONDAY + number * DAY)
    await count_usage(harness)
    assert await purge(harness, LATER, most=2) == 2
    assert await left(harness) == ["job-3"]


async def test_earlier_attempts_of_active_work_are_purged_too(harness: Harness):
    workload_id = await ended(harness, "web", MONDAY + DAY, kind=Kind.DEPLOYMENT)
    await harness.replace_ended()
    await count_usage(harness)
    assert len(await harness.tasks(workload_id, current=False)) == 2

    async def purge_tasks(before: datetime) -> int:
        return await harness.database.write(lambda c: purging.purge_replaced_tasks(c, before, 10))

    assert await purge_tasks(MONDAY + DAY) == 0
    assert await purge_tasks(LATER) == 1
    [task] = await harness.tasks(workload_id, current=False)
    assert task.attempt == 2
    assert await purge(harness, LATER) == 0
    assert await harness.findings() == []


async def test_history_goes_by_its_own_age(harness: Harness):
    workload_id = await harness.submit("web")
    oldest = min(row.at for row in await harness.rows(select(status_history)))

    async def purge_history(before: datetime) -> int:
        return await harness.database.write(lambda c: purging.purge_history(c, before, 100))

    assert await purge_history(oldest) == 0
    assert await purge_history(now() + timedelta(seconds=1)) >= 1
    assert await harness.history(workload_id) == []


@on_sqlite
async def test_the_leader_forgets_each_kind_by_its_setting(harness: Harness):
    await ended(harness, "job", MONDAY + DAY)
    await count_usage(harness)
    unlimited = Retention(*[DAY * 9999] * 6)
    assert await RetentionLoop(harness.fenced, unlimited).once() is False
    for kind, table in (("workloads", workloads), ("records", workload_records), ("usage", usage_buckets)):
        retention = replace(unlimited, **{kind: DAY})
        assert await harness.rows(select(table)) != []
        while await RetentionLoop(harness.fenced, retention).once():
            pass
        assert await harness.rows(select(table)) == []


async def test_timeslots_go_when_they_are_long_over_and_no_workload_names_them(harness: Harness):
    over, named, live = slot(harness, "over"), slot(harness, "named"), slot(harness, "live")
    await harness.database.write(lambda c: timeslots.insert(c, [over, named, live], MONDAY))
    updates = [TimeslotUpdate(each, TimeslotStatus.CANCELLED) for each in (over, named)]
    await harness.database.write(lambda c: timeslots.apply_updates(c, updates, MONDAY))
    await harness.set(await harness.submit("guest"), timeslot_id=named.id)
    for before, gone in ((MONDAY, 0), (LATER, 1), (LATER, 0)):
        assert await harness.database.write(lambda c: due_timeslots.purge(c, before, 10)) == gone  # noqa: B023
    left = await harness.rows(select(timeslots_table.c.id).order_by(timeslots_table.c.id))
    assert [row.id for row in left] == [named.id, live.id]
