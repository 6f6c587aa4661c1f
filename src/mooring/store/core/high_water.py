"""The number of the last committed transaction of a SQLite file, stored next to it to detect lost transactions.

SQLite reads its write-ahead log up to the first frame with a wrong checksum and silently drops the rest, including
committed transactions. Each transaction with changes increments `user_version` in the database; after the commit the
number is written to a small file. A database that is behind that file has lost transactions. The file is not flushed:
it survives the death of every process, and after a power failure it may be older than the database, never newer.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

SUFFIX = "-mark"
_LARGEST = 2**31 - 1
"""`user_version` is a signed 32-bit number; it starts again at 1 after this."""
_WIDTH = 32


class HighWaterMark:
    """The mark next to one file. While it is ahead of the database, nothing is counted until `accept` is called."""

    def __init__(self, database: Path) -> None:
        self._file = Path(f"{database}{SUFFIX}")
        self._descriptor: int | None = None
        self._last: int | None = None
        self._behind: bool | None = None
        """Whether the database lacks transactions; None: not checked yet."""

    def lost(self, found: int) -> int:
        """Return how many committed transactions a database with this number lacks."""
        marked = self._read()
        return 0 if marked is None else _ahead(marked, found)

    def count_up(self, connection: sqlite3.Connection) -> int | None:
        """Number the transaction of a connection, and return the number; None while the database lacks transactions."""
        found = counted(connection)
        if self._behind is None:
            self._behind = self.lost(found) > 0
        if self._behind:
            return None
        number = found % _LARGEST + 1
        connection.execute(f"pragma user_version={number}")
        return number

    def write(self, number: int) -> None:
        if self._descriptor is None:
            self._last = self._read()
            self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._last is None or not _ahead(self._last, number):
            # One small write to the page cache: readers see the old number or the new one.
            os.pwrite(self._descriptor, f"{number:<{_WIDTH - 1}}\n".encode(), 0)
            self._last = number

    def accept(self, number: int) -> None:
        """Continue from the number of the database."""
        self.close()
        self._file.unlink(missing_ok=True)
        self._behind = False
        self.write(number)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> int | None:
        with suppress(FileNotFoundError, ValueError):
            return int(self._file.read_text())
        return None


def counted(connection: sqlite3.Connection) -> int:
    row: Any = connection.execute("pragma user_version").fetchone()
    return int(row[0])


def _ahead(one: int, other: int) -> int:
    """Return how far one number is ahead of the other; 0 if it is not."""
    distance = (one - other) % _LARGEST
    return distance if distance <= _LARGEST // 2 else 0
