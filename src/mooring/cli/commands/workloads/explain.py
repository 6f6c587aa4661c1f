"""`mooring explain`: why a workload is pending, or why it was placed on its nodes."""

from __future__ import annotations

from mooring.cli.help import App
from mooring.cli.input.options import (
    WORK,
    OutputOption,
    ServerOption,
    WorkloadArgument,
)
from mooring.cli.rendering.output import Format

app = App()


@app.command(rich_help_panel=WORK)
def explain(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show why a workload is pending: the reasons that exclude nodes, and the scores of the remaining ones."""
    from mooring.cli.connection import connect
    from mooring.cli.rendering.explanation import show_explanation

    with connect(server) as client:
        explanation = client.explanation(name)
    show_explanation(explanation, output)
