"""The time ahead as it travels: what runs, is booked, planned and free, in steps. Amounts are in base units."""

from __future__ import annotations

from datetime import datetime

from mooring.wire.fields import Answer


class SlotOutlook(Answer):
    """One slot over the steps."""

    slot: str
    capacity: int
    """Of the nodes that take work."""
    running: list[int]
    """In each step the most at one moment, as far as ends are known; what has none runs on."""
    booked: list[int]
    planned: list[int]
    """Of waiting work that has a planned start; of a pool alone, since its nodes may still change."""
    free: list[int]
    """The least at one moment."""


class OutlookView(Answer):
    pool: str
    node: str | None = None
    """None: all nodes of the pool together."""
    nodes: int
    """Those that take work."""
    slots: list[SlotOutlook]


class TimelineView(Answer):
    starts_at: datetime
    step_seconds: float
    steps: int
    outlooks: list[OutlookView]
