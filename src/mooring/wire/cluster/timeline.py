"""Schemas of the timeline: running, booked, planned and free amounts by step, in base units."""

from __future__ import annotations

from datetime import datetime

from mooring.wire.fields import Answer


class SlotForecast(Answer):
    """One slot over the steps."""

    slot: str
    capacity: int
    """Of the schedulable nodes."""
    running: list[int]
    """The maximum in each step, by known ends; work without an end runs on."""
    booked: list[int]
    planned: list[int]
    """Of pending work with a planned start; by node on the nodes of the present plan, which may still change."""
    free: list[int]
    """The minimum in each step."""


class ForecastView(Answer):
    pool: str
    node: str | None = None
    """None: all nodes of the pool together."""
    nodes: int
    """The number of schedulable nodes."""
    slots: list[SlotForecast]


class TimelineView(Answer):
    starts_at: datetime
    step_seconds: float
    steps: int
    outlooks: list[ForecastView]
