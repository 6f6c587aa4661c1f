"""Follow the output of a session to its end, through restarts of the task and of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mooring.cli.exits import say
from mooring.cli.interaction.stamps import StampReader
from mooring.cli.interaction.waiting import has_ended, through_outages, wait_until
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.output import CUT_OFF, OutputPosition
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadDetail

if TYPE_CHECKING:
    from mooring.cli.rendering.progress import Progress
    from mooring.client import Client


_LIVING = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING, TaskStatus.TERMINATING})
_TRIES = 3
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Selected:
    """The output to follow. By default that of all attempts at the first task."""

    index: int = 0
    first_attempt: int = 1
    """Earlier attempts are left out."""
    last_attempt: int | None = None
    """The output ends with this attempt; None: with the workload."""
    container: str | None = None
    tail: int | None = None
    """Number of last lines of the first attempt to begin with; None: all."""
    since: datetime | None = None
    """Lines that arrived earlier are left out."""
    timestamps: bool = False
    """Each line begins with the time at which it arrived."""


_FIRST_TASK = Selected()


class Follower:
    """Writer of a task's output that writes each byte once, however often the stream is reopened.

    `uninterrupted` is entered around writing and counting, so that no interrupt separates the two. `clean` turns a
    piece of output into one that this terminal may get.
    """

    def __init__(
        self,
        client: Client,
        ref: str,
        *,
        progress: Progress,
        uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
        selected: Selected = _FIRST_TASK,
        clean: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._selected = selected
        self._clean = clean
        self._client = client
        self._ref = ref
        self._progress = progress
        self._uninterrupted = uninterrupted
        self._written: dict[UUID, OutputPosition] = {}
        self._complete: set[UUID] = set()
        self._failures = 0

    def until_end(self) -> WorkloadDetail:
        """Write the output as it arrives, and return the workload when it has ended."""
        while True:
            detail = wait_until(
                self._client, self._ref, self._has_news, timeout_seconds=None, progress=self._progress
            ).detail
            task = self._next(detail)
            if task is not None:
                self._copy(task, last=has_ended(detail) or detail.simulated or not task.current)
            elif self._is_over(detail):
                return detail

    def _has_news(self, detail: WorkloadDetail) -> bool:
        return self._is_over(detail) or self._next(detail) is not None

    def _is_over(self, detail: WorkloadDetail) -> bool:
        return has_ended(detail) or (self._selected.last_attempt is not None and bool(self._complete))

    def _next(self, detail: WorkloadDetail) -> TaskView | None:
        """Return the oldest attempt with unwritten output. A failed attempt may be replaced before it was polled."""
        started = [task for task in detail.tasks if task.index == self._selected.index and task.started_at is not None]
        first, last = self._selected.first_attempt, self._selected.last_attempt
        chosen = [task for task in started if first <= task.attempt and (last is None or task.attempt <= last)]
        left = (task for task in chosen if task.id not in self._complete)
        return min(left, key=lambda task: task.attempt, default=None)

    def _copy(self, task: TaskView, *, last: bool) -> None:
        """Write the stream's output. `last`: no more output follows it."""
        try:
            for stamp, piece in self._unwritten(task):
                with self._uninterrupted():
                    self._progress.clear()
                    sys.stdout.buffer.write(stamp + self._clean(piece))
                    sys.stdout.buffer.flush()
                    self._written[task.id] = self._written.get(task.id, OutputPosition()).after(piece)
                    self._failures = 0
        except (NotFound, Conflict):
            # The task wrote no output, or its output was removed.
            self._complete.add(task.id)
            return
        except Unavailable as problem:
            self._failures += 1
            if last and self._failures >= _TRIES:
                say(f"the rest of the output cannot be read: {problem.message}")
                self._complete.add(task.id)
                self._failures = 0
            else:
                self._progress.show(f"the output was interrupted ({problem.message}); retrying")
                time.sleep(_PAUSE_SECONDS)
            return
        if last or self._has_left(task):
            self._complete.add(task.id)

    def _has_left(self, task: TaskView) -> bool:
        """Return whether the task has ended or is about to. Its output may be complete before its end is reported."""
        detail = through_outages(lambda: self._client.workload(self._ref), self._progress)
        if is_living(detail, task):
            version = detail.version
            detail = through_outages(
                lambda: self._client.wait(self._ref, "changed", version=version, timeout_seconds=_PAUSE_SECONDS),
                self._progress,
            )
        return not is_living(detail, task)

    def _unwritten(self, task: TaskView) -> Iterator[tuple[bytes, bytes]]:
        """Open the stream at the position where the last one ended. Yield output after the times of its lines."""
        skip, first = self._position(task), task.id not in self._written
        chosen = self._selected
        logs = self._logs(
            task,
            tail=chosen.tail if self._is_tailed(task) and first else None,
            follow=True,
            since=chosen.since if first else None,
            timestamps=chosen.timestamps,
        )
        for stamp, piece in _parts(_without_notice(logs), stamped=chosen.timestamps):
            if skip >= len(piece):
                skip -= len(piece)
            else:
                yield (b"" if skip else stamp), piece[skip:]
                skip = 0

    def _position(self, task: TaskView) -> int:
        """Return the position of the first unwritten byte in the stored output, whose oldest part may be gone."""
        written = self._written.get(task.id)
        if written is None:
            return 0
        output = b"".join(_without_notice(self._logs(task)))
        position = written.found_in(output, from_start=not self._is_tailed(task) and self._selected.since is None)
        if position is None:
            say("a part of the output is no longer stored")
        return position or 0

    def _is_tailed(self, task: TaskView) -> bool:
        """Return whether only the last lines of the attempt are shown, so that their position is not known."""
        return self._selected.tail is not None and task.attempt == self._selected.first_attempt

    def _logs(self, task: TaskView, **options: Any) -> Iterator[bytes]:
        index, container = self._selected.index or None, self._selected.container
        return self._client.logs(self._ref, task=index, attempt=task.attempt, container=container, **options)


def next_running(detail: WorkloadDetail, served: Set[UUID]) -> TaskView | None:
    """Return the running attempt of the first task, unless it is among those that were served before."""
    for task in detail.tasks:
        if task.index == 0 and task.current and task.status == TaskStatus.RUNNING and task.id not in served:
            return task
    return None


def _parts(pieces: Iterator[bytes], *, stamped: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield output, each piece after the time of its line if there is one."""
    reader = StampReader()
    for piece in pieces:
        if stamped:
            yield from reader.feed(piece)
        else:
            yield b"", piece


def _without_notice(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the output. The server's final notice that a node was lost is raised as an error."""
    held = b""
    for piece in pieces:
        if held:
            yield held
        held = piece if piece.startswith(CUT_OFF) else b""
        if not held:
            yield piece
    if held:
        raise Unavailable(held.removeprefix(CUT_OFF).decode("utf-8", "replace").strip())


def is_living(detail: WorkloadDetail, task: TaskView) -> bool:
    return any(known.id == task.id and known.status in _LIVING for known in detail.tasks)


def exit_status(detail: WorkloadDetail) -> int:
    """Return the highest exit code of the tasks, as a shell reports it: 128 + signal for a killed one; 1 without any.

    Tasks that were stopped because others failed do not count.
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
