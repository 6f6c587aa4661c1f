"""What goes to standard output: tables for a terminal, plain columns for a pipe, JSON on request.

Cells are other people's text: control characters are escaped, and nothing is read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mooring.cli.words import NOTHING
from mooring.model.names import shown

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table

# Laying out a rich table costs about a millisecond a row.
MAX_RICH_ROWS = 200


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    wide: bool = False
    """Only in the wide format."""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Styled:
    text: str
    style: str


Cell = str | Styled


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], output: Format = Format.TABLE) -> None:
    """Rows under titles, in the format that suits where they go."""
    if output is Format.CSV:
        _show_csv(columns, rows)
        return
    columns, rows = _narrowed(columns, rows, output)
    if sys.stdout.isatty() and len(rows) <= MAX_RICH_ROWS:
        _console().print(_table(columns, rows))
    else:
        _show_plain(columns, rows)


def show_live(columns: Sequence[Column], frames: Iterable[Sequence[Sequence[Cell]]], output: Format) -> None:
    """A table on a screen of its own, drawn anew with every frame."""
    from rich.live import Live

    with Live(console=_console(), screen=True, auto_refresh=False) as live:
        for rows in frames:
            live.update(_table(*_narrowed(columns, rows[:MAX_RICH_ROWS], output)), refresh=True)


def show_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """The answer as the API gave it."""
    import json

    from pydantic import BaseModel

    plain = (
        value.model_dump(mode="json") if isinstance(value, BaseModel) else [v.model_dump(mode="json") for v in value]
    )
    print(json.dumps(plain, indent=2))


def show_fields(fields: Sequence[tuple[str, Cell]]) -> None:
    """One thing as `name: value` lines; what is empty is left out."""
    shown_fields = [(name, value) for name, value in fields if _text(value) not in ("", NOTHING)]
    width = max((len(name) for name, _ in shown_fields), default=0) + 2
    for name, value in shown_fields:
        show_line(f"{name + ':':<{width}}", value)


def show_line(*parts: Cell) -> None:
    """One line of text; styled parts have their colour on a terminal."""
    if sys.stdout.isatty() and any(isinstance(part, Styled) for part in parts):
        from rich.text import Text

        line = Text()
        for part in parts:
            line.append(shown(_text(part)), style=part.style if isinstance(part, Styled) else "")
        _console().print(line, soft_wrap=True)
    else:
        print(shown("".join(_text(part) for part in parts)).rstrip())


def _narrowed(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], output: Format
) -> tuple[list[Column], list[list[Cell]]]:
    """Without what only the wide format has."""
    kept = [number for number, column in enumerate(columns) if output is Format.WIDE or not column.wide]
    return [columns[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(_text(cell)), style=cell.style if isinstance(cell, Styled) else "") for cell in row))
    return table


def _show_plain(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    lines = [[column.title for column in columns], *([shown(_text(cell)) or NOTHING for cell in row] for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        print("  ".join(cells).rstrip())


def _show_csv(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """All columns, for other programs."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([column.title.lower().replace(" ", "_") for column in columns])
    writer.writerows([shown(_text(cell)) for cell in row] for row in rows)


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell
