"""`mooring quota`: limits of tenants, and their usage."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import ACCOUNT, OutputOption, ServerOption
from mooring.cli.rendering.formatting import NOTHING, instant
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
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenancy.quotas import QuotaLine, QuotaView

app = App()
quota_app = App(help="Show quotas and their usage, or change those of tenants.", no_args_is_help=False)
app.add_typer(quota_app, name="quota", rich_help_panel=ACCOUNT, invoke_without_command=True)

_COLUMNS = (
    Column("LEVEL"),
    Column("NAME"),
    Column("SLOT"),
    Column("LIMIT", number=True),
    Column("USED", number=True),
    Column("RESERVED", number=True),
    Column("PENDING", number=True),
    Column("BORROWED", number=True),
    Column("LEFT", number=True),
    Column("UNTIL"),
    Column("ID", wide=True),
)
_GUARANTEES = (
    Column("POOL"),
    Column("SLOT"),
    Column("GUARANTEED", number=True),
    Column("IN USE", number=True),
    Column("BORROWED", number=True),
)


class Level(StrEnum):
    KEYPAIR = "keypair"
    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"


LevelArgument = Annotated[
    Level, typer.Argument(metavar="LEVEL", help="Kind of tenant: keypair, user, project or domain.")
]
TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help="Name or id of the tenant, or access key of a keypair.")
]


@quota_app.callback()
@with_groups
def quota(ctx: typer.Context, output: Listing = TABLE, server: ServerOption = None) -> None:
    """Show the limits of your own work, or show and change the quotas of a tenant."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quotas(), output)


@quota_app.command()
@with_groups
def show(level: LevelArgument, tenant: TenantArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """Show the quota of a tenant."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quota(level, tenant), output)


@quota_app.command("set")
def set_quota(
    level: LevelArgument,
    tenant: TenantArgument,
    amounts: Annotated[
        list[str], typer.Argument(metavar="SLOT=AMOUNT", help="Limits: cpu=64, memory=256Gi, gpu=4, sessions=20, …")
    ],
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Override the other limits until this time: 2030-01-31T12:00:00Z."),
    ] = None,
    guaranteed: Annotated[
        str | None,
        typer.Option(
            "--guaranteed-in", metavar="POOL", help="Set a project's guarantee in this pool instead of limits."
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Limit the resources that a tenant may use at once. Running work is not affected."""
    written = dict(_split(amount) for amount in amounts)
    _change(level, tenant, dict(written), until, guaranteed, output, server)


@quota_app.command()
def unset(
    level: LevelArgument,
    tenant: TenantArgument,
    slots: Annotated[list[str], typer.Argument(metavar="SLOT", help="Slots whose limits to remove.")],
    guaranteed: Annotated[
        str | None,
        typer.Option("--guaranteed-in", metavar="POOL", help="Remove the project's guarantee in this pool instead."),
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Remove limits, including temporary overrides."""
    _change(level, tenant, dict.fromkeys(slots), None, guaranteed, output, server)


@quota_app.command()
def revert(
    level: LevelArgument,
    tenant: TenantArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Version to revert to (default: the previous one).")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Restore an earlier version of a tenant's quota. `mooring actions --noun quota` lists versions."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.revert_quota(level, tenant, version=version), output)


def _change(
    level: Level,
    tenant: str,
    amounts: dict[str, str | None],
    until: str | None,
    pool: str | None,
    output: Format,
    server: str | None,
) -> None:
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.quotas import QuotaChange

    given = {"limits": amounts} if pool is None else {"guaranteed": amounts, "pool": pool}
    change = build(QuotaChange, until=until, **given)
    with connect(server) as client:
        _show(client.change_quota(level, tenant, change), output)


def _split(written: str) -> tuple[str, str]:
    slot, found, amount = written.partition("=")
    if not (slot and found and amount):
        raise InvalidInput(f"{written!r} is not SLOT=AMOUNT, such as cpu=64", code="invalid-quota")
    return slot, amount


def _show(view: QuotaView, output: Format | Listing) -> None:
    if output.is_document:
        show_document(view, output)
        return
    if view.quotas or not output.is_table:
        show_table(_COLUMNS, [_row(line) for line in view.quotas], output)
    else:
        show_line("no limits, and nothing in use")
    if view.guarantees and output.is_table:
        show_line("")
        shares = [[g.pool, g.slot, g.guaranteed, g.in_use, g.borrowed] for g in view.guarantees]
        show_table(_GUARANTEES, shares, output)


def _row(line: QuotaLine) -> list[Cell]:
    return [
        line.scope,
        line.name,
        line.slot,
        line.limit or NOTHING,
        line.used,
        line.reserved,
        line.pending,
        line.borrowed or NOTHING,
        line.left or NOTHING,
        NOTHING if line.until is None else instant(line.until),
        line.tenant,
    ]
