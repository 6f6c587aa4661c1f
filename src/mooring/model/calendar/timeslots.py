"""Timeslots: capacity reserved for a window of future time, for a lab, for users, or for an operator.

Windows are half-open. Capacity is reserved from the lead time before the start, so that work is ready in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS, NOBODY


class TimeslotKind(StrEnum):
    LAB = "lab"
    """Capacity for one workload, submitted with it."""
    BOOKING = "booking"
    """Capacity for workloads that name it."""
    MAINTENANCE = "maintenance"
    """Whole nodes for an operator: nothing starts there that would overlap."""


class TimeslotStatus(StrEnum):
    REQUESTED = "REQUESTED"
    """Not yet decided by the leader."""
    CONFIRMED = "CONFIRMED"
    AT_RISK = "AT_RISK"
    """Confirmed, but its capacity was lost and no other was found yet."""
    ACTIVE = "ACTIVE"
    """Its lead time has begun: its placement is fixed, and its work may start."""
    ENDED = "ENDED"
    REFUSED = "REFUSED"
    EXPIRED = "EXPIRED"
    """Its work could not start within its grace period."""
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    """Released before its end because it was not used."""


S = TimeslotStatus

TIMESLOT_OVER = "timeslot-over"
"""The reason code for work that ends with its timeslot."""

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
"""Statuses in which capacity is reserved."""
OVER = frozenset(status for status, next_ones in TIMESLOT_EDGES.items() if not next_ones)


class OpenEnded(StrEnum):
    """The policy for work without a time limit on capacity booked later: not placed, or moved before the lead time.

    With DISPLACE, new bookings may also use the capacity of such work of any owner.
    """

    REFUSE = "refuse"
    UNTIL_LEAD = "until_lead"
    DISPLACE = "displace"


@dataclass(frozen=True, slots=True)
class BookingRules:
    """The defaults of a pool's bookings."""

    lead_seconds: int = 2100
    """Time to boot a node (20 minutes) and to prepare the work (15)."""
    grace_seconds: int = 300
    """Work that cannot start within this time after the start misses the timeslot."""
    notice_seconds: int = 300
    """Notice before the end."""
    open_ended: OpenEnded = OpenEnded.UNTIL_LEAD
    open_ended_notice_seconds: int = 86_400
    """Work without a time limit may use capacity that is booked later than this, and moves before the lead time."""

    @property
    def movable_notice_seconds(self) -> int | None:
        """The notice after which work without a time limit is moved for a booking; None: never."""
        return None if self.open_ended is OpenEnded.REFUSE else self.open_ended_notice_seconds


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
    """The number of tasks."""
    constraints: Constraints = NO_CONSTRAINTS
    architecture: str | None = None
    region: str | None = None
    user_id: UUID = NOBODY
    project_id: UUID = NOBODY
    domain_id: UUID = NOBODY
    access_key: str = ""
    """Its capacity counts against the quotas of these four tenants, not of its users."""
    purpose: str | None = None
    """The purpose, in the words of its booker."""
    users: frozenset[UUID] = frozenset()
    projects: frozenset[UUID] = frozenset()
    """The users who may use it, besides its booker."""
    release_after_seconds: int | None = None
    """It is released if unused for this long after its start; None: never."""
    series_id: UUID | None = None
    """The recurrence rule that created it and others."""
    replaces: UUID | None = None
    """The timeslot that this one replaces: it is cancelled when this one is confirmed, and its capacity may be
    used for it."""
    placements: Mapping[UUID, int] = field(default_factory=dict)
    """The number of its tasks by node."""
    version: int = 1
    calendar_uid: UUID | None = None
    """The id of the first timeslot in a chain of replacements; None: its own."""

    @property
    def uid(self) -> UUID:
        """The identity in calendars, which changes keep."""
        return self.calendar_uid or self.id

    @property
    def eligible_at(self) -> datetime:
        """The time from which its work may be placed, inclusive."""
        return self.starts_at - timedelta(seconds=self.lead_seconds)

    @property
    def missed_at(self) -> datetime:
        """The time after which work that could not be placed has missed it."""
        return self.starts_at + timedelta(seconds=self.grace_seconds)
