"""Deadlines end running tasks, pending timeouts expire workloads, and failed dependencies cancel them."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.clock import now as really_now
from mooring.controllers.leadership import loops
from mooring.controllers.workloads import expiry as limits_loop
from mooring.controllers.workloads.expiry import ExpiryLoop
from mooring.coordination.signals import Signal
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import PoolPolicy
from mooring.model.workloads.workload import Kind
from mooring.store.core.types import AnyRow
from mooring.store.nodes import pools
from mooring.store.tables import dependencies, tasks
from mooring.telemetry import metrics
from mooring.wire.agents.agent_protocol import OLDEST_PROTOCOL, Desired, FromServer
from mooring.wire.agents.desired_tasks import EndWarning
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus
HOUR = 3600


class Clock:
    """The loop's: it stands still until a test says otherwise."""

    def __init__(self) -> None:
        self.at = really_now()

    def __call__(self) -> datetime:
        return self.at

    def pass_seconds(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (limits_loop, loops):
        monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture
def loop(harness: Harness) -> ExpiryLoop:
    return ExpiryLoop(harness.fenced)


async def job(harness: Harness, name: str, **columns: Any) -> UUID:
    workload_id = await harness.submit(name, kind=Kind.SESSION)
    return await harness.set(workload_id, **columns) if columns else workload_id


async def depends(harness: Harness, workload_id: UUID, on: UUID, condition: str = "after-ok") -> None:
    row = insert(dependencies).values(workload_id=workload_id, depends_on=on, condition=condition)
    await harness.database.write(lambda c: c.execute(row))


async def move_deadline(harness: Harness, task: AnyRow, seconds: int) -> None:
    later = update(tasks).where(tasks.c.id == task.id).values(deadline_at=task.deadline_at + timedelta(seconds=seconds))
    await harness.database.write(lambda c: c.execute(later))


async def seen(harness: Harness, workload_id: UUID) -> tuple[str, str | None]:
    """The status, and the code of the reason for it."""
    workload = await harness.workload(workload_id)
    return workload.status, workload.reason and workload.reason["code"]


# --- the time limit ---


async def test_a_task_past_its_deadline_is_ended_and_its_workload_fails(
    harness: Harness, loop: ExpiryLoop, clock: Clock
):
    node_id = await harness.node("n1")
    limited = await job(harness, "job", time_limit_seconds=HOUR)
    endless = await job(harness, "endless")
    [task] = await harness.run(limited)
    await harness.run(endless)
    assert task.deadline_at == task.started_at + timedelta(seconds=HOUR)
    assert (await harness.tasks(endless))[0].deadline_at is None

    clock.at = task.deadline_at - timedelta(milliseconds=500)
    assert not await loop.once()
    # It sleeps until the deadline and not longer.
    assert loop.alarm.wait_seconds(30) == pytest.approx(0.5)
    assert await harness.statuses(limited) == ["RUNNING"]

    clock.at = task.deadline_at
    assert await loop.once()
    assert await harness.statuses(limited) == ["TERMINATING"]
    assert await seen(harness, limited) == ("TERMINATING", "time-limit")
    assert not await loop.once()

    # The agent says that it stopped it as it was asked to.
    await harness.move(task, T.CANCELLED)
    ended = (await harness.tasks(limited))[0]
    assert (ended.status, ended.reason["code"]) == ("FAILED", "time-limit")
    assert await seen(harness, limited) == ("FAILED", "time-limit")
    assert (await harness.history(limited))[-1].reason == "The time limit of 1h has been reached"
    assert await seen(harness, endless) == ("RUNNING", None)
    assert await harness.counters(node_id) == (0, 0, 1000)
    assert await harness.findings() == []


@on_sqlite
async def test_a_task_that_ended_well_before_the_stop_has_succeeded(harness: Harness, loop: ExpiryLoop, clock: Clock):
    await harness.node("n1")
    limited = await job(harness, "job", time_limit_seconds=1)
    [task] = await harness.run(limited)
    clock.at = task.deadline_at
    await loop.once()
    await harness.move(task, T.SUCCEEDED)
    assert await seen(harness, limited) == ("SUCCEEDED", None)


@on_sqlite
async def test_the_time_limit_uses_no_retry(harness: Harness, loop: ExpiryLoop, clock: Clock):
    await harness.node("n1")
    limited = await job(harness, "job", time_limit_seconds=1, max_retries=3)
    [task] = await harness.run(limited)
    clock.at = task.deadline_at
    await loop.once()
    await harness.move(task, T.CANCELLED)
    await harness.replace_ended()
    assert await seen(harness, limited) == ("FAILED", "time-limit")
    assert len(await harness.tasks(limited, current=False)) == 1


@on_sqlite
async def test_a_deadline_that_was_moved_counts_as_it_is_now(harness: Harness, loop: ExpiryLoop, clock: Clock):
    await harness.node("n1")
    limited = await job(harness, "job", time_limit_seconds=1)
    [task] = await harness.run(limited)
    await move_deadline(harness, task, HOUR)
    clock.at = task.deadline_at
    assert not await loop.once()
    assert loop.alarm.wait_seconds(2 * HOUR) == HOUR


@on_sqlite
async def test_a_replica_that_reached_its_limit_is_replaced(harness: Harness, loop: ExpiryLoop, clock: Clock):
    await harness.node("n1")
    service = await harness.set(await harness.submit("web"), time_limit_seconds=1)
    [task] = await harness.run(service)
    clock.at = task.deadline_at
    await loop.once()
    await harness.move(task, T.CANCELLED)
    await harness.replace_ended()
    assert [(t.attempt, t.status) for t in await harness.tasks(service)] == [(2, "PENDING")]


@on_sqlite
async def test_each_index_of_an_array_has_its_own_deadline(harness: Harness, loop: ExpiryLoop, clock: Clock):
    await harness.node("n1")
    array = await harness.submit("array", kind=Kind.SESSION, replicas=2)
    await harness.set(array, array={"first": 0, "step": 1}, time_limit_seconds=HOUR)
    first, second = await harness.run(array)
    assert second.deadline_at > first.deadline_at
    clock.at = first.deadline_at
    await loop.once()
    await harness.move(first, T.CANCELLED)
    assert await harness.statuses(array) == ["FAILED", "RUNNING"]
    assert (await harness.workload(array)).status == "RUNNING"


@on_sqlite
async def test_the_agent_receives_the_time_of_the_warning_and_its_changes(harness: Harness):
    node_id = await harness.node("n1")
    limited = await job(harness, "job", time_limit_seconds=HOUR, warning_signal="USR1", warning_seconds=300)
    [task] = await harness.run(limited)
    await job(harness, "unwarned", time_limit_seconds=HOUR)
    await harness.run(limited)
    received: asyncio.Queue[FromServer] = asyncio.Queue()
    session = AgentSession(node_id, "n1", harness.pool.id, "", received.put, protocol=OLDEST_PROTOCOL)
    sending = asyncio.create_task(AgentHub(harness.database, Signal()).send_updates(session))
    for seconds in (0, 60):
        await move_deadline(harness, task, seconds)
        session.notify()
        desired = await received.get()
        assert isinstance(desired, Desired)
        at = (task.deadline_at + timedelta(seconds=seconds - 300)).timestamp()
        assert [order.warning for order in desired.tasks] == [EndWarning(at=at, signal="USR1"), None]
    sending.cancel()


# --- waiting too long ---


@pytest.fixture
def timeout(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> int:
    """The pool's, in seconds."""
    policy = PoolPolicy("locality", pending_timeout_seconds=60)
    pool = pools.Pool(harness.pool.id, "default", policy, frozenset({"process"}), simulated=False)

    async def all_pools(_: Any) -> list[pools.Pool]:
        return [pool]

    monkeypatch.setattr(pools, "all_pools", all_pools)
    return 60


def _expired() -> float:
    return metrics.registry.get_sample_value("mooring_workloads_ended_total", {"status": "EXPIRED"}) or 0


async def test_work_that_was_never_placed_expires(harness: Harness, loop: ExpiryLoop, clock: Clock, timeout: int):
    node_id = await harness.node("n1", cpu=1)
    runs, waits = await job(harness, "runs"), await job(harness, "waits")
    service = await harness.submit("service")
    before = await harness.run(runs)
    await harness.move(before[0], T.LOST, freed=True)
    await harness.replace_ended()
    # It had a place once: its wait is another.
    assert await seen(harness, runs) == ("PENDING", None)

    clock.at = (await harness.workload(waits)).created_at + timedelta(seconds=timeout - 0.25)
    assert not await loop.once()
    assert loop.alarm.wait_seconds(30) == pytest.approx(0.25)
    clock.pass_seconds(timeout)
    counted = _expired()
    assert await loop.once()
    assert _expired() == counted + 2
    for workload_id in (waits, service):
        assert await seen(harness, workload_id) == ("EXPIRED", "pending-timeout")
        assert await harness.statuses(workload_id) == ["CANCELLED"]
    assert (await harness.workload(runs)).status == "PENDING"
    assert not await loop.once()
    assert await harness.counters(node_id) == (0, 0, 0)
    assert await harness.findings() == []


@on_sqlite
async def test_the_pending_timeout_of_a_delayed_workload_begins_at_its_start_time(
    harness: Harness, loop: ExpiryLoop, clock: Clock, timeout: int
):
    later = await job(harness, "later", starts_at=clock() + timedelta(seconds=HOUR))
    clock.pass_seconds(HOUR + timeout - 1)
    assert not await loop.once()
    clock.pass_seconds(1)
    assert await loop.once()
    assert await seen(harness, later) == ("EXPIRED", "pending-timeout")


@on_sqlite
async def test_without_a_timeout_nothing_expires(harness: Harness, loop: ExpiryLoop, clock: Clock):
    waits = await job(harness, "waits")
    clock.pass_seconds(1000 * HOUR)
    assert not await loop.once()
    assert await seen(harness, waits) == ("PENDING", None)


# --- pending timeouts ---


@pytest.mark.parametrize(
    ("condition", "end", "expected"),
    [
        pytest.param("after-ok", T.FAILED, "CANCELLED", id="was to succeed and failed"),
        pytest.param("after-ok", T.SUCCEEDED, "PENDING", id="was to succeed and did"),
        pytest.param("after-fail", T.SUCCEEDED, "CANCELLED", id="was to fail and succeeded"),
        pytest.param("after-fail", T.FAILED, "PENDING", id="was to fail and did"),
        pytest.param("after-any", T.FAILED, "PENDING", id="was to end in any way"),
    ],
)
@on_sqlite
async def test_a_dependency_that_can_never_be_met_cancels(
    harness: Harness, loop: ExpiryLoop, condition: str, end: TaskStatus, expected: str
):
    await harness.node("n1")
    first = await job(harness, "first")
    [task] = await harness.run(first)
    second = await job(harness, "second")
    await depends(harness, second, first, condition)
    assert not await loop.once()
    await harness.move(task, end)
    assert await loop.once() is (expected == "CANCELLED")
    assert (await harness.workload(second)).status == expected


async def test_dependents_of_dependents_follow_and_the_reason_names_the_first(harness: Harness, loop: ExpiryLoop):
    await harness.node("n1")
    first = await job(harness, "first")
    [task] = await harness.run(first)
    second, third = await job(harness, "second"), await job(harness, "third")
    patient = await job(harness, "patient", on_dependency_failure="wait")
    await depends(harness, second, first)
    await depends(harness, third, second)
    await depends(harness, patient, first)
    await harness.move(task, T.FAILED)
    while await loop.once():
        pass
    assert await seen(harness, second) == ("CANCELLED", "dependency-failed")
    assert (await harness.workload(second)).reason["message"] == (
        "It was to run if 'first' would succeed; that one is failed"
    )
    assert await seen(harness, third) == ("CANCELLED", "dependency-failed")
    assert "'second'" in (await harness.workload(third)).reason["message"]
    assert (await harness.workload(patient)).status == "PENDING"
    assert await harness.findings() == []


async def test_the_mirror_reads_dependents_again_after_an_end(harness: Harness):
    await harness.node("n1")
    first = await job(harness, "first", singleton="turn")
    [task] = await harness.run(first)
    second, next_iteration = await job(harness, "second"), await job(harness, "next", singleton="turn")
    await job(harness, "other", singleton="another")
    await depends(harness, second, first)
    mirror = Mirror(harness.database)
    await mirror.load()
    mirror.news()
    await harness.move(task, T.SUCCEEDED)
    await mirror.follow()
    assert mirror.news().keys() == {first, second, next_iteration}
    assert await differences(mirror, harness.database) == []
