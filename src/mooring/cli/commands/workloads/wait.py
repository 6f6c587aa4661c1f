"""`mooring wait`: until workloads have ended."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from mooring.cli.exits import TimedOut, say
from mooring.cli.options import WORK, ServerOption, WorkloadsArgument

app = typer.Typer()


@app.command(rich_help_panel=WORK)
def wait(
    names: WorkloadsArgument,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait at most.")] = None,
    server: ServerOption = None,
) -> None:
    """Wait until all of them have ended; exits with the highest exit code of their tasks."""
    from mooring.cli.connection import connect
    from mooring.cli.following import exit_status
    from mooring.cli.progress import Progress
    from mooring.cli.waiting import describe, has_ended, wait_until

    deadline = None if timeout is None else time.monotonic() + timeout
    highest = 0
    late: list[str] = []
    with connect(server) as client, Progress() as progress:
        # All are known before the first is waited for: a misspelt name fails now and not in an hour.
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
        raise TimedOut(f"after {timeout:g} seconds {'; '.join(late)}")
    raise typer.Exit(highest)
