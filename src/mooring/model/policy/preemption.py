"""Preemption as data: the rules of a pool, the running tasks, and the victims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import NO_CONSTRAINTS, NOBODY


class VictimScope(StrEnum):
    """The scope of victims: tasks of the same user, project or domain, or of the whole pool.

    `reclaim`: tasks of projects above their guarantee, whatever their priority, for a project that stays within its
    own guarantee.
    """

    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    POOL = "pool"
    RECLAIM = "reclaim"


class PreemptionMode(StrEnum):
    """The fate of a victim: it ends, or it is requeued."""

    TERMINATE = "terminate"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Preemption:
    """The preemption rules of a pool."""

    mode: PreemptionMode = PreemptionMode.REQUEUE
    scope: VictimScope = VictimScope.POOL
    min_runtime_seconds: int = 0
    """Tasks that have run for less than this are never preempted."""
    hold_seconds: int = 300
    """The duration of the preemptor's hold while victims leave; then it is requeued."""


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A running task, as preemption sees it."""

    task_id: UUID
    workload_id: UUID
    node_id: UUID
    priority: int
    request: Amounts
    constraints: Constraints = NO_CONSTRAINTS
    user_id: UUID = NOBODY
    project_id: UUID = NOBODY
    domain_id: UUID = NOBODY
    preemptible: bool = True
    started_at: datetime | None = None
    """None: placed, but not started yet."""
    whole: bool = False
    """A gang: if it is preempted, all other tasks of the workload are preempted as well."""
    devices: tuple[DeviceShare, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Its assigned node ports: protocol and number."""
    leaving_for: UUID | None = None
    """The workload that preempted it: it is terminating, and its capacity is taken."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The number of tasks of a workload that may still be disrupted; absent workloads have no budget."""

    allowed: Mapping[UUID, int] = field(default_factory=dict)


class Victim(NamedTuple):
    """A task to preempt."""

    task_id: UUID
    workload_id: UUID
    node_id: UUID
    violates_budget: bool = False
