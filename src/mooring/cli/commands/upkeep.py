"""`mooring audit` and `mooring version`: whether the server's books are right, and what runs there."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli.exits import ExitCode
from mooring.cli.options import SERVER, OutputOption, ServerOption
from mooring.cli.output import Column, Format, show_json, show_line, show_table
from mooring.cli.words import plural
from mooring.model.errors import MooringError

app = typer.Typer()

_PROBE_SECONDS = 2.0


@app.command(rich_help_panel=SERVER)
def audit(
    repair: Annotated[bool, typer.Option("--repair", help="Set counters and copies right from the ledger.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Prove that ledger, counters and readable copies agree; exits with 1 if they do not."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.repair() if repair else client.audit()
        clean = found.clean or (repair and client.audit().clean)
    if output is Format.JSON:
        show_json(found)
    else:
        shown = [*found.repairs, *found.findings]
        if shown:
            columns = [Column(title) for title in ("RULE", "SUBJECT", "EXPECTED", "FOUND")]
            show_table(columns, [[f.rule, f.subject, f.expected, f.found] for f in shown], output)
        checked = ", ".join(f"{count} {what}" for what, count in found.checked.items()) or "nothing"
        repaired = f", {found.repaired} repaired" if repair else ""
        show_line(f"checked {checked}: {plural(len(found.findings), 'finding')}{repaired}")
        if found.findings and not repair:
            show_line("hint: `mooring audit --repair` sets counters and copies right from the ledger")
    if not clean:
        raise typer.Exit(ExitCode.FAILURE)


@app.command(rich_help_panel=SERVER)
def version(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show the version of this command, and of the server if it answers."""
    from mooring import __version__
    from mooring.cli.connection import connect

    there: dict[str, str] = {}
    with connect(server, timeout_seconds=_PROBE_SECONDS) as client:
        try:
            health = client.health()
            there = {"server": client.server, "server_version": health.version, "role": health.role}
        except MooringError:
            address = client.server
    if output is Format.JSON:
        import json

        print(json.dumps({"version": __version__, **there}, indent=2))
        return
    show_line(f"mooring {__version__}")
    if there:
        show_line(f"server  {there['server_version']} ({there['server']}, {there['role']})")
    else:
        show_line(f"server  does not answer ({address})")
