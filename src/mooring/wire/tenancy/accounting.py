"""Schemas of accounting: past usage, records of ended workloads, current use, and free capacity."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from mooring.model.tenancy.accounting import By
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
    """The unit of the hours: `Gi` for slots that count bytes, otherwise `1`."""
    measured_hours: str | None = None
    """The amount in use as measured by agents; None if it was not measured."""


class UsageReport(Answer):
    by: By
    since: date
    until: date
    """The last day that is counted."""
    usage: list[UsageLine]


class TaskUse(Answer):
    """The measured use of a running task, next to its request. None: not measured recently, or not requested."""

    task_id: UUID
    workload_id: UUID
    workload: str
    index: int
    user: str
    project: str
    pool: str
    node: str | None
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    """The end of its time limit. None: it has no limit."""
    devices: dict[str, list[tuple[int, int]]] = {}
    """By slot, the devices of its node that are assigned to it: index and amount in base units."""
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
    """Age of the measurement; up to a minute more if the agent is connected to another server."""


class TaskUseList(Answer):
    tasks: list[TaskUse]
    """The tasks with the highest use first."""
    total: int
    """The number of running tasks that match the query and may be seen."""


class UsagePoint(Answer):
    at: datetime
    """The minute."""
    amounts: dict[str, int]
    """The sum of all tasks by slot, in base units; bytes per second for `read`, `written`, `received` and `sent`."""


class WorkloadUsage(Answer):
    """The measured use of a workload over time, as long as measurements are kept."""

    points: list[UsagePoint]


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
    """The request of each task."""
    peak: dict[str, str]
    """The most that all its tasks occupied at the same time."""
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


class PoolFreeCapacity(Answer):
    pool: str
    nodes: int
    """The nodes that accept new tasks of the user."""
    free: dict[str, str]
    """The total on these nodes."""
    largest: dict[str, str]
    """The most of each slot that one task could get if it requested nothing else."""
    boxes: list[dict[str, str]]
    """The largest requests of one task that would start now; none of them is a part of another."""


class QuotaLeft(Answer):
    scope: str
    name: str
    left: dict[str, str]
    """By limited slot."""


class FreeCapacity(Answer):
    pools: list[PoolFreeCapacity]
    quotas: list[QuotaLeft]
