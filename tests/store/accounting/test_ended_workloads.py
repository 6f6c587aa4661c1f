"""The records of ended workloads."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update

from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.slots import amounts
from mooring.model.workloads.workload import Kind
from mooring.store.accounting import ended_workloads
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.core.batch_sql import Writes
from mooring.store.core.engine import Connection
from mooring.store.core.types import AnyRow
from mooring.store.tables import workload_records, workloads
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


async def record(harness: Harness, workload_id: UUID) -> AnyRow:
    [found] = await harness.rows(select(workload_records).where(workload_records.c.workload_id == workload_id))
    return found


async def submitted_at_noon(harness: Harness, name: str, replicas: int) -> tuple[UUID, list[UUID]]:
    workload_id = await harness.submit(name, replicas=replicas, kind=Kind.SESSION, cpu=2, memory="1Gi")
    await harness.database.write(lambda c: c.execute(update(workloads).values(created_at=NOON)))
    return workload_id, [task.id for task in await harness.tasks(workload_id)]


async def apply(harness: Harness, at: datetime, *changes: Change) -> None:
    await harness.database.write(lambda c: transitions.apply(c, changes, actor="test", now=at))


async def test_a_record_has_the_owner_the_amounts_and_the_durations(harness: Harness):
    nodes = [await harness.node("n1"), await harness.node("n2")]
    workload_id, tasks = await submitted_at_noon(harness, "job", 3)
    decision = await decision_on(harness, workload_id, [nodes[0], nodes[1], nodes[0]])
    await harness.commit(decision, at=minutes(1))
    await apply(harness, minutes(2), Change(tasks[0], TaskStatus.RUNNING), Change(tasks[1], TaskStatus.RUNNING))
    await apply(harness, minutes(3), Change(tasks[2], TaskStatus.RUNNING))
    await apply(harness, minutes(5), Change(tasks[0], TaskStatus.SUCCEEDED), Change(tasks[1], TaskStatus.SUCCEEDED))
    assert await harness.rows(select(workload_records)) == []
    await apply(harness, minutes(12), Change(tasks[2], TaskStatus.SUCCEEDED))
    found = await record(harness, workload_id)
    assert (found.name, found.kind, found.type, found.priority) == ("job", "session", "batch", 10)
    assert (found.domain, found.project, found.username, found.pool) == ("default", "default", "admin", "default")
    assert found.access_key == harness.principal.access_key
    assert (found.tasks, found.attempts, found.status) == (3, 3, "SUCCEEDED")
    assert found.requested_slots == amounts(cpu=2, memory="1Gi")
    assert found.peak_slots == amounts(cpu=6, memory="3Gi")
    assert found.nodes == ["n1", "n2"]
    assert (found.created_at, found.started_at, found.ended_at) == (NOON, minutes(2), minutes(12))
    assert (found.wait_seconds, found.run_seconds) == (120, 600)


async def test_the_peak_is_the_maximum_at_one_time_not_the_sum(harness: Harness):
    node = await harness.node("n1")
    workload_id, tasks = await submitted_at_noon(harness, "waves", 3)
    # One after the other, the second beginning at the moment when the first has gone, the third a little before.
    for number, (start, end) in enumerate([(0, 10), (10, 20), (18, 30)]):
        placed = Change(tasks[number], TaskStatus.SCHEDULED, node_id=node, node_name="n1")
        await apply(harness, minutes(start), placed, Change(tasks[number], TaskStatus.RUNNING))
        if number == 2:
            await apply(harness, minutes(20), Change(tasks[1], TaskStatus.SUCCEEDED))
        if number != 1:
            await apply(harness, minutes(end), Change(tasks[number], TaskStatus.SUCCEEDED))
    found = await record(harness, workload_id)
    assert found.peak_slots == amounts(cpu=4, memory="2Gi")


async def test_a_workload_that_never_ran_waited_until_its_end(harness: Harness):
    workload_id, [task] = await submitted_at_noon(harness, "never", 1)
    await apply(harness, minutes(7), Change(task, TaskStatus.CANCELLED))
    found = await record(harness, workload_id)
    assert (found.wait_seconds, found.run_seconds, found.started_at) == (420, 0, None)
    assert (found.peak_slots, found.nodes, found.status) == ({}, [], "CANCELLED")


@on_sqlite
async def test_a_record_is_written_once(harness: Harness):
    workload_id, [task] = await submitted_at_noon(harness, "never", 1)
    await apply(harness, minutes(7), Change(task, TaskStatus.CANCELLED))

    async def again(connection: Connection) -> None:
        writes = Writes.on(connection)
        ended_workloads.write(writes, [workload_id])
        await writes.execute(connection)

    before = await record(harness, workload_id)
    await harness.database.write(again)
    assert await record(harness, workload_id) == before
