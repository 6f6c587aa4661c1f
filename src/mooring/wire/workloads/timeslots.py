"""Bookings, labs and maintenance as they travel."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StringConstraints

from mooring.model.calendar.durations import MAX_DURATION_SECONDS
from mooring.wire.fields import MAX_TASKS, Answer, Name, Quantity, Request, Said, ShortText, SlotName
from mooring.wire.workloads.placement import PlacementRequest
from mooring.wire.workloads.sessions import Duration, Instant
from mooring.wire.workloads.workloads import WorkloadRequest, WorkloadView

MAX_ACCESS_ENTRIES = 100
MAX_NODES = 1000
NoLongerThan = (
    Annotated[str, StringConstraints(min_length=1, max_length=40)]
    | Annotated[int, Field(ge=0, le=MAX_DURATION_SECONDS)]
)
"""As `Duration`, which may also be nothing: 0."""
Resources = Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
Count = Annotated[int, Field(ge=1, le=MAX_TASKS)]
Rule = Annotated[str, StringConstraints(min_length=1, max_length=500)]
ZoneName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9_+/-]+$")]


class WindowRequest(Request):
    """A half-open window: one of `end` and `duration`."""

    start: Instant | None = None
    """None: now."""
    end: Instant | None = None
    duration: Duration | None = None
    """Seconds, `90m`, `1-12:00:00`."""


class PromiseRequest(WindowRequest):
    lead: NoLongerThan | None = None
    """Time before its start at which its capacity is reserved and its work is prepared. None: as the pool says."""
    grace: NoLongerThan | None = None
    """Work that cannot start within this time after the start misses the booking. None: the pool's default."""


class TimeslotRequest(PromiseRequest):
    name: Name | None = None
    """None: one is made up. Several may have the same: it then means the one that is in force, or the next."""
    purpose: Said | None = None
    pool: Name | None = None
    """None: the pool of real nodes that one may use."""
    project: Name | None = None
    """A project that one is a member of; None: one's default project, or that of the keypair."""
    resources: Resources
    """Request of each task that it has capacity for."""
    count: Count = 1
    """The number of tasks that run at the same time."""
    architecture: ShortText | None = None
    region: Name | None = None
    placement: PlacementRequest | None = None
    users: Annotated[list[Name], Field(max_length=MAX_ACCESS_ENTRIES)] = []
    projects: Annotated[list[Name], Field(max_length=MAX_ACCESS_ENTRIES)] = []
    """The users of the same domain who may use it, besides the booker."""
    release_after: Duration | None = None
    """Time from its start after which it is released if unused. None: it is reserved until its end."""
    rule: Rule | None = None
    """It comes again by this rule of RFC 5545, with COUNT or UNTIL: `FREQ=WEEKLY;BYDAY=MO;COUNT=10`."""
    exceptions: Annotated[list[Annotated[date, Field(strict=False)]], Field(max_length=500)] = []
    """Dates of the series, by the wall clock, on which it does not take place."""
    timezone: ZoneName = "UTC"
    """Of the wall clock that the rule means."""


class TimeslotChange(WindowRequest):
    """Only the given fields change. After its start only its end can change, to a later one where capacity is free."""

    resources: Resources | None = None
    count: Count | None = None


class MaintenanceRequest(WindowRequest):
    """Whole nodes for a window: nothing starts there that would overlap it."""

    nodes: Annotated[list[Name], Field(min_length=1, max_length=MAX_NODES)]
    reason: Said


class LabRequest(PromiseRequest):
    """A workload with a booking of its own, which has the capacity for exactly that."""

    workload: WorkloadRequest


class TimeslotPlacement(Answer):
    node: str
    tasks: int


class TimeslotView(Answer):
    id: UUID
    name: str
    kind: str
    """`booking`, `lab` or `maintenance`."""
    purpose: str | None = None
    pool: str
    project: str
    user: str
    status: str
    reason: dict[str, Any] | None = None
    """The reason of a refusal, a risk or an end: code, message, by, cure, details (with alternatives)."""
    start: datetime
    end: datetime
    lead_seconds: int
    grace_seconds: int
    eligible_at: datetime
    """From here on its work may be placed."""
    resources: dict[str, str]
    count: int
    architecture: str | None = None
    region: str | None = None
    users: list[str] = []
    projects: list[str] = []
    release_after_seconds: int | None = None
    places: list[TimeslotPlacement] = []
    series: UUID | None = None
    rule: str | None = None
    timezone: str | None = None
    replaces: UUID | None = None
    """The one that it is a change of, which stays until this one is confirmed."""
    created_at: datetime
    ended_at: datetime | None = None
    version: int


class TimeslotList(Answer):
    timeslots: list[TimeslotView]
    total: int
    limit: int
    offset: int


class TimeslotsAccepted(Answer):
    """Written, and to be decided soon: ask each for its answer, or all of a series."""

    ids: list[UUID]
    name: str
    pool: str
    series: UUID | None = None
    message: str


class TimeslotsCancelled(Answer):
    cancelled: list[UUID]


class LabView(Answer):
    state: str
    """pending, scheduled, instantiating, ready, running, stopping, stopped, archived, terminated or expired."""
    timeslot: TimeslotView
    workload: WorkloadView
    ports: dict[int, list[int]] = {}
    """By task the ports of its node that are its own."""


class LabList(Answer):
    labs: list[LabView]
    total: int
    limit: int
    offset: int


class LabAccepted(Answer):
    timeslot: UUID
    workload: UUID
    name: str
    pool: str
    message: str
