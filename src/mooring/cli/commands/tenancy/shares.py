"""`mooring shares`: fair-share weights, factors and ranks. `mooring occupancy`: who occupies how much."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.formatting import NOTHING
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    show_document,
    show_line,
    show_table,
)

app = App()
shares_app = App(help="Show fair-share weights and ranks of tenants, or set weights.", no_args_is_help=False)
app.add_typer(shares_app, name="shares", rich_help_panel=CLUSTER, invoke_without_command=True)

_SHARES = (
    Column("LEVEL"),
    Column("NAME"),
    Column("WEIGHT", number=True),
    Column("USED", number=True),
    Column("HOLDS", number=True),
    Column("FACTOR", number=True),
    Column("RANK", number=True),
    Column("ID", wide=True),
)
_OCCUPANCY = (Column("AXIS"), Column("NAME"), Column("SLOT"), Column("OCCUPIED", number=True))


class ScopeChoice(StrEnum):
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


class AxisChoice(StrEnum):
    KEYPAIR = "keypair"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    NODE = "node"


@shares_app.callback()
@with_groups
def shares(
    ctx: typer.Context,
    pool: Annotated[str, typer.Option(metavar="POOL", help="Pool (default: default).")] = "default",
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show weight, past usage, current allocation, factor and rank of the tenants of a pool."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.shares(pool=pool)
    if output.is_document:
        show_document(found, output)
        return
    rows: list[list[Cell]] = [
        [
            share.scope,
            share.name,
            str(share.weight),
            f"{share.used_percent:.1f}%",
            f"{share.held_percent:.1f}%" if share.scope == "user" else NOTHING,
            f"{share.factor:.3f}",
            str(share.rank),
            str(share.id),
        ]
        for share in found.shares
    ]
    show_table(_SHARES, rows, output)
    if output.layout is Format.TABLE:
        say(f"pool {found.pool} orders work of one priority by {found.sequencer}")


@shares_app.command("set")
def set_weight(
    scope: Annotated[ScopeChoice, typer.Argument(metavar="LEVEL", help="Kind of tenant: user, project or domain.")],
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Name or id of the tenant.")],
    weight: Annotated[
        int, typer.Argument(metavar="WEIGHT", min=1, max=10_000, help="New weight; the default weight is 100.")
    ],
    server: ServerOption = None,
) -> None:
    """Set the fair-share weight of a tenant: 200 entitles it to twice as much as 100."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.set_weight(scope, tenant, weight)
    show_line(f"{tenant}: weight {weight}")


@app.command(rich_help_panel=CLUSTER)
@with_groups
def occupancy(
    by: Annotated[
        AxisChoice | None, typer.Option(help="Only this axis: keypair, user, project, domain or node.")
    ] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show the resources that keypairs, users, projects, domains and nodes occupy, from one snapshot."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.occupancy(by=by)
    if output.is_document:
        show_document(found, output)
        return
    rows: list[list[Cell]] = [[line.axis, line.name, line.slot, line.shown] for line in found.occupancy]
    show_table(_OCCUPANCY, rows, output)
    if not found.occupancy and output.layout is Format.TABLE:
        say("nothing is occupied")
