"""Standard output: tables for a terminal, plain columns for a pipe, and other formats on request.

Cells hold text of other users: control characters are escaped, and markup is not interpreted.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.rendering.formatting import NOTHING
from mooring.cli.rendering.layout import Column as Column
from mooring.cli.rendering.layout import displayed_width, fit_columns, padded, shortened_to
from mooring.model.errors import InvalidInput
from mooring.model.names import shown, without_formula

if TYPE_CHECKING:
    from msgspec import Struct
    from pydantic import BaseModel

    Document = BaseModel | Struct | Mapping[str, Any] | Sequence[BaseModel]

_GAP = "  "
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"

    @property
    def layout(self) -> Format:
        """The format itself, so that commands treat a format and a listing alike."""
        return self

    @property
    def is_document(self) -> bool:
        """Return whether the answer of the server is printed whole."""
        return self in (Format.JSON, Format.YAML)

    @property
    def is_table(self) -> bool:
        """Return whether people read the output, with more than one table and lines of text."""
        return self in (Format.TABLE, Format.WIDE)


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="NAME,…", help="Columns to show, in this order, with `-` for a space: name,cpu-free."
    ),
]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Options of every command that prints a list."""

    output: OutputOption = Format.TABLE
    columns: ColumnsOption = None

    @property
    def layout(self) -> Format:
        return self.output

    @property
    def is_document(self) -> bool:
        return self.output.is_document

    @property
    def is_table(self) -> bool:
        return self.output.is_table and self.columns is None


TABLE = Listing()


@dataclass(frozen=True, slots=True)
class Styled:
    text: str
    style: str


Cell = str | Styled


def show_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], output: Format | Listing = Format.TABLE
) -> None:
    """Print rows under titles, in the requested format and as suits the terminal or pipe."""
    if output.layout is Format.NAME:
        key = next((number for number, column in enumerate(columns) if column.key), 0)
        for row in rows:
            print(shown(_text(row[key])))
        return
    columns, rows = _selected(columns, rows, output)
    if output.layout is Format.CSV:
        _show_csv(columns, rows)
        return
    for line in _table(columns, rows, output, _terminal_width()):
        print(line)


def show_following(
    columns: Sequence[Column], found: Iterable[tuple[BaseModel, Sequence[Cell]]], output: Format | Listing
) -> None:
    """Print each document or its row as it arrives: JSON as one object per line, YAML as a stream of documents.

    The columns of a table have the width of the widest cell so far.
    """
    if output.is_document:
        _reject_columns(output)
    widths = [0] * len(columns)
    first = True
    for document, row in found:
        if output.is_document:
            _print_document(document, output)
        elif output.layout is Format.NAME:
            show_table(columns, [row], output)
        else:
            shown_columns, shown_rows = _selected(columns, [row], output)
            if output.layout is Format.CSV:
                _show_csv(shown_columns, shown_rows, titles=first)
            else:
                lines = _table(shown_columns, shown_rows, output, _terminal_width(), widths)
                print("\n".join(lines if first else lines[1:]))
        first = False
        sys.stdout.flush()


def show_live(frames: Iterable[tuple[Sequence[Column], Sequence[Sequence[Cell]]]], output: Format | Listing) -> None:
    """Show a table on the alternate screen, redrawn with every frame."""
    sys.stdout.write(_ENTER_SCREEN)
    try:
        for columns, rows in frames:
            width, height = shutil.get_terminal_size()
            lines = _table(*_selected(columns, rows[: height - 2], output), output, width)
            sys.stdout.write(_HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW)
            sys.stdout.flush()
    finally:
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()


def show_document(value: Document, output: Format | Listing = Format.JSON) -> None:
    """Print a response as JSON or YAML, as the API returned it."""
    _reject_columns(output)
    plain = [_plain(each) for each in value] if isinstance(value, Sequence) else _plain(value)
    if output.layout is Format.YAML:
        import yaml

        print(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True), end="")
    else:
        import json

        print(json.dumps(plain, indent=2))


def _reject_columns(output: Format | Listing) -> None:
    if isinstance(output, Listing) and output.columns is not None:
        raise InvalidInput(f"--columns selects columns of a table, not fields of {output.layout}")


def _print_document(value: BaseModel, output: Format | Listing) -> None:
    """Print one document of a stream."""
    if output.layout is Format.YAML:
        import yaml

        print(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True, explicit_start=True), end="")
    else:
        print(value.model_dump_json())


def show_fields(fields: Sequence[tuple[str, Cell]]) -> None:
    """Print `name: value` lines, without empty values."""
    shown_fields = [(name, value) for name, value in fields if _text(value) not in ("", NOTHING)]
    width = max((len(name) for name, _ in shown_fields), default=0) + 2
    for name, value in shown_fields:
        show_line(f"{name + ':':<{width}}", value)


def show_line(*parts: Cell) -> None:
    """Print a line of text; styled parts are coloured on a terminal."""
    if sys.stdout.isatty():
        print("".join(_coloured(shown(_text(part)), part) for part in parts))
    else:
        print(shown("".join(_text(part) for part in parts)).rstrip())


def _plain(value: BaseModel | Struct | Mapping[str, Any]) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, Mapping):
        return value
    import msgspec

    return msgspec.to_builtins(value)


def _selected(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], output: Format | Listing
) -> tuple[list[Column], list[list[Cell]]]:
    """Return the table with the columns of the format, or those that were asked for."""
    chosen = output.columns if isinstance(output, Listing) else None
    if chosen is not None:
        visible = _chosen(columns, chosen)
    else:
        every = output.layout in (Format.WIDE, Format.CSV)
        visible = [number for number, column in enumerate(columns) if every or not column.wide]
    return [columns[number] for number in visible], [[row[number] for number in visible] for row in rows]


def _chosen(columns: Sequence[Column], names: str) -> list[int]:
    numbers = {_column_name(column.title): number for number, column in enumerate(columns)}
    visible = []
    for name in filter(None, names.split(",")):
        number = numbers.get(_column_name(name.strip()))
        if number is None:
            raise InvalidInput(
                f"there is no column {name.strip()[:40]!r}; there are: {', '.join(numbers)}", code="unknown-column"
            )
        visible.append(number)
    if not visible:
        raise InvalidInput(f"--columns names no column; there are: {', '.join(numbers)}", code="unknown-column")
    return visible


def _column_name(title: str) -> str:
    return title.lower().replace(" ", "-").replace("_", "-")


def _table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    output: Format | Listing,
    width: int | None,
    least: list[int] | None = None,
) -> list[str]:
    """Return a line per row. Without a width, as for a pipe, no column is dropped.

    `least` holds the minimum widths of the columns, and is raised to those of this table.
    """
    texts = [[shown(_text(cell)) for cell in row] for row in rows]
    if width is None:
        texts = [[text or NOTHING for text in row] for row in texts]
    if output.layout is Format.TABLE:
        texts = [[shortened_to(text, column.limit) for text, column in zip(row, columns, strict=True)] for row in texts]
    widths = [
        max(displayed_width(text) for text in (column.title, *(row[number] for row in texts)))
        for number, column in enumerate(columns)
    ]
    if least is not None:
        least[: len(widths)] = widths = [max(sizes) for sizes in zip(widths, least, strict=False)]
    keeps_all = output.layout is Format.WIDE or (isinstance(output, Listing) and output.columns is not None)
    visible = {number: widths[number] for number in range(len(columns))}
    if width is not None and output.layout is not Format.WIDE:
        visible = fit_columns(columns, widths, width, gap=len(_GAP), drop=not keeps_all)
    titles = _GAP.join(padded(columns[number], columns[number].title, size) for number, size in visible.items())
    lines = [_coloured(titles.rstrip(), Styled("", "bold"), on_terminal=width is not None)]
    for row, cells in zip(texts, rows, strict=True):
        parts = (
            _coloured(padded(columns[number], row[number], size), cells[number], on_terminal=width is not None)
            for number, size in visible.items()
        )
        lines.append(_GAP.join(parts).rstrip())
    return lines


def _show_csv(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, titles: bool = True) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if titles:
        writer.writerow([column.title.lower().replace(" ", "_") for column in columns])
    writer.writerows([without_formula(shown(_text(cell))) for cell in row] for row in rows)


def _coloured(text: str, cell: Cell, *, on_terminal: bool = True) -> str:
    """Return the text in the style of its cell, which a pipe, NO_COLOR and a dumb terminal do without."""
    style = cell.style if isinstance(cell, Styled) else ""
    codes = ";".join(str(_STYLES[word]) for word in style.split())
    if not codes or not text or not on_terminal or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{codes}m{text}\x1b[0m"


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _text(cell: Cell) -> str:
    return cell.text if isinstance(cell, Styled) else cell
