"""The health program of the node's pool: run now and then; what it finds is the node's problem until it passes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from typing import Self

import structlog

from mooring.wire.agent import HealthProgram

log = structlog.get_logger(__name__)

_NOT_YET = "health program: it has not passed yet"
_KEPT_BYTES = 4096
_LONGEST_WORDS = 200
_PIPE_BYTES = 64 * 1024
# Nothing of the agent's own environment, which may hold its join token.
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Health:
    """What the present program says of this node; `changed` is called whenever `problem` becomes another."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.problem: str | None = None
        self._changed = changed
        self._program: HealthProgram | None = None
        self._running: asyncio.Task[None] | None = None

    async def use(self, program: HealthProgram | None) -> None:
        """Run this one from now on; nothing new may come until it has passed. The same again changes nothing."""
        if program == self._program:
            return
        await self.close()
        self._program = program
        if program is not None:
            self.problem = _NOT_YET
            self._running = asyncio.create_task(self._keep_running(program))

    async def close(self) -> None:
        self._program = self.problem = None
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def _keep_running(self, program: HealthProgram) -> None:
        while True:
            found = await run(program)
            if found != self.problem:
                log.warning("the health of this node changed", problem=found)
                self.problem = found
                self._changed()
            await asyncio.sleep(program.interval_seconds * random.uniform(0.9, 1.0))


async def run(program: HealthProgram) -> str | None:
    """Run it once, as the agent's own user and without a shell: None if it passed, else what is wrong, in one line."""
    with _Output() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *program.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.writing,
                stderr=output.writing,
                start_new_session=True,
                cwd="/",
                env=_ENVIRONMENT,
            )
        except (OSError, ValueError) as error:
            return f"health program: it cannot be started: {error}"[:_LONGEST_WORDS]
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(program.timeout_seconds):
                    code = await process.wait()
        finally:
            # Whatever it left behind goes with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.take()
    if code == 0:
        return None
    failure = f"no answer within {program.timeout_seconds:g} s" if code is None else f"exit code {code}"
    return f"health program: {_first_line(output.said) or failure}"


class _Output:
    """The beginning of what a program says; the rest is read and forgotten, so that it never waits for a reader.

    A pipe of our own: the library's would count the program as running while any child of it holds the other end.
    """

    def __init__(self) -> None:
        self.said = bytearray()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._reading, self.take)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        os.close(self.writing)

    def take(self) -> None:
        """What there is to read now."""
        with contextlib.suppress(BlockingIOError):
            self.said += os.read(self._reading, _PIPE_BYTES)[: _KEPT_BYTES - len(self.said)]


def _first_line(said: bytearray) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    words = ("".join(sign for sign in line if sign.isprintable()).strip() for line in lines)
    return next((line for line in words if line), "")[:_LONGEST_WORDS]
