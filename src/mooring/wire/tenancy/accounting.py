"""Schemas of accounting: what was used, what is left of ended work, and what would start now."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from mooring.model.accounting import By
from mooring.wire.fields import Answer

MAX_RECORDS = 1000
UseOrder = Literal["cpu", "memory", "io", "name"]


class UsageLine(Answer):
    name: str
    """A project with its domain before it: `lab/vision`."""
    slot: str
    amount_seconds: int
    """Base units times seconds, exact."""
    hours: str
    """Slot hours, rounded to thousandths."""
    unit: str
    """What an hour is one of: `Gi` for slots that count bytes, otherwise `1`."""
    measured_hours: str | None = None
    """How much of it was really used, as agents measured it; None: nobody did."""


class UsageReport(Answer):
    by: By
    since: date
    until: date
    """The last day that is counted."""
    usage: list[UsageLine]


class TaskUse(Answer):
    """What a task that runs uses, beside what it asked for. None: it was not measured lately, or asked for none."""

    task_id: UUID
    workload_id: UUID
    workload: str
    index: int
    user: str
    project: str
    pool: str
    node: str | None
    cpu_millicores: int | None
    cpu_asked_millicores: int | None
    memory_bytes: int | None
    memory_asked_bytes: int | None
    read_per_second: int | None
    """Bytes, from disks."""
    written_per_second: int | None
    received_per_second: int | None
    """Bytes, over its own network."""
    sent_per_second: int | None
    measured_at: datetime | None
    age_seconds: float | None
    """How old it is: up to a minute more where the agent is connected to another server."""


class TaskUseList(Answer):
    tasks: list[TaskUse]
    """Those that use most first."""
    total: int
    """How many run, of those that may be seen and were asked for."""


class WorkloadRecord(Answer):
    id: UUID
    name: str
    kind: str
    type: str
    domain: str
    project: str
    user: str
    access_key: str
    pool: str
    priority: int
    tasks: int
    attempts: int
    requested: dict[str, str]
    """By each task."""
    peak: dict[str, str]
    """The most that all its tasks had at the same time."""
    nodes: list[str]
    status: str
    reason: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime
    wait_seconds: int
    run_seconds: int


class WorkloadRecordList(Answer):
    workloads: list[WorkloadRecord]


class PoolRoom(Answer):
    pool: str
    nodes: int
    """That take new tasks of whoever asks."""
    free: dict[str, str]
    """On all of them together."""
    largest: dict[str, str]
    """The most of each slot that one task could get, if it asked for nothing else."""
    boxes: list[dict[str, str]]
    """The largest requests of one task that would start now; none of them is a part of another."""


class QuotaLeft(Answer):
    scope: str
    name: str
    left: dict[str, str]
    """Of what is limited."""


class Room(Answer):
    pools: list[PoolRoom]
    quotas: list[QuotaLeft]
