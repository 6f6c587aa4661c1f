"""What the loops of the leader say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(slots=True)
class LoopState:
    """The last turn of a loop, and all of them since its leader took office. The loop itself keeps it current."""

    name: str
    last_run_at: datetime | None = None
    """When the last turn began."""
    duration_seconds: float | None = None
    outcome: Literal["ok", "failed"] | None = None
    error: str | None = None
    next_run_at: datetime | None = None
    """Unless a signal wakes it before; in the past while it is at work."""
    runs: int = 0
    failures: int = 0
    found_by_timer: int = 0
    """Turns that found work which a signal should have announced."""
