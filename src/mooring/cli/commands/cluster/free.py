"""`mooring free`: the largest requests that would start now."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.formatting import amounts
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    show_document,
    show_line,
    show_table,
)

app = App()

_COLUMNS = (
    Column("POOL"),
    Column("NODES", number=True),
    Column("FREE IN ALL", cut=True),
    Column("ONE TASK GETS AT MOST", cut=True),
    Column("OF EACH ALONE", wide=True, cut=True),
)
_QUOTAS = (Column("QUOTA OF"), Column("NAME"), Column("LEAVES", cut=True))


@app.command(rich_help_panel=CLUSTER)
@with_groups
def free(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only this pool.")] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show free capacity by pool, and the largest request of one task that would start now within your quotas."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        free_capacity = client.free(pool)
    if output.is_document:
        show_document(free_capacity, output)
        return
    rows: list[list[Cell]] = [
        [found.pool, str(found.nodes), amounts(found.free), amounts(box), amounts(found.largest)]
        for found in free_capacity.pools
        for box in found.boxes or [{}]
    ]
    show_table(_COLUMNS, rows, output)
    if free_capacity.quotas and output.is_table:
        show_line("")
        show_table(_QUOTAS, [[quota.scope, quota.name, amounts(quota.left)] for quota in free_capacity.quotas], output)
