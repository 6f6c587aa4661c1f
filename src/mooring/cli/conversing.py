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
from typing import TYPE_CHECKING

from mooring.cli.exits import say
from mooring.model.errors import Conflict, InvalidInput, MooringError
from mooring.model.lifecycle import TaskStatus
from mooring.wire.api import TaskView, WorkloadDetail

if TYPE_CHECKING:
    from mooring.client.channels import Channel

_PIECE_BYTES = 32 * 1024


def running_task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """The task that is meant: of this index, or the first that runs."""
    running = [task for task in detail.tasks if task.current and task.status == TaskStatus.RUNNING]
    wanted = [task for task in running if index is None or task.index == index]
    if not wanted:
        which = "no task" if index is None else f"no task {index}"
        raise Conflict(f"{which} of {detail.name!r} runs; the workload is {detail.status}", code="not-running")
    return min(wanted, key=lambda task: task.index)


def terminal_size() -> tuple[int, int]:
    """Rows and columns of the terminal at hand."""
    size = shutil.get_terminal_size()
    return max(size.lines, 1), max(size.columns, 1)


async def converse(channel: Channel, *, interactive: bool, terminal: bool) -> int:
    """Pass on what is typed and what is answered until the end; the exit code to leave with."""
    loop = asyncio.get_running_loop()
    with _raw() if terminal else contextlib.nullcontext():
        if terminal:
            await channel.resize(*terminal_size())
            loop.add_signal_handler(signal.SIGWINCH, lambda: loop.create_task(channel.resize(*terminal_size())))
        if interactive:
            # A thread that nobody waits for at the end: it may hang in a read for ever.
            threading.Thread(target=_pass_on_input, args=(channel, loop), daemon=True).start()
        else:
            await channel.write(b"")
        while (piece := await channel.read()) is not None:
            data, error = piece
            await asyncio.to_thread(_write, sys.stderr.fileno() if error else sys.stdout.fileno(), data)
        code = await channel.exit_code()
    if channel.complaint:
        say(channel.complaint)
    return code or 0


def _pass_on_input(channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(OSError, RuntimeError, MooringError):
        while True:
            data = os.read(sys.stdin.fileno(), _PIECE_BYTES)
            asyncio.run_coroutine_threadsafe(channel.write(data), loop).result()
            if not data:
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
