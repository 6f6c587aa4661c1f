"""Follow a session on the user's terminal, from its start to its end or until the user detaches."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING
from uuid import UUID

from mooring.cli.connection import connect_async
from mooring.cli.interaction.follow_output import next_running
from mooring.cli.interaction.terminal import DetachKeys, run_session
from mooring.cli.interaction.waiting import has_ended, wait_until
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadDetail

if TYPE_CHECKING:
    from mooring.cli.rendering.progress import Progress
    from mooring.client import Client

_PAUSE_SECONDS = 1.0
_TRIES = 30


class Detached(Exception):
    """The user has typed the detach keys."""


class TerminalFollower:
    """The user's terminal, connected to each attempt of the session's task. It reconnects after an outage."""

    def __init__(self, client: Client, server: str | None, ref: str, *, progress: Progress) -> None:
        self._client = client
        self._server = server
        self._ref = ref
        self._progress = progress
        self._served: set[UUID] = set()
        self._attached: set[UUID] = set()
        self._failures = 0

    def until_end(self) -> WorkloadDetail:
        """Return the workload when it has ended; raise Detached if the user detaches before."""
        while True:
            detail = wait_until(
                self._client, self._ref, self._has_news, timeout_seconds=None, progress=self._progress
            ).detail
            task = next_running(detail, self._served)
            if task is not None:
                self._serve(task)
            else:
                self._show_unattached(detail)
                return detail

    def _has_news(self, detail: WorkloadDetail) -> bool:
        return has_ended(detail) or next_running(detail, self._served) is not None

    def _serve(self, task: TaskView) -> None:
        self._progress.clear()
        try:
            if asyncio.run(self._run(task)) is None:
                raise Detached
        except (Conflict, NotFound):
            # It has ended in the meantime, or is simulated.
            self._served.add(task.id)
        except Unavailable as problem:
            self._failures += 1
            if self._failures > _TRIES:
                raise
            self._progress.show(f"the connection was interrupted ({problem.message}); retrying")
            time.sleep(_PAUSE_SECONDS)
        else:
            self._served.add(task.id)

    async def _run(self, task: TaskView) -> int | None:
        async with (
            connect_async(self._server) as client,
            client.attach(str(task.id), replay=task.id not in self._attached) as channel,
        ):
            self._attached.add(task.id)
            self._failures = 0
            return await run_session(channel, interactive=True, terminal=True, detach_keys=DetachKeys())

    def _show_unattached(self, detail: WorkloadDetail) -> None:
        """Write the stored output of a task that ended before the terminal was connected to it."""
        for task in detail.tasks:
            if task.index == 0 and task.started_at is not None and task.id not in self._attached:
                try:
                    for piece in self._client.logs(self._ref, attempt=task.attempt):
                        sys.stdout.buffer.write(piece)
                except (Conflict, NotFound, Unavailable):
                    continue
                sys.stdout.buffer.flush()
