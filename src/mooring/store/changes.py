"""Changes of statuses as values: what is asked for, and what was really changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Change:
    """One task to a new status. `freed`: False where the end is known but not that nothing is left on the node."""

    task_id: UUID
    new: TaskStatus
    reason: Reason | None = None
    node_id: UUID | None = None
    node_name: str | None = None
    score: int | None = None
    ports: tuple[tuple[str, int], ...] = ()
    """Ports of the node, by protocol and number, that are the task's from now on."""
    exit_code: int | None = None
    restarts: int | None = None
    freed: bool = True


@dataclass(frozen=True, slots=True)
class WorkloadChange:
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
