"""Retention of logs and work folders of ended tasks: old ones go first, until the rest is small enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class RetainedTask:
    task_id: UUID
    ended_at: float
    size_bytes: int


def expired(retained: Iterable[RetainedTask], *, now: float, keep_seconds: float, keep_bytes: int) -> list[UUID]:
    """Return the tasks to remove, oldest first."""
    oldest_first = sorted(retained, key=lambda task: task.ended_at)
    total = sum(task.size_bytes for task in oldest_first)
    gone: list[UUID] = []
    for task in oldest_first:
        if now - task.ended_at <= keep_seconds and total <= keep_bytes:
            break
        gone.append(task.task_id)
        total -= task.size_bytes
    return gone
