"""`mooring token create`: join tokens for machines."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.options import (
    CLUSTER,
    LabelOption,
    OutputOption,
    RegionOption,
    ServerOption,
    TaintOption,
)
from mooring.cli.rendering.formatting import instant
from mooring.cli.rendering.output import Format, show_document

app = App()
token_app = App(help="Manage join tokens for machines.", no_args_is_help=True)
app.add_typer(token_app, name="token", rich_help_panel=CLUSTER)


@token_app.callback()
def token() -> None:
    """Manage join tokens for machines."""


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
