"""Text files of users: plain or compressed, with bounded lines, and errors that name the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, cast

from mooring.model.errors import InvalidInput

_MOST_LINE_CHARACTERS = 1 << 20
_MOST_DOCUMENT_CHARACTERS = 1 << 29
MOST_JOBS = 2_000_000
"""Jobs of one simulation; each takes about 1 KB of memory."""


def invalid(message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid-trace")


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a file, decompressing .gz; problems of the file become InvalidInput."""
    try:
        with (
            cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            yield file
    except (OSError, EOFError, zlib.error) as problem:
        raise InvalidInput(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from problem
    except UnicodeDecodeError as problem:
        raise InvalidInput(f"{path} is not a text file", code="invalid-trace") from problem


def lines_of(file: TextIO, name: str) -> Iterator[str]:
    """Yield the lines. Raise InvalidInput for one that is too long."""
    number = 0
    while line := file.readline(_MOST_LINE_CHARACTERS):
        number += 1
        if len(line) == _MOST_LINE_CHARACTERS:
            raise invalid(f"{name}, line {number}: longer than {_MOST_LINE_CHARACTERS:,} characters")
        yield line


def document_of(file: TextIO, name: str) -> str:
    """Return the whole content, up to 512 Mi characters."""
    text = file.read(_MOST_DOCUMENT_CHARACTERS)
    if len(text) == _MOST_DOCUMENT_CHARACTERS:
        raise invalid(f"{name} is larger than 512 MiB")
    return text


def csv_rows(
    lines: Iterator[str], name: str, *, required: Sequence[str] = (), header: Sequence[str] | None = None
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each row by column name, with its place for errors. `header`: the names, if the file has no header."""
    reader = csv.reader(lines, strict=True)
    try:
        names = list(header) if header is not None else [column.strip() for column in next(reader, [])]
        if missing := [column for column in required if column not in names]:
            raise invalid(f"{name}: no column {missing[0]!r}; there are {', '.join(names)[:200]}")
        for fields in reader:
            if not fields:
                continue
            where = f"{name}, line {reader.line_num}"
            if len(fields) != len(names):
                raise invalid(f"{where}: {len(fields)} columns; expected {len(names)}")
            yield where, dict(zip(names, fields, strict=True))
    except csv.Error as problem:
        raise invalid(f"{name}, line {reader.line_num}: {problem}") from None


def whole(text: str, column: str, where: str) -> int:
    """Return a whole number of at most 18 digits; fractions of zero are accepted."""
    digits = text.strip().removesuffix(".0")
    if not digits.removeprefix("-").isascii() or not digits.removeprefix("-").isdigit() or len(digits) > 18:
        raise invalid(f"{where}: {column} is {text[:20]!r}, not a whole number")
    return int(digits)


def joined(first: str, rest: TextIO) -> TextIO:
    """Return a file whose first line was read already."""
    return cast(TextIO, _Joined(first, rest))


class _Joined(io.TextIOBase):
    def __init__(self, first: str, rest: TextIO) -> None:
        self._first, self._rest = first, rest

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        first, self._first = self._first, ""
        return first or self._rest.readline(size)

    def read(self, size: int | None = -1, /) -> str:
        first, self._first = self._first, ""
        return first + self._rest.read(-1 if size is None else size)
