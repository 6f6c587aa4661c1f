"""What becomes of a session's task that ended badly: it comes again after a loss, is retried, or that was it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring.api.agent_session import AgentSession
from mooring.api.hub import AgentHub
from mooring.clock import now
from mooring.controllers import lifecycle
from mooring.coordination.signals import Signal
from mooring.model.devices import DeviceShare
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.retries import PULL_RETRIES
from mooring.model.workloads import Kind
from mooring.store.tables import (
    attempts,
    device_allocations,
    holds,
    node_devices,
    node_resources,
    port_allocations,
    resource_allocations,
    tasks,
    tenant_resources,
    workloads,
)
from mooring.store.types import AnyRow
from mooring.wire.agent import FromServer, Report, TaskReport
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on

T = TaskStatus


async def session(
    harbour: Harbour,
    *,
    name: str = "job",
    tasks: int = 1,
    type: str = "batch",
    slots: dict[str, int | str] | None = None,
    **columns: Any,
) -> UUID:
    workload_id = await harbour.submit(name, kind=Kind.SESSION, replicas=tasks, type=type, slots=slots)
    return await harbour.set(workload_id, **columns) if columns else workload_id


async def fail(harbour: Harbour, task: AnyRow, exit_code: int = 1) -> None:
    """Its process ended by itself."""
    await harbour.move(task, T.FAILED, exit_code=exit_code, reason=Reason("exited", f"exited with code {exit_code}"))


async def lose(harbour: Harbour, task: AnyRow) -> None:
    await harbour.move(task, T.LOST, freed=False, reason=Reason("node-lost", "Node n1 was lost"))


async def newest(harbour: Harbour, workload_id: UUID) -> list[tuple[str, int, int]]:
    """Status, attempt and failures before it, of each task."""
    return [(task.status, task.attempt, task.failures) for task in await harbour.tasks(workload_id)]


async def run_again(harbour: Harbour, workload_id: UUID) -> list[AnyRow]:
    """Replace what ended and start it, without waiting for a backoff."""
    await harbour.replace_ended()
    await harbour.bind(await harbour.propose(at=now() + timedelta(hours=1)))
    for task in await harbour.tasks(workload_id):
        await harbour.move(task, T.RUNNING)
    return await harbour.tasks(workload_id)


# --- a node is lost ---


@pytest.mark.parametrize("type", ["batch", "inference", "system"])
@on_sqlite
async def test_work_of_a_lost_node_waits_again_under_the_same_id(harbour: Harbour, type: str):
    await harbour.node("n1")
    job = await session(harbour, type=type)
    [task] = await harbour.run(job)
    await lose(harbour, task)
    workload = await harbour.workload(job)
    assert (workload.status, workload.reason["code"]) == ("PENDING", "node-lost")
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("PENDING", 2, 0)]
    # Nothing failed, so nothing has to wait.
    assert (await harbour.tasks(job))[0].not_before is None
    assert await harbour.findings() == []


@on_sqlite
async def test_nobody_waits_at_an_interactive_session_any_more(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, type="interactive")
    [task] = await harbour.run(job)
    await lose(harbour, task)
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("LOST", 1, 0)]
    assert (await harbour.workload(job)).status == "FAILED"


async def test_losses_use_no_retry_and_failures_do(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=64)
    job = await session(harbour, max_retries=1)
    [task] = await harbour.run(job)
    for attempt in (2, 3):
        await lose(harbour, task)
        [task] = await run_again(harbour, job)
        assert (task.attempt, task.failures) == (attempt, 0)
    rebooted = Reason("node-rebooted", "the node was restarted while the task was on it")
    await harbour.move(task, T.FAILED, reason=rebooted)
    [task] = await run_again(harbour, job)
    assert (task.attempt, task.failures) == (4, 0)
    await fail(harbour, task)
    [task] = await run_again(harbour, job)
    assert (task.attempt, task.failures) == (5, 1)
    await fail(harbour, task)
    await harbour.replace_ended()
    assert (await harbour.workload(job)).status == "FAILED"
    # What may still run on the node that was silent twice counts there.
    assert await harbour.counters(node_id) == (0, 0, 2000)
    lost = [row.id for row in await harbour.tasks(job, current=False) if row.status == "LOST"]
    assert await harbour.free_lost(*lost, *lost) == 2
    assert await harbour.counters(node_id) == (0, 0, 0)
    assert await harbour.findings() == []


@on_sqlite
async def test_a_task_that_was_preempted_uses_no_retry_however_it_ended(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, max_retries=1)
    [task] = await harbour.run(job)
    other = await harbour.submit("other")
    await harbour.move(task, T.TERMINATING, preempted_by=other, requeue=True)
    await fail(harbour, task, exit_code=143)
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("PENDING", 2, 0)]


async def test_tasks_that_work_together_start_again_together(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, tasks=3, max_retries=1)
    first, second, third = await harbour.run(job)
    await lose(harbour, first)
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("LOST", 1, 0), ("TERMINATING", 1, 0), ("TERMINATING", 1, 0)]
    await harbour.move(second, T.CANCELLED)
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("LOST", 1, 0), ("CANCELLED", 1, 0), ("TERMINATING", 1, 0)]
    assert (await harbour.workload(job)).status == "PENDING"
    await harbour.move(third, T.CANCELLED)
    [_, failing, _] = await run_again(harbour, job)
    assert await newest(harbour, job) == [("RUNNING", 2, 0)] * 3
    # The failure of one is a failure of all: it is their one retry.
    await fail(harbour, failing)
    await harbour.replace_ended()
    for task in await harbour.tasks(job):
        await harbour.move(task, T.CANCELLED)
    [again, *_] = await run_again(harbour, job)
    assert await newest(harbour, job) == [("RUNNING", 3, 1)] * 3
    await fail(harbour, again)
    await harbour.replace_ended()
    assert (await harbour.workload(job)).status == "TERMINATING"
    assert await harbour.findings() == []


@on_sqlite
async def test_nothing_comes_again_of_a_session_that_fails_already(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, tasks=2)
    first, second = await harbour.run(job)
    await fail(harbour, first)
    await lose(harbour, second)
    assert (await harbour.workload(job)).status == "FAILED"
    assert await harbour.findings() == []


# --- retries ---


async def test_a_failing_task_is_retried_as_often_as_was_asked_for(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    at = now()
    monkeypatch.setattr(lifecycle, "now", lambda: at)
    await harbour.node("n1")
    job = await session(harbour, max_retries=2)
    [task] = await harbour.run(job)
    for failures in (1, 2):
        await fail(harbour, task)
        await harbour.replace_ended()
        assert await newest(harbour, job) == [("PENDING", failures + 1, failures)]
        # Later each time.
        assert (await harbour.tasks(job))[0].not_before == at + timedelta(seconds=failures)
        [task] = await run_again(harbour, job)
    await fail(harbour, task, exit_code=7)
    await harbour.replace_ended()
    workload = await harbour.workload(job)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "exited with code 7")
    assert await newest(harbour, job) == [("FAILED", 3, 2)]
    assert await harbour.findings() == []


@pytest.mark.parametrize(
    ("exit_code", "expected"), [pytest.param(75, "PENDING", id="named"), pytest.param(1, "FAILED", id="another")]
)
@on_sqlite
async def test_only_the_named_exit_codes_are_retried(harbour: Harbour, exit_code: int, expected: str):
    await harbour.node("n1")
    job = await session(harbour, max_retries=2, retry_on=[75, 76])
    [task] = await harbour.run(job)
    await fail(harbour, task, exit_code)
    assert (await harbour.workload(job)).status == expected


@on_sqlite
async def test_what_was_cancelled_is_not_retried(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, max_retries=2)
    [task] = await harbour.run(job)
    await harbour.stop(job)
    await fail(harbour, task)
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("FAILED", 1, 0)]
    assert (await harbour.workload(job)).status == "CANCELLED"


@on_sqlite
async def test_what_could_never_be_placed_is_not_retried(harbour: Harbour):
    job = await session(harbour, max_retries=2)
    [task] = await harbour.tasks(job)
    await harbour.move(task, T.FAILED, reason=Reason("never-fits", "no node is that large"))
    assert (await harbour.workload(job)).status == "FAILED"


# --- arrays ---


async def array(harbour: Harbour, size: int, **columns: Any) -> UUID:
    return await session(harbour, tasks=size, array={"first": 0, "step": 1}, **columns)


async def test_the_indexes_of_an_array_are_independent(harbour: Harbour):
    await harbour.node("n1")
    many = await array(harbour, 4, max_retries=1)
    one, two, three, four = await harbour.run(many)
    await fail(harbour, one)
    await harbour.move(two, T.SUCCEEDED)
    await harbour.replace_ended()
    assert await newest(harbour, many) == [("PENDING", 2, 1), ("SUCCEEDED", 1, 0), ("RUNNING", 1, 0), ("RUNNING", 1, 0)]
    [one, *_] = await run_again(harbour, many)
    await fail(harbour, one)
    await lose(harbour, three)
    await harbour.replace_ended()
    assert [status for status, *_ in await newest(harbour, many)] == ["FAILED", "SUCCEEDED", "PENDING", "RUNNING"]
    assert (await harbour.workload(many)).status == "RUNNING"
    [_, _, three, _] = await run_again(harbour, many)
    await harbour.move(three, T.SUCCEEDED)
    assert (await harbour.workload(many)).status == "RUNNING"
    assert await harbour.findings() == []
    await harbour.move(four, T.SUCCEEDED)
    workload = await harbour.workload(many)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "1 of 4 tasks failed")
    assert await harbour.findings() == []


@on_sqlite
async def test_an_array_succeeds_when_all_its_indexes_did(harbour: Harbour):
    await harbour.node("n1")
    many = await array(harbour, 2)
    for task in await harbour.run(many):
        assert (await harbour.workload(many)).status == "RUNNING"
        await harbour.move(task, T.SUCCEEDED)
    assert (await harbour.workload(many)).status == "SUCCEEDED"


@on_sqlite
async def test_a_cancelled_array_ends_with_its_last_index(harbour: Harbour):
    await harbour.node("n1", cpu=1)
    many = await array(harbour, 3)
    [first, *_] = await harbour.run(many)
    await harbour.stop(many)
    assert await harbour.statuses(many) == ["TERMINATING", "CANCELLED", "CANCELLED"]
    await harbour.move(first, T.CANCELLED)
    assert (await harbour.workload(many)).status == "CANCELLED"
    assert await harbour.findings() == []


async def test_no_commit_puts_more_indexes_on_nodes_than_may_run_at_the_same_time(harbour: Harbour):
    node_id = await harbour.node("n1")
    many = await array(harbour, 4, parallel=2)
    too_many = await decision_on(harbour, many, [node_id] * 3)
    result = await harbour.commit(too_many)
    assert [why for _, why in result.conflicts] == ["2 tasks of the workload run at the same time; there would be 3"]
    both = await decision_on(harbour, many, [node_id] * 2)
    assert len((await harbour.commit(both)).bound) == 1
    [one_more] = (await harbour.commit(await decision_on(harbour, many, [node_id]))).conflicts
    assert one_more[1].endswith("there would be 3")
    first = (await harbour.tasks(many))[0]
    await harbour.move(first, T.RUNNING, T.SUCCEEDED)
    assert len((await harbour.commit(await decision_on(harbour, many, [node_id]))).bound) == 1
    assert await harbour.findings() == []


# --- what cannot be started ---


async def report(harbour: Harbour, task: AnyRow, status: Any, **more: Any) -> None:
    """What the agent of the task's node says."""

    async def send(_: FromServer) -> None: ...

    told = TaskReport(task_id=task.id, status=status, **more)
    agent = AgentSession(task.node_id, task.node_name, harbour.pool.id, "", send)
    await AgentHub(harbour.database, Signal()).report(agent, Report(number=1, tasks=[told]))


async def test_what_cannot_be_started_waits_again_lower_where_the_pool_says_so(harbour: Harbour):
    await harbour.set_options(deprioritise=7)
    await harbour.node("n1")
    job = await session(harbour)
    for attempt, priority in ((1, 3), (2, 0), (3, 0)):
        await harbour.replace_ended()
        await harbour.bind(await harbour.propose(at=now() + timedelta(hours=1)))
        [task] = await harbour.tasks(job)
        assert (task.status, task.attempt) == ("SCHEDULED", attempt)
        failure = {"gone": True, "code": "image-missing", "reason": "there is no such image"}
        await report(harbour, task, "FAILED", **failure)
        workload = await harbour.workload(job)
        assert (workload.status, workload.priority) == ("PENDING", priority)
        lower = f"there is no such image; it waits again with priority {priority}"
        assert [h.reason for h in await harbour.history(job)].count(lower) == max(1, attempt - 1)
    results = await harbour.rows(select(attempts.c.result, attempts.c.number))
    assert [tuple(row) for row in results] == [("give_up", 3)]
    assert await harbour.findings() == []


@on_sqlite
async def test_a_start_that_is_retried_is_not_given_up(harbour: Harbour):
    await harbour.node("n1")
    job = await session(harbour, max_retries=1)
    await harbour.place()
    [task] = await harbour.tasks(job)
    await report(harbour, task, "FAILED", gone=True, code="start-failed", reason="no such file")
    await harbour.replace_ended()
    assert await newest(harbour, job) == [("PENDING", 2, 1)]
    assert [row.result for row in await harbour.rows(select(attempts.c.result))] == ["retry"]


async def test_a_task_whose_image_does_not_come_is_tried_elsewhere_and_not_without_end(harbour: Harbour):
    for name in ("n1", "n2"):
        await harbour.node(name)
    job = await session(harbour, retry_on=[75])
    visited: list[str] = []
    for attempt in range(1, PULL_RETRIES + 2):
        await harbour.replace_ended()
        await harbour.bind(await harbour.propose(at=now() + timedelta(hours=1)))
        [task] = await harbour.tasks(job)
        assert (task.status, task.attempt) == ("SCHEDULED", attempt)
        visited.append(task.node_name)
        await report(harbour, task, "PREPARING", reason="pulling nginx:1")
        await report(harbour, task, "FAILED", gone=True, code="image-pull-failed", reason="registry does not answer")
    assert set(visited[:2]) == {"n1", "n2"}
    await harbour.replace_ended()
    workload = await harbour.workload(job)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "registry does not answer")
    found = await harbour.rows(select(attempts.c.phase, attempts.c.result, attempts.c.code, attempts.c.number))
    assert sorted(tuple(row) for row in found) == [
        ("prepare", "give_up", "image-pull-failed", 1),
        ("prepare", "retry", "image-pull-failed", PULL_RETRIES),
    ]
    assert await harbour.findings() == []


@pytest.mark.parametrize("code", ["image-not-found", "image-denied"])
@on_sqlite
async def test_an_image_that_no_node_gets_ends_a_session_at_once_and_slows_a_deployment_down(
    harbour: Harbour, code: str, monkeypatch: pytest.MonkeyPatch
):
    at = now()
    monkeypatch.setattr(lifecycle, "now", lambda: at)
    await harbour.node("n1")
    job, service = await session(harbour, max_retries=3), await harbour.submit("web")
    await harbour.place()
    for workload_id in (job, service):
        [task] = await harbour.tasks(workload_id)
        await report(harbour, task, "FAILED", gone=True, code=code, reason="registry r has no image x")
    await harbour.replace_ended()
    assert (await harbour.workload(job)).status == "FAILED"
    [again] = await harbour.tasks(service)
    assert (again.status, again.attempt, again.not_before) == ("PENDING", 2, at + timedelta(seconds=1))
    results = await harbour.rows(select(attempts.c.workload_id, attempts.c.phase, attempts.c.result))
    assert {tuple(row) for row in results} == {(job, "prepare", "give_up"), (service, "prepare", "retry")}


# --- the end by force ---


async def force(harbour: Harbour, workload_id: UUID) -> None:
    await harbour.stop(workload_id, force=True)


async def test_force_ends_at_once_and_the_node_stays_charged_until_nothing_is_left(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=2)
    job = await session(harbour, tasks=3, max_retries=3)
    await harbour.place()
    running, scheduled, waiting = await harbour.tasks(job)
    await harbour.move(running, T.RUNNING)
    await harbour.stop(job)
    assert (await harbour.workload(job)).status == "TERMINATING"
    for _ in range(2):
        await force(harbour, job)
        assert await harbour.statuses(job) == ["LOST", "LOST", "CANCELLED"]
        assert (await harbour.workload(job)).status == "CANCELLED"
        assert await harbour.counters(node_id) == (0, 1000, 1000)
        # Its owner has it back at once.
        assert {(row.reserved, row.used) for row in await harbour.rows(select(tenant_resources))} == {(0, 0)}
        assert await harbour.findings() == []
    # The agent comes back, is told to end them, and says so, more than once.
    for _ in range(2):
        await report(harbour, running, "SUCCEEDED", gone=True, exit_code=0)
        await report(harbour, scheduled, "CANCELLED", gone=True)
        await report(harbour, running, "RUNNING")
        assert await harbour.counters(node_id) == (0, 0, 0)
        await force(harbour, job)
        await harbour.replace_ended()
    assert await harbour.statuses(job) == ["LOST", "LOST", "CANCELLED"]
    assert len(await harbour.tasks(job, current=False)) == 3
    assert await harbour.findings() == []
    assert waiting.id in [row.id for row in await harbour.tasks(job)]


# --- and in the end nothing is left ---


async def test_38_full_cycles_end_at_zero_everywhere(harbour: Harbour):
    """Jobs and arrays, with and without a retry, that succeed, fail, are cancelled or ended by force."""
    node_id = await harbour.node("n1", cpu=4, slots={"gpu": 2})
    for number in range(38):
        end = [T.SUCCEEDED, T.FAILED, T.CANCELLED, T.LOST][number % 4]
        job = await session(harbour, name=f"job-{number}", slots={"gpu": 1})
        retried = end is T.FAILED and number % 3
        if retried:
            await harbour.set(job, max_retries=1, array={"first": 0, "step": 1} if number % 2 else None)
        for _ in range(2 if retried else 1):
            await harbour.commit(await decision_on(harbour, job, [node_id], devices=[DeviceShare("gpu", 0, 1000)]))
            [task] = await harbour.tasks(job)
            await harbour.move(task, T.RUNNING)
            if end in (T.CANCELLED, T.LOST):
                await harbour.stop(job, force=end is T.LOST)
            await (harbour.free_lost(task.id) if end is T.LOST else harbour.move(task, end))
            if retried:
                await harbour.replace_ended()
    assert await harbour.findings() == []
    live = select(func.count()).select_from(resource_allocations).where(resource_allocations.c.freed_at.is_(None))
    devices = select(func.count()).select_from(device_allocations).where(device_allocations.c.freed_at.is_(None))
    charged = select(func.count()).select_from(tasks).where(tasks.c.freed_at.is_(None))
    left = [live, devices, charged]
    left += [select(func.count()).select_from(table) for table in (holds, port_allocations)]
    counted = (node_resources.c.held, node_resources.c.reserved, node_resources.c.used, node_resources.c.leaving)
    charged_to_tenants = (tenant_resources.c.reserved, tenant_resources.c.used)
    left += [select(func.sum(column)) for column in (*counted, node_devices.c.taken, *charged_to_tenants)]
    left.append(select(func.count()).select_from(workloads).where(workloads.c.ended_at.is_(None)))
    assert [(await harbour.rows(query))[0][0] for query in left] == [0] * len(left)
