"""Texts that agents send, made fit for the database and for display."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mooring.wire.agents.agent_protocol import BackgroundTaskState
from mooring.wire.fields import INT32_MAX

_MAX_TEXT = 500
_MAX_TASK_NAME = 63


def printable(text: str) -> str:
    """Return the printable part of a text. The database refuses other characters, and with them whole batches."""
    return "".join(character for character in text if character.isprintable())[:_MAX_TEXT]


def one_line(text: str) -> str:
    """Return the printable part of a text with spaces instead of line ends."""
    return printable(" ".join(text.splitlines()))


def storable(number: int) -> int:
    """Return the number as a column can hold it."""
    return min(max(number, -INT32_MAX), INT32_MAX)


def printable_task(task: BackgroundTaskState) -> BackgroundTaskState:
    """Return the state as the database can store it: all servers' reports fail if one value is refused."""
    return msgspec.structs.replace(
        task,
        name=printable(task.name)[:_MAX_TASK_NAME],
        failures=min(max(task.failures, 0), INT32_MAX),
        started_at=_aware(task.started_at),
        error=printable(task.error) if task.error else None,
        failed_at=_aware(task.failed_at),
    )


def _aware(at: datetime | None) -> datetime | None:
    return at if at is not None and at.tzinfo is not None else None
