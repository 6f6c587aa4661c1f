"""`mooring pool access` and `revert`: access to a pool, and its earlier options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.commands.cluster.pools import PoolArgument, pool_app
from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import DomainOption, ServerOption
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Listing,
    show_document,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.tenancy.tenants import PoolAccessRequest

access_app = App(help="Manage access to a pool that is not public.", no_args_is_help=True)
app = App()
pool_app.add_typer(access_app, name="access")

ProjectOption = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="Project, of --domain or of your own domain.")
]
KeypairOption = Annotated[str | None, typer.Option(metavar="ACCESS_KEY", help="Access key of a keypair.")]


@access_app.command("list")
@with_groups
def list_access(pool: PoolArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the tenants that have access."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.pool_access(pool)
    if output.is_document:
        show_document(found, output)
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
    """Allow a project, a domain or a keypair to use a pool."""
    from mooring.cli.connection import connect

    request = _tenant(project, domain, keypair)
    with connect(server) as client:
        client.grant_pool_access(pool, request)
    show_line(f"{pool}: access granted to {_grantee(request)}")


@access_app.command()
def remove(
    pool: PoolArgument,
    project: ProjectOption = None,
    domain: DomainOption = None,
    keypair: KeypairOption = None,
    server: ServerOption = None,
) -> None:
    """Revoke access. Work that was submitted before is kept."""
    from mooring.cli.connection import connect

    request = _tenant(project, domain, keypair)
    with connect(server) as client:
        client.revoke_pool_access(pool, request)
    show_line(f"{pool}: access revoked from {_grantee(request)}")


@pool_app.command("revert")
def revert(
    pool: PoolArgument,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Version to revert to (default: the previous one).")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Restore the options of an earlier version of a pool."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        client.revert_pool(pool, version=version)
    show_line(f"{pool}: reverted")


def _tenant(project: str | None, domain: str | None, keypair: str | None) -> PoolAccessRequest:
    from mooring.cli.input.requests import build
    from mooring.wire.tenancy.tenants import PoolAccessRequest

    return build(PoolAccessRequest, project=project, domain=domain, keypair=keypair)


def _grantee(request: PoolAccessRequest) -> str:
    if request.keypair is not None:
        return f"keypair {request.keypair}"
    if request.project is not None:
        return f"project {request.project}"
    return f"domain {request.domain}"
