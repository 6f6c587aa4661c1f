"""`mooring token create`: let a machine join."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.options import CLUSTER, LabelOption, OutputOption, RegionOption, ServerOption, TaintOption
from mooring.cli.output import Format, show_json
from mooring.cli.words import instant

app = typer.Typer()
token_app = typer.Typer(help="Tokens with which machines join.", no_args_is_help=True)
app.add_typer(token_app, name="token", rich_help_panel=CLUSTER)


@token_app.callback()
def token() -> None:
    """Tokens with which machines join."""


@token_app.command()
def create(
    name: Annotated[str, typer.Option(metavar="NODE", help="What the node will be called.")],
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="The pool that it joins.")] = None,
    region: RegionOption = None,
    label: LabelOption = None,
    taint: TaintOption = None,
    expires_in: Annotated[
        int | None, typer.Option(metavar="SECONDS", min=10, help="How long the token can be used.")
    ] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Make a token for one machine, and show the command to run there."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import assignments, build, checked_name, taints
    from mooring.client.address import is_loopback
    from mooring.wire.api import JoinTokenRequest

    request = build(
        JoinTokenRequest,
        name=checked_name(name),
        pool=checked_name(pool, what="pool"),
        region=region,
        labels=assignments(label, option="--label") or None,
        taints=taints(taint) or None,
        expires_in_seconds=expires_in,
    )
    with connect(server) as client:
        made = client.create_join_token(request)
        address = client.server
    if output is Format.JSON:
        show_json(made)
        return
    print(shlex.join(["mooring", "agent", "--server", address, "--token", made.token, "--name", made.name]))
    say(f"run this on the machine before {instant(made.expires_at)}; the token works once, for {made.name}")
    if is_loopback(address):
        say(f"hint: other machines cannot reach {address}; put the server's own address there")
