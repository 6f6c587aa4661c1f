"""An event loop with virtual time and no parallelism: the same program takes the same steps each time.

Time jumps to the next timer when nothing else is left to do. What runs belongs to a simulated process, which can be
frozen (its steps wait) or dead (its steps never come).
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_STEPS_AT_ONE_TIME = 200_000
_process: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """One process of a machine, with all its asyncio tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.missed: deque[asyncio.Handle] = deque()
        """Steps that arrived while it was frozen. It runs them in order, however often it freezes meanwhile."""
        self.on_death: list[Callable[[], None]] = []
        self._context = copy_context()
        self._context.run(_process.set, self)

    def start(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Create a task of this process."""
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        task.add_done_callback(_tell_failure)
        return task

    def call_later(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_later(seconds, what, *arguments, context=self._context.copy())

    def kill(self) -> None:
        """Kill the process: it takes no further step, not even for cleanup."""
        if self.alive:
            self.alive = False
            for tell in self.on_death:
                tell()

    def freeze(self, seconds: float) -> None:
        """Freeze the process, as when it gets no CPU time. Afterwards only the clock shows it."""
        self.frozen_until = max(self.frozen_until, asyncio.get_running_loop().time() + seconds)


def _tell_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a process failed", "exception": error})


def running_process() -> Process:
    found = _process.get()
    assert found is not None
    return found


class _Future(asyncio.Future[Any]):
    """A future whose hash is its number, so that iterating over sets does not depend on memory addresses."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    def __init__(self, number: int, work: Any, **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self._time = 0.0
        self._numbers = count()
        self._ready: deque[tuple[asyncio.Handle, Process | None]] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle, Process | None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._never: list[asyncio.Handle] = []
        """Steps of dead processes."""
        self.stopping = False
        """True once the simulation is over and the remaining tasks are only released."""
        self.failures: list[str] = []
        """Exceptions that nothing else handled."""

    # --- the clock (`mooring.clock.Clock`) ---

    def time(self) -> float:
        return self._time

    def monotonic(self) -> float:
        return self._time

    def now(self) -> datetime:
        return _BEGINNING + timedelta(seconds=self._time)

    # --- running ---

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine to its end, then end all remaining tasks."""
        asyncio._set_running_loop(self)
        try:
            main: asyncio.Task[R] = self.create_task(work)
            try:
                self._run_until(main.done)
                return main.result()
            finally:
                self._end()
        finally:
            asyncio._set_running_loop(None)

    def _run_until(self, done: Callable[[], bool]) -> None:
        steps = 0
        while not done():
            if self._ready:
                handle, process = self._ready.popleft()
                self._step(handle, process)
                steps += 1
                assert steps < _MAX_STEPS_AT_ONE_TIME, f"something spins at {self._time:.3f}"
            else:
                assert self._timers, f"everything waits for something that never comes at {self._time:.3f}"
                when, _, handle, process = heapq.heappop(self._timers)
                if when > self._time:
                    self._time, steps = when, 0
                # One at a time: all its consequences at this time run before the next one.
                self._ready.append((handle, process))

    def _step(self, handle: asyncio.Handle, process: Process | None) -> None:
        if handle.cancelled():
            return
        if process is not None and not self.stopping:
            if not process.alive:
                self._never.append(handle)
                return
            if process.frozen_until > self._time or process.missed:
                self._miss(handle, process)
                return
        handle._run()

    def _miss(self, handle: asyncio.Handle, process: Process) -> None:
        if not process.missed:
            self.call_at(process.frozen_until, self._thaw, process, context=Context())
        process.missed.append(handle)

    def _thaw(self, process: Process) -> None:
        if process.frozen_until > self._time:
            self.call_at(process.frozen_until, self._thaw, process, context=Context())
            return
        missed, process.missed = process.missed, deque()
        for handle in missed:
            heapq.heappush(self._timers, (self._time, next(self._numbers), handle, process))

    def _end(self) -> None:
        """Release all tasks, also of dead processes. Their cleanup has no effect any more."""
        self.stopping = True
        self._ready.extend((handle, None) for handle in self._never)
        for task in self._tasks:
            task.cancel()
        # New ones may appear while these end.
        for task in self._tasks:
            self._run_until(task.done)

    # --- the interface that asyncio expects of a loop ---

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, _of(context)))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle, _of(context)))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(next(self._numbers), self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = _Task(next(self._numbers), coro, loop=self, **options)
        self._tasks.append(task)
        if self.stopping:
            task.cancel()
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], R], *args: *Ts) -> asyncio.Future[R]:
        """Run the work at once, since the order of threads is not deterministic."""
        future: asyncio.Future[R] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.stopping:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Ignore the cancellation here: the handle is skipped at its time."""


def _of(context: Context | None) -> Process | None:
    return _process.get() if context is None else context.get(_process)
