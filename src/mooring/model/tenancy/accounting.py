"""Usage reports: grouping, and the units of amounts over time."""

from __future__ import annotations

from enum import StrEnum

from mooring.model.resources.slots import UNITS_PER_ONE, slot_type

_HOUR = 3600
_GIGABYTE = 2**30


class By(StrEnum):
    """The grouping of a usage report."""

    DOMAIN = "domain"
    PROJECT = "project"
    USER = "user"
    POOL = "pool"
    DAY = "day"


def hours_unit(slot: str) -> str:
    """Return the unit of a slot hour: bytes are counted in gibibytes."""
    return "Gi" if slot_type(slot).kind == "bytes" else "1"


def slot_hours(slot: str, amount_seconds: int) -> str:
    """Return base units times seconds as slot hours, rounded to thousandths."""
    kind = slot_type(slot).kind
    per_hour = _HOUR * (_GIGABYTE if kind == "bytes" else UNITS_PER_ONE[kind])
    thousandths = (amount_seconds * 1000 + per_hour // 2) // per_hour
    return f"{thousandths // 1000}.{thousandths % 1000:03}"
