"""`mooring top`: what the tasks that run use at this moment, beside what they asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_live, show_table
from mooring.cli.words import NOTHING, duration, rounded

if TYPE_CHECKING:
    from mooring.wire.accounting import TaskUse, TaskUseList

app = typer.Typer()

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
def top(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The tasks of this workload alone.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Of one pool alone.")] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Of one user alone.")] = None,
    sort: Annotated[Sort, typer.Option(help="What comes first: the most of this, or by name.")] = Sort.CPU,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="At most so many.")] = 50,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="Drawn anew so often.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once; so does a pipe.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show what running tasks use, those that use most first, until Ctrl-C."""
    from mooring.cli.connection import connect

    with connect(server) as client:

        def look() -> TaskUseList:
            return client.task_use(pool=pool, user=user, name=name, sort=sort.value, limit=limit)

        if output is Format.JSON:
            show_json(look())
        elif once or output is Format.CSV or not sys.stdout.isatty():
            show_table(_COLUMNS, _rows(look()), output)
        else:
            with suppress(KeyboardInterrupt):
                show_live(_COLUMNS, _frames(look, interval), output)


def _frames(look: Callable[[], TaskUseList], interval: float) -> Iterator[list[list[Cell]]]:
    while True:
        yield _rows(look())
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
    from mooring.model.slots import slot_type

    return NOTHING if units is None else rounded(slot, slot_type(slot).format(units))


def _against(slot: str, used: int | None, asked: int | None) -> Cell:
    """What nears or passes what was asked for stands out."""
    text = _amount(slot, used)
    return Styled(text, "yellow") if used is not None and asked and used > _FULL * asked else text


def _age(task: TaskUse) -> Cell:
    if task.age_seconds is None:
        return Styled("not yet", "dim")
    text = f"{duration(task.age_seconds)} ago"
    return Styled(text, "dim") if task.age_seconds > _OLD_SECONDS else text
