"""`mooring logs`: the output of tasks."""

from __future__ import annotations

import asyncio
import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.options import (
    WORK,
    ContainerOption,
    ServerOption,
    WorkloadArgument,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.cli.interaction.follow_output import Selected
    from mooring.client import Client
    from mooring.wire.workloads.workloads import WorkloadDetail

app = App()


@app.command(rich_help_panel=WORK)
def logs(
    name: WorkloadArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the output of all tasks until the workload ends.")
    ] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Number of last lines to begin with.")] = None,
    task: Annotated[
        int | None, typer.Option("--task", "-t", min=0, help="Index of the task (default: the first).")
    ] = None,
    all_tasks: Annotated[
        bool,
        typer.Option("--all-tasks", help="Show the output of all tasks, each line prefixed with its task."),
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Attempt of the task (default: the newest).")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only lines since this time, or that recent: 10m, 14:00 or 2026-05-01T12:00."
        ),
    ] = None,
    timestamps: Annotated[
        bool,
        typer.Option("--timestamps", help="Begin each line with the time at which it arrived (UTC)."),
    ] = False,
    container: ContainerOption = None,
    server: ServerOption = None,
) -> None:
    """Show the output of a task, or follow the output of all tasks of a workload.

    Times are noted to 0.1 s; those of containers on Podman to the second. --all-tasks orders lines by time.
    """
    from mooring.cli.connection import connect

    begin = None if since is None else since_when(since)
    if all_tasks and (task is not None or attempt is not None):
        raise InvalidInput("--all-tasks shows every task; give it without --task and --attempt")
    with connect(server) as client:
        detail = client.workload(name)
        # A user's own output may control the terminal; that of another tenant may only set colours.
        foreign = sys.stdout.isatty() and detail.user != client.me().username
        if not (all_tasks or (follow and task is None and attempt is None and detail.replicas > 1)):
            selected = _followed(detail, task, attempt, container, tail) if follow else None
            if selected is not None:
                selected = replace(selected, since=begin, timestamps=timestamps)
                _follow(client, detail, selected, foreign=foreign)
                return
            pieces: Iterable[bytes] = client.logs(
                name,
                task=task,
                attempt=attempt,
                tail=tail,
                follow=follow,
                container=container,
                since=begin,
                timestamps=timestamps,
            )
            for piece in tamed(pieces) if foreign else pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            return
    from mooring.cli.interaction.follow_all_tasks import Lines, follow_all

    with suppress(KeyboardInterrupt):
        clean = tamed if foreign else iter
        lines = Lines(tail, container, begin, timestamps)
        asyncio.run(follow_all(server, detail, lines=lines, clean=clean, follow=follow))


def since_when(written: str) -> datetime:
    """Return the instant that a user means: `10m` ago, `14:00` today or yesterday, or a date and time."""
    from mooring.cli.input.durations import parse_seconds

    now = datetime.now().astimezone()
    with suppress(InvalidInput):
        return now - timedelta(seconds=parse_seconds(written))
    try:
        if ":" in written and "-" not in written and "T" not in written.upper():
            today = datetime.combine(now.date(), time.fromisoformat(written)).astimezone()
            return today if today <= now else (today - timedelta(days=1))
        return datetime.fromisoformat(written).astimezone()
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"--since {written[:40]!r}: write 10m, 14:00, 2026-05-01 or 2026-05-01T12:00", code="invalid-time"
        ) from None


def _followed(
    detail: WorkloadDetail, index: int | None, attempt: int | None, container: str | None, tail: int | None
) -> Selected | None:
    """Return the output to follow, from the newest attempt on; None if it is not known, so that the server answers."""
    from mooring.cli.interaction.follow_output import Selected

    if index is None:
        index = min((task.index for task in detail.tasks if task.current), default=0)
    started = [task.attempt for task in detail.tasks if task.index == index and task.started_at is not None]
    if detail.simulated or not started or (attempt is not None and attempt not in started):
        return None
    first = max(started) if attempt is None else attempt
    return Selected(index, first, last_attempt=attempt, container=container, tail=tail)


def _follow(client: Client, detail: WorkloadDetail, selected: Selected, *, foreign: bool) -> None:
    from mooring.cli.interaction.follow_output import Follower
    from mooring.cli.rendering.progress import Progress

    with suppress(KeyboardInterrupt), Progress() as progress:
        clean = Tamer() if foreign else bytes
        Follower(client, str(detail.id), progress=progress, selected=selected, clean=clean).until_end()


_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def tamed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return output in which control characters other than line ends, tabs and colours are escaped."""
    yield from map(Tamer(), pieces)


class Tamer:
    """Escapes the control characters of output that arrives in pieces, which may divide a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, piece: bytes) -> bytes:
        parts = _COLOUR.split(self._decoder.decode(piece))
        return "".join(part if _COLOUR.fullmatch(part) else _escaped(part) for part in parts).encode()


def _escaped(text: str) -> str:
    return "".join(
        sign if sign.isprintable() or sign in "\n\r\t" else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )
