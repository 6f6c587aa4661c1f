"""Health and readiness of a server."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mooring.wire.fields import Answer


class Health(Answer):
    status: Literal["ok"]
    role: str
    version: str
    last_pass_at: datetime | None
    last_pass_ms: float | None
    passes: int


class Ready(Answer):
    ready: bool
    checks: dict[str, str]
    """By component, "ok" or the problem."""
    degraded: dict[str, str] = {}
    """By component, a problem that does not keep the server from working."""
