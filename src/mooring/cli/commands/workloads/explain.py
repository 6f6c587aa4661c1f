"""`mooring explain`: why a workload waits, or is where it is."""

from __future__ import annotations

import typer

from mooring.cli.options import WORK, OutputOption, ServerOption, WorkloadArgument
from mooring.cli.output import Format

app = typer.Typer()


@app.command(rich_help_panel=WORK)
def explain(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show why a workload waits: what turned the nodes down, and how those that are left compare."""
    from mooring.cli.connection import connect
    from mooring.cli.explaining import show_explanation

    with connect(server) as client:
        explanation = client.explanation(name)
    show_explanation(explanation, output)
