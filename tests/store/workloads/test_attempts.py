"""Attempts as they are recorded: equal ones in a row are one record, and waiting for capacity is none."""

from typing import Literal
from uuid import UUID

from sqlalchemy import update

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.coordination.signals import Signal
from mooring.model.decisions import Outcome
from mooring.model.reasons import Reason
from mooring.model.workloads.lifetime.attempts import Attempt, Phase, Result
from mooring.model.workloads.workload import Kind
from mooring.store.tables import nodes
from mooring.store.workloads import attempts
from mooring.store.workloads.attempts import of_workload
from mooring.wire.agents.agent_protocol import FromServer, Report, TaskReport
from tests.store.databases import on_sqlite
from tests.store.harness import LONG_AGO, Harness

Status = Literal["PREPARING", "RUNNING", "FAILED"]
Recorded = tuple[str, str, str | None, int]


async def recorded(harness: Harness, workload_id: UUID) -> list[Recorded]:
    async with harness.database.read() as connection:
        records = await of_workload(connection, workload_id, limit=100)
    return [(r.attempt.phase.value, r.attempt.result.value, r.attempt.code, r.number) for r in records]


async def record(harness: Harness, *new: Attempt) -> None:
    await harness.database.write(lambda c: attempts.record(c, new, LONG_AGO))


async def report(harness: Harness, node_id: UUID, task_id: UUID, *statuses: Status) -> None:
    """Report statuses of a task as its agent, in one message."""

    async def send(_message: FromServer) -> None:
        pass

    session = AgentSession(node_id, "n1", harness.pool.id, "", send)
    reports = [
        TaskReport(
            task_id=task_id,
            status=status,
            gone=status == "FAILED",
            code="image-missing" if status == "FAILED" else "",
            reason="there is no such image" if status == "FAILED" else "",
        )
        for status in statuses
    ]
    await AgentHub(harness.database, Signal()).report(session, Report(number=1, tasks=reports))


async def test_equal_attempts_in_a_row_are_one_record(harness: Harness):
    workload_id = await harness.submit("w")
    conflict = Attempt(workload_id, Phase.BIND, Result.RETRY, "conflict", "node n1 changed")
    skipped = Attempt(workload_id, Phase.BIND, Result.SKIPPED, "conflict")
    await record(harness, conflict, conflict)
    await record(harness, conflict)
    await record(harness, skipped, conflict)
    assert await recorded(harness, workload_id) == [
        ("bind", "retry", "conflict", 3),
        ("bind", "skipped", "conflict", 1),
        ("bind", "retry", "conflict", 1),
    ]


@on_sqlite
async def test_a_bind_that_came_too_late_is_an_attempt_and_waiting_is_none(harness: Harness):
    node_id = await harness.node("n1", cpu=1)
    late, waits = await harness.submit("late"), await harness.submit("waits", cpu=64)
    decisions = await harness.propose()
    async with harness.database.engine.begin() as connection:
        await connection.execute(update(nodes).where(nodes.c.id == node_id).values(generation=99))
    await harness.bind(decisions)
    await harness.bind(decisions)
    assert await recorded(harness, late) == [("bind", "retry", "conflict", 2)]
    assert await recorded(harness, waits) == []


@on_sqlite
async def test_a_plugin_that_fails_is_an_attempt_at_placing(harness: Harness):
    await harness.node("n1")
    workload_id = await harness.submit("w")
    reason = Reason("constraint-evaluation-failed", "filter 'mine' failed", "mine", "never")
    broken = [d._replace(outcome=Outcome.ERROR, placements=(), reason=reason) for d in await harness.propose()]
    await harness.bind(broken)
    assert await recorded(harness, workload_id) == [("place", "give_up", "constraint-evaluation-failed", 1)]


async def test_starts_that_fail_are_attempts_until_one_succeeds(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("web", replicas=2)
    for _ in range(3):
        await harness.bind(await harness.propose(at=LONG_AGO.replace(year=2100)))
        first = (await harness.tasks(workload_id))[0]
        await report(harness, node_id, first.id, "PREPARING", "FAILED")
        await harness.replace_ended()
    assert await recorded(harness, workload_id) == [("start", "retry", "image-missing", 3)]
    await harness.bind(await harness.propose(at=LONG_AGO.replace(year=2100)))
    for task in await harness.tasks(workload_id):
        await report(harness, node_id, task.id, "RUNNING")
        # Said twice, counted once.
        await report(harness, node_id, task.id, "RUNNING")
    assert await recorded(harness, workload_id) == [
        ("start", "retry", "image-missing", 3),
        ("start", "success", None, 1),
    ]


@on_sqlite
async def test_a_session_whose_task_cannot_start_is_given_up_and_one_that_ran_did_start(harness: Harness):
    node_id = await harness.node("n1")
    never = await harness.submit("never", kind=Kind.SESSION)
    ran = await harness.submit("ran", kind=Kind.SESSION)
    await harness.place()
    await report(harness, node_id, (await harness.tasks(never))[0].id, "FAILED")
    await report(harness, node_id, (await harness.tasks(ran))[0].id, "RUNNING", "FAILED")
    assert await recorded(harness, never) == [("start", "give_up", "image-missing", 1)]
    assert await recorded(harness, ran) == []
