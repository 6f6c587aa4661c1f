"""A person's terminal or pipes, connected with a channel into a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from mooring.wire.api import TaskView, WorkloadDetail

if TYPE_CHECKING:
    from mooring.client.channels import Channel

_PIECE_BYTES = 32 * 1024
_DETACH = b"\x10\x11"


def running_task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """The task that is meant: of this index, or the first that runs."""
    running = [task for task in detail.tasks if task.current and task.status == TaskStatus.RUNNING]
    wanted = [task for task in running if index is None or task.index == index]
    if not wanted:
        which = "no task" if index is None else f"no task {index}"
        raise Conflict(f"{which} of {detail.name!r} runs; the workload is {detail.status}", code="not-running")
    return min(wanted, key=lambda task: task.index)


def has_terminal(detail: WorkloadDetail, container: str | None) -> bool:
    """Whether the container of this name, else the first, was started with one."""
    meant = (each for each in detail.containers if (each.name == container if container else each.role == "main"))
    return any(each.terminal for each in islice(meant, 1))


def terminal_size() -> tuple[int, int]:
    """Rows and columns of the terminal at hand."""
    size = shutil.get_terminal_size()
    return max(size.lines, 1), max(size.columns, 1)


class DetachKeys:
    """Ctrl-P Ctrl-Q, as with Docker: how one leaves a terminal to which every single key goes."""

    def __init__(self) -> None:
        self._held = b""

    def take(self, typed: bytes) -> tuple[bytes, bool]:
        """What of it goes to the far end by now, and whether the keys are complete."""
        passed, found, _ = (self._held + typed).partition(_DETACH)
        self._held = passed[-1:] if not found and passed.endswith(_DETACH[:1]) else b""
        return passed.removesuffix(self._held), bool(found)


async def converse(channel: Channel, *, interactive: bool, terminal: bool, left_by: DetachKeys | None = None) -> int:
    """Pass on what is typed and what is answered until the end; the exit code to leave with.

    `left_by`: keys that end it earlier, where there is a terminal.
    """
    loop = asyncio.get_running_loop()
    left = asyncio.Event()
    with _raw() if terminal else contextlib.nullcontext():
        if terminal:
            await channel.resize(*terminal_size())
            loop.add_signal_handler(signal.SIGWINCH, lambda: loop.create_task(channel.resize(*terminal_size())))
        if interactive:
            # A thread that nobody waits for at the end: it may hang in a read for ever.
            keys = left_by if terminal else None
            threading.Thread(target=_pass_on_input, args=(channel, loop, keys, left), daemon=True).start()
        else:
            await channel.write(b"")
        code = await channel.exit_code() if await _shown_to_the_end(channel, left) else 0
    if left.is_set():
        say("left; what runs there goes on")
    if channel.complaint:
        say(channel.complaint)
    return code or 0


async def _shown_to_the_end(channel: Channel, left: asyncio.Event) -> bool:
    """Write what comes out; False where it was left before its end."""
    showing, leaving = asyncio.create_task(_show(channel)), asyncio.create_task(left.wait())
    try:
        await asyncio.wait({showing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if showing.done():
            showing.result()
        return showing.done()
    finally:
        for task in (showing, leaving):
            task.cancel()
        await asyncio.gather(showing, leaving, return_exceptions=True)


async def _show(channel: Channel) -> None:
    while (piece := await channel.read()) is not None:
        data, error = piece
        await asyncio.to_thread(_write, sys.stderr.fileno() if error else sys.stdout.fileno(), data)


def _pass_on_input(
    channel: Channel, loop: asyncio.AbstractEventLoop, keys: DetachKeys | None, left: asyncio.Event
) -> None:
    with contextlib.suppress(OSError, RuntimeError, MooringError):
        while True:
            typed = os.read(sys.stdin.fileno(), _PIECE_BYTES)
            passed, leaves = keys.take(typed) if keys is not None else (typed, False)
            if passed or not typed:
                asyncio.run_coroutine_threadsafe(channel.write(passed), loop).result()
            if leaves:
                loop.call_soon_threadsafe(left.set)
            if leaves or not typed:
                return


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the far end as it is, Ctrl-C too; afterwards the terminal is as it was."""
    if not sys.stdin.isatty():
        raise InvalidInput("-t needs a terminal; leave it out where the input is a pipe or a file")
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
