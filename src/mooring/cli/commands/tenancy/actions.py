"""`mooring actions`: the log of administrative actions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import TENANTS, ServerOption
from mooring.cli.rendering.formatting import NOTHING, instant
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    show_document,
    show_table,
)
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.wire.tenancy.tenants import ActionView

app = App()


@app.command(rich_help_panel=TENANTS)
@with_groups
def actions(
    noun: Annotated[
        str | None,
        typer.Option(metavar="NOUN", help="Only actions on this kind of object: user, pool, policy, node, …"),
    ] = None,
    object_: Annotated[
        str | None, typer.Option("--object", metavar="NAME", help="Only actions on the object of this name.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only actions since this time: 2026-01-31 or 2026-01-31T12:00.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Maximum number of rows.")] = 50,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show administrative actions, newest first."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.actions(noun=noun, object=object_, since=_instant(since), limit=limit)
    if output.is_document:
        show_document(found.actions, output)
        return
    columns = (
        Column("AT"),
        Column("WHO"),
        Column("FROM", wide=True),
        Column("ACTION"),
        Column("WHAT"),
        Column("VERSION", number=True),
        Column("CHANGE", cut=True),
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
    """Return the changed fields: `active: true -> false`."""
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
