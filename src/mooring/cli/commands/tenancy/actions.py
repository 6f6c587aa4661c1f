"""`mooring actions`: what administrators did."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.options import TENANTS, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, show_json, show_table
from mooring.cli.words import NOTHING, instant
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenants import ActionView

app = typer.Typer()


@app.command(rich_help_panel=TENANTS)
def actions(
    noun: Annotated[str | None, typer.Option(metavar="NOUN", help="Only to a user, pool, policy, node, …")] = None,
    object_: Annotated[str | None, typer.Option("--object", metavar="NAME", help="Only to what has this name.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Such as 2026-01-31 or 2026-01-31T12:00.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many.")] = 50,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Show what administrators changed, the newest first."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.actions(noun=noun, object=object_, since=_instant(since), limit=limit)
    if output is Format.JSON:
        show_json(found.actions)
        return
    columns = (
        Column("AT"),
        Column("WHO"),
        Column("FROM", wide=True),
        Column("ACTION"),
        Column("WHAT"),
        Column("VERSION", number=True),
        Column("CHANGE"),
    )
    show_table(columns, [_row(action) for action in found.actions], output)


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise InvalidInput(f"--since {text[:40]!r}: write 2026-01-31 or 2026-01-31T12:00") from None


def _row(action: ActionView) -> list[Cell]:
    return [
        instant(action.at),
        action.username,
        action.address or NOTHING,
        action.action,
        f"{action.noun} {action.object}",
        NOTHING if action.version is None else str(action.version),
        _difference(action.before, action.after),
    ]


def _difference(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """What is not as it was: `active: true -> false`."""
    old, new = before or {}, after or {}
    if before is not None and after is not None:
        changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        return "; ".join(f"{name}: {_short(old.get(name))} -> {_short(new.get(name))}" for name in changed) or NOTHING
    return "; ".join(f"{name}: {_short(value)}" for name, value in (new or old).items() if value) or NOTHING


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_short(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
