"""`mooring audit` and `mooring version`: the consistency of the server's records, and its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import SERVER, OutputOption, ServerOption
from mooring.cli.rendering.formatting import plural
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Format,
    Listing,
    show_document,
    show_line,
    show_table,
)
from mooring.model.errors import MooringError

if TYPE_CHECKING:
    from mooring.wire.cluster.audit import AuditReport

app = App()

_PROBE_SECONDS = 2.0


@app.command(rich_help_panel=SERVER)
@with_groups
def audit(
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct inconsistent records, by majority and status.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the changes that a repair would make, without making them.")
    ] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Check that the records of tasks, workloads, nodes and tenants agree. Exits with 1 if they do not.

    CSV, names and --columns list the findings, or with --dry-run or --repair the changes.
    """
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.repair(dry_run=dry_run) if repair or dry_run else client.audit()
    if output.is_document:
        show_document(found, output)
    elif output.is_table:
        _show_audit(found, output, repaired=repair and not dry_run)
    elif repair or dry_run:
        _show_changes(found, output)
    else:
        _show_findings(found, output)
    if not found.clean:
        raise typer.Exit(ExitCode.FAILURE)


def _show_audit(found: AuditReport, output: Listing, *, repaired: bool) -> None:
    """Print findings, then changes, both before and after a repair."""
    if found.findings:
        _show_findings(found, output)
    if found.changes:
        _show_changes(found, output)
    checked = ", ".join(f"{count} {what}" for what, count in found.checked.items()) or "nothing"
    many = f", {plural(found.repaired, 'row')} repaired" if repaired else ""
    show_line(f"checked {checked}: {plural(len(found.findings), 'finding')}{many}")
    ambiguous = sum(finding.ambiguous for finding in found.findings)
    if ambiguous:
        show_line(
            f"{plural(ambiguous, 'finding')} ambiguous: no record has a majority, so none was changed;"
            " compare them with the nodes, and correct one side manually"
        )
    if len(found.findings) > ambiguous and not repaired:
        show_line("hint: `mooring audit --dry-run` lists the changes of a repair, `mooring audit --repair` makes them")


def _show_findings(found: AuditReport, output: Listing) -> None:
    columns = [Column("RULE"), Column("SUBJECT", key=True), Column("EXPECTED"), Column("FOUND")]
    show_table(columns, [[f.rule, f.subject, f.expected, f.found] for f in found.findings], output)


def _show_changes(found: AuditReport, output: Listing) -> None:
    columns = [Column(title, key=title == "ROW") for title in ("TABLE", "ROW", "COLUMN", "FROM", "TO", "WHY")]
    rows = [[c.table, c.row, c.column, c.before or "", c.after or "", c.why] for c in found.changes]
    show_table(columns, rows, output)


@app.command(rich_help_panel=SERVER)
def version(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show the version of this command, and that of the server if it is reachable."""
    from mooring import __version__
    from mooring.cli.connection import connect

    there: dict[str, str] = {}
    with connect(server, timeout_seconds=_PROBE_SECONDS) as client:
        try:
            health = client.health()
            there = {"server": client.server, "server_version": health.version, "role": health.role}
        except MooringError:
            address = client.server
    if output.is_document:
        show_document({"version": __version__, **there}, output)
        return
    show_line(f"mooring {__version__}")
    if there:
        show_line(f"server  {there['server_version']} ({there['server']}, {there['role']})")
    else:
        show_line(f"server  does not answer ({address})")
