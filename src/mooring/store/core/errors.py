"""Classification of database errors by their codes, and retries after temporary ones."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from mooring.concurrency import backoff

R = TypeVar("R")
DISK_FULL = "the disk of the database is full"
# 40001 serialization failure, 40P01 deadlock, 55P03 lock not available, 57P01/02/03 the server stops or starts.
_RETRIED_STATES = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03"})
_PG_DISK_FULL = "53100"
_PG_FOREIGN_KEY_VIOLATION = "23503"
_PG_UNIQUE_VIOLATION = "23505"
_SQLITE_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# SQLITE_IOERR_SHMSIZE: the shared-memory index of the log cannot grow.
_SQLITE_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
_SQLITE_FOREIGN_KEY = sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
_SQLITE_UNIQUE = frozenset({sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY})
_ATTEMPTS = 20
_FIRST_WAIT_SECONDS = 0.02
_MAX_WAIT_SECONDS = 5.0


async def retry(attempt: Callable[[], Awaitable[R]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> R:
    """Call `attempt` until it succeeds; retry only after temporary failures."""
    # With jitter, so that conflicting transactions do not collide again.
    waits = backoff.delays(_FIRST_WAIT_SECONDS, _MAX_WAIT_SECONDS)
    for left in reversed(range(_ATTEMPTS)):
        try:
            return await attempt()
        except (DBAPIError, ConnectionError) as error:
            if left == 0 or not is_temporary(error):
                raise
        await sleep(next(waits))
    raise AssertionError("unreachable")


def is_temporary(error: Exception) -> bool:
    """Return whether the same transaction may succeed when it is run again."""
    if isinstance(error, ConnectionError | NoConnectionFree):
        return True
    if _sqlstate(error) in _RETRIED_STATES:
        return True
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    # The lowest byte of an extended code is the primary one.
    return (_sqlite_code(error) or 0) & 0xFF in _SQLITE_LOCKED


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk of the database or of this process was full; nothing was written."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return _sqlstate(error) == _PG_DISK_FULL or _sqlite_code(error) in _SQLITE_FULL


def is_rejected_row(error: Exception) -> bool:
    """Return whether the database rejects a row permanently; other rows of the batch may be valid."""
    return isinstance(error, IntegrityError | DataError)


def is_unique_violation(error: Exception) -> bool:
    """Return whether a unique constraint was violated: another transaction wrote the same name first."""
    return _sqlstate(error) == _PG_UNIQUE_VIOLATION or _sqlite_code(error) in _SQLITE_UNIQUE


def is_constraint_conflict(error: Exception) -> bool:
    """Return whether a name was taken, or a referenced row was deleted, between a check and the write."""
    refers = _sqlstate(error) == _PG_FOREIGN_KEY_VIOLATION or _sqlite_code(error) == _SQLITE_FOREIGN_KEY
    return refers or is_unique_violation(error)


def _sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's code of an error."""
    original = getattr(error, "orig", None)
    # SQLAlchemy wraps the errors of the driver twice, and not every wrapper has the code.
    causes = (original, getattr(original, "__cause__", None))
    return next((code for cause in causes if (code := getattr(cause, "sqlstate", None)) is not None), None)


def _sqlite_code(error: BaseException) -> int | None:
    """Return SQLite's extended code of an error."""
    code: int | None = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code
