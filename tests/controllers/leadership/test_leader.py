"""The leader as a whole: it takes office, works, and says what is wrong when it cannot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring.clock import now
from mooring.controllers.leader import Leader
from mooring.controllers.reports import ReportLoop
from mooring.controllers.retention import Retention, RetentionLoop
from mooring.coordination.election import Alone, Claim, Election, Seat
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.heartbeats import Pace
from mooring.model.loops import LoopState
from mooring.store import events, loops
from mooring.store.engine import Database
from mooring.store.ids import new_id
from mooring.store.loops import LoopReport
from mooring.store.tables import events as events_table
from mooring.store.tables import workloads
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


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


async def test_a_leader_brings_work_from_its_submission_to_running(harbour: Harbour):
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    assert (leader.role, leader.problem) == ("standby", "not started yet")
    leading = asyncio.create_task(leader.run())
    await harbour.node("sim", simulated=True)
    workload_id = await harbour.submit("web", replicas=2)

    async def runs() -> bool:
        return await harbour.statuses(workload_id) == ["RUNNING", "RUNNING"]

    await until(signal, runs)
    assert (leader.role, leader.problem) == ("leader", None)
    names = {"scheduling", "holds", "lifecycle", "simulation", "nodes", "draining", "suspicion", "limits"}
    names |= {
        "accounting",
        "retention",
        "quarantine",
        "reports",
        "scaling",
        "deliveries",
        "timeslots",
        "rollouts",
        "idleness",
    }
    assert {loop.name: loop.error for loop in leader.loops} == dict.fromkeys(names)
    assert {loop.found_by_timer for loop in leader.loops} == {0}
    later = {loop.name for loop in leader.loops if loop.last_run_at is None}
    assert {"accounting", "retention"} <= later, "what goes through whole tables would hold up the first placements"
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert (leader.role, leader.problem) == ("standby", "stopped")
    assert await harbour.findings() == []


@on_sqlite
async def test_a_leader_that_is_deposed_ends_and_says_who_leads(harbour: Harbour):
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    leading = asyncio.create_task(leader.run())
    await harbour.node("sim", simulated=True)
    first = await harbour.submit("first")

    async def runs() -> bool:
        return await harbour.statuses(first) == ["RUNNING"]

    await until(signal, runs)
    await harbour.take_office("newer")
    second = await harbour.submit("second")
    await leading
    assert leader.role == "standby"
    assert leader.problem is not None
    assert "held by newer" in leader.problem
    assert await harbour.statuses(second) == ["PENDING"]


class OnlySeat:
    """An election that nobody else stands in; it tells when the seat was taken and given back."""

    standbys = True

    def __init__(self) -> None:
        self.taken, self.returned = asyncio.Event(), asyncio.Event()

    async def campaign(self) -> Seat:
        self.taken.set()
        return Seat(Claim("test"), ttl=0.5, renew=self._renew, release=self._release)

    async def close(self) -> None:
        return None

    async def _renew(self) -> bool:
        return True

    async def _release(self) -> None:
        self.returned.set()


@on_sqlite
async def test_who_cannot_reach_the_database_gives_the_seat_back_and_takes_none(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
):
    reachable = asyncio.Event()
    tried = asyncio.Queue[bool]()

    async def reach() -> None:
        tried.put_nowait(reachable.is_set())
        if not reachable.is_set():
            raise ConnectionError("nobody answers")

    monkeypatch.setattr(harbour.database, "reach", reach)
    monkeypatch.setattr("mooring.controllers.leader._REACH_AGAIN_SECONDS", 0.01)
    seat = OnlySeat()
    leading = asyncio.create_task(leader_of(harbour.database, Signal(), seat).run())
    async with asyncio.timeout(60):
        for _ in range(3):
            assert not await tried.get()
        assert not seat.taken.is_set()
        reachable.set()
        await seat.taken.wait()
        seat.taken.clear()
        reachable.clear()
        await seat.returned.wait()
        while not tried.empty():
            tried.get_nowait()
        for _ in range(3):
            assert not await tried.get()
        assert not seat.taken.is_set()
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

    monkeypatch.setattr("mooring.controllers.leader.asyncio.sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await leader.run()
    await database.close()
    assert len(problems) == 2
    assert all(problem and "no such table" in problem for problem in problems)


@on_sqlite
async def test_a_leader_that_cannot_start_gives_the_seat_back_before_it_tries_again(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
):
    seat = OnlySeat()
    leader = leader_of(harbour.database, Signal(), seat)

    async def take_over() -> None:
        raise RuntimeError("no view")

    monkeypatch.setattr(leader.scheduling, "take_over", take_over)
    monkeypatch.setattr("mooring.controllers.leader._START_AGAIN_SECONDS", 3600)
    leading = asyncio.create_task(leader.run())
    await asyncio.wait_for(seat.returned.wait(), timeout=30)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


@on_sqlite
async def test_old_events_are_forgotten_by_the_leader_alone(harbour: Harbour):
    old = now() - timedelta(hours=25)
    await harbour.database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "old")], old))

    async def kinds() -> int:
        query = select(func.count()).select_from(events_table).where(events_table.c.kind == "old")
        return int((await harbour.rows(query))[0][0])

    assert await kinds() == 1
    loop = RetentionLoop(harbour.database, harbour.office, Retention())
    assert [await loop.once(), await loop.once()] == [True, False]
    assert await kinds() == 0


async def test_what_the_loops_do_is_reported_without_waking_anybody(harbour: Harbour):
    woken = Signal()
    harbour.database.on_commit.append(woken.send)
    state = LoopState("scheduling", last_run_at=now(), duration_seconds=0.25, outcome="failed", error="Odd", runs=3)
    office = harbour.office
    for states in ([state, LoopState("audit")], [state]):
        await ReportLoop(harbour.database, office, states).once()
    async with harbour.database.read() as connection:
        assert await loops.reported(connection) == [LoopReport(office.holder, office.term, state)]
    # The loops would turn because they turned.
    assert woken.count == 0


@on_sqlite
async def test_a_report_of_a_former_leader_is_not_written(harbour: Harbour):
    reports = ReportLoop(harbour.database, harbour.office, [LoopState("scheduling")])
    await harbour.take_office("newer")
    with pytest.raises(LeadershipLost):
        await reports.once()
    async with harbour.database.read() as connection:
        assert await loops.reported(connection) == []


async def test_work_whose_signal_was_lost_is_found_by_the_timer_and_counted(harbour: Harbour):
    committed = Signal()
    harbour.database.on_commit.append(committed.send)
    # Nothing wakes this leader, as if every signal was lost.
    leader = Leader(
        harbour.database,
        Signal(),
        "me",
        Alone(),
        reconcile_interval=0.05,
        pace=Pace(),
        retention=Retention(),
    )
    async with leading(leader):
        await harbour.node("sim", simulated=True)
        for name in ("first", "second"):
            workload_id = await harbour.submit(name)

            async def runs(workload_id: UUID = workload_id) -> bool:
                return await harbour.statuses(workload_id) == ["RUNNING"]

            await until(committed, runs)
        found = {loop.name: loop.found_by_timer for loop in leader.loops}
    assert found.pop("scheduling") >= 1
    assert found.pop("simulation") >= 1
    assert set(found.values()) == {0}


async def test_a_full_pass_says_what_it_found(harbour: Harbour):
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    async with leading(leader):
        await harbour.node("sim", simulated=True, cpu=2)
        for name in ("one", "two"):
            await harbour.submit(name, cpu=2)

        async def full() -> bool:
            reasons = [row.reason for row in await harbour.rows(select(workloads.c.reason))]
            return sum(reason is not None for reason in reasons) == 1

        await until(signal, full)
        found = await leader.run_pass()
        assert (found.placed, found.waiting, found.impossible) == (0, 1, 0)
        assert {loop.found_by_timer for loop in leader.loops} == {0}


async def test_a_leader_that_resigns_lets_the_others_go_first_and_may_lead_again(
    harbour: Harbour, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.controllers.leader._FAIR_CHANCE_SECONDS", 0.01)
    signal = Signal()
    leader = leader_of(harbour.database, signal)
    with pytest.raises(LeadershipLost):
        await leader.resign()
    async with leading(leader):

        async def leads() -> bool:
            return leader.leads and bool(leader.loops)

        await until(signal, leads)
        term = leader.office.term
        waiting = leader.scheduling.ask_for_all()
        await leader.resign()
        assert not leader.leads
        with pytest.raises(LeadershipLost):
            await waiting
        await until(signal, leads)
        assert leader.office.term > term
