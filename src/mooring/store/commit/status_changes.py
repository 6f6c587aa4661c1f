"""Status changes as values: requested changes, and those that were applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policy.holds import Purpose
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceShare


class NewHold(NamedTuple):
    """The purpose and expiry of a hold."""

    purpose: Purpose
    expires_at: datetime


class LastExit(NamedTuple):
    """The last end of a container of a living task."""

    code: str
    message: str
    exit_code: int | None = None
    retry_at: datetime | None = None
    """The time of its restart; None: it was restarted."""

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message}


class Change(NamedTuple):
    """The change of one task to a new status.

    `freed`: False if the task has ended but its node has not confirmed that nothing of it is left.
    """

    task_id: UUID
    new: TaskStatus
    reason: Reason | None = None
    node_id: UUID | None = None
    node_name: str | None = None
    score: int | None = None
    ports: tuple[tuple[str, int], ...] = ()
    """Ports of the node that the task gets: (protocol, number) each."""
    devices: tuple[DeviceShare, ...] = ()
    """Devices of the node, or device shares, that the task gets."""
    exit_code: int | None = None
    restarts: int | None = None
    crashes: int | None = None
    """Ends of its containers soon after their start, in a row."""
    last_exit: LastExit | None = None
    """With RUNNING: the last end of one of its containers."""
    freed: bool = True
    hold: NewHold | None = None
    """With RESERVED: the hold."""
    preempted_by: UUID | None = None
    """With TERMINATING: the preemptor. The amounts of the task count as `leaving` until they are freed."""
    requeue: bool = False
    """With TERMINATING or a failed end: the task is replaced when it has ended."""
    details: Mapping[str, Any] | None = None
    """Details of the decision, for the event."""
    ready: bool = True
    """With RUNNING: readiness; traffic goes to ready tasks only. RUNNING again updates it and the fields below."""
    digests: Mapping[str, str] | None = None
    """With RUNNING: image digests by container."""
    address: str | None = None
    """With RUNNING: the address for its peers."""


class WorkloadChange(NamedTuple):
    workload_id: UUID
    name: str
    kind: str
    old: WorkloadStatus
    new: WorkloadStatus
    reason: str | None


@dataclass(slots=True)
class Applied:
    """The changes that a transaction has made."""

    tasks: list[tuple[Change, TaskStatus]] = field(default_factory=list)
    workloads: list[WorkloadChange] = field(default_factory=list)
