"""Retention: what is old goes as a whole, what still counts stays, and no sum changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update

from mooring.clock import now
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.model.lifecycle import TaskStatus
from mooring.model.timeslots import TimeslotStatus
from mooring.model.workloads import Kind
from mooring.store import agenda, purging, timeslots, transitions, usage
from mooring.store.changes import Change
from mooring.store.engine import Connection
from mooring.store.ids import new_id
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
from mooring.store.timeslots import Move
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour
from tests.store.test_timeslots import slot

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
DAY = usage.DAY
LATER = MONDAY + 10 * DAY


@pytest.fixture(autouse=True)
async def founded_on_monday(harbour: Harbour) -> None:
    await harbour.database.write(lambda c: c.execute(update(domains).values(created_at=MONDAY)))
    await harbour.node("n1", cpu=64, memory="64Gi")


async def ended(harbour: Harbour, name: str, at: datetime, *, kind: Kind = Kind.SESSION, freed: bool = True) -> UUID:
    """A workload that ran for an hour until then."""
    workload_id = await harbour.submit(name, kind=kind)
    await harbour.place()
    [task] = await harbour.tasks(workload_id)
    for status, when in (
        (TaskStatus.RUNNING, at - DAY / 24),
        (TaskStatus.LOST if not freed else TaskStatus.FAILED, at),
    ):
        change = Change(task.id, status, freed=freed)
        await harbour.database.write(lambda c: transitions.apply(c, [change], actor="test", now=when))  # noqa: B023
    return workload_id


async def count_usage(harbour: Harbour, now: datetime = LATER) -> None:
    async def work(connection: Connection) -> None:
        days = await usage.open_days(connection, now)
        await usage.replace(connection, days, await usage.count(connection, days, now), now)

    await harbour.database.write(work)


async def purge(harbour: Harbour, before: datetime, most: int = 100) -> int:
    return await harbour.database.write(lambda c: purging.purge_workloads(c, before, most))


async def left(harbour: Harbour) -> list[str]:
    return sorted(row.name for row in await harbour.rows(select(workloads.c.name)))


async def test_an_ended_workload_goes_with_all_that_belongs_to_it_and_its_record_stays(harbour: Harbour):
    old = await ended(harbour, "old", MONDAY + DAY)
    kept = await ended(harbour, "kept", MONDAY + 2 * DAY)
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
        link = {"workload_id": kept, "depends_on": old, "condition": "after-ok"}
        await connection.execute(insert(dependencies), [link])

    await harbour.database.write(write)
    await count_usage(harbour)
    sums = await harbour.rows(select(usage_buckets))
    # The moment of its end is not before itself.
    assert await purge(harbour, MONDAY + DAY) == 0
    assert await purge(harbour, MONDAY + 2 * DAY) == 1
    assert await left(harbour) == ["kept"]
    [task] = await harbour.rows(select(tasks))
    assert {row.task_id for row in await harbour.rows(select(resource_allocations))} == {task.id}
    assert {row.workload_id for row in await harbour.rows(select(status_history))} == {kept, None}
    assert await harbour.rows(select(attempts)) == []
    assert await harbour.rows(select(dependencies)) == []
    assert {row.name for row in await harbour.rows(select(workload_records))} == {"old", "kept"}
    await count_usage(harbour)
    assert await harbour.rows(select(usage_buckets)) == sums
    assert await harbour.findings() == []


@on_sqlite
async def test_what_still_counts_stays_however_old(harbour: Harbour):
    await ended(harbour, "charged", MONDAY + DAY, freed=False)
    awaited = await ended(harbour, "awaited", MONDAY + DAY)
    waiting = await harbour.submit("waiting")
    link = {"workload_id": waiting, "depends_on": awaited, "condition": "after-any"}
    await harbour.database.write(lambda c: c.execute(insert(dependencies), [link]))
    await count_usage(harbour)
    assert await purge(harbour, LATER) == 0
    assert await left(harbour) == ["awaited", "charged", "waiting"]


@on_sqlite
async def test_a_day_that_is_not_settled_keeps_its_ledger(harbour: Harbour):
    await ended(harbour, "job", MONDAY + 2 * DAY)
    assert await purge(harbour, LATER) == 0
    await count_usage(harbour, MONDAY + 2.5 * DAY)
    assert await purge(harbour, LATER) == 0
    await count_usage(harbour, LATER)
    assert await purge(harbour, LATER) == 1


@on_sqlite
async def test_batches_are_small_and_the_oldest_go_first(harbour: Harbour):
    for number in (3, 1, 2):
        await ended(harbour, f"job-{number}", MONDAY + number * DAY)
    await count_usage(harbour)
    assert await purge(harbour, LATER, most=2) == 2
    assert await left(harbour) == ["job-3"]


async def test_earlier_attempts_of_what_lives_on_go_too(harbour: Harbour):
    workload_id = await ended(harbour, "web", MONDAY + DAY, kind=Kind.DEPLOYMENT)
    await harbour.replace_ended()
    await count_usage(harbour)
    assert len(await harbour.tasks(workload_id, current=False)) == 2

    async def purge_tasks(before: datetime) -> int:
        return await harbour.database.write(lambda c: purging.purge_replaced_tasks(c, before, 10))

    assert await purge_tasks(MONDAY + DAY) == 0
    assert await purge_tasks(LATER) == 1
    [task] = await harbour.tasks(workload_id, current=False)
    assert task.attempt == 2
    assert await purge(harbour, LATER) == 0
    assert await harbour.findings() == []


async def test_history_goes_by_its_own_age(harbour: Harbour):
    workload_id = await harbour.submit("web")
    oldest = min(row.at for row in await harbour.rows(select(status_history)))

    async def purge_history(before: datetime) -> int:
        return await harbour.database.write(lambda c: purging.purge_history(c, before, 100))

    assert await purge_history(oldest) == 0
    assert await purge_history(now() + timedelta(seconds=1)) >= 1
    assert await harbour.history(workload_id) == []


@on_sqlite
async def test_the_leader_forgets_each_kind_by_its_setting(harbour: Harbour):
    await ended(harbour, "job", MONDAY + DAY)
    await count_usage(harbour)
    for_ever = Retention(*[DAY * 9999] * 6)
    assert await RetentionLoop(harbour.database, harbour.office, for_ever).once() is False
    for kind, table in (("workloads", workloads), ("records", workload_records), ("usage", usage_buckets)):
        retention = replace(for_ever, **{kind: DAY})
        assert await harbour.rows(select(table)) != []
        while await RetentionLoop(harbour.database, harbour.office, retention).once():
            pass
        assert await harbour.rows(select(table)) == []


async def test_timeslots_go_when_they_are_long_over_and_no_workload_names_them(harbour: Harbour):
    over, named, live = slot(harbour, "over"), slot(harbour, "named"), slot(harbour, "live")
    await harbour.database.write(lambda c: timeslots.insert(c, [over, named, live], MONDAY))
    moves = [Move(each, TimeslotStatus.CANCELLED) for each in (over, named)]
    await harbour.database.write(lambda c: timeslots.move(c, moves, MONDAY))
    await harbour.set(await harbour.submit("guest"), timeslot_id=named.id)
    for before, gone in ((MONDAY, 0), (LATER, 1), (LATER, 0)):
        assert await harbour.database.write(lambda c: agenda.purge(c, before, 10)) == gone  # noqa: B023
    left = await harbour.rows(select(timeslots_table.c.id).order_by(timeslots_table.c.id))
    assert [row.id for row in left] == [named.id, live.id]
