"""The root of the command line: every command, and what happens when one fails."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mooring.cli.commands import (
    account,
    actions,
    bookings,
    cp,
    database,
    deploy,
    domains,
    events,
    explain,
    files,
    forward,
    free,
    history,
    keypairs,
    labs,
    logs,
    nodes,
    operations,
    policies,
    pool_access,
    pools,
    projects,
    ps,
    quarantine,
    quota,
    rollouts,
    run,
    scaling,
    secrets,
    serve,
    sessions,
    submit,
    timeline,
    tokens,
    top,
    upkeep,
    usage,
    users,
    volumes,
    workloads,
)
from mooring.cli.commands import exec as execute
from mooring.cli.commands import wait as waits
from mooring.cli.exits import EPILOG, report
from mooring.model.errors import MooringError


class _Root(TyperGroup):
    """One place turns errors into messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MooringError as error:
            raise typer.Exit(report(error)) from error


app = typer.Typer(
    cls=_Root,
    help="Mooring: a multi-tenant cluster scheduler.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    deploy,
    files,
    submit,
    run,
    sessions,
    bookings,
    labs,
    waits,
    ps,
    explain,
    top,
    logs,
    execute,
    cp,
    forward,
    history,
    workloads,
    rollouts,
    volumes,
    nodes,
    quarantine,
    pools,
    scaling,
    free,
    timeline,
    usage,
    pool_access,
    events,
    tokens,
    account,
    quota,
    domains,
    projects,
    secrets,
    users,
    keypairs,
    policies,
    actions,
    serve,
    database,
    operations,
    upkeep,
):
    app.add_typer(module.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from mooring import __version__

        print(f"mooring {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
