"""Cancelling single indexes of an array: the others continue, and the cancelled ones never run again."""

from __future__ import annotations

from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.commit.status_changes import Applied
from mooring.store.views import workloads as views
from mooring.store.workloads import pending, stopping
from tests.store.harness import Harness

T = TaskStatus
SIZE = 6
CANCELLED = Reason("cancelled", "Cancelled by ada", "user", "never")


async def array(harness: Harness) -> UUID:
    schedule = ScheduleOptions(array=Array(0, 1, SIZE), max_retries=1)
    return await harness.submit("sweep", kind=Kind.SESSION, replicas=SIZE, schedule=schedule, spread=False)


async def cancel(harness: Harness, workload_id: UUID, *indexes: int, force: bool = False) -> Applied:
    return await harness.database.write(
        lambda c: stopping.cancel_tasks(c, workload_id, indexes, actor="test", now=now(), reason=CANCELLED, force=force)
    )


async def counts(harness: Harness, workload_id: UUID) -> dict[str, int]:
    async with harness.database.read() as connection:
        found = await views.by_id(connection, workload_id)
    assert found is not None
    return dict(found.counts)


async def complete(harness: Harness, workload_id: UUID) -> list[int]:
    """Run the array to its end, and return the indexes that ran."""
    ran: list[int] = []
    while (await harness.workload(workload_id)).ended_at is None:
        assert (await harness.place()).bound
        for task in await harness.tasks(workload_id):
            if task.status == "SCHEDULED":
                ran.append(task.task_index)
                await harness.move(task, T.RUNNING, T.SUCCEEDED)
        assert await harness.findings() == []
    return ran


async def test_pending_indexes_without_rows_are_cancelled_and_the_rest_runs(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=2)
    await cancel(harness, sweep, 1, 4)
    assert await counts(harness, sweep) == {"PENDING": SIZE - 2, "CANCELLED": 2}
    assert (await harness.workload(sweep)).status == "PENDING"
    assert await harness.findings() == []
    assert sorted(await complete(harness, sweep)) == [0, 2, 3, 5]
    ended = await harness.workload(sweep)
    assert (ended.status, ended.reason["message"]) == ("CANCELLED", "2 of 6 tasks cancelled")


async def test_a_high_index_of_a_large_array_is_cancelled_with_one_row(harness: Harness):
    size = 100_000
    schedule = ScheduleOptions(array=Array(0, 1, size))
    sweep = await harness.submit("huge", kind=Kind.SESSION, replicas=size, schedule=schedule, spread=False)
    await cancel(harness, sweep, size - 1, size - 2, size - 10)
    assert sorted(task.task_index for task in await harness.tasks(sweep)) == [size - 10, size - 2, size - 1]
    assert await counts(harness, sweep) == {"PENDING": size - 3, "CANCELLED": 3}
    async with harness.database.read() as connection:
        [waiting] = await pending.waiting(connection)
    indexes = {task.index for task in waiting.tasks}
    assert (len(indexes), indexes & {size - 10, size - 2, size - 1}) == (size - 3, set())
    await harness.node("n1", cpu=2)
    await harness.place()
    assert [task.status for task in await harness.tasks(sweep)] == ["SCHEDULED"] * 2 + ["CANCELLED"] * 3
    assert await harness.findings() == []


async def test_tasks_are_listed_by_index_around_cancelled_ones(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=1)
    await harness.place()
    await cancel(harness, sweep, 2, 4)

    async def page(limit: int, offset: int, statuses: frozenset[str] | None = None) -> tuple[list[int], int]:
        async with harness.database.read() as connection:
            row = await views.by_id(connection, sweep)
            assert row is not None
            found, total = await views.page_of_tasks(connection, row, statuses=statuses, limit=limit, offset=offset)
            listed = await views.tasks_of(connection, row)
            [third] = await views.tasks_of(connection, row, 2)
        assert [task.task_index for task in listed] == list(range(SIZE))
        assert (third.status, third.attempt) == ("CANCELLED", 1)
        return [task.task_index for task in found], total

    assert await page(10, 0) == (list(range(SIZE)), SIZE)
    assert await page(3, 1) == ([1, 2, 3], SIZE)
    assert await page(2, 4) == ([4, 5], SIZE)
    assert await page(10, 0, frozenset({"PENDING"})) == ([1, 3, 5], 3)
    assert await page(10, 1, frozenset({"PENDING", "CANCELLED"})) == ([2, 3, 4, 5], 5)
    assert await page(10, 0, frozenset({"CANCELLED"})) == ([2, 4], 2)
    assert await page(1, 0, frozenset({"SCHEDULED", "PENDING"})) == ([0], 4)


async def test_an_index_below_which_all_have_rows_is_repaired_despite_cancelled_ones(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=2)
    await harness.place()
    await cancel(harness, sweep, 4)
    assert (await harness.workload(sweep)).next_index == 2
    for wrong in (0, 1, 3, 5, SIZE):
        await harness.set(sweep, next_index=wrong)
        assert {finding.rule for finding in await harness.findings()} == {"as many tasks as wanted"}
        await harness.repair()
        assert await harness.findings() == []
        assert (await harness.workload(sweep)).next_index == 2


async def test_a_running_index_is_stopped_and_the_others_continue(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=SIZE)
    tasks = await harness.run(sweep)
    await cancel(harness, sweep, 3)
    assert await harness.statuses(sweep) == ["RUNNING"] * 3 + ["TERMINATING"] + ["RUNNING"] * 2
    await harness.move(tasks[3], T.CANCELLED)
    await harness.replace_ended()
    assert (await harness.workload(sweep)).status == "RUNNING"
    assert await counts(harness, sweep) == {"RUNNING": SIZE - 1, "CANCELLED": 1}
    assert await harness.findings() == []


@pytest.mark.parametrize("end", [T.FAILED, T.LOST])
async def test_a_cancelled_index_that_fails_while_it_stops_is_not_retried(harness: Harness, end: TaskStatus):
    sweep = await array(harness)
    await harness.node("n1", cpu=SIZE)
    tasks = await harness.run(sweep)
    await cancel(harness, sweep, 0)
    await harness.move(tasks[0], end)
    await harness.replace_ended()
    assert await counts(harness, sweep) == {"RUNNING": SIZE - 1, end.value: 1}
    assert await harness.findings() == []


async def test_an_index_that_waits_for_its_retry_is_cancelled(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=SIZE)
    tasks = await harness.run(sweep)
    await harness.move(tasks[2], T.FAILED, exit_code=1)
    await cancel(harness, sweep, 2)
    await harness.replace_ended()
    assert await counts(harness, sweep) == {"RUNNING": SIZE - 1, "CANCELLED": 1}
    assert await harness.findings() == []


async def test_an_evicted_index_is_cancelled_before_it_is_requeued(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=SIZE)
    tasks = await harness.run(sweep)
    await harness.move(tasks[2], T.TERMINATING, requeue=True)
    await cancel(harness, sweep, 2)
    assert await harness.findings() == []
    await harness.move(tasks[2], T.CANCELLED)
    await harness.replace_ended()
    assert await counts(harness, sweep) == {"RUNNING": SIZE - 1, "CANCELLED": 1}
    assert await harness.findings() == []


async def test_cancelling_an_index_again_or_after_its_end_changes_nothing(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=1)
    [first] = await harness.run(sweep)
    await harness.move(first, T.SUCCEEDED)
    await cancel(harness, sweep, 5)
    version = (await harness.workload(sweep)).version
    again = await cancel(harness, sweep, 0, 5)
    assert (again.tasks, again.workloads, (await harness.workload(sweep)).version) == ([], [], version)
    assert await counts(harness, sweep) == {"SUCCEEDED": 1, "PENDING": SIZE - 2, "CANCELLED": 1}


async def test_a_decision_from_before_the_cancellation_does_not_start_the_index(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=2)
    late = await harness.propose()
    await cancel(harness, sweep, 1)
    await harness.commit(*late)
    assert [(task.task_index, task.status) for task in await harness.tasks(sweep)] == [(1, "CANCELLED")]
    assert await harness.findings() == []
    assert 1 not in await complete(harness, sweep)


async def test_cancelling_all_indexes_ends_the_array(harness: Harness):
    sweep = await array(harness)
    await cancel(harness, sweep, *range(SIZE))
    assert (await harness.workload(sweep)).status == "CANCELLED"
    assert await harness.findings() == []


async def test_failed_and_cancelled_indexes_are_distinguished(harness: Harness):
    sweep = await array(harness)
    await harness.node("n1", cpu=SIZE)
    await harness.set(sweep, max_retries=0)
    tasks = await harness.run(sweep)
    await cancel(harness, sweep, 0)
    await harness.move(tasks[0], T.CANCELLED)
    await harness.move(tasks[1], T.FAILED, exit_code=1)
    for task in tasks[2:]:
        await harness.move(task, T.SUCCEEDED)
    ended = await harness.workload(sweep)
    assert (ended.status, ended.reason["message"]) == ("FAILED", "1 of 6 tasks failed, 1 cancelled")
