"""Attempts as they are recorded: equal ones in a row are one record, and waiting for room is none."""

from typing import Literal
from uuid import UUID

from sqlalchemy import update

from mooring.api.agent_session import AgentSession
from mooring.api.hub import AgentHub
from mooring.coordination.signals import Signal
from mooring.model.attempts import Attempt, Phase, Result
from mooring.model.decisions import Outcome
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import attempts
from mooring.store.attempts import of_workload
from mooring.store.tables import nodes
from mooring.wire.agent import FromServer, Report, TaskReport
from tests.store.databases import on_sqlite
from tests.store.harbour import LONG_AGO, Harbour

Status = Literal["PREPARING", "RUNNING", "FAILED"]
Told = tuple[str, str, str | None, int]


async def told(harbour: Harbour, workload_id: UUID) -> list[Told]:
    async with harbour.database.read() as connection:
        records = await of_workload(connection, workload_id, limit=100)
    return [(r.attempt.phase.value, r.attempt.result.value, r.attempt.code, r.number) for r in records]


async def record(harbour: Harbour, *new: Attempt) -> None:
    await harbour.database.write(lambda c: attempts.record(c, new, LONG_AGO))


async def report(harbour: Harbour, node_id: UUID, task_id: UUID, *statuses: Status) -> None:
    """What an agent says, in one message."""

    async def send(_message: FromServer) -> None:
        pass

    session = AgentSession(node_id, "n1", harbour.pool.id, "", send)
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
    await AgentHub(harbour.database, Signal()).report(session, Report(number=1, tasks=reports))


async def test_equal_attempts_in_a_row_are_one_record(harbour: Harbour):
    workload_id = await harbour.submit("w")
    conflict = Attempt(workload_id, Phase.BIND, Result.RETRY, "conflict", "node n1 changed")
    skipped = Attempt(workload_id, Phase.BIND, Result.SKIPPED, "conflict")
    await record(harbour, conflict, conflict)
    await record(harbour, conflict)
    await record(harbour, skipped, conflict)
    assert await told(harbour, workload_id) == [
        ("bind", "retry", "conflict", 3),
        ("bind", "skipped", "conflict", 1),
        ("bind", "retry", "conflict", 1),
    ]


@on_sqlite
async def test_a_bind_that_came_too_late_is_an_attempt_and_waiting_is_none(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=1)
    late, waits = await harbour.submit("late"), await harbour.submit("waits", cpu=64)
    decisions = await harbour.propose()
    async with harbour.database.engine.begin() as connection:
        await connection.execute(update(nodes).where(nodes.c.id == node_id).values(generation=99))
    await harbour.bind(decisions)
    await harbour.bind(decisions)
    assert await told(harbour, late) == [("bind", "retry", "conflict", 2)]
    assert await told(harbour, waits) == []


@on_sqlite
async def test_a_plugin_that_fails_is_an_attempt_at_placing(harbour: Harbour):
    await harbour.node("n1")
    workload_id = await harbour.submit("w")
    reason = Reason("constraint-evaluation-failed", "filter 'mine' failed", "mine", "never")
    broken = [d._replace(outcome=Outcome.ERROR, placements=(), reason=reason) for d in await harbour.propose()]
    await harbour.bind(broken)
    assert await told(harbour, workload_id) == [("place", "give_up", "constraint-evaluation-failed", 1)]


async def test_starts_that_fail_are_attempts_until_one_succeeds(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("web", replicas=2)
    for _ in range(3):
        await harbour.bind(await harbour.propose(at=LONG_AGO.replace(year=2100)))
        first = (await harbour.tasks(workload_id))[0]
        await report(harbour, node_id, first.id, "PREPARING", "FAILED")
        await harbour.replace_ended()
    assert await told(harbour, workload_id) == [("start", "retry", "image-missing", 3)]
    await harbour.bind(await harbour.propose(at=LONG_AGO.replace(year=2100)))
    for task in await harbour.tasks(workload_id):
        await report(harbour, node_id, task.id, "RUNNING")
        # Said twice, counted once.
        await report(harbour, node_id, task.id, "RUNNING")
    assert await told(harbour, workload_id) == [("start", "retry", "image-missing", 3), ("start", "success", None, 1)]


@on_sqlite
async def test_a_session_whose_task_cannot_start_is_given_up_and_one_that_ran_did_start(harbour: Harbour):
    node_id = await harbour.node("n1")
    never = await harbour.submit("never", kind=Kind.SESSION)
    ran = await harbour.submit("ran", kind=Kind.SESSION)
    await harbour.place()
    await report(harbour, node_id, (await harbour.tasks(never))[0].id, "FAILED")
    await report(harbour, node_id, (await harbour.tasks(ran))[0].id, "RUNNING", "FAILED")
    assert await told(harbour, never) == [("start", "give_up", "image-missing", 1)]
    assert await told(harbour, ran) == []
