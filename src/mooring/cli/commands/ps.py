"""`mooring ps` and `mooring status`: what there is, and how one of them stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption, TasksOption, WorkloadArgument
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_table
from mooring.cli.words import (
    age,
    amounts,
    command_text,
    pairs,
    progress_text,
    reason_text,
    shortened,
    start_text,
    status_style,
    status_text,
)

if TYPE_CHECKING:
    from mooring.wire.api import WorkloadList, WorkloadView

app = typer.Typer()

_PAGE = 200
_REASON_WIDTH = 60

_COLUMNS = (
    Column("NAME"),
    Column("KIND"),
    Column("STATUS"),
    Column("RUNNING", number=True),
    Column("POOL"),
    Column("AGE", number=True),
    Column("STARTS"),
    Column("USER", wide=True),
    Column("PROJECT", wide=True),
    Column("PRIORITY", wide=True, number=True),
    Column("RESOURCES", wide=True),
    Column("IMAGE", wide=True),
    Column("COMMAND", wide=True),
    Column("LABELS", wide=True),
    Column("ID", wide=True),
    Column("REASON"),
)


@app.command(rich_help_panel=WORK)
def ps(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that ended longer ago.")] = False,
    everyone: Annotated[bool, typer.Option("--everyone", "-A", help="Those of all users; for administrators.")] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only sessions, or only deployments.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List your workloads."""
    from mooring.cli.connection import connect

    wanted = status.upper() if status else None
    with connect(server) as client:
        found = all_pages(
            lambda size, offset: client.workloads(
                all=all_, everyone=everyone, status=wanted, kind=kind, limit=size, offset=offset
            ),
            limit,
        )
    show_list(found, output, everyone=everyone)


def show_list(found: WorkloadList, output: Format, *, everyone: bool) -> None:
    if output is Format.JSON:
        show_json(found)
        return
    # Names are unique for one user only; those of others are reached by their ids.
    columns = [replace(c, wide=False) if everyone and c.title in ("USER", "ID") else c for c in _COLUMNS]
    if all(workload.start is None for workload in found.workloads):
        columns = [replace(c, wide=True) if c.title == "STARTS" else c for c in columns]
    show_table(columns, [_row(workload, output) for workload in found.workloads], output)


@app.command(rich_help_panel=WORK)
def status(
    name: WorkloadArgument, tasks: TasksOption = False, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show one workload: where its tasks are, and why it waits or failed."""
    from mooring.cli.connection import connect
    from mooring.cli.details import show_workload

    with connect(server) as client:
        show_workload(client, client.workload(name), output, all_tasks=tasks)


def all_pages(page: Callable[[int, int], WorkloadList], limit: int | None) -> WorkloadList:
    """At most so many of a list that comes in pages: `page` is asked for (limit, offset)."""
    size = min(limit or _PAGE, _PAGE)
    found = page(size, 0)
    while len(found.workloads) < (limit or found.total):
        more = page(size, len(found.workloads))
        if not more.workloads:
            break
        found.workloads.extend(more.workloads)
    del found.workloads[limit or len(found.workloads) :]
    found.limit = len(found.workloads)
    return found


def _row(workload: WorkloadView, output: Format) -> list[Cell]:
    reason = reason_text(workload.reason)
    return [
        workload.name,
        workload.kind,
        Styled(status_text(workload.status, simulated=workload.simulated), status_style(workload.status)),
        progress_text(
            workload.counts,
            workload.running,
            workload.replicas,
            workload.ready if workload.kind == "deployment" else None,
        ),
        workload.pool,
        age(workload.created_at),
        start_text(workload.start),
        workload.user,
        workload.project,
        str(workload.priority),
        amounts(workload.resources),
        workload.image or "",
        command_text(workload.command),
        pairs(workload.labels),
        str(workload.id),
        reason if output is Format.WIDE else shortened(reason, _REASON_WIDTH),
    ]
