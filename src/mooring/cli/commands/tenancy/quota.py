"""`mooring quota`: what one may use, what is left of it, and how administrators change that."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import ACCOUNT, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_json, show_line, show_table
from mooring.cli.words import NOTHING, instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.quotas import QuotaLine, QuotaView

app = typer.Typer()
quota_app = typer.Typer(help="Show quotas and what is left of them; change those of tenants.", no_args_is_help=False)
app.add_typer(quota_app, name="quota", rich_help_panel=ACCOUNT, invoke_without_command=True)

_COLUMNS = (
    Column("LEVEL"),
    Column("NAME"),
    Column("SLOT"),
    Column("LIMIT", number=True),
    Column("USED", number=True),
    Column("RESERVED", number=True),
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


LevelArgument = Annotated[Level, typer.Argument(metavar="LEVEL", help="keypair, user, project or domain.")]
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Its name or id; a keypair's access key.")]


@quota_app.callback()
def quota(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show what limits your own work; or show and change the quotas of a tenant."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quotas(), output)


@quota_app.command()
def show(
    level: LevelArgument, tenant: TenantArgument, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show the quota of a tenant."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quota(level, tenant), output)


@quota_app.command("set")
def set_quota(
    level: LevelArgument,
    tenant: TenantArgument,
    amounts: Annotated[
        list[str], typer.Argument(metavar="SLOT=AMOUNT", help="cpu=64, memory=256Gi, gpu=4, sessions=20, …")
    ],
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="In place of the other limits until then: 2030-01-31T12:00:00Z.")
    ] = None,
    guaranteed: Annotated[
        str | None,
        typer.Option("--guaranteed-in", metavar="POOL", help="What a project has for sure there, not limits."),
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Limit what a tenant may use at once. What runs already is left alone."""
    written = dict(_split(amount) for amount in amounts)
    _change(level, tenant, dict(written), until, guaranteed, output, server)


@quota_app.command()
def unset(
    level: LevelArgument,
    tenant: TenantArgument,
    slots: Annotated[list[str], typer.Argument(metavar="SLOT", help="The slots that are not to be limited here.")],
    guaranteed: Annotated[
        str | None, typer.Option("--guaranteed-in", metavar="POOL", help="Take away its guarantee there instead.")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Take limits away, and what stands in their place for a time."""
    _change(level, tenant, dict.fromkeys(slots), None, guaranteed, output, server)


@quota_app.command()
def revert(
    level: LevelArgument,
    tenant: TenantArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="To this version; else the one before.")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Give a tenant the quota of an earlier version back; `mooring actions --noun quota` lists them."""
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
    from mooring.cli.requests import build
    from mooring.wire.quotas import QuotaChange

    given = {"limits": amounts} if pool is None else {"guaranteed": amounts, "pool": pool}
    change = build(QuotaChange, until=until, **given)
    with connect(server) as client:
        _show(client.change_quota(level, tenant, change), output)


def _split(written: str) -> tuple[str, str]:
    slot, found, amount = written.partition("=")
    if not (slot and found and amount):
        raise InvalidInput(f"{written!r} is not SLOT=AMOUNT, such as cpu=64", code="invalid-quota")
    return slot, amount


def _show(view: QuotaView, output: Format) -> None:
    if output is Format.JSON:
        show_json(view)
        return
    if view.quotas:
        show_table(_COLUMNS, [_row(line) for line in view.quotas], output)
    else:
        show_line("nothing is limited, and nothing is in use")
    if view.guarantees:
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
        line.borrowed or NOTHING,
        line.left or NOTHING,
        NOTHING if line.until is None else instant(line.until),
        line.tenant,
    ]
