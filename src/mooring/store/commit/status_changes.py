"""Changes of statuses as values: what is asked for, and what was really changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from mooring.model.devices import DeviceShare
from mooring.model.holds import Purpose
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason


class NewHold(NamedTuple):
    """What keeps a place: for what, and until when."""

    purpose: Purpose
    expires_at: datetime


class Change(NamedTuple):
    """One task to a new status. `freed`: False where the end is known but not that nothing is left on the node."""

    task_id: UUID
    new: TaskStatus
    reason: Reason | None = None
    node_id: UUID | None = None
    node_name: str | None = None
    score: int | None = None
    ports: tuple[tuple[str, int], ...] = ()
    """Ports of the node, by protocol and number, that are the task's from now on."""
    devices: tuple[DeviceShare, ...] = ()
    """Devices of the node, or shares of them, that are the task's from now on."""
    exit_code: int | None = None
    restarts: int | None = None
    freed: bool = True
    hold: NewHold | None = None
    """With RESERVED: what keeps the place."""
    preempted_by: UUID | None = None
    """With TERMINATING: the workload that it makes room for; what it occupies is `leaving` until it is freed."""
    requeue: bool = False
    """With TERMINATING or a bad end: a successor takes its place when it has ended."""
    details: Mapping[str, Any] | None = None
    """What the decision saw and chose, for the event."""
    ready: bool = True
    """With RUNNING: nobody is sent to it before it is. RUNNING again tells what has changed of it and what follows."""
    digests: Mapping[str, str] | None = None
    """With RUNNING, by container: what its image was."""
    address: str | None = None
    """With RUNNING: where its peers reach it."""


class WorkloadChange(NamedTuple):
    workload_id: UUID
    name: str
    kind: str
    old: WorkloadStatus
    new: WorkloadStatus
    reason: str | None


@dataclass(slots=True)
class Applied:
    """What was really changed."""

    tasks: list[tuple[Change, TaskStatus]] = field(default_factory=list)
    workloads: list[WorkloadChange] = field(default_factory=list)
