"""Commands that users run on this node, connected through pipes or a terminal."""

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
"""Time for a command to end by itself after its user disconnected."""
_END_OF_INPUT = b"\x04"
_FAILURE_DESCRIPTOR = 3


class DataOnly:
    """Default methods of `Reached` for a channel without a terminal and without a command."""

    async def resize(self, rows: int, columns: int) -> None:
        return None

    async def exit_code(self) -> int | None:
        return None


def spawn(arguments: Callable[[int], list[str]], size: tuple[int, int] | None) -> Command:
    """Start a program in its own session; `size`: with a terminal of these rows and columns.

    `arguments` receives the descriptor to which the program writes why it cannot start.
    """
    with contextlib.ExitStack() as inherited, contextlib.ExitStack() as to_close:

        def pair(ends: tuple[int, int]) -> tuple[int, int]:
            """Return the end for this process and the end for the program."""
            to_close.callback(os.close, ends[0])
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
        to_close.pop_all()
    return Command(pid, given, outputs, failure)


class Command:
    """A running program. Closing it sends SIGHUP, as closing a terminal does."""

    def __init__(self, pid: int, given: int, outputs: dict[int, bool], failure: int) -> None:
        self._pid = pid
        self._process = os.pidfd_open(pid)
        self._terminal = given if given in outputs else None
        self._given: int | None = given
        self._outputs = outputs
        """Output descriptors, and the one of them that is standard error."""
        self._failure: int | None = failure
        self._code: int | None = None
        self._closing: asyncio.Task[None] | None = None
        for descriptor in {given, *outputs}:
            os.set_blocking(descriptor, False)

    async def read(self) -> tuple[bytes, bool] | None:
        while self._outputs:
            ready = await _readable((*self._outputs, self._process))
            # Remaining output is read before the end is reported. A child may keep the pipes open indefinitely.
            for descriptor in [each for each in ready if each in self._outputs] or list(self._outputs):
                data = _read(descriptor)
                if data:
                    return data, self._outputs[descriptor]
                if data is not None or self._process in ready:
                    self._forget(descriptor)
        await self._check_started()
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
            except OSError:  # it has closed its input
                self._close_input()

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            _set_size(self._terminal, rows, columns)

    async def exit_code(self) -> int | None:
        """Return the exit code as a shell reports it: 128 + signal for a killed command."""
        while self._code is None:
            await _readable((self._process,))
            self._reap()
        return self._code

    def kill(self) -> None:
        """Kill it at once, so that a reader of its output reaches the end."""
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
        # Its pid is not reused until it is reaped.
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)

    async def _check_started(self) -> None:
        """Raise CommandNotStarted if the program could not be started."""
        if self._failure is None:
            return
        failure, self._failure = self._failure, None
        # The pipe is closed when the program has started or ended.
        await self.exit_code()
        with os.fdopen(failure, "rb") as file:
            text = file.read().decode("utf-8", "replace")
        if text:
            code, _, reason = text.partition(" ")
            raise CommandNotStarted(int(code), reason)

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


class CommandNotStarted(MooringError):
    """The command could not be started; `exit_code` is that of a shell in this case."""

    code = "start-failed"

    def __init__(self, exit_code: int, reason: str) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def _read(descriptor: int) -> bytes | None:
    """Return data, or None if there is none now. A closed terminal fails with an error instead of an end of file."""
    try:
        return os.read(descriptor, _PIECE_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _readable(descriptors: Iterable[int]) -> set[int]:
    """Wait for and return the readable descriptors."""
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
