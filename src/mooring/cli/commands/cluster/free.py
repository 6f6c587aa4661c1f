"""`mooring free`: the largest requests that would start now."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_json, show_line, show_table
from mooring.cli.words import amounts

app = typer.Typer()

_COLUMNS = (
    Column("POOL"),
    Column("NODES", number=True),
    Column("FREE IN ALL"),
    Column("ONE TASK GETS AT MOST"),
    Column("OF EACH ALONE", wide=True),
)
_QUOTAS = (Column("QUOTA OF"), Column("NAME"), Column("LEAVES"))


@app.command(rich_help_panel=CLUSTER)
def free(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="One pool alone.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show what would start now: the largest requests of one task, pool by pool, as far as your quotas go."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        room = client.free(pool)
    if output is Format.JSON:
        show_json(room)
        return
    rows: list[list[Cell]] = [
        [found.pool, str(found.nodes), amounts(found.free), amounts(box), amounts(found.largest)]
        for found in room.pools
        for box in found.boxes or [{}]
    ]
    show_table(_COLUMNS, rows, output)
    if room.quotas and output is not Format.CSV:
        show_line("")
        show_table(_QUOTAS, [[quota.scope, quota.name, amounts(quota.left)] for quota in room.quotas], output)
