"""Conversion between times and the whole seconds of the calendar."""

from __future__ import annotations

from datetime import datetime, timedelta

from mooring.model.workloads.workload import LONG_AGO


def seconds_of(time: datetime) -> int:
    """Return a time in whole seconds, rounded down."""
    elapsed = time - LONG_AGO
    return elapsed.days * 86_400 + elapsed.seconds


def time_of(seconds: int) -> datetime:
    return LONG_AGO + timedelta(seconds=seconds)
