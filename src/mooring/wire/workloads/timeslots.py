"""Timeslots, labs and maintenance as they travel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StringConstraints

from mooring.model.durations import LONGEST_SECONDS
from mooring.wire.api import WorkloadRequest, WorkloadView
from mooring.wire.fields import MAX_TASKS, Answer, Name, Quantity, Request, Said, ShortText, SlotName
from mooring.wire.placement import PlacementRequest
from mooring.wire.sessions import Duration, Instant

MOST_GUESTS = 100
MOST_NODES = 1000
NoLongerThan = (
    Annotated[str, StringConstraints(min_length=1, max_length=40)] | Annotated[int, Field(ge=0, le=LONGEST_SECONDS)]
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
    """Its room is kept and its work begins to be made ready so long before its start. None: as the pool says."""
    grace: NoLongerThan | None = None
    """What could not start so long after its start has missed it. None: as the pool says."""


class TimeslotRequest(PromiseRequest):
    name: Name | None = None
    """None: one is made up. Several may have the same: it then means the one that is in force, or the next."""
    purpose: Said | None = None
    pool: Name | None = None
    """None: the pool of real nodes that one may use."""
    project: Name | None = None
    """A project that one is a member of; None: one's default project, or that of the keypair."""
    resources: Resources
    """Of each task that it has room for."""
    count: Count = 1
    """So many tasks side by side."""
    architecture: ShortText | None = None
    region: Name | None = None
    placement: PlacementRequest | None = None
    users: Annotated[list[Name], Field(max_length=MOST_GUESTS)] = []
    projects: Annotated[list[Name], Field(max_length=MOST_GUESTS)] = []
    """Who of one's own domain may use it, besides oneself."""
    release_after: Duration | None = None
    """Unused for so long from its start on it is released. None: it is kept until its end."""
    rule: Rule | None = None
    """It comes again by this rule of RFC 5545, with COUNT or UNTIL: `FREQ=WEEKLY;BYDAY=MO;COUNT=10`."""
    timezone: ZoneName = "UTC"
    """Of the wall clock that the rule means."""


class TimeslotChange(WindowRequest):
    """Only what is given changes: of one that has begun its end alone, to an earlier one."""

    resources: Resources | None = None
    count: Count | None = None


class MaintenanceRequest(WindowRequest):
    """Whole nodes for a window: nothing starts there that would overlap it."""

    nodes: Annotated[list[Name], Field(min_length=1, max_length=MOST_NODES)]
    reason: Said


class LabRequest(PromiseRequest):
    """A workload with a timeslot of its own, which has room for exactly that."""

    workload: WorkloadRequest


class TimeslotPlace(Answer):
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
    """Why it was refused, is at risk or is over: code, message, by, cure, details; alternatives are in the details."""
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
    places: list[TimeslotPlace] = []
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
