"""What is left of a workload when it has ended."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import select, update

from mooring.model.lifecycle import TaskStatus
from mooring.model.slots import amounts
from mooring.model.workloads import Kind
from mooring.store import records, transitions
from mooring.store.changes import Change
from mooring.store.engine import Connection
from mooring.store.sets import Writes
from mooring.store.tables import workload_records, workloads
from mooring.store.types import AnyRow
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def minutes(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


async def record(harbour: Harbour, workload_id: UUID) -> AnyRow:
    [found] = await harbour.rows(select(workload_records).where(workload_records.c.workload_id == workload_id))
    return found


async def submitted_at_noon(harbour: Harbour, name: str, replicas: int) -> tuple[UUID, list[UUID]]:
    workload_id = await harbour.submit(name, replicas=replicas, kind=Kind.SESSION, cpu=2, memory="1Gi")
    await harbour.database.write(lambda c: c.execute(update(workloads).values(created_at=NOON)))
    return workload_id, [task.id for task in await harbour.tasks(workload_id)]


async def apply(harbour: Harbour, at: datetime, *changes: Change) -> None:
    await harbour.database.write(lambda c: transitions.apply(c, changes, actor="test", now=at))


async def test_it_says_whose_it_was_what_it_had_and_how_long_it_took(harbour: Harbour):
    nodes = [await harbour.node("n1"), await harbour.node("n2")]
    workload_id, tasks = await submitted_at_noon(harbour, "job", 3)
    decision = await decision_on(harbour, workload_id, [nodes[0], nodes[1], nodes[0]])
    await harbour.commit(decision, at=minutes(1))
    await apply(harbour, minutes(2), Change(tasks[0], TaskStatus.RUNNING), Change(tasks[1], TaskStatus.RUNNING))
    await apply(harbour, minutes(3), Change(tasks[2], TaskStatus.RUNNING))
    await apply(harbour, minutes(5), Change(tasks[0], TaskStatus.SUCCEEDED), Change(tasks[1], TaskStatus.SUCCEEDED))
    assert await harbour.rows(select(workload_records)) == []
    await apply(harbour, minutes(12), Change(tasks[2], TaskStatus.SUCCEEDED))
    found = await record(harbour, workload_id)
    assert (found.name, found.kind, found.type, found.priority) == ("job", "session", "batch", 10)
    assert (found.domain, found.project, found.username, found.pool) == ("default", "default", "admin", "default")
    assert found.access_key == harbour.principal.access_key
    assert (found.tasks, found.attempts, found.status) == (3, 3, "SUCCEEDED")
    assert found.requested_slots == amounts(cpu=2, memory="1Gi")
    assert found.peak_slots == amounts(cpu=6, memory="3Gi")
    assert found.nodes == ["n1", "n2"]
    assert (found.created_at, found.started_at, found.ended_at) == (NOON, minutes(2), minutes(12))
    assert (found.wait_seconds, found.run_seconds) == (120, 600)


async def test_the_peak_is_what_it_had_at_one_time_not_what_it_had_in_all(harbour: Harbour):
    node = await harbour.node("n1")
    workload_id, tasks = await submitted_at_noon(harbour, "waves", 3)
    # One after the other, the second beginning at the moment when the first has gone, the third a little before.
    for number, (start, end) in enumerate([(0, 10), (10, 20), (18, 30)]):
        placed = Change(tasks[number], TaskStatus.SCHEDULED, node_id=node, node_name="n1")
        await apply(harbour, minutes(start), placed, Change(tasks[number], TaskStatus.RUNNING))
        if number == 2:
            await apply(harbour, minutes(20), Change(tasks[1], TaskStatus.SUCCEEDED))
        if number != 1:
            await apply(harbour, minutes(end), Change(tasks[number], TaskStatus.SUCCEEDED))
    found = await record(harbour, workload_id)
    assert found.peak_slots == amounts(cpu=4, memory="2Gi")


async def test_what_never_ran_waited_until_its_end(harbour: Harbour):
    workload_id, [task] = await submitted_at_noon(harbour, "never", 1)
    await apply(harbour, minutes(7), Change(task, TaskStatus.CANCELLED))
    found = await record(harbour, workload_id)
    assert (found.wait_seconds, found.run_seconds, found.started_at) == (420, 0, None)
    assert (found.peak_slots, found.nodes, found.status) == ({}, [], "CANCELLED")


@on_sqlite
async def test_a_record_is_written_once(harbour: Harbour):
    workload_id, [task] = await submitted_at_noon(harbour, "never", 1)
    await apply(harbour, minutes(7), Change(task, TaskStatus.CANCELLED))

    async def again(connection: Connection) -> None:
        writes = Writes.on(connection)
        records.write(writes, [workload_id])
        await writes.make(connection)

    before = await record(harbour, workload_id)
    await harbour.database.write(again)
    assert await record(harbour, workload_id) == before
