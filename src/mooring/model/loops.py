"""Statistics of the leader's control loops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(slots=True)
class LoopState:
    """The last iteration of a loop, and totals since its leader was elected. The loop itself updates it."""

    name: str
    last_run_at: datetime | None = None
    """The start of the last iteration."""
    duration_seconds: float | None = None
    outcome: Literal["ok", "failed"] | None = None
    error: str | None = None
    next_run_at: datetime | None = None
    """The next iteration by timer, unless a signal comes first; in the past while it runs."""
    runs: int = 0
    failures: int = 0
    found_by_timer: int = 0
    """Iterations that found work without the signal that should have announced it."""
