"""`mooring top`: current resource usage of running tasks, next to their requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import WORK, ServerOption
from mooring.cli.rendering.formatting import NOTHING, duration, rounded
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    Styled,
    show_document,
    show_live,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.tenancy.accounting import TaskUse, TaskUseList

app = App()

_COLUMNS = (
    Column("WORKLOAD"),
    Column("TASK", number=True),
    Column("NODE"),
    Column("CPU", number=True),
    Column("CPU ASKED", number=True),
    Column("MEMORY", number=True),
    Column("MEMORY ASKED", number=True),
    Column("READ/S", number=True),
    Column("WRITTEN/S", number=True),
    Column("RECEIVED/S", wide=True, number=True),
    Column("SENT/S", wide=True, number=True),
    Column("USER"),
    Column("PROJECT", wide=True),
    Column("POOL", wide=True),
    Column("MEASURED", number=True),
    Column("ID", wide=True),
)
_OLD_SECONDS = 30
_FULL = 0.9


class Sort(StrEnum):
    CPU = "cpu"
    MEMORY = "memory"
    IO = "io"
    NAME = "name"


@app.command(rich_help_panel=WORK)
@with_groups
def top(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only tasks of this workload.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only this pool.")] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only this user.")] = None,
    sort: Annotated[Sort, typer.Option(help="Sort by highest usage of this resource, or by name.")] = Sort.CPU,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Maximum number of rows.")] = 50,
    interval: Annotated[
        float,
        typer.Option(
            metavar="TIME", parser=seconds_at_least(0.5), help="Refresh interval (default 2s).", show_default=False
        ),
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and exit, which is the default if the output is not a terminal.")
    ] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show the resource usage of running tasks, highest first, until Ctrl-C."""
    from mooring.cli.connection import connect

    with connect(server) as client:

        def fetch() -> TaskUseList:
            return client.task_use(pool=pool, user=user, name=name, sort=sort.value, limit=limit)

        if output.is_document:
            show_document(fetch(), output)
        elif once or not output.layout.is_table or not sys.stdout.isatty():
            show_table(_COLUMNS, _rows(fetch()), output)
        else:
            with suppress(KeyboardInterrupt):
                show_live(_frames(fetch, interval), output)


def _frames(fetch: Callable[[], TaskUseList], interval: float) -> Iterator[tuple[tuple[Column, ...], list[list[Cell]]]]:
    while True:
        yield _COLUMNS, _rows(fetch())
        time.sleep(interval)


def _rows(found: TaskUseList) -> list[list[Cell]]:
    return [
        [
            task.workload,
            str(task.index),
            task.node or "",
            _against("cpu", task.cpu_millicores, task.cpu_asked_millicores),
            _amount("cpu", task.cpu_asked_millicores),
            _against("memory", task.memory_bytes, task.memory_asked_bytes),
            _amount("memory", task.memory_asked_bytes),
            _amount("memory", task.read_per_second),
            _amount("memory", task.written_per_second),
            _amount("memory", task.received_per_second),
            _amount("memory", task.sent_per_second),
            task.user,
            task.project,
            task.pool,
            _age(task),
            str(task.task_id),
        ]
        for task in found.tasks
    ]


def _amount(slot: str, units: int | None) -> str:
    from mooring.model.resources.slots import slot_type

    return NOTHING if units is None else rounded(slot, slot_type(slot).format(units))


def _against(slot: str, used: int | None, asked: int | None) -> Cell:
    """Highlight usage that is close to the request or exceeds it."""
    text = _amount(slot, used)
    return Styled(text, "yellow") if used is not None and asked and used > _FULL * asked else text


def _age(task: TaskUse) -> Cell:
    if task.age_seconds is None:
        return Styled("not yet", "dim")
    text = f"{duration(task.age_seconds)} ago"
    return Styled(text, "dim") if task.age_seconds > _OLD_SECONDS else text
