"""`mooring wait`: wait until workloads have ended."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from mooring.cli.exits import TimedOut, say
from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.options import WORK, ServerOption, WorkloadsArgument

app = App()


@app.command(rich_help_panel=WORK)
def wait(
    names: WorkloadsArgument,
    timeout: Annotated[
        float | None, typer.Option(metavar="TIME", parser=seconds_at_least(0), help="Maximum time to wait: 10m.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Wait until all workloads have ended. Exits with the highest exit code of their tasks."""
    from mooring.cli.connection import connect
    from mooring.cli.interaction.follow_output import exit_status
    from mooring.cli.interaction.waiting import describe, has_ended, wait_until
    from mooring.cli.rendering.progress import Progress

    deadline = None if timeout is None else time.monotonic() + timeout
    highest = 0
    late: list[str] = []
    with connect(server) as client, Progress() as progress:
        # All names are resolved before the first wait, so that a misspelt name fails now and not in an hour.
        ids = [str(client.workload(name).id) for name in names]
        for ref in ids:
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            waited = wait_until(client, ref, has_ended, timeout_seconds=remaining, progress=progress)
            if waited.met:
                code = exit_status(waited.detail)
                progress.clear()
                say(f"{describe(waited.detail)}, exit code {code}")
                highest = max(highest, code)
            else:
                late.append(describe(waited.detail))
    if late:
        raise TimedOut(f"timed out after {timeout:g} seconds: {'; '.join(late)}")
    raise typer.Exit(highest)
