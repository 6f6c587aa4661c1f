"""Replicas that ended are replaced, later each time they fail at once; a failing job stops as a whole."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.controllers.workloads import lifecycle
from mooring.controllers.workloads.lifecycle import LifecycleLoop, not_before
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.store.commit.replacements import EndedTask
from tests.store.databases import on_sqlite
from tests.store.harness import LONG_AGO, Harness

T = TaskStatus
NOW = LONG_AGO


def ended(status: TaskStatus, attempt: int = 1, *, ran_seconds: float | None = 1, code: str | None = None) -> EndedTask:
    started = None if ran_seconds is None else NOW - timedelta(seconds=ran_seconds)
    crashes = attempt - 1
    return EndedTask(UUID(int=1), UUID(int=2), 0, attempt, status, NOW, started, code=code, earlier_crashes=crashes)


@pytest.mark.parametrize(
    ("task", "seconds"),
    [
        pytest.param(ended(T.FAILED, 1), 1, id="failed at once"),
        pytest.param(ended(T.FAILED, 2), 2, id="failed again"),
        pytest.param(ended(T.FAILED, 3), 4, id="failed a third time"),
        pytest.param(ended(T.FAILED, 6), 32, id="failed a sixth time"),
        pytest.param(ended(T.FAILED, 7), 60, id="not longer than a minute"),
        pytest.param(ended(T.FAILED, 5000), 60, id="for days"),
        pytest.param(ended(T.FAILED, 2, ran_seconds=None), 2, id="never started"),
        pytest.param(ended(T.FAILED, 9, ran_seconds=None, code="image-pull-failed"), 60, id="no image for now"),
        pytest.param(ended(T.FAILED, 9, ran_seconds=None, code="image-not-found"), 256, id="no such image"),
        pytest.param(ended(T.FAILED, 99, ran_seconds=None, code="image-denied"), 600, id="an image of others"),
        pytest.param(ended(T.SUCCEEDED, 2), 2, id="ended by itself"),
        pytest.param(ended(T.FAILED, 9, ran_seconds=60), None, id="ran well before"),
        pytest.param(ended(T.FAILED, 9, ran_seconds=59), 60, id="ran not quite well"),
        pytest.param(ended(T.LOST, 9), None, id="lost with its node"),
        pytest.param(ended(T.CANCELLED, 9), None, id="stopped by us"),
    ],
)
def test_only_tasks_that_fail_soon_after_their_start_are_delayed(task: EndedTask, seconds: float | None):
    expected = None if seconds is None else NOW + timedelta(seconds=seconds)
    assert not_before(task, NOW) == expected


@on_sqlite
async def test_an_ended_replica_is_replaced_and_others_continue(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    at = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
    monkeypatch.setattr(lifecycle, "now", lambda: at)
    await harness.node("n1")
    service = await harness.submit("web", replicas=3)
    failed, lost, _ = await harness.run(service)
    await harness.move(failed, T.FAILED)
    await harness.move(lost, T.LOST, freed=False)
    loop = LifecycleLoop(harness.fenced)
    assert await loop.once()
    assert [(t.attempt, t.status, t.not_before) for t in await harness.tasks(service)] == [
        (2, "PENDING", at + timedelta(seconds=1)),
        (2, "PENDING", None),
        (1, "RUNNING", None),
    ]
    assert (await harness.workload(service)).status == "RUNNING"
    assert not await loop.once()
    assert await harness.findings() == []


@on_sqlite
async def test_sessions_are_not_replaced(harness: Harness):
    await harness.node("n1")
    job = await harness.submit("job", kind=Kind.SESSION)
    [task] = await harness.run(job)
    await harness.move(task, T.FAILED)
    assert not await LifecycleLoop(harness.fenced).once()
    assert (await harness.workload(job)).status == "FAILED"
    assert len(await harness.tasks(job, current=False)) == 1


async def test_a_job_with_a_failed_task_is_stopped_whole(harness: Harness):
    await harness.node("n1", cpu=3)
    job = await harness.submit("job", kind=Kind.SESSION, replicas=4)
    await harness.place()
    failed, running, scheduled, waiting = await harness.tasks(job)
    await harness.move(failed, T.RUNNING)
    await harness.move(failed, T.FAILED, reason=Reason("exited", "exited with code 3", "agent"))
    await harness.move(running, T.RUNNING)
    assert (await harness.workload(job)).status == "TERMINATING"
    assert await LifecycleLoop(harness.fenced).once()
    assert await harness.statuses(job) == ["FAILED", "TERMINATING", "TERMINATING", "CANCELLED"]
    for task in (running, scheduled):
        await harness.move(task, T.CANCELLED)
    workload = await harness.workload(job)
    assert (workload.status, workload.reason["code"]) == ("FAILED", "exited")
    assert (await harness.task(waiting.id)).reason["code"] == "workload-ends"
    assert not await LifecycleLoop(harness.fenced).once()
    assert await harness.findings() == []


@on_sqlite
async def test_a_deposed_leader_replaces_nothing(harness: Harness):
    await harness.node("n1")
    service = await harness.submit("web")
    [task] = await harness.run(service)
    await harness.move(task, T.FAILED)
    await harness.start_term("newer")
    with pytest.raises(LeadershipLost):
        await LifecycleLoop(harness.fenced).once()
    assert [t.attempt for t in await harness.tasks(service, current=False)] == [1]
