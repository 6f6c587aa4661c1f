"""Tasks of sessions that fail: requeued after a loss, retried within their limits, or final."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.clock import now
from mooring.controllers.workloads import lifecycle
from mooring.coordination.signals import Signal
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.lifetime.retries import PULL_RETRIES
from mooring.model.workloads.workload import Kind
from mooring.store.core.types import AnyRow
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
from mooring.wire.agents.agent_protocol import FromServer, Report, TaskReport
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

T = TaskStatus


async def session(
    harness: Harness,
    *,
    name: str = "job",
    tasks: int = 1,
    type: str = "batch",
    slots: dict[str, int | str] | None = None,
    **columns: Any,
) -> UUID:
    workload_id = await harness.submit(name, kind=Kind.SESSION, replicas=tasks, type=type, slots=slots)
    return await harness.set(workload_id, **columns) if columns else workload_id


async def fail(harness: Harness, task: AnyRow, exit_code: int = 1) -> None:
    """Its process ended by itself."""
    await harness.move(task, T.FAILED, exit_code=exit_code, reason=Reason("exited", f"exited with code {exit_code}"))


async def lose(harness: Harness, task: AnyRow) -> None:
    await harness.move(task, T.LOST, freed=False, reason=Reason("node-lost", "Node n1 was lost"))


async def newest(harness: Harness, workload_id: UUID) -> list[tuple[str, int, int]]:
    """Status, attempt and failures before it, of each task."""
    return [(task.status, task.attempt, task.failures) for task in await harness.tasks(workload_id)]


async def run_again(harness: Harness, workload_id: UUID) -> list[AnyRow]:
    """Replace what ended and start it, without waiting for a backoff."""
    await harness.replace_ended()
    await harness.bind(await harness.propose(at=now() + timedelta(hours=1)))
    for task in await harness.tasks(workload_id):
        await harness.move(task, T.RUNNING)
    return await harness.tasks(workload_id)


# --- a node is lost ---


@pytest.mark.parametrize("type", ["batch", "inference", "system"])
@on_sqlite
async def test_work_of_a_lost_node_waits_again_under_the_same_id(harness: Harness, type: str):
    await harness.node("n1")
    job = await session(harness, type=type)
    [task] = await harness.run(job)
    await lose(harness, task)
    workload = await harness.workload(job)
    assert (workload.status, workload.reason["code"]) == ("PENDING", "node-lost")
    await harness.replace_ended()
    assert await newest(harness, job) == [("PENDING", 2, 0)]
    # Nothing failed, so nothing has to wait.
    assert (await harness.tasks(job))[0].not_before is None
    assert await harness.findings() == []


@on_sqlite
async def test_a_lost_interactive_session_is_not_requeued(harness: Harness):
    await harness.node("n1")
    job = await session(harness, type="interactive")
    [task] = await harness.run(job)
    await lose(harness, task)
    await harness.replace_ended()
    assert await newest(harness, job) == [("LOST", 1, 0)]
    assert (await harness.workload(job)).status == "FAILED"


async def test_losses_use_no_retry_and_failures_do(harness: Harness):
    node_id = await harness.node("n1", cpu=64)
    job = await session(harness, max_retries=1)
    [task] = await harness.run(job)
    for attempt in (2, 3):
        await lose(harness, task)
        [task] = await run_again(harness, job)
        assert (task.attempt, task.failures) == (attempt, 0)
    rebooted = Reason("node-rebooted", "the node was restarted while the task was on it")
    await harness.move(task, T.FAILED, reason=rebooted)
    [task] = await run_again(harness, job)
    assert (task.attempt, task.failures) == (4, 0)
    await fail(harness, task)
    [task] = await run_again(harness, job)
    assert (task.attempt, task.failures) == (5, 1)
    await fail(harness, task)
    await harness.replace_ended()
    assert (await harness.workload(job)).status == "FAILED"
    # What may still run on the node that was silent twice counts there.
    assert await harness.counters(node_id) == (0, 0, 2000)
    lost = [row.id for row in await harness.tasks(job, current=False) if row.status == "LOST"]
    assert await harness.free_lost(*lost, *lost) == 2
    assert await harness.counters(node_id) == (0, 0, 0)
    assert await harness.findings() == []


@on_sqlite
async def test_a_task_that_was_preempted_uses_no_retry_however_it_ended(harness: Harness):
    await harness.node("n1")
    job = await session(harness, max_retries=1)
    [task] = await harness.run(job)
    other = await harness.submit("other")
    await harness.move(task, T.TERMINATING, preempted_by=other, requeue=True)
    await fail(harness, task, exit_code=143)
    await harness.replace_ended()
    assert await newest(harness, job) == [("PENDING", 2, 0)]


async def test_an_evicted_task_uses_no_retry_however_it_ended(harness: Harness):
    node = await harness.node("n1", cpu=64)
    job = await session(harness, max_retries=1)
    await harness.run(job)
    [task] = await harness.tasks(job)
    for attempt, failures in ((2, 0), (4, 1)):
        await harness.drain(node, until=now())
        await harness.draining_loop().once()
        await fail(harness, task, exit_code=3)
        evicted = await harness.task(task.id)
        assert (evicted.status, evicted.exit_code, evicted.reason["code"]) == ("FAILED", 3, "evicted")
        assert evicted.reason["message"] == "exited with code 3 after it was evicted"
        await harness.drain(node, False)
        [task] = await run_again(harness, job)
        assert (task.attempt, task.failures) == (attempt, failures)
        await fail(harness, task, exit_code=3)
        if attempt == 2:
            [task] = await run_again(harness, job)
            assert (task.attempt, task.failures) == (3, 1)
    # It failed twice by itself, as often as one retry allows, and twice while it left.
    await harness.replace_ended()
    assert (await harness.workload(job)).status == "FAILED"
    assert await newest(harness, job) == [("FAILED", 4, 1)]
    assert await harness.findings() == []


@on_sqlite
async def test_a_gang_member_that_fails_as_its_peers_leave_uses_no_retry(harness: Harness):
    await harness.node("n1")
    job = await session(harness, tasks=2, max_retries=0)
    first, second = await harness.run(job)
    await lose(harness, first)
    await harness.replace_ended()
    assert await harness.statuses(job) == ["LOST", "TERMINATING"]
    await fail(harness, second)
    await harness.replace_ended()
    assert await newest(harness, job) == [("PENDING", 2, 0)] * 2
    assert (await harness.workload(job)).status == "PENDING"


async def test_a_gang_restarts_as_a_whole(harness: Harness):
    await harness.node("n1")
    job = await session(harness, tasks=3, max_retries=1)
    first, second, third = await harness.run(job)
    await lose(harness, first)
    await harness.replace_ended()
    assert await newest(harness, job) == [("LOST", 1, 0), ("TERMINATING", 1, 0), ("TERMINATING", 1, 0)]
    await harness.move(second, T.CANCELLED)
    await harness.replace_ended()
    assert await newest(harness, job) == [("LOST", 1, 0), ("CANCELLED", 1, 0), ("TERMINATING", 1, 0)]
    assert (await harness.workload(job)).status == "PENDING"
    await harness.move(third, T.CANCELLED)
    [_, failing, _] = await run_again(harness, job)
    assert await newest(harness, job) == [("RUNNING", 2, 0)] * 3
    # The failure of one is a failure of all: it is their one retry.
    await fail(harness, failing)
    await harness.replace_ended()
    for task in await harness.tasks(job):
        await harness.move(task, T.CANCELLED)
    [again, *_] = await run_again(harness, job)
    assert await newest(harness, job) == [("RUNNING", 3, 1)] * 3
    await fail(harness, again)
    await harness.replace_ended()
    assert (await harness.workload(job)).status == "TERMINATING"
    assert await harness.findings() == []


@on_sqlite
async def test_nothing_comes_again_of_a_session_that_fails_already(harness: Harness):
    await harness.node("n1")
    job = await session(harness, tasks=2)
    first, second = await harness.run(job)
    await fail(harness, first)
    await lose(harness, second)
    assert (await harness.workload(job)).status == "FAILED"
    assert await harness.findings() == []


# --- retries ---


async def test_a_failing_task_is_retried_as_often_as_was_asked_for(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    at = now()
    monkeypatch.setattr(lifecycle, "now", lambda: at)
    await harness.node("n1")
    job = await session(harness, max_retries=2)
    [task] = await harness.run(job)
    for failures in (1, 2):
        await fail(harness, task)
        await harness.replace_ended()
        assert await newest(harness, job) == [("PENDING", failures + 1, failures)]
        # Later each time.
        assert (await harness.tasks(job))[0].not_before == at + timedelta(seconds=failures)
        [task] = await run_again(harness, job)
    await fail(harness, task, exit_code=7)
    await harness.replace_ended()
    workload = await harness.workload(job)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "exited with code 7")
    assert await newest(harness, job) == [("FAILED", 3, 2)]
    assert await harness.findings() == []


@pytest.mark.parametrize(
    ("exit_code", "expected"), [pytest.param(75, "PENDING", id="named"), pytest.param(1, "FAILED", id="another")]
)
@on_sqlite
async def test_only_the_named_exit_codes_are_retried(harness: Harness, exit_code: int, expected: str):
    await harness.node("n1")
    job = await session(harness, max_retries=2, retry_on=[75, 76])
    [task] = await harness.run(job)
    await fail(harness, task, exit_code)
    assert (await harness.workload(job)).status == expected


@on_sqlite
async def test_cancelled_tasks_are_not_retried(harness: Harness):
    await harness.node("n1")
    job = await session(harness, max_retries=2)
    [task] = await harness.run(job)
    await harness.stop(job)
    await fail(harness, task)
    await harness.replace_ended()
    assert await newest(harness, job) == [("FAILED", 1, 0)]
    assert (await harness.workload(job)).status == "CANCELLED"


@on_sqlite
async def test_work_that_can_never_be_placed_is_not_retried(harness: Harness):
    job = await session(harness, max_retries=2)
    [task] = await harness.tasks(job)
    await harness.move(task, T.FAILED, reason=Reason("never-fits", "no node is that large"))
    assert (await harness.workload(job)).status == "FAILED"


# --- arrays ---


async def array(harness: Harness, size: int, **columns: Any) -> UUID:
    return await session(harness, tasks=size, array={"first": 0, "step": 1}, **columns)


async def test_the_indexes_of_an_array_are_independent(harness: Harness):
    await harness.node("n1")
    many = await array(harness, 4, max_retries=1)
    one, two, three, four = await harness.run(many)
    await fail(harness, one)
    await harness.move(two, T.SUCCEEDED)
    await harness.replace_ended()
    assert await newest(harness, many) == [("PENDING", 2, 1), ("SUCCEEDED", 1, 0), ("RUNNING", 1, 0), ("RUNNING", 1, 0)]
    [one, *_] = await run_again(harness, many)
    await fail(harness, one)
    await lose(harness, three)
    await harness.replace_ended()
    assert [status for status, *_ in await newest(harness, many)] == ["FAILED", "SUCCEEDED", "PENDING", "RUNNING"]
    assert (await harness.workload(many)).status == "RUNNING"
    [_, _, three, _] = await run_again(harness, many)
    await harness.move(three, T.SUCCEEDED)
    assert (await harness.workload(many)).status == "RUNNING"
    assert await harness.findings() == []
    await harness.move(four, T.SUCCEEDED)
    workload = await harness.workload(many)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "1 of 4 tasks failed")
    assert await harness.findings() == []


@on_sqlite
async def test_an_array_succeeds_when_all_its_indexes_did(harness: Harness):
    await harness.node("n1")
    many = await array(harness, 2)
    for task in await harness.run(many):
        assert (await harness.workload(many)).status == "RUNNING"
        await harness.move(task, T.SUCCEEDED)
    assert (await harness.workload(many)).status == "SUCCEEDED"


@on_sqlite
async def test_a_cancelled_array_ends_with_its_last_index(harness: Harness):
    await harness.node("n1", cpu=1)
    many = await array(harness, 3)
    [first, *_] = await harness.run(many)
    await harness.stop(many)
    assert await harness.statuses(many) == ["TERMINATING", "CANCELLED", "CANCELLED"]
    await harness.move(first, T.CANCELLED)
    assert (await harness.workload(many)).status == "CANCELLED"
    assert await harness.findings() == []


async def test_no_commit_puts_more_indexes_on_nodes_than_may_run_at_the_same_time(harness: Harness):
    node_id = await harness.node("n1")
    many = await array(harness, 4, parallel=2)
    too_many = await decision_on(harness, many, [node_id] * 3)
    result = await harness.commit(too_many)
    assert [why for _, why in result.conflicts] == [
        "at most 2 tasks of the workload run at the same time; there would be 3"
    ]
    both = await decision_on(harness, many, [node_id] * 2)
    assert len((await harness.commit(both)).bound) == 1
    [one_more] = (await harness.commit(await decision_on(harness, many, [node_id]))).conflicts
    assert one_more[1].endswith("there would be 3")
    first = (await harness.tasks(many))[0]
    await harness.move(first, T.RUNNING, T.SUCCEEDED)
    assert len((await harness.commit(await decision_on(harness, many, [node_id]))).bound) == 1
    assert await harness.findings() == []


# --- what cannot be started ---


async def report(harness: Harness, task: AnyRow, status: Any, **more: Any) -> None:
    """Report a task's status as the agent of its node."""

    async def send(_: FromServer) -> None: ...

    received = TaskReport(task_id=task.id, status=status, **more)
    agent = AgentSession(task.node_id, task.node_name, harness.pool.id, "", send)
    await AgentHub(harness.database, Signal()).report(agent, Report(number=1, tasks=[received]))


async def test_a_task_that_cannot_be_started_is_requeued_at_lower_priority_if_the_pool_says_so(harness: Harness):
    await harness.set_options(deprioritise=7)
    await harness.node("n1")
    job = await session(harness)
    for attempt, priority in ((1, 3), (2, 0), (3, 0)):
        await harness.replace_ended()
        await harness.bind(await harness.propose(at=now() + timedelta(hours=1)))
        [task] = await harness.tasks(job)
        assert (task.status, task.attempt) == ("SCHEDULED", attempt)
        failure = {"gone": True, "code": "image-missing", "reason": "there is no such image"}
        await report(harness, task, "FAILED", **failure)
        workload = await harness.workload(job)
        assert (workload.status, workload.priority) == ("PENDING", priority)
        lower = f"there is no such image; it is requeued with priority {priority}"
        assert [h.reason for h in await harness.history(job)].count(lower) == max(1, attempt - 1)
    results = await harness.rows(select(attempts.c.result, attempts.c.number))
    assert [tuple(row) for row in results] == [("give_up", 3)]
    assert await harness.findings() == []


@on_sqlite
async def test_a_start_that_is_retried_is_not_given_up(harness: Harness):
    await harness.node("n1")
    job = await session(harness, max_retries=1)
    await harness.place()
    [task] = await harness.tasks(job)
    await report(harness, task, "FAILED", gone=True, code="start-failed", reason="no such file")
    await harness.replace_ended()
    assert await newest(harness, job) == [("PENDING", 2, 1)]
    assert [row.result for row in await harness.rows(select(attempts.c.result))] == ["retry"]


async def test_a_task_whose_image_does_not_come_is_tried_elsewhere_and_not_without_end(harness: Harness):
    for name in ("n1", "n2"):
        await harness.node(name)
    job = await session(harness, retry_on=[75])
    visited: list[str] = []
    for attempt in range(1, PULL_RETRIES + 2):
        await harness.replace_ended()
        await harness.bind(await harness.propose(at=now() + timedelta(hours=1)))
        [task] = await harness.tasks(job)
        assert (task.status, task.attempt) == ("SCHEDULED", attempt)
        visited.append(task.node_name)
        await report(harness, task, "PREPARING", reason="pulling nginx:1")
        await report(harness, task, "FAILED", gone=True, code="image-pull-failed", reason="registry does not answer")
    assert set(visited[:2]) == {"n1", "n2"}
    await harness.replace_ended()
    workload = await harness.workload(job)
    assert (workload.status, workload.reason["message"]) == ("FAILED", "registry does not answer")
    found = await harness.rows(select(attempts.c.phase, attempts.c.result, attempts.c.code, attempts.c.number))
    assert sorted(tuple(row) for row in found) == [
        ("prepare", "give_up", "image-pull-failed", 1),
        ("prepare", "retry", "image-pull-failed", PULL_RETRIES),
    ]
    assert await harness.findings() == []


@pytest.mark.parametrize("code", ["image-not-found", "image-denied"])
@on_sqlite
async def test_an_image_that_no_node_gets_ends_a_session_at_once_and_slows_a_deployment_down(
    harness: Harness, code: str, monkeypatch: pytest.MonkeyPatch
):
    at = now()
    monkeypatch.setattr(lifecycle, "now", lambda: at)
    await harness.node("n1")
    job, service = await session(harness, max_retries=3), await harness.submit("web")
    await harness.place()
    for workload_id in (job, service):
        [task] = await harness.tasks(workload_id)
        await report(harness, task, "FAILED", gone=True, code=code, reason="registry r has no image x")
    await harness.replace_ended()
    assert (await harness.workload(job)).status == "FAILED"
    [again] = await harness.tasks(service)
    assert (again.status, again.attempt, again.not_before) == ("PENDING", 2, at + timedelta(seconds=1))
    results = await harness.rows(select(attempts.c.workload_id, attempts.c.phase, attempts.c.result))
    assert {tuple(row) for row in results} == {(job, "prepare", "give_up"), (service, "prepare", "retry")}


# --- the end by force ---


async def force(harness: Harness, workload_id: UUID) -> None:
    await harness.stop(workload_id, force=True)


async def test_force_ends_at_once_and_the_node_stays_charged_until_nothing_is_left(harness: Harness):
    node_id = await harness.node("n1", cpu=2)
    job = await session(harness, tasks=3, max_retries=3)
    await harness.place()
    running, scheduled, waiting = await harness.tasks(job)
    await harness.move(running, T.RUNNING)
    await harness.stop(job)
    assert (await harness.workload(job)).status == "TERMINATING"
    for _ in range(2):
        await force(harness, job)
        assert await harness.statuses(job) == ["LOST", "LOST", "CANCELLED"]
        assert (await harness.workload(job)).status == "CANCELLED"
        assert await harness.counters(node_id) == (0, 1000, 1000)
        # Its owner has it back at once.
        assert {(row.reserved, row.used) for row in await harness.rows(select(tenant_resources))} == {(0, 0)}
        assert await harness.findings() == []
    # The agent reconnects, stops them, and reports that more than once.
    for _ in range(2):
        await report(harness, running, "SUCCEEDED", gone=True, exit_code=0)
        await report(harness, scheduled, "CANCELLED", gone=True)
        await report(harness, running, "RUNNING")
        assert await harness.counters(node_id) == (0, 0, 0)
        await force(harness, job)
        await harness.replace_ended()
    assert await harness.statuses(job) == ["LOST", "LOST", "CANCELLED"]
    assert len(await harness.tasks(job, current=False)) == 3
    assert await harness.findings() == []
    assert waiting.id in [row.id for row in await harness.tasks(job)]


# --- and in the end nothing is left ---


async def test_38_full_cycles_end_at_zero_everywhere(harness: Harness):
    """Jobs and arrays, with and without a retry, that succeed, fail, are cancelled or ended by force."""
    node_id = await harness.node("n1", cpu=4, slots={"gpu": 2})
    for number in range(38):
        end = [T.SUCCEEDED, T.FAILED, T.CANCELLED, T.LOST][number % 4]
        job = await session(harness, name=f"job-{number}", slots={"gpu": 1})
        retried = end is T.FAILED and number % 3
        if retried:
            await harness.set(job, max_retries=1, array={"first": 0, "step": 1} if number % 2 else None)
        for _ in range(2 if retried else 1):
            await harness.commit(await decision_on(harness, job, [node_id], devices=[DeviceShare("gpu", 0, 1000)]))
            [task] = await harness.tasks(job)
            await harness.move(task, T.RUNNING)
            if end in (T.CANCELLED, T.LOST):
                await harness.stop(job, force=end is T.LOST)
            await (harness.free_lost(task.id) if end is T.LOST else harness.move(task, end))
            if retried:
                await harness.replace_ended()
    assert await harness.findings() == []
    live = select(func.count()).select_from(resource_allocations).where(resource_allocations.c.freed_at.is_(None))
    devices = select(func.count()).select_from(device_allocations).where(device_allocations.c.freed_at.is_(None))
    charged = select(func.count()).select_from(tasks).where(tasks.c.freed_at.is_(None))
    left = [live, devices, charged]
    left += [select(func.count()).select_from(table) for table in (holds, port_allocations)]
    counted = (node_resources.c.held, node_resources.c.reserved, node_resources.c.used, node_resources.c.leaving)
    charged_to_tenants = (tenant_resources.c.reserved, tenant_resources.c.used)
    left += [select(func.sum(column)) for column in (*counted, node_devices.c.taken, *charged_to_tenants)]
    left.append(select(func.count()).select_from(workloads).where(workloads.c.ended_at.is_(None)))
    assert [(await harness.rows(query))[0][0] for query in left] == [0] * len(left)
