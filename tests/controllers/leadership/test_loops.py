"""Loops continue after their own errors, report their state, and end with the term."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from mooring.clock import now
from mooring.controllers.leadership.loops import Iteration, keep_running
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.loops import LoopState

DONE = LeadershipLost("the test is over")


class Script:
    """Work that does one thing after the other, and then loses its leadership."""

    def __init__(self, *steps: bool | Iteration | Exception | Callable[[], bool | Iteration]) -> None:
        self.steps = list(steps)
        self.iterations = 0

    async def __call__(self) -> bool | Iteration:
        self.iterations += 1
        if not self.steps:
            raise DONE
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Sleeping takes no time; how long it would have taken."""
    seconds: list[float] = []
    really: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def sleep(delay: float) -> None:
        seconds.append(delay)
        await really(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seconds


async def run(script: Script, *, signal: Signal | None = None, interval: float = 0.001, pause: float = 0) -> LoopState:
    state = LoopState("test")
    with pytest.raises(LeadershipLost):
        await keep_running(script, signal or Signal(), interval=lambda: interval, state=state, pause_seconds=pause)
    return state


async def test_a_loop_survives_exceptions_and_waits_longer_each_time(slept: list[float]):
    script = Script(*(ValueError(str(number)) for number in range(9)))
    state = await run(script)
    assert slept == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert (state.outcome, state.error) == ("failed", "ValueError: 8")
    assert (state.runs, state.failures) == (9, 9)


async def test_a_successful_iteration_clears_the_error(slept: list[float]):
    states: list[str | None] = []
    state = LoopState("test")

    def look() -> bool:
        states.append(state.error)
        return False

    script = Script(ValueError("once"), False, look, ValueError("again"))
    with pytest.raises(LeadershipLost):
        await keep_running(script, Signal(), interval=lambda: 0.001, state=state)
    assert states == [None]
    # The pause begins small again.
    assert [seconds for seconds in slept if seconds] == [0.5, 0.5]
    assert (state.runs, state.failures) == (4, 2)


async def test_losing_leadership_ends_the_loop_at_once(slept: list[float]):
    script = Script()
    await run(script)
    assert script.iterations == 1
    assert slept == []


async def test_there_is_no_pause_while_there_is_more_to_do(slept: list[float]):
    script = Script(True, True, True)
    await run(script, interval=3600)
    assert slept == [0, 0, 0]


async def test_a_signal_during_an_iteration_causes_another_iteration(slept: list[float]):
    signal = Signal()

    def commit() -> bool:
        signal.send()
        return False

    script = Script(commit)
    await run(script, signal=signal, interval=3600, pause=0.02)
    assert script.iterations == 2
    # A burst of commits is one turn.
    assert slept == [0.02]


async def test_without_a_signal_the_timer_starts_an_iteration():
    script = Script(False, False)
    await run(script, interval=0.001)
    assert script.iterations == 3


async def test_work_that_the_timer_finds_though_a_signal_announces_it_is_counted(slept: list[float]):
    found = Iteration(more=False, announced=True)
    # Not counted: the first iteration, and one that follows at once or after an error.
    script = Script(found, found, Iteration(more=True, announced=True), found, ValueError("once"), found)
    state = await run(script)
    assert state.found_by_timer == 2


async def test_work_that_was_signalled_or_became_due_is_not_counted(slept: list[float]):
    signal = Signal()

    def commit() -> Iteration:
        signal.send()
        return Iteration(more=False, announced=True)

    state = await run(Script(commit, commit, commit), signal=signal, interval=3600)
    assert state.found_by_timer == 0
    state = await run(Script(True, False, True, False))
    assert state.found_by_timer == 0


async def test_work_found_only_by_a_full_scan_counts_whatever_started_the_iteration():
    state = await run(Script(Iteration(more=False, overlooked=True)))
    assert state.found_by_timer == 1


async def test_a_loop_reports_its_last_run_its_duration_and_its_next_run():
    before = now()
    state = await run(Script(False), interval=0.001)
    assert state.outcome == "ok"
    assert state.last_run_at is not None
    assert state.last_run_at >= before
    assert state.duration_seconds is not None
    assert state.next_run_at is not None
    assert state.next_run_at > before


async def test_an_error_is_reported_without_row_values(slept: list[float]):
    state = await run(Script(ValueError("duplicate key\n[parameters: ('a secret',)]")))
    assert state.error == "ValueError: duplicate key"


async def test_a_database_that_is_away_is_logged_once_and_without_a_traceback(slept: list[float]):
    gone = ConnectionResetError("gone")
    with capture_logs() as logged:
        state = await run(Script(gone, gone, gone, False, gone))
    assert state.failures == 4
    assert [entry["event"] for entry in logged] == ["Loop test waits for the database"] * 2
    assert not any(entry.get("exc_info") for entry in logged)
