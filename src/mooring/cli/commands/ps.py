"""`mooring ps` and `mooring status`: what there is, and how one of them stands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption, WorkloadArgument
from mooring.cli.output import Cell, Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.words import (
    age,
    amounts,
    command_text,
    devices,
    instant,
    pairs,
    reason_text,
    shortened,
    status_style,
    status_text,
)

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.api import TaskView, WorkloadDetail, WorkloadList, WorkloadView

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

    with connect(server) as client:
        found = _all_pages(client, all_=all_, everyone=everyone, status=status, kind=kind, limit=limit)
    if output is Format.JSON:
        show_json(found)
        return
    # Names are unique for one user only; those of others are reached by their ids.
    columns = [replace(c, wide=False) if everyone and c.title in ("USER", "ID") else c for c in _COLUMNS]
    show_table(columns, [_row(workload, output) for workload in found.workloads], output)


@app.command(rich_help_panel=WORK)
def status(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show one workload: where its tasks are, and why it waits or failed."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        detail = client.workload(name)
    if output is Format.JSON:
        show_json(detail)
        return
    _show(detail)
    if detail.tasks:
        print()
        shown_tasks = [task for task in detail.tasks if task.current or output is Format.WIDE]
        given = any(task.devices for task in shown_tasks)
        columns = [replace(c, wide=not given) if c.title == "DEVICES" else c for c in _TASK_COLUMNS]
        show_table(columns, [_task_row(task, detail) for task in shown_tasks], output)


def _all_pages(
    client: Client, *, all_: bool, everyone: bool, status: str | None, kind: str | None, limit: int | None
) -> WorkloadList:
    def page(offset: int) -> WorkloadList:
        size = min(limit or _PAGE, _PAGE)
        wanted = status.upper() if status else None
        return client.workloads(all=all_, everyone=everyone, status=wanted, kind=kind, limit=size, offset=offset)

    found = page(0)
    while len(found.workloads) < (limit or found.total):
        more = page(len(found.workloads))
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
        f"{workload.running}/{workload.replicas}",
        workload.pool,
        age(workload.created_at),
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


def _show(detail: WorkloadDetail) -> None:
    from mooring.cli.cures import cure

    state = status_text(detail.status, simulated=detail.simulated)
    show_fields(
        [
            ("name", detail.name),
            ("id", str(detail.id)),
            ("kind", f"{detail.kind} ({detail.type})"),
            ("status", Styled(f"{state}, stopping" if detail.stopping else state, status_style(detail.status))),
            ("replicas", f"{detail.running} of {detail.replicas} running"),
            ("pool", detail.pool),
            ("region", detail.region or ""),
            ("user", f"{detail.user} (project {detail.project})"),
            ("image", detail.image or ""),
            ("command", command_text(detail.command)),
            ("resources", amounts(detail.resources)),
            ("together", _together(detail)),
            ("priority", _priority(detail)),
            ("labels", pairs(detail.labels)),
            ("created", f"{instant(detail.created_at)} ({age(detail.created_at)} ago)"),
            ("started", instant(detail.started_at)),
            ("ended", instant(detail.ended_at)),
            ("reason", reason_text(detail.reason)),
        ]
    )
    for container, variables in (detail.environment or {}).items():
        for variable, value in variables.items():
            show_line(f"environment of {container}: {variable}={value}")
    if detail.reason and detail.status != "RUNNING" and (advice := cure(detail)):
        show_line(f"hint: {advice}")
    if detail.status == "PENDING":
        show_line(f"`mooring explain {detail.name}` shows which nodes lack what")


def _together(detail: WorkloadDetail) -> str:
    """How its tasks belong together, and to other work."""
    parts = [
        "all start together" if detail.gang and detail.replicas > 1 else "",
        "" if detail.min_tasks is None else f"at least {detail.min_tasks} start together",
        "all on one node" if detail.single_node else "",
        f"packed by {', '.join(detail.pack)}" if detail.pack else "",
        "" if detail.group is None else f"group {detail.group}",
    ]
    return "; ".join(filter(None, parts))


def _priority(detail: WorkloadDetail) -> str:
    parts = [
        str(detail.priority),
        "" if detail.preempts else "does not preempt",
        "" if detail.preemptible else "not preemptible",
        "" if detail.min_available is None else f"at least {detail.min_available} stay",
    ]
    return "; ".join(filter(None, parts))


_TASK_COLUMNS = (
    Column("TASK", number=True),
    Column("STATUS"),
    Column("NODE"),
    Column("DEVICES"),
    Column("ATTEMPT", number=True),
    Column("RESTARTS", number=True),
    Column("EXIT", number=True),
    Column("AGE", number=True),
    Column("SCORE", wide=True, number=True),
    Column("STARTED", wide=True),
    Column("ENDED", wide=True),
    Column("ID", wide=True),
    Column("REASON"),
)


def _task_row(task: TaskView, detail: WorkloadDetail) -> list[Cell]:
    return [
        str(task.index),
        Styled(status_text(task.status, simulated=detail.simulated), status_style(task.status)),
        task.node or "",
        devices(task.devices),
        str(task.attempt),
        str(task.restarts),
        "" if task.exit_code is None else str(task.exit_code),
        age(task.started_at or task.created_at, until=task.ended_at),
        "" if task.score is None else f"{task.score:.2f}",
        instant(task.started_at),
        instant(task.ended_at),
        str(task.id),
        task.reason or "",
    ]
