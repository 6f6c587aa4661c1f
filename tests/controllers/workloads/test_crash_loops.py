"""Tasks that repeatedly end soon after their start are crash loops, whether the agent or the leader restarts them."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import update

from mooring import clock
from mooring.api.serializers import task_view, workload_view
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.store.commit.status_changes import Change, LastExit
from mooring.store.tables import tasks as tasks_table
from mooring.store.views import workloads as views
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadView
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus
EXITED = Reason("exited", "exited with code 3", "agent")


async def seen(harness: Harness, workload_id: UUID) -> tuple[WorkloadView, list[TaskView]]:
    async with harness.database.read() as connection:
        row = await views.by_id(connection, workload_id)
        assert row is not None
        tasks = await views.tasks_of(connection, row)
    return workload_view(row), [task_view(task) for task in tasks if task.current]


async def kinds(harness: Harness, object_id: UUID) -> list[str]:
    return [event.kind for event in await harness.feed(object_id)]


async def start_again(harness: Harness, workload_id: UUID, index: int = 0) -> UUID:
    """Place and start a task whose backoff is over, and return its id."""
    await harness.execute(update(tasks_table).values(not_before=None))
    await harness.place()
    task_id: UUID = (await harness.tasks(workload_id))[index].id
    await harness.move(task_id, T.RUNNING)
    return task_id


async def crash(harness: Harness, task_id: UUID, crashes: int, *, restarted: bool = False) -> None:
    """Report that a container of a running task ended soon after its start, and perhaps that it was restarted."""
    retry_at = None if restarted else now() + timedelta(seconds=30)
    last = LastExit("exited", "exited with code 3", 3, retry_at)
    restarts = crashes if restarted else crashes - 1
    await harness.apply(Change(task_id, T.RUNNING, restarts=restarts, crashes=crashes, last_exit=last, ready=restarted))


async def test_a_replica_that_its_agent_restarts_reads_crash_looping_from_the_second_crash_on(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await crash(harness, task.id, 1)
    view, _ = await seen(harness, service)
    assert (view.status, view.health, view.last_exit_code) == ("RUNNING", "degraded", 3)
    await crash(harness, task.id, 1, restarted=True)
    await crash(harness, task.id, 2)
    view, [shown] = await seen(harness, service)
    assert (view.status, view.health, view.health_reason) == (
        "RUNNING",
        "crash-looping",
        "1 of 1 replica: exited with code 3",
    )
    assert (view.last_exit_code, view.last_reason, view.restarts) == (3, "exited with code 3", 1)
    assert view.next_retry_at is not None
    assert (shown.crashes, shown.next_retry_at, shown.last_exit_code) == (2, view.next_retry_at, 3)
    # It runs again for a moment: that is no recovery.
    await crash(harness, task.id, 2, restarted=True)
    view, _ = await seen(harness, service)
    assert (view.health, view.next_retry_at) == ("crash-looping", None)
    assert [kind for kind in await kinds(harness, task.id) if "crash" in kind] == ["crashed", "crash-looping"]
    assert await harness.findings() == []


@on_sqlite
async def test_a_replica_that_stays_up_for_a_minute_is_healthy_again(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await crash(harness, task.id, 3)
    await crash(harness, task.id, 3, restarted=True)
    at = now() + timedelta(seconds=61)
    monkeypatch.setattr("mooring.store.views.workloads.now", lambda: at)
    view, _ = await seen(harness, service)
    assert (view.health, view.health_reason, view.restarts) == ("healthy", None, 0)


async def test_a_replica_that_is_replaced_reads_crash_looping_with_the_time_of_its_next_start(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web", replicas=2)
    [first, _] = await harness.run(service)
    await harness.move(first, T.FAILED, reason=EXITED, exit_code=3)
    await harness.replace_ended()
    view, tasks = await seen(harness, service)
    assert (view.status, view.health, view.restarts) == ("RUNNING", "degraded", 1)
    assert (tasks[0].last_exit_code, tasks[0].last_reason) == (3, "exited with code 3")
    again = await start_again(harness, service)
    await harness.move(again, T.FAILED, reason=EXITED, exit_code=3)
    await harness.replace_ended()
    view, tasks = await seen(harness, service)
    assert (view.status, view.health) == ("RUNNING", "crash-looping")
    assert view.health_reason == "1 of 2 replicas: exited with code 3"
    assert view.next_retry_at is not None
    assert view.next_retry_at > now()
    assert "crash-looping" in await kinds(harness, service)


async def test_a_deployment_whose_image_cannot_be_pulled_says_so(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    missing = Reason("image-not-found", "no image x:1 at the registry", "agent")
    for _ in range(2):
        await harness.execute(update(tasks_table).values(not_before=None))
        await harness.place()
        [task] = await harness.tasks(service)
        await harness.move(task, T.FAILED, reason=missing)
        await harness.replace_ended()
    view, _ = await seen(harness, service)
    assert (view.health, view.health_reason) == ("image-pull-failing", "1 of 1 replica: no image x:1 at the registry")


async def test_a_deployment_with_a_replica_that_finds_no_node_is_degraded_with_that_reason(harness: Harness):
    await harness.node("n1", cpu=2)
    service = await harness.submit("web", replicas=2)
    await harness.run(service)
    await harness.scale(service, 3)
    await harness.bind(await harness.propose())
    view, _ = await seen(harness, service)
    assert (view.status, view.health, view.ready) == ("RUNNING", "degraded", 2)
    assert view.health_reason is not None
    assert "1 lacks 1 cpu" in view.health_reason


@on_sqlite
async def test_a_restart_after_a_long_run_is_no_crash_loop_and_has_no_backoff(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    later = now() + timedelta(hours=1)

    class Later:
        def now(self):
            return later

        def monotonic(self) -> float:
            return later.timestamp()

    monkeypatch.setattr(clock, "source", Later())
    await harness.move(task, T.FAILED, reason=EXITED, exit_code=3)
    await harness.replace_ended()
    [again] = await harness.tasks(service)
    assert (again.earlier_crashes, again.not_before) == (0, None)
    view, _ = await seen(harness, service)
    assert (view.health, view.last_exit_code) == ("starting", 3)


@on_sqlite
async def test_an_array_with_a_failed_task_never_reads_healthy(harness: Harness):
    await harness.node("n1")
    array = await harness.submit("sweep", replicas=3, kind=Kind.SESSION)
    await harness.set(array, array={"first": 0, "step": 1}, next_index=3)
    await harness.place()
    first, second, _ = await harness.tasks(array)
    await harness.move(first, T.RUNNING, T.FAILED, reason=EXITED, exit_code=3)
    await harness.move(second, T.RUNNING)
    view, _ = await seen(harness, array)
    assert (view.status, view.health, view.health_reason) == ("RUNNING", "degraded", "1 of 3 tasks failed")
