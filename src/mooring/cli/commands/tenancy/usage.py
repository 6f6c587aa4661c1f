"""`mooring usage`: past resource usage, and records of ended workloads."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.formatting import (
    amounts,
    duration,
    instant,
    reason_text,
    status_style,
)
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_table,
)
from mooring.model.tenancy.accounting import By

if TYPE_CHECKING:
    from mooring.wire.tenancy.accounting import WorkloadRecord

app = App()

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
    Column("REASON", wide=True, cut=True),
)
_DAY = ["%Y-%m-%d"]


@app.command(rich_help_panel=CLUSTER)
@with_groups
def usage(
    by: Annotated[By, typer.Option(help="Grouping.")] = By.PROJECT,
    since: Annotated[
        datetime | None,
        typer.Option(formats=_DAY, metavar="DAY", help="First day (UTC): 2026-03-01 (default: 30 days ago)."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=_DAY, metavar="DAY", help="Last day (UTC) (default: today).")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only this pool.")] = None,
    workloads: Annotated[
        bool, typer.Option("--workloads", help="List the workloads that ended in this period instead.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="With --workloads: maximum number of rows.")
    ] = 100,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show usage in slot hours: cores, devices and gigabytes times hours, as allocated and as measured."""
    from mooring.cli.connection import connect

    first, last = _day(since), _day(until)
    with connect(server) as client:
        if workloads:
            records = client.workload_records(since=first, until=last, pool=pool, limit=limit)
            if output.is_document:
                show_document(records, output)
            else:
                show_table(_RECORDS, [_record(record, output) for record in records.workloads], output)
            return
        report = client.usage(by, since=first, until=last, pool=pool)
    if output.is_document:
        show_document(report, output)
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
        say("no usage is recorded for this period yet; running work is recorded every few minutes")


def _day(given: datetime | None) -> date | None:
    return None if given is None else given.date()


def _record(record: WorkloadRecord, output: Listing) -> list[Cell]:
    exact = output.layout is Format.CSV
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
