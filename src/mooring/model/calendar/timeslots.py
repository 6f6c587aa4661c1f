"""Timeslots: room that is promised for a window of future time, to labs, to whoever may use it, or to an operator.

Windows are half-open. The room is kept from the lead before the start on, so that what runs in it is ready in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.constraints import Constraints
from mooring.model.slots import Amounts
from mooring.model.workloads import NO_CONSTRAINTS, NOBODY


class TimeslotKind(StrEnum):
    LAB = "lab"
    """The room of one workload, which was handed in with it."""
    BOOKING = "booking"
    """Room that workloads name which are handed in for it."""
    MAINTENANCE = "maintenance"
    """Whole nodes that an operator takes: nothing starts there that would overlap."""


class TimeslotStatus(StrEnum):
    REQUESTED = "REQUESTED"
    """The leader has not decided on it yet."""
    CONFIRMED = "CONFIRMED"
    AT_RISK = "AT_RISK"
    """Confirmed, but the room for it is gone and no other was found yet."""
    ACTIVE = "ACTIVE"
    """Its lead has begun: its place is fixed, and its work may start."""
    ENDED = "ENDED"
    REFUSED = "REFUSED"
    EXPIRED = "EXPIRED"
    """Its work could not start within its grace."""
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    """Given back before its end, since nobody used it."""


S = TimeslotStatus

TIMESLOT_OVER = "timeslot-over"
"""The code of the reason why work ends with the timeslot that it is in."""

TIMESLOT_EDGES: dict[TimeslotStatus, frozenset[TimeslotStatus]] = {
    S.REQUESTED: frozenset({S.CONFIRMED, S.REFUSED, S.CANCELLED}),
    S.CONFIRMED: frozenset({S.AT_RISK, S.ACTIVE, S.CANCELLED}),
    S.AT_RISK: frozenset({S.CONFIRMED, S.ACTIVE, S.EXPIRED, S.ENDED, S.CANCELLED}),
    S.ACTIVE: frozenset({S.AT_RISK, S.ENDED, S.EXPIRED, S.CANCELLED, S.RELEASED}),
    S.ENDED: frozenset(),
    S.REFUSED: frozenset(),
    S.EXPIRED: frozenset(),
    S.CANCELLED: frozenset(),
    S.RELEASED: frozenset(),
}
PROMISED = frozenset({S.CONFIRMED, S.AT_RISK, S.ACTIVE})
"""Room is kept for these, as far as there is any."""
OVER = frozenset(status for status, next_ones in TIMESLOT_EDGES.items() if not next_ones)


@dataclass(frozen=True, slots=True)
class BookingRules:
    """What a pool's bookings have where they do not say."""

    lead_seconds: int = 2100
    """To boot a node (20 minutes) and to make its work ready (15)."""
    grace_seconds: int = 300
    """So long after its start what could not start has missed it."""
    notice_seconds: int = 300
    """So long before its end those who use it are told."""


@dataclass(frozen=True, slots=True)
class Timeslot:
    id: UUID
    name: str
    kind: TimeslotKind
    pool: str
    status: TimeslotStatus
    starts_at: datetime
    ends_at: datetime
    lead_seconds: int = 2100
    grace_seconds: int = 300
    request: Amounts = field(default_factory=dict)
    """Of one task."""
    count: int = 1
    """So many tasks side by side."""
    constraints: Constraints = NO_CONSTRAINTS
    architecture: str | None = None
    region: str | None = None
    user_id: UUID = NOBODY
    project_id: UUID = NOBODY
    domain_id: UUID = NOBODY
    access_key: str = ""
    """Its room counts against the quotas of these four, whoever uses it."""
    purpose: str | None = None
    """What its booker says that it is for."""
    users: frozenset[UUID] = frozenset()
    projects: frozenset[UUID] = frozenset()
    """Who may use it besides its booker."""
    release_after_seconds: int | None = None
    """Unused for so long from its start on, it is released; None: never."""
    series_id: UUID | None = None
    """The rule that made it and others."""
    replaces: UUID | None = None
    """The timeslot that this one is a change of: that one is cancelled when this one is confirmed, and its room may be
    counted on for it."""
    places: Mapping[UUID, int] = field(default_factory=dict)
    """Per node how many of its tasks have their room there."""
    version: int = 1

    @property
    def eligible_at(self) -> datetime:
        """From here on, inclusive, its work may be placed."""
        return self.starts_at - timedelta(seconds=self.lead_seconds)

    @property
    def missed_at(self) -> datetime:
        """After this, work that could not be placed has missed it."""
        return self.starts_at + timedelta(seconds=self.grace_seconds)

    @property
    def is_frozen_at(self) -> datetime:
        """From here on it is not moved for a better place, only if its own is gone."""
        return self.eligible_at
