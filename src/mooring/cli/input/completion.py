"""Completion of names from the server, with a short timeout and without error messages."""

from __future__ import annotations

import typer

_SECONDS = 1.0


def complete_workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, "workloads")


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, "nodes")


def _names(ctx: typer.Context, incomplete: str, noun: str) -> list[str]:
    from mooring.cli.connection import read
    from mooring.client.quick import document

    try:
        found = document(read(ctx.params.get("server"), f"/api/{noun}", timeout_seconds=_SECONDS))
        names = [str(each["name"]) for each in found[noun]]
    except Exception:  # a completing shell cannot show an error
        return []
    return [name for name in names if name.startswith(incomplete)]
