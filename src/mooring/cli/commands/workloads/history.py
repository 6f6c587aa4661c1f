"""`mooring history`: every change of status, with who and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption, WorkloadArgument
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_line, show_table
from mooring.cli.words import instant, status_style

if TYPE_CHECKING:
    from mooring.wire.api import AttemptRow, HistoryRow

app = typer.Typer()

_COLUMNS = (
    Column("AT"),
    Column("WHAT"),
    Column("FROM"),
    Column("TO"),
    Column("BY"),
    Column("TERM", wide=True, number=True),
    Column("ID", wide=True),
    Column("REASON"),
)

_ATTEMPTS = (
    Column("TRIED"),
    Column("RESULT"),
    Column("TIMES", number=True),
    Column("FIRST", wide=True),
    Column("LAST"),
    Column("CODE"),
    Column("WHY"),
)


@app.command(rich_help_panel=WORK)
def history(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show what happened to a workload, and what was tried in vain, oldest first."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.history(name)
        simulated = output is not Format.JSON and client.workload(name).simulated
    if output is Format.JSON:
        show_json(found)
        return
    rows = sorted(found.history, key=lambda row: row.at)
    show_table(_COLUMNS, [_row(row, simulated=simulated) for row in rows], output)
    if found.attempts:
        show_line("")
        show_table(_ATTEMPTS, [_attempt(row) for row in found.attempts], output)


def _row(row: HistoryRow, *, simulated: bool) -> list[Cell]:
    attempt = f" (attempt {row.attempt})" if row.attempt and row.attempt > 1 else ""
    what = row.noun if row.task_index is None else f"{row.noun} {row.task_index}{attempt}"
    became = f"{row.new_status.lower()} (simulated)" if simulated else row.new_status.lower()
    return [
        instant(row.at),
        what,
        row.old_status.lower(),
        Styled(became, status_style(row.new_status)),
        row.actor,
        "" if row.term is None else str(row.term),
        str(row.object_id),
        row.reason or "",
    ]


def _attempt(row: AttemptRow) -> list[Cell]:
    return [
        row.phase if row.task_index is None else f"{row.phase} task {row.task_index}",
        row.result.replace("_", " "),
        str(row.number),
        instant(row.first_at),
        instant(row.last_at),
        row.code or "",
        row.message or "",
    ]
