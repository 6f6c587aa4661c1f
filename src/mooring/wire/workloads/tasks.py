"""Tasks as the API shows them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mooring.wire.fields import Answer


class TaskView(Answer):
    id: UUID
    index: int
    attempt: int
    current: bool
    status: str
    node: str | None
    score: float | None
    """The score of its node, 0..1."""
    exit_code: int | None
    restarts: int
    failures: int = 0
    """Failures of earlier attempts, which use up retries."""
    crashes: int = 0
    """Ends soon after a start, in a row, of this attempt and those before it; 2 or more are a crash loop."""
    last_exit_code: int | None = None
    """The exit code of its last end: of a container that was restarted, or of the attempt before it."""
    last_reason: str | None = None
    """The reason of that end."""
    next_retry_at: datetime | None = None
    """It backs off until then."""
    reason: str | None
    devices: dict[str, list[tuple[int, int]]] = {}
    """By slot, the devices of its node that are assigned to it: index and amount in base units."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None = None
    """Its time limit as a time; known from its start on."""
    revision: int = 1
    """The revision of its deployment that it was created from."""
    ready: bool = False
    """It runs, and its readiness probes, if any, succeed."""
    retires_at: datetime | None = None
    """It no longer receives traffic, and will be stopped."""
    digests: dict[str, str] = {}
    """By container, the digest of its image at its start."""
    address: str | None = None
    """Its address for peers."""


class TaskList(Answer):
    tasks: list[TaskView]
    total: int
    limit: int
    offset: int
