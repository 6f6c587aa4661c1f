"""`mooring pool access` and `revert`: who may use a pool, and its earlier policies; for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.pools import PoolArgument, pool_app
from mooring.cli.options import DomainOption, OutputOption, ServerOption
from mooring.cli.output import Column, Format, show_json, show_line, show_table

if TYPE_CHECKING:
    from mooring.wire.tenants import PoolAccessRequest

access_app = typer.Typer(help="Who may use a pool that is not public.", no_args_is_help=True)
app = typer.Typer()
pool_app.add_typer(access_app, name="access")

ProjectOption = Annotated[str | None, typer.Option(metavar="PROJECT", help="A project, of --domain or your own.")]
KeypairOption = Annotated[str | None, typer.Option(metavar="ACCESS_KEY", help="A single keypair.")]


@access_app.command("list")
def list_access(pool: PoolArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List who was given access."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pool_access(pool)
    if output is Format.JSON:
        show_json(found)
    else:
        columns = (Column("SCOPE"), Column("TENANT"), Column("ID", wide=True))
        show_table(columns, [[one.scope, one.name, one.tenant] for one in found], output)


@access_app.command()
def add(
    pool: PoolArgument,
    project: ProjectOption = None,
    domain: DomainOption = None,
    keypair: KeypairOption = None,
    server: ServerOption = None,
) -> None:
    """Let a project, a whole domain or a keypair use a pool."""
    from mooring.cli.connection import connect

    request = _tenant(project, domain, keypair)
    with connect(server) as client:
        client.grant_pool_access(pool, request)
    show_line(f"{pool}: may be used by {_words(request)}")


@access_app.command()
def remove(
    pool: PoolArgument,
    project: ProjectOption = None,
    domain: DomainOption = None,
    keypair: KeypairOption = None,
    server: ServerOption = None,
) -> None:
    """Take access away; what was handed in before stays."""
    from mooring.cli.connection import connect

    request = _tenant(project, domain, keypair)
    with connect(server) as client:
        client.revoke_pool_access(pool, request)
    show_line(f"{pool}: not for {_words(request)} any more")


@pool_app.command("revert")
def revert(
    pool: PoolArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="To this version; else the one before.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Give a pool the policy of an earlier version back."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.revert_pool(pool, version=version)
    show_line(f"{pool}: reverted")


def _tenant(project: str | None, domain: str | None, keypair: str | None) -> PoolAccessRequest:
    from mooring.cli.requests import build
    from mooring.wire.tenants import PoolAccessRequest

    return build(PoolAccessRequest, project=project, domain=domain, keypair=keypair)


def _words(request: PoolAccessRequest) -> str:
    if request.keypair is not None:
        return f"keypair {request.keypair}"
    if request.project is not None:
        return f"project {request.project}"
    return f"domain {request.domain}"
