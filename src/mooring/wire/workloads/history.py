"""The history of a workload: status changes and attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from mooring.wire.fields import Answer


class HistoryRow(Answer):
    at: datetime
    noun: str
    """`workload` or `task`."""
    object_id: UUID
    task_index: int | None = None
    attempt: int | None = None
    old_status: str
    new_status: str
    actor: str
    reason: str | None
    term: int | None


class AttemptRow(Answer):
    """Something that was tried; equal ones in a row are one record."""

    phase: Literal["place", "bind", "prepare", "start"]
    result: Literal["success", "retry", "expired", "give_up", "skipped"]
    code: str | None
    message: str | None
    task_index: int | None = None
    number: int
    """The number of equal attempts in a row."""
    first_at: datetime
    last_at: datetime


class HistoryList(Answer):
    history: list[HistoryRow]
    attempts: list[AttemptRow] = []
    """Attempts that did not succeed at once, oldest first. Waiting for capacity is no attempt."""
