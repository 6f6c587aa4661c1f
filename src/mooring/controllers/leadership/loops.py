"""Supervised loops: a signal or a timer starts an iteration; exceptions are survived, and outcomes recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Literal

import structlog

from mooring.clock import now
from mooring.concurrency import backoff
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.model.loops import LoopState
from mooring.store.core.engine import DISK_FULL, is_disk_full, is_temporary
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Iteration:
    """The result of an iteration; true while more work is ready.

    Loops whose work is due by time return a plain bool: no signal announces their work.
    """

    more: bool
    announced: bool = False
    """It found work that a signal announces. If the timer started the iteration, that signal was lost."""
    overlooked: bool = False
    """It found work that only a pass over everything detects, whatever started the iteration."""

    def __bool__(self) -> bool:
        return self.more


Work = Callable[[], Awaitable[Iteration | bool]]


class Alarm:
    """The latest time of a loop's next iteration, as its last iteration determined it."""

    def __init__(self) -> None:
        self.at: datetime | None = None

    def set(self, *moments: datetime | None) -> None:
        """Set the alarm to the earliest of these moments; clear it if there are none."""
        self.at = min((moment for moment in moments if moment is not None), default=None)

    def wait_seconds(self, max_seconds: float) -> float:
        """Return the seconds until the timer or the alarm, whichever comes first."""
        if self.at is None:
            return max_seconds
        return max(0.01, min(max_seconds, (self.at - now()).total_seconds()))


async def keep_running(
    work: Work, signal: Signal, *, interval: Callable[[], float], state: LoopState, pause_seconds: float = 0.0
) -> None:
    """Call `work` on every signal and at least every `interval`, and again at once while it reports more work.

    `pause_seconds`: the minimum time between two signalled iterations, so that a burst of commits costs one iteration.
    Work that is due by time is not delayed by it.
    LeadershipLost ends the loop. Any other exception is logged and counted, and the loop retries after a backoff.
    A temporary database error is logged once, without a traceback, until the loop succeeds again.
    """
    pauses = backoff.delays(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0)
    seen = signal.count
    timed = away = False
    while True:
        state.last_run_at, began = now(), perf_counter()
        try:
            iteration = await work()
        except LeadershipLost:
            raise
        except Exception as error:
            pause = next(pauses)
            why = DISK_FULL if is_disk_full(error) else _in_short(error)
            _ended(state, "failed", began, why)
            if not is_temporary(error) and not is_disk_full(error):
                _log.exception(f"Loop {state.name} failed; retrying in {pause:g} s")
            elif not away:
                away = True
                _log.warning(f"Loop {state.name} waits for the database", error=why)
            await _rest(state, pause)
            timed = False
            continue
        away = False
        _ended(state, "ok", began)
        _count_found(state, iteration, timed)
        pauses = backoff.delays(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, jitter=0)
        timed = False
        if iteration:
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
    """Return the first line of an error. Every user may read it, and the lines below may contain values of rows."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _count_found(state: LoopState, iteration: Iteration | bool, timed: bool) -> None:
    if isinstance(iteration, Iteration) and (iteration.overlooked or (timed and iteration.announced)):
        state.found_by_timer += 1
        metrics.found_by_timer.labels(state.name).inc()
