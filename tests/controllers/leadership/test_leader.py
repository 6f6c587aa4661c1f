"""The leader as a whole: it begins a term, works, and says what is wrong when it cannot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from mooring.clock import now
from mooring.controllers.leadership.leader import Leader
from mooring.controllers.leadership.loop_reports import ReportLoop
from mooring.controllers.leadership.loops import Iteration, Work, keep_running
from mooring.controllers.upkeep.retention import Retention, RetentionLoop
from mooring.coordination.election import Alone, Claim, Election, Lease
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.loops import LoopState
from mooring.model.nodes.heartbeats import Pace
from mooring.store.control import events, loops
from mooring.store.control.loops import LoopReport
from mooring.store.core.engine import Database
from mooring.store.core.ids import new_id
from mooring.store.tables import events as events_table
from mooring.store.tables import workloads
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


def leader_of(database: Database, signal: Signal, election: Election | None = None) -> Leader:
    database.on_commit.append(signal.send)
    return Leader(
        database, signal, "me", election or Alone(), reconcile_interval=3600, pace=Pace(), retention=Retention()
    )


@asynccontextmanager
async def leading(leader: Leader) -> AsyncIterator[None]:
    running = asyncio.create_task(leader.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(signal: Signal, condition: Callable[[], Awaitable[bool]]) -> None:
    seen = signal.count
    while not await condition():
        seen = await signal.wait(0.05, seen)


async def settled(leader: Leader) -> bool:
    """Whether every loop that signals start waits for the next one."""
    before = {loop.name: loop.runs for loop in leader.loops}
    await asyncio.sleep(0.5)
    return before == {loop.name: loop.runs for loop in leader.loops}


async def test_a_leader_brings_work_from_its_submission_to_running(harness: Harness):
    signal = Signal()
    leader = leader_of(harness.database, signal)
    assert (leader.role, leader.problem) == ("standby", "not started yet")
    leading = asyncio.create_task(leader.run())
    await harness.node("sim", simulated=True)
    workload_id = await harness.submit("web", replicas=2)

    async def runs() -> bool:
        return await harness.statuses(workload_id) == ["RUNNING", "RUNNING"]

    await until(signal, runs)
    assert (leader.role, leader.problem) == ("leader", None)
    names = {"scheduling", "holds", "lifecycle", "simulation", "nodes", "draining", "suspicion", "limits"}
    names |= {
        "accounting",
        "demand",
        "retention",
        "quarantine",
        "reports",
        "scaling",
        "deliveries",
        "timeslots",
        "rollouts",
        "idleness",
        "estimates",
        "defragmentation",
    }
    if harness.database.dialect == "postgresql":
        names.add("statistics")
    assert {loop.name: loop.error for loop in leader.loops} == dict.fromkeys(names)
    assert {loop.found_by_timer for loop in leader.loops} == {0}
    later = {loop.name for loop in leader.loops if loop.last_run_at is None}
    assert {"accounting", "retention"} <= later, "what goes through whole tables would hold up the first placements"
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert (leader.role, leader.problem) == ("standby", "stopped")
    assert await harness.findings() == []


@on_sqlite
async def test_a_deposed_leader_stops_and_names_the_new_one(harness: Harness):
    signal = Signal()
    leader = leader_of(harness.database, signal)
    leading = asyncio.create_task(leader.run())
    await harness.node("sim", simulated=True)
    first = await harness.submit("first")

    async def runs() -> bool:
        return await harness.statuses(first) == ["RUNNING"]

    await until(signal, runs)
    await harness.start_term("newer")
    second = await harness.submit("second")
    await leading
    assert leader.role == "standby"
    assert leader.problem is not None
    assert "held by newer" in leader.problem
    assert await harness.statuses(second) == ["PENDING"]


class OnlyLease:
    """An election without other candidates that records when the lease is taken and released."""

    standbys = True
    outage = None

    def __init__(self, ttl: float = 60.0) -> None:
        self._ttl = ttl
        self.taken, self.returned = asyncio.Event(), asyncio.Event()

    async def campaign(self) -> Lease:
        self.taken.set()
        return Lease(Claim("test"), ttl=self._ttl, renew=self._renew, release=self._release)

    async def close(self) -> None:
        return None

    async def _renew(self) -> bool:
        return True

    async def _release(self, _reason: str) -> None:
        self.returned.set()


@on_sqlite
async def test_a_server_that_cannot_reach_the_database_releases_the_lease_and_takes_none(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    reachable = asyncio.Event()
    tried = asyncio.Queue[bool]()

    async def ping() -> None:
        tried.put_nowait(reachable.is_set())
        if not reachable.is_set():
            raise ConnectionError("nobody answers")

    monkeypatch.setattr(harness.database, "ping", ping)
    monkeypatch.setattr("mooring.controllers.leadership.leader._REACH_AGAIN_SECONDS", 0.01)
    lease = OnlyLease(ttl=0.5)
    leading = asyncio.create_task(leader_of(harness.database, Signal(), lease).run())
    async with asyncio.timeout(60):
        for _ in range(3):
            assert not await tried.get()
        assert not lease.taken.is_set()
        reachable.set()
        await lease.taken.wait()
        lease.taken.clear()
        reachable.clear()
        await lease.returned.wait()
        while not tried.empty():
            tried.get_nowait()
        for _ in range(3):
            assert not await tried.get()
        assert not lease.taken.is_set()
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_a_leader_that_cannot_start_says_why_and_tries_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}")
    leader = leader_of(database, Signal())
    problems: list[str | None] = []

    async def pause(seconds: float) -> None:
        problems.append(leader.problem)
        assert leader.role == "standby"
        if len(problems) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("mooring.controllers.leadership.leader.asyncio.sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await leader.run()
    await database.close()
    assert len(problems) == 2
    assert all(problem and "no such table" in problem for problem in problems)


@on_sqlite
@pytest.mark.parametrize(
    ("error", "with_traceback"), [(ConnectionResetError("the database left"), False), (RuntimeError("no view"), True)]
)
async def test_a_traceback_is_logged_only_where_the_error_is_not_the_databases_absence(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, error: Exception, with_traceback: bool
):
    lease = OnlyLease()
    leader = leader_of(harness.database, Signal(), lease)

    async def take_over() -> None:
        raise error

    monkeypatch.setattr(leader.scheduling, "take_over", take_over)
    monkeypatch.setattr("mooring.controllers.leadership.leader._START_AGAIN_SECONDS", 3600)
    with capture_logs() as logged:
        async with leading(leader):
            await asyncio.wait_for(lease.returned.wait(), timeout=30)
    (failed,) = [line for line in logged if line["event"] == "Scheduler initialization failed"]
    assert (str(error) in failed["reason"], failed["exc_info"] is not None) == (True, with_traceback)


@on_sqlite
async def test_a_leader_that_cannot_start_releases_the_lease_before_it_tries_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    lease = OnlyLease()
    leader = leader_of(harness.database, Signal(), lease)

    async def take_over() -> None:
        raise RuntimeError("no view")

    monkeypatch.setattr(leader.scheduling, "take_over", take_over)
    monkeypatch.setattr("mooring.controllers.leadership.leader._START_AGAIN_SECONDS", 3600)
    leading = asyncio.create_task(leader.run())
    await asyncio.wait_for(lease.returned.wait(), timeout=30)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


@on_sqlite
async def test_old_events_are_forgotten_by_the_leader_alone(harness: Harness):
    old = now() - timedelta(hours=25)
    await harness.database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "old")], old))

    async def kinds() -> int:
        query = select(func.count()).select_from(events_table).where(events_table.c.kind == "old")
        return int((await harness.rows(query))[0][0])

    assert await kinds() == 1
    loop = RetentionLoop(harness.fenced, Retention())
    assert [await loop.once(), await loop.once()] == [True, False]
    assert await kinds() == 0


async def test_loop_reports_send_no_signal(harness: Harness):
    notified = Signal()
    harness.database.on_commit.append(notified.send)
    state = LoopState("scheduling", last_run_at=now(), duration_seconds=0.25, outcome="failed", error="Odd", runs=3)
    for states in ([state, LoopState("audit")], [state]):
        await ReportLoop(harness.fenced, states).once()
    async with harness.database.read() as connection:
        assert await loops.reported(connection) == [
            LoopReport(harness.leadership.holder, harness.leadership.term, state)
        ]
    # The loops would turn because they turned.
    assert notified.count == 0


@on_sqlite
async def test_a_report_of_a_former_leader_is_not_written(harness: Harness):
    reports = ReportLoop(harness.fenced, [LoopState("scheduling")])
    await harness.start_term("newer")
    with pytest.raises(LeadershipLost):
        await reports.once()
    async with harness.database.read() as connection:
        assert await loops.reported(connection) == []


async def test_work_whose_signal_was_lost_is_found_by_the_timer_and_counted(harness: Harness):
    committed = Signal()
    harness.database.on_commit.append(committed.send)
    # No signal reaches this leader, as if all were lost.
    leader = Leader(
        harness.database,
        Signal(),
        "me",
        Alone(),
        reconcile_interval=0.05,
        pace=Pace(),
        retention=Retention(),
    )
    async with leading(leader):
        await harness.node("sim", simulated=True)
        for name in ("first", "second"):
            workload_id = await harness.submit(name)

            async def runs(workload_id: UUID = workload_id) -> bool:
                return await harness.statuses(workload_id) == ["RUNNING"]

            await until(committed, runs)
        found = {loop.name: loop.found_by_timer for loop in leader.loops}
    assert found.pop("scheduling") >= 1
    assert found.pop("simulation") >= 1
    assert set(found.values()) == {0}


async def test_submissions_placements_and_starts_run_only_the_loops_that_they_concern(harness: Harness):
    signal = Signal()
    leader = leader_of(harness.database, signal)
    async with leading(leader):
        await harness.node("sim", simulated=True)

        async def bring_to_running(name: str) -> None:
            workload_id = await harness.submit(name)

            async def runs() -> bool:
                return await harness.statuses(workload_id) == ["RUNNING"]

            await until(signal, runs)

        await bring_to_running("first")
        # Every loop has run for the node, which concerns all of them.
        await until(signal, lambda: settled(leader))
        before = {loop.name: loop.runs for loop in leader.loops}
        for number in range(5):
            await bring_to_running(f"web-{number}")
        runs = {loop.name: loop.runs - before[loop.name] for loop in leader.loops}
    assert {name: runs[name] for name in ("holds", "lifecycle", "rollouts", "quarantine", "deliveries")} == {
        "holds": 0,
        "lifecycle": 0,
        "rollouts": 0,
        "quarantine": 0,
        "deliveries": 0,
    }
    assert runs["scheduling"] >= 5
    assert runs["simulation"] >= 5
    assert {loop.found_by_timer for loop in leader.loops} == {0}


async def test_a_full_pass_says_what_it_found(harness: Harness):
    signal = Signal()
    leader = leader_of(harness.database, signal)
    async with leading(leader):
        await harness.node("sim", simulated=True, cpu=2)
        for name in ("one", "two"):
            await harness.submit(name, cpu=2)

        async def full() -> bool:
            reasons = [row.reason for row in await harness.rows(select(workloads.c.reason))]
            return sum(reason is not None for reason in reasons) == 1

        await until(signal, full)
        found = await leader.run_pass()
        assert (found.placed, found.waiting, found.impossible) == (0, 1, 0)
        assert {loop.found_by_timer for loop in leader.loops} == {0}


async def test_a_leader_that_resigns_lets_the_others_go_first_and_may_lead_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.controllers.leadership.leader._FAIR_CHANCE_SECONDS", 0.01)
    signal = Signal()
    leader = leader_of(harness.database, signal)
    with pytest.raises(LeadershipLost):
        await leader.resign()
    async with leading(leader):

        async def leads() -> bool:
            return leader.leads and bool(leader.loops)

        await until(signal, leads)
        term = leader.leadership.term
        waiting = leader.scheduling.retry_all()
        await leader.resign()
        assert not leader.leads
        with pytest.raises(LeadershipLost):
            await waiting
        await until(signal, leads)
        assert leader.leadership.term > term


@on_sqlite
async def test_every_loop_continues_after_an_error_and_reports_it(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mooring.controllers.leadership.controller_manager._LATER_SECONDS", 0.0)
    monkeypatch.setattr("mooring.controllers.leadership.loops._FIRST_PAUSE_SECONDS", 0.01)
    really = keep_running

    async def failing_once(work: Work, *arguments: Any, **options: Any) -> None:
        errors = [RuntimeError("injected")]

        async def once() -> Iteration | bool:
            if errors:
                raise errors.pop()
            return await work()

        await really(once, *arguments, **options)

    monkeypatch.setattr("mooring.controllers.leadership.controller_manager.keep_running", failing_once)
    signal = Signal()
    leader = leader_of(harness.database, signal)
    async with leading(leader):

        async def recovered() -> bool:
            return bool(leader.loops) and all(loop.failures and loop.outcome == "ok" for loop in leader.loops)

        await until(signal, recovered)
        assert {loop.failures for loop in leader.loops} == {1}
        assert leader.leads
