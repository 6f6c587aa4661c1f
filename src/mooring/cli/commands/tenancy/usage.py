"""`mooring usage`: who used how much, and what is left of work that ended."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, Styled, show_json, show_table
from mooring.cli.words import amounts, duration, instant, reason_text, status_style
from mooring.model.accounting import By

if TYPE_CHECKING:
    from mooring.wire.accounting import WorkloadRecord

app = typer.Typer()

_RECORDS = (
    Column("ENDED"),
    Column("NAME"),
    Column("STATUS"),
    Column("PROJECT"),
    Column("USER"),
    Column("POOL"),
    Column("TASKS", number=True),
    Column("ATTEMPTS", wide=True, number=True),
    Column("REQUESTED", wide=True),
    Column("PEAK"),
    Column("WAITED", number=True),
    Column("RAN", number=True),
    Column("NODES", wide=True),
    Column("ID", wide=True),
    Column("REASON", wide=True),
)
_DAY = ["%Y-%m-%d"]


@app.command(rich_help_panel=CLUSTER)
def usage(
    by: Annotated[By, typer.Option(help="What to sum up by.")] = By.PROJECT,
    since: Annotated[
        datetime | None,
        typer.Option(formats=_DAY, metavar="DAY", help="The first day (UTC): 2026-03-01; else 30 days."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=_DAY, metavar="DAY", help="The last day (UTC); else today.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Of one pool alone.")] = None,
    workloads: Annotated[
        bool, typer.Option("--workloads", help="List the workloads that ended in these days instead.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="With --workloads: at most so many.")] = 100,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show what was used, in slot hours: cores, devices and gigabytes times hours; measured: how much of it really."""
    from mooring.cli.connection import connect

    first, last = _day(since), _day(until)
    with connect(server) as client:
        if workloads:
            records = client.workload_records(since=first, until=last, pool=pool, limit=limit)
            if output is Format.JSON:
                show_json(records)
            else:
                show_table(_RECORDS, [_record(record, output) for record in records.workloads], output)
            return
        report = client.usage(by, since=first, until=last, pool=pool)
    if output is Format.JSON:
        show_json(report)
        return
    columns = (
        Column(by.upper()),
        Column("SLOT"),
        Column("HOURS", number=True),
        Column("MEASURED", number=True),
        Column("OF"),
    )
    show_table(
        columns,
        [[line.name, line.slot, line.hours, line.measured_hours or "", line.unit] for line in report.usage],
        output,
    )
    if not report.usage:
        say("nothing was counted in these days yet; what runs now is counted every few minutes")


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()


def _record(record: WorkloadRecord, output: Format) -> list[Cell]:
    exact = output is Format.CSV
    return [
        record.ended_at.isoformat() if exact else instant(record.ended_at),
        record.name,
        Styled(record.status.lower(), status_style(record.status)),
        f"{record.domain}/{record.project}",
        record.user,
        record.pool,
        str(record.tasks),
        str(record.attempts),
        amounts(record.requested),
        amounts(record.peak),
        str(record.wait_seconds) if exact else duration(record.wait_seconds),
        str(record.run_seconds) if exact else duration(record.run_seconds),
        ", ".join(record.nodes),
        str(record.id),
        reason_text(record.reason),
    ]
