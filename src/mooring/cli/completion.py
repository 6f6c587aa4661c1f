"""Completion of names by asking the server: quickly, and in silence when it does not answer."""

from __future__ import annotations

import typer

_SECONDS = 1.0


def complete_workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    from mooring.cli.connection import connect

    try:
        with connect(ctx.params.get("server"), timeout_seconds=_SECONDS) as client:
            names = [workload.name for workload in client.workloads().workloads]
    except Exception:  # a shell that is completing a word has no place for an error
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    from mooring.cli.connection import connect

    try:
        with connect(ctx.params.get("server"), timeout_seconds=_SECONDS) as client:
            names = [node.name for node in client.nodes().nodes]
    except Exception:  # as above
        return []
    return [name for name in names if name.startswith(incomplete)]
