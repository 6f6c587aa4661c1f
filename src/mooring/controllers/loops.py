"""Supervised loops: woken by a signal or a timer, surviving their own exceptions, saying when they last ran."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from mooring import metrics
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class LoopState:
    name: str
    last_run_at: datetime | None = None
    error: str | None = None


async def keep_running(
    name: str,
    work: Callable[[], Awaitable[bool]],
    signal: Signal,
    *,
    interval: Callable[[], float],
    state: LoopState,
    pause_seconds: float = 0.0,
) -> None:
    """Call `work` on every signal and at least every `interval`; again at once while it returns True.

    `pause_seconds`: the least time between two signalled turns, so that a burst of commits is one turn.
    LeadershipLost ends the loop; any other exception is logged, counted and waited out.
    """
    pause = _FIRST_PAUSE_SECONDS
    seen = signal.count
    while True:
        try:
            again = await work()
            state.last_run_at, state.error = now(), None
            pause = _FIRST_PAUSE_SECONDS
        except LeadershipLost:
            raise
        except Exception as error:
            state.error = f"{type(error).__name__}: {error}"
            metrics.loop_failures.labels(name).inc()
            _log.exception(f"Loop {name} failed; it goes on in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            continue
        if again:
            await asyncio.sleep(0)
            continue
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
        seen = await signal.wait(interval(), seen)
