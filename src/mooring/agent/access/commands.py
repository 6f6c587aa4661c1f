"""A command that somebody runs on this node and is connected with, by pipes or by a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Callable, Iterable

from mooring.model.errors import MooringError

_PIECE_BYTES = 64 * 1024
_HANG_UP_SECONDS = 2.0
"""For a command to end by itself when whoever ran it is gone."""
_END_OF_INPUT = b"\x04"
_FAILURE_DESCRIPTOR = 3


class DataOnly:
    """What `Reached` asks for beside data, of a way in that has neither a terminal nor a command."""

    async def resize(self, rows: int, columns: int) -> None:
        return None

    async def exit_code(self) -> int | None:
        return None


def spawn(arguments: Callable[[int], list[str]], size: tuple[int, int] | None) -> Command:
    """Start a program in a session of its own; `size`: with a terminal of so many rows and columns.

    `arguments` gets the number of the descriptor to which the program writes, before it has begun, why it cannot.
    """
    with contextlib.ExitStack() as inherited, contextlib.ExitStack() as kept:

        def pair(ends: tuple[int, int]) -> tuple[int, int]:
            """One for this process, one for the program."""
            kept.callback(os.close, ends[0])
            inherited.callback(os.close, ends[1])
            return ends

        if size is not None:
            given, terminal_end = pair(os.openpty())
            _set_size(given, *size)
            ends, outputs = (terminal_end, terminal_end, terminal_end), {given: False}
        else:
            given, input_end = pair(os.pipe2(os.O_CLOEXEC)[::-1])
            output, output_end = pair(os.pipe2(os.O_CLOEXEC))
            errors, errors_end = pair(os.pipe2(os.O_CLOEXEC))
            ends, outputs = (input_end, output_end, errors_end), {output: False, errors: True}
        failure, failure_end = pair(os.pipe2(os.O_CLOEXEC))
        words = arguments(_FAILURE_DESCRIPTOR)
        pid = os.posix_spawn(
            words[0],
            words,
            {"LANG": "C.UTF-8", "PATH": os.defpath},
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)),
                (os.POSIX_SPAWN_DUP2, failure_end, _FAILURE_DESCRIPTOR),
            ],
            setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD],
        )
        kept.pop_all()
    return Command(pid, given, outputs, failure)


class Command:
    """A running program. Closing it hangs up, as a terminal that is closed would."""

    def __init__(self, pid: int, given: int, outputs: dict[int, bool], failure: int) -> None:
        self._pid = pid
        self._process = os.pidfd_open(pid)
        self._terminal = given if given in outputs else None
        self._given: int | None = given
        self._outputs = outputs
        """What it says, by descriptor, and which of them is standard error."""
        self._failure: int | None = failure
        self._code: int | None = None
        self._closing: asyncio.Task[None] | None = None
        for descriptor in {given, *outputs}:
            os.set_blocking(descriptor, False)

    async def read(self) -> tuple[bytes, bool] | None:
        while self._outputs:
            ready = await _readable((*self._outputs, self._process))
            # What it left in the pipes comes before its end; who is still running beside it has them open for ever.
            for descriptor in [each for each in ready if each in self._outputs] or list(self._outputs):
                data = _read(descriptor)
                if data:
                    return data, self._outputs[descriptor]
                if data is not None or self._process in ready:
                    self._forget(descriptor)
        await self._check_begun()
        return None

    async def write(self, data: bytes) -> None:
        if self._given is None:
            return
        if not data and self._terminal is None:
            self._close_input()
            return
        rest = data or _END_OF_INPUT
        while rest and self._given is not None:
            try:
                rest = rest[os.write(self._given, rest) :]
            except BlockingIOError:
                await _writable(self._given)
            except OSError:  # it does not listen any more
                self._close_input()

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            _set_size(self._terminal, rows, columns)

    async def exit_code(self) -> int | None:
        """As a shell tells it: 128 and the signal of one that was ended by a signal."""
        while self._code is None:
            await _readable((self._process,))
            self._reap()
        return self._code

    def kill(self) -> None:
        """End it at once; whoever reads what it says comes to the end."""
        self._send(signal.SIGKILL)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._send(signal.SIGHUP)
        self._close_input()
        for descriptor in list(self._outputs):
            self._forget(descriptor)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECONDS):
                await self.exit_code()
        self._send(signal.SIGKILL)
        await self.exit_code()
        os.close(self._process)
        if self._failure is not None:
            os.close(self._failure)

    def _send(self, number: signal.Signals) -> None:
        # Until it is reaped its number is nobody else's.
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    async def _check_begun(self) -> None:
        """NotBegun where it never became what was asked for."""
        if self._failure is None:
            return
        failure, self._failure = self._failure, None
        # Closed at its far end when the program has begun, or is over.
        await self.exit_code()
        with os.fdopen(failure, "rb") as file:
            text = file.read().decode("utf-8", "replace")
        if text:
            code, _, reason = text.partition(" ")
            raise NotBegun(int(code), reason)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _close_input(self) -> None:
        if self._given is not None and self._given != self._terminal:
            os.close(self._given)
        self._given = None

    def _forget(self, descriptor: int) -> None:
        del self._outputs[descriptor]
        if descriptor == self._terminal:
            self._given = self._terminal = None
        os.close(descriptor)


class NotBegun(MooringError):
    """The command could not be started; a shell would say so with this exit code."""

    code = "start-failed"

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def _read(descriptor: int) -> bytes | None:
    """None: nothing at the moment. A terminal that nobody has open any more fails instead of ending."""
    try:
        return os.read(descriptor, _PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _readable(descriptors: Iterable[int]) -> set[int]:
    """Those that can be read; waits until there is one."""
    loop = asyncio.get_running_loop()
    descriptors = list(descriptors)
    arrived = asyncio.Event()
    found: set[int] = set()

    def ready(descriptor: int) -> None:
        found.add(descriptor)
        arrived.set()

    for descriptor in descriptors:
        loop.add_reader(descriptor, ready, descriptor)
    try:
        await arrived.wait()
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)
    return found


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_writer(descriptor, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_writer(descriptor)
