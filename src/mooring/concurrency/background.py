"""Background tasks under supervision: a task that fails or ends is logged, counted and started again.

A task that lives as long as its process, or as a connection, is started here and not with `asyncio.create_task`, whose
tasks end without a trace when they raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import structlog

from mooring.clock import monotonic, now
from mooring.concurrency import backoff
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
R = TypeVar("R")
Work = Callable[[], Awaitable[None]]
Status = Literal["running", "restarting", "failing"]
_FIRST_SECONDS, _MAX_SECONDS = 0.5, 30.0
_STEADY_SECONDS = 10.0
"""A task that has run for this long since its last failure is well."""
_FAILING_AFTER = 3
"""Failures in a row, none of which was followed by a steady run."""
_CANCELLED_SECONDS = 5.0
_MAX_ERROR_LENGTH = 300


@dataclass(slots=True)
class BackgroundTask:
    """The state of one task, kept current by its supervisor."""

    name: str
    essential: bool
    """The process does not do its work without it."""
    started_at: datetime | None = None
    failures: int = 0
    error: str | None = None
    """The last failure."""
    failed_at: datetime | None = None
    _in_a_row: int = 0
    _began: float | None = None

    @property
    def status(self) -> Status:
        if not self._in_a_row or self.is_steady:
            return "running"
        return "failing" if self._in_a_row >= _FAILING_AFTER else "restarting"

    @property
    def is_steady(self) -> bool:
        return self._began is not None and monotonic() - self._began > _STEADY_SECONDS

    def began(self) -> None:
        self.started_at, self._began = now(), monotonic()

    def failed(self, error: str) -> None:
        self._in_a_row = 1 if self.is_steady else self._in_a_row + 1
        self._began = None
        self.failures += 1
        self.error, self.failed_at = error, now()


class BackgroundTasks:
    """The tasks of one scope: a process or a connection."""

    def __init__(self) -> None:
        self._states: dict[str, BackgroundTask] = {}
        self._supervisors: list[asyncio.Task[None]] = []
        self._fatal: asyncio.Future[None] | None = None

    @property
    def states(self) -> list[BackgroundTask]:
        return list(self._states.values())

    def start(
        self, name: str, work: Work, *, essential: bool = True, fatal: tuple[type[Exception], ...] = ()
    ) -> BackgroundTask:
        """Run `work` until `close`, again after every end. An error of a `fatal` type ends the scope in its place."""
        state = self._states[name] = BackgroundTask(name, essential)
        self._supervisors.append(asyncio.create_task(self._supervise(state, work, fatal), name=f"supervisor of {name}"))
        return state

    async def run_with(self, main: Coroutine[Any, Any, R]) -> R:
        """Run `main` while the tasks run; a fatal error of a task cancels it, and is raised."""
        running = asyncio.ensure_future(main)
        self._fatal = fatal = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait({running, fatal}, return_when=asyncio.FIRST_COMPLETED)
            if fatal.done():
                fatal.result()
            return running.result()
        finally:
            fatal.cancel()
            await _end(running)

    async def close(self) -> None:
        """End all tasks, the last one first."""
        while self._supervisors:
            await _end(self._supervisors.pop())
        self._states.clear()
        self._fatal = None

    async def _supervise(self, state: BackgroundTask, work: Work, fatal: tuple[type[Exception], ...]) -> None:
        delays = backoff.delays(_FIRST_SECONDS, _MAX_SECONDS)
        while True:
            state.began()
            # In a task of its own: a cancellation from outside is a failure as well.
            running = asyncio.ensure_future(_called(work))
            try:
                await asyncio.wait({running})
            finally:
                await _end(running)
            error = None if running.cancelled() else running.exception()
            if isinstance(error, fatal) and self._fatal is not None:
                if not self._fatal.done():
                    self._fatal.set_exception(error)
                # Otherwise the scope ends already, and with it what the task needs.
                return
            if state.is_steady:
                delays = backoff.delays(_FIRST_SECONDS, _MAX_SECONDS)
            state.failed(_in_short(error, cancelled=running.cancelled()))
            metrics.background_failures.labels(state.name).inc()
            pause = next(delays)
            _log.error(
                f"Background task {state.name} ended; restarting in {pause:.1f} s",
                reason=state.error,
                exc_info=error,
            )
            await asyncio.sleep(pause)


async def _called(work: Work) -> None:
    await work()


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel until it has ended: an error at the very moment of a cancellation may have covered it."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait([task], timeout=_CANCELLED_SECONDS)
        except asyncio.CancelledError as error:
            # The caller may be cancelled as well, and must not leave the task behind.
            cancelled = error
    if not task.cancelled():
        task.exception()
    if cancelled is not None:
        raise cancelled


def _in_short(error: BaseException | None, *, cancelled: bool) -> str:
    """The first line of an error: below it a database shows the values of rows, and everyone may read this."""
    if error is None:
        return "it was cancelled" if cancelled else "it returned"
    return f"{type(error).__name__}: {error}".partition("\n")[0][:_MAX_ERROR_LENGTH]
