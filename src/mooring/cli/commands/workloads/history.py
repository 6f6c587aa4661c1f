"""`mooring history`: the status changes of a workload, with their actors and reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    WORK,
    ServerOption,
    WorkloadArgument,
)
from mooring.cli.rendering.formatting import instant, status_style
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    Styled,
    show_document,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.workloads.history import AttemptRow, HistoryRow

app = App()

_COLUMNS = (
    Column("AT"),
    Column("WHAT"),
    Column("FROM"),
    Column("TO"),
    Column("BY"),
    Column("TERM", wide=True, number=True),
    Column("ID", wide=True),
    Column("REASON", cut=True),
)

_ATTEMPTS = (
    Column("TRIED"),
    Column("RESULT"),
    Column("TIMES", number=True),
    Column("FIRST", wide=True),
    Column("LAST"),
    Column("CODE"),
    Column("WHY", cut=True),
)


@app.command(rich_help_panel=WORK)
@with_groups
def history(name: WorkloadArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """Show the status changes and failed attempts of a workload, oldest first."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.history(name)
        simulated = not output.is_document and client.workload(name).simulated
    if output.is_document:
        show_document(found, output)
        return
    rows = sorted(found.history, key=lambda row: row.at)
    show_table(_COLUMNS, [_row(row, simulated=simulated) for row in rows], output)
    if found.attempts and output.is_table:
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
