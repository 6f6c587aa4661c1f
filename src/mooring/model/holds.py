"""Holds: capacity kept for a chosen placement until it is bound or the hold expires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Hold:
    id: UUID
    task_id: UUID
    workload_id: UUID
    node_id: UUID
    created_at: datetime
    expires_at: datetime

    def is_expired(self, now: datetime) -> bool:
        return now >= self.expires_at
