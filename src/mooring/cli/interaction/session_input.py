"""Standard input of `mooring run`: a terminal for the session, a pipe that is passed on to it, or none."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
import threading
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mooring.cli.connection import connect_async
from mooring.cli.interaction.follow_output import next_running
from mooring.cli.interaction.terminal import InputReader, terminal_size
from mooring.cli.interaction.waiting import has_ended
from mooring.client.operations.core import LONG_POLL_SECONDS
from mooring.model.errors import Conflict, InvalidInput, MooringError, NotFound, Unavailable

if TYPE_CHECKING:
    from mooring.client import AsyncClient

_PAUSE_SECONDS = 1.0
_TRIES = 30


class InputMode(Enum):
    NONE = "none"
    PIPE = "pipe"
    """Passed on to the session until its end."""
    TERMINAL = "terminal"
    """The session has a terminal, to which the user's is connected."""

    @classmethod
    def of(cls, *, interactive: bool, terminal: bool, restarts: bool) -> InputMode:
        """Return the mode that the options ask for. Without `-i`, a pipe or a file with data is passed on, too."""
        if interactive and restarts:
            raise InvalidInput("-i passes input on to one process, so it cannot be combined with --restart")
        if interactive and terminal:
            if not sys.stdin.isatty():
                raise InvalidInput("-t needs a terminal, but the input is a pipe or a file; leave -t out")
            return cls.TERMINAL
        if interactive or (not terminal and not restarts and _has_data()):
            return cls.PIPE
        return cls.NONE

    def fields(self) -> dict[str, Any]:
        """Return the fields of the container that the mode needs."""
        if self is InputMode.NONE:
            return {}
        if self is InputMode.PIPE:
            return {"stdin": True}
        rows, columns = terminal_size()
        return {"stdin": True, "terminal": True, "terminal_rows": rows, "terminal_columns": columns}


def _has_data() -> bool:
    """Return whether standard input is a file or pipe with data, or one that may still get some."""
    try:
        descriptor = sys.stdin.fileno()
        found = os.fstat(descriptor)
    except (OSError, ValueError, AttributeError):  # closed, or not a real file
        return False
    if stat.S_ISREG(found.st_mode):
        return found.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return all(event & select.POLLIN or not event & select.POLLHUP for _, event in poll.poll(0))


class InputForwarder:
    """Passes standard input on to the first task of a session, while its output is followed.

    A later attempt of the task finds its input at the end. If the connection breaks halfway, the session is cancelled:
    it would wait for the rest, or take the part for the whole.
    """

    def __init__(self, server: str | None, ref: str) -> None:
        self._server = server
        self._ref = ref
        self._passed_on = False
        self.problem: MooringError | None = None
        # A daemon thread: nobody waits for input that the session does not read.
        threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True).start()

    async def _run(self) -> None:
        async with connect_async(self._server) as client:
            try:
                await self._serve_every_attempt(client)
            except MooringError as problem:
                self.problem = problem
                with suppress(MooringError):
                    await client.cancel(self._ref)

    async def _serve_every_attempt(self, client: AsyncClient) -> None:
        served: set[UUID] = set()
        failures = 0
        while True:
            task = None
            try:
                detail = await client.workload(self._ref)
                task = next_running(detail, served)
                if task is not None:
                    await self._serve(client, str(task.id))
                    served.add(task.id)
                elif has_ended(detail):
                    return
                else:
                    await client.wait(self._ref, "changed", version=detail.version, timeout_seconds=LONG_POLL_SECONDS)
                failures = 0
            except (Conflict, NotFound):
                if task is None:
                    raise
                served.add(task.id)
            except Unavailable:
                failures += 1
                if self._passed_on or failures > _TRIES:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _serve(self, client: AsyncClient, task_id: str) -> None:
        async with client.attach(task_id, output=False) as channel:
            if self._passed_on:
                await channel.write(b"")
            else:
                self._passed_on = True
                reader = InputReader(channel, asyncio.get_running_loop())
                reader.start()
            # The channel stays open to the end of the task, which reads at its own pace.
            while await channel.read() is not None:
                pass
            await channel.exit_code()
