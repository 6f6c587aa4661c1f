"""Deferred tasks of arrays: no row before an index is placed, and everything else as if there were one."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from mooring.clock import now
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policy.pools import Binding
from mooring.model.reasons import Reason
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.core.ids import array_task_id, new_id
from mooring.store.tables import tasks as tasks_table
from mooring.store.tables import workloads as workloads_table
from mooring.store.tenancy import pending_counts
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WorkloadRow
from mooring.store.workloads import expiry
from tests.store.harness import Harness

T = TaskStatus
SIZE = 10


async def array(harness: Harness, name: str = "sweep", size: int = SIZE, parallel: int | None = None) -> UUID:
    schedule = ScheduleOptions(array=Array(0, 1, size, parallel=parallel), max_retries=1)
    return await harness.submit(name, kind=Kind.SESSION, replicas=size, schedule=schedule, spread=False)


async def row_of(harness: Harness, workload_id: UUID) -> WorkloadRow:
    async with harness.database.read() as connection:
        found = await views.by_id(connection, workload_id)
    assert found is not None
    return found


async def indexes(harness: Harness, workload_id: UUID) -> list[int]:
    return [task.task_index for task in await harness.tasks(workload_id)]


async def test_no_index_has_a_row_before_it_is_placed(harness: Harness):
    sweep = await array(harness)
    assert await indexes(harness, sweep) == []
    assert (await row_of(harness, sweep)).counts == {"PENDING": SIZE}
    await harness.node("n1", cpu=3)
    assert len((await harness.place()).bound) == 1
    assert await indexes(harness, sweep) == [0, 1, 2]
    assert [task.id for task in await harness.tasks(sweep)] == [array_task_id(sweep, index) for index in range(3)]
    assert (await row_of(harness, sweep)).counts == {"SCHEDULED": 3, "PENDING": SIZE - 3}
    assert (await harness.workload(sweep)).status == "PENDING"
    assert await harness.findings() == []


async def test_every_index_runs_once(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=4)
    for _ in range(SIZE):
        await harness.place()
        for task in await harness.tasks(sweep):
            if task.status == "SCHEDULED":
                await harness.move(task, T.PREPARING, T.RUNNING, T.SUCCEEDED)
        assert await harness.findings() == []
        if (await harness.workload(sweep)).ended_at is not None:
            break
    assert (await harness.workload(sweep)).status == "SUCCEEDED"
    assert await indexes(harness, sweep) == list(range(SIZE))
    assert (await row_of(harness, sweep)).counts == {"SUCCEEDED": SIZE}


@pytest.mark.parametrize("mode", [Binding.OPTIMISTIC, Binding.PESSIMISTIC, Binding.TWO_PHASE])
async def test_a_decision_that_comes_twice_places_each_index_once(harness: Harness, mode: Binding):
    sweep = await array(harness)
    await harness.node("n1", cpu=3)
    await harness.node("n2", cpu=3)
    decisions = await harness.propose()
    first = await harness.commit(*decisions, mode=mode)
    assert len(first.bound) == 1
    second = await harness.commit(*decisions, mode=mode)
    assert (second.bound, len(second.dropped) + len(second.conflicts)) == ([], 1)
    assert await indexes(harness, sweep) == list(range(6))
    assert await harness.findings() == []


async def test_a_decision_from_before_another_commit_is_dropped(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=2)
    late = await harness.propose()
    await harness.place()
    await harness.node("n2", cpu=2)
    assert (await harness.commit(*late)).bound == []
    await harness.place()
    assert await indexes(harness, sweep) == [0, 1, 2, 3]
    assert await harness.findings() == []


async def test_cancelling_an_array_cancels_its_deferred_tasks(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=2)
    await harness.place()
    await harness.stop(sweep)
    shown = await row_of(harness, sweep)
    assert (shown.status, shown.counts) == ("TERMINATING", {"TERMINATING": 2, "CANCELLED": SIZE - 2})
    for task in await harness.tasks(sweep):
        await harness.move(task, T.CANCELLED)
    shown = await row_of(harness, sweep)
    assert (shown.status, shown.counts) == ("CANCELLED", {"CANCELLED": SIZE})
    assert await indexes(harness, sweep) == [0, 1]
    assert await harness.propose() == []
    assert await harness.findings() == []


async def test_an_array_that_waited_too_long_ends_as_a_whole(harness: Harness):
    sweep = await array(harness)
    ends = {sweep: (WorkloadStatus.EXPIRED, Reason("pending-timeout", "It found no place", "limits", "never"))}
    await harness.database.write(lambda c: expiry.end_waiting(c, ends, actor="limits", now=now(), term=None))
    shown = await row_of(harness, sweep)
    assert (shown.status, shown.counts) == ("EXPIRED", {"CANCELLED": SIZE})
    assert await harness.findings() == []


async def test_a_failed_index_is_retried_before_deferred_ones(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=1)
    await harness.place()
    [task] = await harness.tasks(sweep)
    await harness.move(task, T.PREPARING, T.RUNNING, T.FAILED, exit_code=1)
    await harness.replace_ended()
    await harness.execute(update(tasks_table).values(not_before=None))
    await harness.place()
    assert [(row.task_index, row.attempt) for row in await harness.tasks(sweep)] == [(0, 2)]
    assert await harness.findings() == []


async def test_deferred_tasks_count_as_pending_for_limits(harness: Harness):
    await array(harness)
    key = harness.principal.access_key
    tenant = Tenant(Scope.USER, str(harness.principal.user_id))

    async def pending() -> tuple[int, tuple[int, dict[str, int]]]:
        counted = await harness.database.write(lambda c: pending_counts.pending_tasks(c, tenant))
        return counted, (await harness.database.write(lambda c: pending_counts.pending(c, [key])))[key]

    gib = 1 << 30
    assert await pending() == (SIZE, (1, {"cpu": SIZE * 1000, "memory": SIZE * gib}))
    await harness.node("n1", cpu=4)
    await harness.place()
    assert await pending() == (SIZE - 4, (0, {}))


async def test_tasks_are_listed_as_if_all_had_rows(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=3)
    await harness.place()
    row = await row_of(harness, sweep)
    async with harness.database.read() as connection:
        listed = await views.tasks_of(connection, row)
        page, total = await views.page_of_tasks(connection, row, statuses=None, limit=4, offset=2)
        last, _ = await views.page_of_tasks(connection, row, statuses=None, limit=4, offset=8)
        waiting, number = await views.page_of_tasks(connection, row, statuses=frozenset({"PENDING"}), limit=2, offset=1)
        placed, there = await views.page_of_tasks(connection, row, statuses=frozenset({"SCHEDULED"}), limit=9, offset=0)
        [fifth] = await views.tasks_of(connection, row, 5)
        assert await views.tasks_of(connection, row, SIZE) == []
    assert [task.task_index for task in listed] == list(range(SIZE))
    assert ([(task.task_index, task.status) for task in page], total) == (
        [(2, "SCHEDULED"), (3, "PENDING"), (4, "PENDING"), (5, "PENDING")],
        SIZE,
    )
    assert [task.task_index for task in last] == [8, 9]
    assert ([task.task_index for task in waiting], number) == ([4, 5], SIZE - 3)
    assert ([task.task_index for task in placed], there) == ([0, 1, 2], 3)
    assert (fifth.id, fifth.status, fifth.created_at) == (array_task_id(sweep, 5), "PENDING", row.created_at)


async def test_the_leader_reads_arrays_without_rows(harness: Harness):
    sweep = await array(harness, parallel=4)
    mirror = Mirror(harness.database)
    await mirror.load()
    assert len(mirror.queue[sweep].tasks) == SIZE
    later = await array(harness, "later")
    await mirror.follow()
    assert len(mirror.queue[later].tasks) == SIZE


async def test_a_wrong_first_index_without_a_row_is_repaired(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=3)
    await harness.place()
    for wrong in (0, 2, 5, SIZE):
        await harness.set(sweep, next_index=wrong)
        assert {finding.rule for finding in await harness.findings()} == {"as many tasks as wanted"}
        await harness.repair()
        assert await harness.findings() == []
        assert (await harness.workload(sweep)).next_index == 3


async def test_indexes_with_a_gap_are_reported_and_not_changed(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=3)
    await harness.place()
    await harness.execute(update(tasks_table).where(tasks_table.c.task_index == 1).values(task_index=7))
    [finding] = await harness.findings()
    assert finding.ambiguous
    await harness.repair()
    assert await harness.findings() == [finding]
    assert (await harness.workload(sweep)).next_index == 3


def test_ids_of_an_array_differ_from_each_other_and_from_those_of_others():
    workloads = [new_id() for _ in range(100)]
    made = {array_task_id(id, index) for id in workloads for index in range(100)}
    assert len(made | set(workloads)) == 100 * 101


async def test_an_array_grows_the_database_by_one_row(harness: Harness):
    await array(harness, size=100_000)
    counted = select(func.count()).select_from(tasks_table)
    [(number,)] = await harness.rows(counted)
    [(workloads,)] = await harness.rows(select(func.count()).select_from(workloads_table))
    assert (number, workloads) == (0, 1)
