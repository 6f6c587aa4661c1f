"""Health check of the node's pool: run periodically; a failure is the node's problem until the check passes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Self

import structlog

from mooring.concurrency import backoff
from mooring.concurrency.background import BackgroundTasks
from mooring.wire.agents.agent_protocol import HealthProgram

log = structlog.get_logger(__name__)

_NOT_YET = "health program: has not succeeded yet"
_MAX_OUTPUT_BYTES = 4096
_MAX_MESSAGE_LENGTH = 200
_PIPE_BYTES = 64 * 1024
# Without the agent's environment, which may contain its join token.
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Health:
    """Result of the current health check; `changed` is called whenever `problem` changes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.problem: str | None = None
        self._changed = changed
        self._program: HealthProgram | None = None
        self.background = BackgroundTasks()

    async def use(self, program: HealthProgram | None) -> None:
        """Run this check from now on. The node gets no new tasks until it passes. Repeating a check changes nothing."""
        if program == self._program:
            return
        await self.close()
        self._program = program
        if program is not None:
            self.problem = _NOT_YET
            self.background.start("health program", partial(self._keep_running, program))

    async def close(self) -> None:
        self._program = self.problem = None
        await self.background.close()

    async def _keep_running(self, program: HealthProgram) -> None:
        while True:
            found = await run(program)
            if found != self.problem:
                log.warning("the health of this node changed", problem=found)
                self.problem = found
                self._changed()
            await asyncio.sleep(backoff.jittered(program.interval_seconds, 0.1))


async def run(program: HealthProgram) -> str | None:
    """Run the check once, as the agent's user and without a shell. Return None if it passed, else the problem."""
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
            return f"health program: cannot be started: {error}"[:_MAX_MESSAGE_LENGTH]
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(program.timeout_seconds):
                    code = await process.wait()
        finally:
            # Kill any children that it left.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.take()
    if code == 0:
        return None
    failure = f"no answer within {program.timeout_seconds:g} s" if code is None else f"exit code {code}"
    return f"health program: {_first_line(output.said) or failure}"


class _Output:
    """The beginning of a program's output. The rest is read and discarded, so that the program never blocks.

    Uses its own pipe: with that of asyncio, the program would count as running while a child holds the other end.
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
        """Read the available output."""
        with contextlib.suppress(BlockingIOError):
            self.said += os.read(self._reading, _PIPE_BYTES)[: _MAX_OUTPUT_BYTES - len(self.said)]


def _first_line(said: bytearray) -> str:
    lines = said.decode("utf-8", "replace").split("\n")
    words = ("".join(sign for sign in line if sign.isprintable()).strip() for line in lines)
    return next((line for line in words if line), "")[:_MAX_MESSAGE_LENGTH]
