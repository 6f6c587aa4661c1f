"""`mooring shell`: an interactive shell on a node, for as long as it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.option_groups import ContainerOptions, PlacementOptions
from mooring.cli.input.options import WORK, IdleTimeoutOption, InOption, ServerOption, TimeOption

app = App()

_LOGIN_SHELL = (
    'for shell in bash "$SHELL" sh; do command -v "$shell" > /dev/null 2>&1 && exec "$shell" -l; done; exit 127'
)
"""Command of the session: the shell depends on the node or image, which only the session itself knows."""


@app.command(rich_help_panel=WORK)
@with_groups
def shell(
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    container: ContainerOptions,
    placement: PlacementOptions,
    in_: InOption = None,
    time: TimeOption = None,
    idle_timeout: IdleTimeoutOption = None,
    server: ServerOption = None,
) -> None:
    """Open a login shell in a new session, which ends when the shell exits or your terminal is closed.

    Ctrl-P Ctrl-Q detaches and leaves it running; `mooring attach` returns.
    """
    from mooring.cli.commands.workloads.run import submit_and_follow
    from mooring.cli.connection import connect
    from mooring.cli.input.option_groups import ScheduleOptions
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.interaction.session_input import InputMode
    from mooring.wire.workloads.containers import ContainerRequest
    from mooring.wire.workloads.workloads import WorkloadRequest

    mode = InputMode.of(interactive=True, terminal=True, restarts=False)
    fields = container.fields(["sh", "-c", _LOGIN_SHELL]) | mode.fields()
    request = build(
        WorkloadRequest,
        name=checked_name(name),
        kind="session",
        type="interactive",
        booking=in_,
        containers=[build(ContainerRequest, **fields)],
        volumes=container.volumes,
        **placement.fields(),
        **ScheduleOptions(time=time, idle_timeout=idle_timeout).fields(),
    )
    with connect(server) as client:
        code = submit_and_follow(client, server, request, mode, hang_up=True)
    raise typer.Exit(code)
