"""`mooring token`: join tokens for machines, and the logins of users."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import (
    CLUSTER,
    LabelOption,
    OutputOption,
    RegionOption,
    ServerOption,
    TaintOption,
)
from mooring.cli.rendering.formatting import age, instant
from mooring.cli.rendering.output import TABLE, Column, Format, Listing, show_document, show_line, show_table
from mooring.model.errors import InvalidInput

app = App()
token_app = App(help="Create join tokens for machines; list and revoke logins.", no_args_is_help=True)
app.add_typer(token_app, name="token", rich_help_panel=CLUSTER)


UserOption = Annotated[str | None, typer.Option(metavar="NAME", help="User (default: you); for administrators.")]
_COLUMNS = (
    Column("ID", drop=0),
    Column("CREATED"),
    Column("LAST USED", number=True),
    Column("FROM"),
    Column("EXPIRES"),
    Column("CURRENT"),
    Column("USER", wide=True),
)


@token_app.callback()
def token() -> None:
    """Create join tokens for machines; list and revoke logins."""


@token_app.command()
def create(
    name: Annotated[str, typer.Option(metavar="NODE", help="Name of the node.")],
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Pool that the node joins.")] = None,
    region: RegionOption = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    expires_in: Annotated[
        float | None,
        typer.Option(metavar="TIME", parser=seconds_at_least(10), help="Lifetime of the token: 30m (default 1h)."),
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a join token for one machine, and print the command to run there."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import (
        assignments,
        build,
        checked_name,
        taints,
    )
    from mooring.client.address import is_loopback
    from mooring.wire.cluster.nodes import JoinTokenRequest

    request = build(
        JoinTokenRequest,
        name=checked_name(name),
        pool=checked_name(pool, what="pool"),
        region=region,
        labels=assignments(label, option="--label") or None,
        taints=taints(taint) or None,
        expires_in_seconds=None if expires_in is None else int(expires_in),
    )
    with connect(server) as client:
        made = client.create_join_token(request)
        address = client.server
    if output.is_document:
        show_document(made, output)
        return
    # In the environment, since other users of the machine can read its process list.
    command = shlex.join(["mooring", "agent", "--server", address, "--name", made.name])
    print(f"MOORING_JOIN_TOKEN={shlex.quote(made.token)} {command}")
    say(f"run this on the machine before {instant(made.expires_at)}; the token works once, for {made.name}")
    if is_loopback(address):
        say(f"hint: other machines cannot reach {address}; use an address of the server that they can reach")


@token_app.command("list")
@with_groups
def list_logins(user: UserOption = None, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List logins that have not ended. The last use is noted to 5 minutes."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.logins(user=user)
    if output.is_document:
        show_document(found, output)
        return
    rows = [
        [
            str(each.id),
            instant(each.created_at),
            age(each.last_used_at),
            each.address or "",
            instant(each.expires_at),
            "yes" if each.current else "",
            each.user,
        ]
        for each in found
    ]
    show_table(_COLUMNS, rows, output)


@token_app.command()
def revoke(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of logins.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Revoke all logins of the user, even this one.")] = False,
    user: UserOption = None,
    server: ServerOption = None,
) -> None:
    """Revoke logins. Their tokens end at once on every server; keypairs stay valid."""
    from mooring.cli.connection import connect

    if bool(ids) is everything:
        raise typer.BadParameter("give ids of logins, or --all")
    if user is not None and not everything:
        raise InvalidInput("--user needs --all; the id of a login says whose it is")
    with connect(server) as client:
        if everything:
            client.end_all_logins(user=user)
            show_line(f"all logins of {user} revoked" if user else "all your logins revoked; log in again")
        for each in ids or ():
            client.end_login(each)
            show_line(f"{each} revoked")
