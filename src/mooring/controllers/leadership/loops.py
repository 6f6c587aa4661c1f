"""Supervised loops: woken by a signal or a timer, surviving their own exceptions, saying what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Literal

import structlog

from mooring import metrics
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.loops import LoopState

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn came to; it is true while there is more to do at once.

    Loops whose work is due by time answer with a bool alone: no signal announces anything to them.
    """

    more: bool
    announced: bool = False
    """It found work that a signal announces: one was lost if the timer had to start the turn."""
    overlooked: bool = False
    """It found work to which only a look at everything leads, whatever started the turn."""

    def __bool__(self) -> bool:
        return self.more


Work = Callable[[], Awaitable[Turn | bool]]


class Alarm:
    """When a loop has to look again at the latest, as it found at its last look."""

    def __init__(self) -> None:
        self.at: datetime | None = None

    def set(self, *moments: datetime | None) -> None:
        """To the first of these moments."""
        self.at = min((moment for moment in moments if moment is not None), default=None)

    def wait_seconds(self, longest: float) -> float:
        """How long the loop may sleep: until the timer, or until the next thing that is due by time."""
        if self.at is None:
            return longest
        return max(0.01, min(longest, (self.at - now()).total_seconds()))


async def keep_running(
    work: Work, signal: Signal, *, interval: Callable[[], float], state: LoopState, pause_seconds: float = 0.0
) -> None:
    """Call `work` on every signal and at least every `interval`; again at once while it says that there is more.

    `pause_seconds`: the least time between two signalled turns, so that a burst of commits is one turn; what is due by
    time waits for no pause.
    LeadershipLost ends the loop; any other exception is logged, counted and waited out.
    """
    pause = _FIRST_PAUSE_SECONDS
    seen = signal.count
    timed = False
    while True:
        state.last_run_at, began = now(), perf_counter()
        try:
            turn = await work()
        except LeadershipLost:
            raise
        except Exception as error:
            _ended(state, "failed", began, _in_short(error))
            _log.exception(f"Loop {state.name} failed; it goes on in {pause:g} s")
            await _rest(state, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            timed = False
            continue
        _ended(state, "ok", began)
        _count_found(state, turn, timed)
        pause = _FIRST_PAUSE_SECONDS
        timed = False
        if turn:
            await asyncio.sleep(0)
            continue
        if pause_seconds:
            await asyncio.sleep(min(pause_seconds, interval()))
        seconds = interval()
        state.next_run_at = now() + timedelta(seconds=seconds)
        before, seen = seen, await signal.wait(seconds, seen)
        timed = seen == before


async def _rest(state: LoopState, seconds: float) -> None:
    state.next_run_at = now() + timedelta(seconds=seconds)
    await asyncio.sleep(seconds)


def _ended(state: LoopState, outcome: Literal["ok", "failed"], began: float, error: str | None = None) -> None:
    state.duration_seconds = perf_counter() - began
    state.outcome, state.error = outcome, error
    state.runs += 1
    metrics.loop_runs.labels(state.name, outcome).inc()
    metrics.loop_seconds.labels(state.name).observe(state.duration_seconds)
    if error is None:
        metrics.loop_success.labels(state.name).set_to_current_time()
    else:
        state.failures += 1


def _in_short(error: Exception) -> str:
    """Its first line: everybody may read it, and what a database adds below has the values of rows in it."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _count_found(state: LoopState, turn: Turn | bool, timed: bool) -> None:
    if isinstance(turn, Turn) and (turn.overlooked or (timed and turn.announced)):
        state.found_by_timer += 1
        metrics.found_by_timer.labels(state.name).inc()
