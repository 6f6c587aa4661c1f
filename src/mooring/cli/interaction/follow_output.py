"""The output of a session, live, from its first byte to its end, through restarts of the task and of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from mooring.cli.exits import say
from mooring.cli.waiting import has_ended, through_outages, wait_until
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.wire.api import TaskView, WorkloadDetail

if TYPE_CHECKING:
    from mooring.cli.progress import Progress
    from mooring.client import Client


_LIVING = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING, TaskStatus.TERMINATING})
_NOTICE = b"\n[mooring] the output is cut off here: "
_TRIES = 3
_REMEMBERED_BYTES = 4096
_PAUSE_SECONDS = 1.0


class Follower:
    """Writes each byte of a task's output once, however often the stream has to be opened.

    `undisturbed` is entered around writing and counting, so that an interrupt cannot come between the two.
    """

    def __init__(
        self,
        client: Client,
        ref: str,
        *,
        progress: Progress,
        undisturbed: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._client = client
        self._ref = ref
        self._progress = progress
        self._undisturbed = undisturbed
        self._written: dict[UUID, _Written] = {}
        self._complete: set[UUID] = set()
        self._failures = 0

    def until_end(self) -> WorkloadDetail:
        """Show the output as it comes; answers with the workload once it has ended."""
        while True:
            detail = wait_until(
                self._client, self._ref, self._has_news, timeout_seconds=None, progress=self._progress
            ).detail
            task = self._next(detail)
            if task is not None:
                self._copy(task, last=has_ended(detail) or detail.simulated or not task.current)
            elif has_ended(detail):
                return detail

    def _has_news(self, detail: WorkloadDetail) -> bool:
        return has_ended(detail) or self._next(detail) is not None

    def _next(self, detail: WorkloadDetail) -> TaskView | None:
        """The oldest attempt with output to write: one that failed may be replaced before anybody looked."""
        started = [task for task in detail.tasks if task.index == 0 and task.started_at is not None]
        left = (task for task in started if task.id not in self._complete)
        return min(left, key=lambda task: task.attempt, default=None)

    def _copy(self, task: TaskView, *, last: bool) -> None:
        """Write what the stream brings. `last`: nothing will come after it."""
        try:
            for piece in self._unwritten(task):
                with self._undisturbed():
                    self._progress.clear()
                    sys.stdout.buffer.write(piece)
                    sys.stdout.buffer.flush()
                    self._written[task.id] = self._written.get(task.id, _Written()).then(piece)
                    self._failures = 0
        except (NotFound, Conflict):
            # It left no output, or none that is kept.
            self._complete.add(task.id)
            return
        except Unavailable as problem:
            self._failures += 1
            if last and self._failures >= _TRIES:
                say(f"the rest of the output cannot be read: {problem.message}")
                self._complete.add(task.id)
                self._failures = 0
            else:
                self._progress.show(f"the output is interrupted ({problem.message}); trying again")
                time.sleep(_PAUSE_SECONDS)
            return
        if last or self._has_left(task):
            self._complete.add(task.id)

    def _has_left(self, task: TaskView) -> bool:
        """Whether the task has ended, or ends in a moment: its output may be complete before its end is known."""
        detail = through_outages(lambda: self._client.workload(self._ref), self._progress)
        if _is_living(detail, task):
            version = detail.version
            detail = through_outages(
                lambda: self._client.wait(self._ref, "changed", version=version, timeout_seconds=_PAUSE_SECONDS),
                self._progress,
            )
        return not _is_living(detail, task)

    def _unwritten(self, task: TaskView) -> Iterator[bytes]:
        """The stream from where the last one broke off."""
        skip = self._position(task)
        for piece in _without_notice(self._client.logs(self._ref, attempt=task.attempt, follow=True)):
            if skip >= len(piece):
                skip -= len(piece)
            else:
                yield piece[skip:]
                skip = 0

    def _position(self, task: TaskView) -> int:
        """Where in the kept output that begins which was not written yet. The oldest part may be gone by now."""
        written = self._written.get(task.id)
        if written is None:
            return 0
        kept = b"".join(_without_notice(self._client.logs(self._ref, attempt=task.attempt)))
        if len(kept) >= written.count and kept[: written.count].endswith(written.last):
            return written.count
        found = kept.rfind(written.last)
        if found < 0:
            say("a part of the output is not kept any more")
            return 0
        return found + len(written.last)


def _without_notice(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The output alone. The server's notice that a node was lost, as the last piece, is no output but an error."""
    held = b""
    for piece in pieces:
        if held:
            yield held
        held = piece if piece.startswith(_NOTICE) else b""
        if not held:
            yield piece
    if held:
        raise Unavailable(held.removeprefix(_NOTICE).decode("utf-8", "replace").strip())


@dataclass(frozen=True, slots=True)
class _Written:
    """How much of a task's output was written, and what it ended with."""

    count: int = 0
    last: bytes = b""

    def then(self, piece: bytes) -> _Written:
        return _Written(self.count + len(piece), (self.last + piece)[-_REMEMBERED_BYTES:])


def _is_living(detail: WorkloadDetail, task: TaskView) -> bool:
    return any(known.id == task.id and known.status in _LIVING for known in detail.tasks)


def exit_status(detail: WorkloadDetail) -> int:
    """What a shell would say: the highest exit code of the tasks, 128 + signal for a killed one; 1 without any.

    Tasks that were stopped because others failed say nothing.
    """
    ended = [task for task in detail.tasks if task.current and task.exit_code is not None]
    failed = [task for task in ended if task.status == TaskStatus.FAILED]
    codes = [
        task.exit_code if task.exit_code >= 0 else 128 - task.exit_code
        for task in failed or ended
        if task.exit_code is not None
    ]
    highest = max(codes, default=0)
    return highest if highest or detail.status == "SUCCEEDED" else 1
