"""What runs past its deadline is ended; what waits too long expires; what waits in vain is cancelled."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, update

from mooring import metrics
from mooring.api.agent_session import AgentSession
from mooring.api.hub import AgentHub
from mooring.clock import now as really_now
from mooring.controllers import limits as limits_loop
from mooring.controllers import loops
from mooring.controllers.limits import LimitsLoop
from mooring.coordination.signals import Signal
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import PoolPolicy
from mooring.model.workloads import Kind
from mooring.store import pools
from mooring.store.tables import dependencies, tasks
from mooring.store.types import AnyRow
from mooring.wire.agent import OLDEST_PROTOCOL, Desired, EndWarning, FromServer
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

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
def loop(harbour: Harbour) -> LimitsLoop:
    return LimitsLoop(harbour.database, harbour.office)


async def job(harbour: Harbour, name: str, **columns: Any) -> UUID:
    workload_id = await harbour.submit(name, kind=Kind.SESSION)
    return await harbour.set(workload_id, **columns) if columns else workload_id


async def depends(harbour: Harbour, workload_id: UUID, on: UUID, condition: str = "after-ok") -> None:
    row = insert(dependencies).values(workload_id=workload_id, depends_on=on, condition=condition)
    await harbour.database.write(lambda c: c.execute(row))


async def move_deadline(harbour: Harbour, task: AnyRow, seconds: int) -> None:
    later = update(tasks).where(tasks.c.id == task.id).values(deadline_at=task.deadline_at + timedelta(seconds=seconds))
    await harbour.database.write(lambda c: c.execute(later))


async def seen(harbour: Harbour, workload_id: UUID) -> tuple[str, str | None]:
    """The status, and the code of the reason for it."""
    workload = await harbour.workload(workload_id)
    return workload.status, workload.reason and workload.reason["code"]


# --- the time limit ---


async def test_a_task_past_its_deadline_is_ended_and_its_workload_fails(
    harbour: Harbour, loop: LimitsLoop, clock: Clock
):
    node_id = await harbour.node("n1")
    limited = await job(harbour, "job", time_limit_seconds=HOUR)
    endless = await job(harbour, "endless")
    [task] = await harbour.run(limited)
    await harbour.run(endless)
    assert task.deadline_at == task.started_at + timedelta(seconds=HOUR)
    assert (await harbour.tasks(endless))[0].deadline_at is None

    clock.at = task.deadline_at - timedelta(milliseconds=500)
    assert not await loop.once()
    # It sleeps until the deadline and not longer.
    assert loop.alarm.wait_seconds(30) == pytest.approx(0.5)
    assert await harbour.statuses(limited) == ["RUNNING"]

    clock.at = task.deadline_at
    assert await loop.once()
    assert await harbour.statuses(limited) == ["TERMINATING"]
    assert await seen(harbour, limited) == ("TERMINATING", "time-limit")
    assert not await loop.once()

    # The agent says that it stopped it as it was asked to.
    await harbour.move(task, T.CANCELLED)
    ended = (await harbour.tasks(limited))[0]
    assert (ended.status, ended.reason["code"]) == ("FAILED", "time-limit")
    assert await seen(harbour, limited) == ("FAILED", "time-limit")
    assert (await harbour.history(limited))[-1].reason == "Its time limit of 1h is over"
    assert await seen(harbour, endless) == ("RUNNING", None)
    assert await harbour.counters(node_id) == (0, 0, 1000)
    assert await harbour.findings() == []


@on_sqlite
async def test_who_ended_well_before_the_stop_came_has_succeeded(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    await harbour.node("n1")
    limited = await job(harbour, "job", time_limit_seconds=1)
    [task] = await harbour.run(limited)
    clock.at = task.deadline_at
    await loop.once()
    await harbour.move(task, T.SUCCEEDED)
    assert await seen(harbour, limited) == ("SUCCEEDED", None)


@on_sqlite
async def test_the_time_limit_uses_no_retry(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    await harbour.node("n1")
    limited = await job(harbour, "job", time_limit_seconds=1, max_retries=3)
    [task] = await harbour.run(limited)
    clock.at = task.deadline_at
    await loop.once()
    await harbour.move(task, T.CANCELLED)
    await harbour.replace_ended()
    assert await seen(harbour, limited) == ("FAILED", "time-limit")
    assert len(await harbour.tasks(limited, current=False)) == 1


@on_sqlite
async def test_a_deadline_that_was_moved_counts_as_it_is_now(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    await harbour.node("n1")
    limited = await job(harbour, "job", time_limit_seconds=1)
    [task] = await harbour.run(limited)
    await move_deadline(harbour, task, HOUR)
    clock.at = task.deadline_at
    assert not await loop.once()
    assert loop.alarm.wait_seconds(2 * HOUR) == HOUR


@on_sqlite
async def test_a_replica_that_reached_its_limit_is_replaced(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    await harbour.node("n1")
    service = await harbour.set(await harbour.submit("web"), time_limit_seconds=1)
    [task] = await harbour.run(service)
    clock.at = task.deadline_at
    await loop.once()
    await harbour.move(task, T.CANCELLED)
    await harbour.replace_ended()
    assert [(t.attempt, t.status) for t in await harbour.tasks(service)] == [(2, "PENDING")]


@on_sqlite
async def test_each_index_of_an_array_has_its_own_deadline(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    await harbour.node("n1")
    array = await harbour.submit("array", kind=Kind.SESSION, replicas=2)
    await harbour.set(array, array={"first": 0, "step": 1}, time_limit_seconds=HOUR)
    first, second = await harbour.run(array)
    assert second.deadline_at > first.deadline_at
    clock.at = first.deadline_at
    await loop.once()
    await harbour.move(first, T.CANCELLED)
    assert await harbour.statuses(array) == ["FAILED", "RUNNING"]
    assert (await harbour.workload(array)).status == "RUNNING"


@on_sqlite
async def test_the_agent_is_told_when_to_warn_and_when_that_moves(harbour: Harbour):
    node_id = await harbour.node("n1")
    limited = await job(harbour, "job", time_limit_seconds=HOUR, warning_signal="USR1", warning_seconds=300)
    [task] = await harbour.run(limited)
    await job(harbour, "unwarned", time_limit_seconds=HOUR)
    await harbour.run(limited)
    told: asyncio.Queue[FromServer] = asyncio.Queue()
    session = AgentSession(node_id, "n1", harbour.pool.id, "", told.put, protocol=OLDEST_PROTOCOL)
    sending = asyncio.create_task(AgentHub(harbour.database, Signal()).keep_informed(session))
    for seconds in (0, 60):
        await move_deadline(harbour, task, seconds)
        session.wake()
        desired = await told.get()
        assert isinstance(desired, Desired)
        at = (task.deadline_at + timedelta(seconds=seconds - 300)).timestamp()
        assert [order.warning for order in desired.tasks] == [EndWarning(at=at, signal="USR1"), None]
    sending.cancel()


# --- waiting too long ---


@pytest.fixture
def timeout(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> int:
    """The pool's, in seconds."""
    policy = PoolPolicy("locality", pending_timeout_seconds=60)
    pool = pools.Pool(harbour.pool.id, "default", policy, frozenset({"process"}), simulated=False)

    async def all_pools(_: Any) -> list[pools.Pool]:
        return [pool]

    monkeypatch.setattr(pools, "all_pools", all_pools)
    return 60


def _expired() -> float:
    return metrics.registry.get_sample_value("mooring_workloads_ended_total", {"status": "EXPIRED"}) or 0


async def test_what_never_had_a_place_expires(harbour: Harbour, loop: LimitsLoop, clock: Clock, timeout: int):
    node_id = await harbour.node("n1", cpu=1)
    runs, waits = await job(harbour, "runs"), await job(harbour, "waits")
    service = await harbour.submit("service")
    before = await harbour.run(runs)
    await harbour.move(before[0], T.LOST, freed=True)
    await harbour.replace_ended()
    # It had a place once: its wait is another.
    assert await seen(harbour, runs) == ("PENDING", None)

    clock.at = (await harbour.workload(waits)).created_at + timedelta(seconds=timeout - 0.25)
    assert not await loop.once()
    assert loop.alarm.wait_seconds(30) == pytest.approx(0.25)
    clock.pass_seconds(timeout)
    counted = _expired()
    assert await loop.once()
    assert _expired() == counted + 2
    for workload_id in (waits, service):
        assert await seen(harbour, workload_id) == ("EXPIRED", "pending-timeout")
        assert await harbour.statuses(workload_id) == ["CANCELLED"]
    assert (await harbour.workload(runs)).status == "PENDING"
    assert not await loop.once()
    assert await harbour.counters(node_id) == (0, 0, 0)
    assert await harbour.findings() == []


@on_sqlite
async def test_who_asked_for_a_later_start_waits_from_then_on(
    harbour: Harbour, loop: LimitsLoop, clock: Clock, timeout: int
):
    later = await job(harbour, "later", starts_at=clock() + timedelta(seconds=HOUR))
    clock.pass_seconds(HOUR + timeout - 1)
    assert not await loop.once()
    clock.pass_seconds(1)
    assert await loop.once()
    assert await seen(harbour, later) == ("EXPIRED", "pending-timeout")


@on_sqlite
async def test_without_a_timeout_nothing_expires(harbour: Harbour, loop: LimitsLoop, clock: Clock):
    waits = await job(harbour, "waits")
    clock.pass_seconds(1000 * HOUR)
    assert not await loop.once()
    assert await seen(harbour, waits) == ("PENDING", None)


# --- waiting in vain ---


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
    harbour: Harbour, loop: LimitsLoop, condition: str, end: TaskStatus, expected: str
):
    await harbour.node("n1")
    first = await job(harbour, "first")
    [task] = await harbour.run(first)
    second = await job(harbour, "second")
    await depends(harbour, second, first, condition)
    assert not await loop.once()
    await harbour.move(task, end)
    assert await loop.once() is (expected == "CANCELLED")
    assert (await harbour.workload(second)).status == expected


async def test_dependents_of_dependents_follow_and_the_reason_names_the_first(harbour: Harbour, loop: LimitsLoop):
    await harbour.node("n1")
    first = await job(harbour, "first")
    [task] = await harbour.run(first)
    second, third = await job(harbour, "second"), await job(harbour, "third")
    patient = await job(harbour, "patient", on_dependency_failure="wait")
    await depends(harbour, second, first)
    await depends(harbour, third, second)
    await depends(harbour, patient, first)
    await harbour.move(task, T.FAILED)
    while await loop.once():
        pass
    assert await seen(harbour, second) == ("CANCELLED", "dependency-failed")
    assert (await harbour.workload(second)).reason["message"] == (
        "It was to run if 'first' would succeed; that one is failed"
    )
    assert await seen(harbour, third) == ("CANCELLED", "dependency-failed")
    assert "'second'" in (await harbour.workload(third)).reason["message"]
    assert (await harbour.workload(patient)).status == "PENDING"
    assert await harbour.findings() == []


async def test_the_mirror_reads_those_again_who_waited_for_an_end(harbour: Harbour):
    await harbour.node("n1")
    first = await job(harbour, "first", singleton="turn")
    [task] = await harbour.run(first)
    second, next_turn = await job(harbour, "second"), await job(harbour, "next", singleton="turn")
    await job(harbour, "other", singleton="another")
    await depends(harbour, second, first)
    mirror = Mirror(harbour.database)
    await mirror.load()
    mirror.news()
    await harbour.move(task, T.SUCCEEDED)
    await mirror.follow()
    assert mirror.news().keys() == {first, second, next_turn}
    assert await differences(mirror, harbour.database) == []
