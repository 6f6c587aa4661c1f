"""`mooring keypair`: credentials for programs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.tenancy.domains import state
from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    TENANTS,
    ActiveOption,
    OutputOption,
    PolicyOption,
    ServerOption,
)
from mooring.cli.rendering.formatting import NOTHING, age, instant
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Format,
    Listing,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenancy.tenants import KeypairView

app = App()
keypair_app = App(help="Manage keypairs: access keys and secrets for programs.", no_args_is_help=True)
app.add_typer(keypair_app, name="keypair", rich_help_panel=TENANTS)

KeyArgument = Annotated[str, typer.Argument(metavar="ACCESS_KEY", help="The keypair's access key.")]
_SECONDS_PER_DAY = 86400


class ScopeChoice(StrEnum):
    ALL = "all"
    WORK = "work"
    READ = "read"


@keypair_app.command()
def create(
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Description.")] = None,
    scope: Annotated[ScopeChoice, typer.Option(help="Scope of the keypair.")] = ScopeChoice.ALL,
    days: Annotated[int | None, typer.Option(min=1, max=3660, metavar="DAYS", help="Lifetime.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="PROJECT", help="Project (default: the user's default project).")
    ] = None,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Owner (default: you).")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a keypair. Its secret is shown once."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.tenancy.tenants import KeypairRequest

    request = build(
        KeypairRequest,
        name=checked_name(name),
        scope=scope.value,
        expires_in_seconds=None if days is None else days * _SECONDS_PER_DAY,
        project=checked_name(project, what="project"),
        user=checked_name(user, what="user"),
    )
    with connect(server) as client:
        made = client.create_keypair(request)
    if output.is_document:
        show_document(made, output)
        return
    show_line(f"MOORING_ACCESS_KEY={made.access_key}")
    show_line(f"MOORING_SECRET_KEY={made.secret}")
    say("the secret is not shown again; pass both to programs in their environment")


@keypair_app.command("list")
@with_groups
def list_keypairs(
    user: Annotated[str | None, typer.Option(metavar="USER", help="Owner (default: you).")] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="Include those of all users that you may see.")] = False,
    unused_days: Annotated[
        int | None,
        typer.Option(
            "--unused-days",
            min=0,
            max=36600,
            metavar="DAYS",
            help="Only active keypairs that have been unused for this long.",
        ),
    ] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List keypairs."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.keypairs(user=user, everyone=everyone, unused_days=unused_days)
    if output.is_document:
        show_document(found, output)
        return
    columns = (
        Column("ACCESS KEY"),
        Column("NAME"),
        Column("USER"),
        Column("PROJECT"),
        Column("SCOPE"),
        Column("STATE"),
        Column("ENDS"),
        Column("LAST USED"),
        Column("UNUSED"),
        Column("MADE WITH", wide=True),
        Column("POLICY", wide=True),
        Column("SINCE", wide=True),
    )
    show_table(columns, [_row(keypair) for keypair in found], output)


@keypair_app.command()
def show(key: KeyArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show a keypair."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.keypair(key)
    _show(found, output)


@keypair_app.command()
def change(
    key: KeyArgument,
    active: ActiveOption = None,
    scope: Annotated[ScopeChoice | None, typer.Option(help="Scope of the keypair.")] = None,
    policy: PolicyOption = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Activate or deactivate a keypair, or change its scope or policy."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import KeypairChange

    if active is None and scope is None and policy is None:
        raise InvalidInput("no change is given; use --active, --inactive, --scope or --policy")
    request = build(KeypairChange, active=active, scope=scope.value if scope else None, policy=policy)
    with connect(server) as client:
        changed = client.change_keypair(key, request)
    _show(changed, output)


@keypair_app.command()
def remove(key: KeyArgument, server: ServerOption = None) -> None:
    """Remove a keypair that has never submitted work."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.remove_keypair(key)
    show_line(f"{key}: removed")


def _row(keypair: KeypairView) -> list[Cell]:
    return [
        keypair.access_key,
        keypair.name or NOTHING,
        keypair.user,
        keypair.project,
        keypair.scope if keypair.has_secret else "no secret",
        state(keypair.active),
        instant(keypair.expires_at),
        instant(keypair.last_used_at),
        age(keypair.unused_since),
        keypair.parent_key or NOTHING,
        keypair.policy or NOTHING,
        instant(keypair.created_at),
    ]


def _show(keypair: KeypairView, output: Format) -> None:
    if output.is_document:
        show_document(keypair, output)
        return
    names = ["access key", "name", "user", "project", "scope", "state", "ends", "last used", "unused", "made with"]
    names += ["policy", "since"]
    show_fields(list(zip(names, _row(keypair), strict=True)))
