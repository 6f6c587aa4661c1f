"""Preemption as values: what a pool allows, who is on the nodes, and who has to leave for whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from mooring.model.constraints import Constraints
from mooring.model.devices import DeviceShare
from mooring.model.slots import Amounts
from mooring.model.workloads import NO_CONSTRAINTS, NOBODY


class VictimScope(StrEnum):
    """Whose tasks may have to leave: those of the same user, project or domain, or anybody's in the pool.

    `reclaim`: those of projects that use more than they are guaranteed, whatever their priority, for a project that
    stays within what it is.
    """

    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    POOL = "pool"
    RECLAIM = "reclaim"


class PreemptionMode(StrEnum):
    """What becomes of a victim: it ends, or it waits again."""

    TERMINATE = "terminate"
    REQUEUE = "requeue"


@dataclass(frozen=True, slots=True)
class Preemption:
    """A pool that has it allows workloads to make room for themselves."""

    mode: PreemptionMode = PreemptionMode.REQUEUE
    scope: VictimScope = VictimScope.POOL
    min_runtime_seconds: int = 0
    """Who runs for less than this is left alone."""
    hold_seconds: int = 300
    """How long the preemptor's place is kept while victims leave; then it waits again."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A task on a node, as far as preemption asks about it."""

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
    """None: it is placed and has not started yet."""
    whole: bool = False
    """Its workload lives or dies as a whole: with it, all other tasks of the workload have to leave."""
    devices: tuple[DeviceShare, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()
    """Ports of the node's range that it was given: protocol and number."""
    leaving_for: UUID | None = None
    """The workload that it makes room for: it is on its way out, and nobody else may count on it."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many more tasks of a workload may be disturbed; workloads that are not named have no budget."""

    allowed: Mapping[UUID, int] = field(default_factory=dict)


class Victim(NamedTuple):
    """A task that leaves its node so that another may come."""

    task_id: UUID
    workload_id: UUID
    node_id: UUID
    violates_budget: bool = False
