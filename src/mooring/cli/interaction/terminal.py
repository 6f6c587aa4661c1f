"""A terminal session: the user's terminal or pipes, connected to a channel into a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from mooring.cli.exits import say
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import TaskStatus
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadDetail

if TYPE_CHECKING:
    from mooring.client.channels import Channel

_PIECE_BYTES = 32 * 1024
_DETACH = b"\x10\x11"


def running_task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """Return the task of this index, or the first running task."""
    running = [task for task in detail.tasks if task.current and task.status == TaskStatus.RUNNING]
    wanted = [task for task in running if index is None or task.index == index]
    if not wanted:
        which = "no task" if index is None else f"no task {index}"
        raise Conflict(f"{which} of {detail.name!r} is running; the workload is {detail.status}", code="not-running")
    return min(wanted, key=lambda task: task.index)


def has_terminal(detail: WorkloadDetail, container: str | None) -> bool:
    """Return whether the container of this name, or the first one, was started with a terminal."""
    matching = (each for each in detail.containers if (each.name == container if container else each.role == "main"))
    return any(each.terminal for each in islice(matching, 1))


def terminal_size() -> tuple[int, int]:
    """Return the rows and columns of the user's terminal; the variables LINES and COLUMNS if it has no size."""
    try:
        size = os.get_terminal_size(sys.stdin.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    if not (size.lines and size.columns):
        size = shutil.get_terminal_size()
    return max(size.lines, 1), max(size.columns, 1)


class DetachKeys:
    """The detach keys, Ctrl-P Ctrl-Q as with Docker, in a session that passes on every other key."""

    def __init__(self) -> None:
        self._held = b""

    def take(self, typed: bytes) -> tuple[bytes, bool]:
        """Return the bytes to send now, and whether the detach keys are complete."""
        passed, found, _ = (self._held + typed).partition(_DETACH)
        self._held = passed[-1:] if not found and passed.endswith(_DETACH[:1]) else b""
        return passed.removesuffix(self._held), bool(found)


async def run_session(
    channel: Channel, *, interactive: bool, terminal: bool, detach_keys: DetachKeys | None = None
) -> int | None:
    """Pass input and output until the end, and return the exit code; None if the user detached.

    `detach_keys`: keys that detach, if there is a terminal.
    """
    loop = asyncio.get_running_loop()
    left = asyncio.Event()
    with _raw() if terminal else contextlib.nullcontext():
        if terminal:
            await channel.resize(*terminal_size())
            loop.add_signal_handler(signal.SIGWINCH, lambda: loop.create_task(channel.resize(*terminal_size())))
        reader = InputReader(channel, loop, detach_keys if terminal else None, left)
        if interactive:
            reader.start()
        else:
            await channel.write(b"")
        try:
            if not await _shown_to_the_end(channel, left):
                return None
            code = await channel.exit_code()
        finally:
            reader.stop()
            if terminal:
                loop.remove_signal_handler(signal.SIGWINCH)
    if channel.complaint:
        say(channel.complaint)
    return code or 0


async def _shown_to_the_end(channel: Channel, left: asyncio.Event) -> bool:
    """Write the output. Return False if the user detached before its end."""
    display, leaving = asyncio.create_task(_show(channel)), asyncio.create_task(left.wait())
    try:
        await asyncio.wait({display, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if display.done():
            display.result()
        return display.done()
    finally:
        for task in (display, leaving):
            task.cancel()
        await asyncio.gather(display, leaving, return_exceptions=True)


async def _show(channel: Channel) -> None:
    while (piece := await channel.read()) is not None:
        data, error = piece
        await asyncio.to_thread(_write, sys.stderr.fileno() if error else sys.stdout.fileno(), data)


class InputReader:
    """Passes standard input on to a channel, in a thread that the exit of the process does not wait for.

    `left` is set when the detach keys are typed.
    """

    def __init__(
        self,
        channel: Channel,
        loop: asyncio.AbstractEventLoop,
        keys: DetachKeys | None = None,
        left: asyncio.Event | None = None,
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._keys = keys
        self._left = left
        self._stop: int | None = None

    def start(self) -> None:
        stopped, self._stop = os.pipe()
        threading.Thread(target=self._run, args=(stopped,), daemon=True).start()

    def stop(self) -> None:
        """Leave everything that is typed from here on to the next reader."""
        if self._stop is not None:
            os.close(self._stop)
            self._stop = None

    def _run(self, stopped: int) -> None:
        with os.fdopen(stopped), contextlib.suppress(OSError, RuntimeError, MooringError):
            descriptor = sys.stdin.fileno()
            while True:
                ready, _, _ = select.select([descriptor, stopped], [], [])
                if stopped in ready:
                    return
                typed = os.read(descriptor, _PIECE_BYTES)
                passed, leaves = self._keys.take(typed) if self._keys is not None else (typed, False)
                if passed or not typed:
                    asyncio.run_coroutine_threadsafe(self._channel.write(passed), self._loop).result()
                if leaves and self._left is not None:
                    self._loop.call_soon_threadsafe(self._left.set)
                if leaves or not typed:
                    return


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Put the terminal into raw mode, so that every key, also Ctrl-C, is passed on; restore it at the end."""
    if not sys.stdin.isatty():
        raise InvalidInput("-t needs a terminal, but the input is a pipe or a file; leave -t out")
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
