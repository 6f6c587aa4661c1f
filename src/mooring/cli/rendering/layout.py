"""Layout of a table on a terminal: one line per row at any width."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_CUT = "…"
_CUT_WIDTH = 16
"""A column that may be cut is dropped before it gets narrower."""
_LAST_WIDTH = 4


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    wide: bool = False
    """Shown only in the wide format."""
    number: bool = False
    cut: bool = False
    """Text that may be cut, such as a reason. A name is not cut while another column can be dropped."""
    limit: int | None = None
    """Maximum width in the default format, on a terminal and in a pipe."""
    drop: int = 1
    """Columns with the highest number are dropped first from a narrow terminal; those with 0 stay."""
    key: bool = False
    """The column that `-o name` prints, instead of the first."""


def fit_columns(
    columns: Sequence[Column], widths: Sequence[int], width: int, *, gap: int, drop: bool
) -> dict[int, int]:
    """Return the visible columns with their widths, which fit into the width of a terminal.

    Columns that may be cut get narrower first. Then columns are dropped, the rightmost of the highest `drop` first.
    The first column stays.
    """
    visible = list(range(len(columns)))

    def least(number: int) -> int:
        return min(widths[number], _CUT_WIDTH) if columns[number].cut else widths[number]

    def total(sizes: Sequence[int]) -> int:
        return sum(sizes) + gap * (len(sizes) - 1)

    while drop and total([least(number) for number in visible]) > width:
        droppable = [number for number in visible[1:] if columns[number].drop > 0]
        if not droppable:
            break
        visible.remove(max(droppable, key=lambda number: (columns[number].drop, number)))
    sizes = {number: least(number) for number in visible}
    spare = width - total(list(sizes.values()))
    for number in visible:
        added = max(min(widths[number] - sizes[number], spare), 0)
        sizes[number] += added
        spare -= added
    while spare < 0:
        widest = max(visible, key=lambda number: sizes[number])
        removed = min(-spare, sizes[widest] - _LAST_WIDTH)
        if removed <= 0:
            break
        sizes[widest] -= removed
        spare += removed
    return sizes


def padded(column: Column, text: str, width: int) -> str:
    """Return the text in exactly this width, cut if it is longer."""
    text = shortened_to(text, width)
    space = " " * (width - displayed_width(text))
    return space + text if column.number else text + space


def shortened_to(text: str, width: int | None) -> str:
    """Return the text cut to a width on the screen, with `…` instead of the rest."""
    if width is None or displayed_width(text) <= width:
        return text
    shown, used = [], len(_CUT)
    for sign in text:
        used += _sign_width(sign)
        if used > width:
            break
        shown.append(sign)
    return "".join(shown) + _CUT


def displayed_width(text: str) -> int:
    """Return the number of columns that a text takes on the screen."""
    return len(text) if text.isascii() else sum(_sign_width(sign) for sign in text)


def _sign_width(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
