"""Decisions of a scheduling pass about one workload. Values only; binding commits them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from mooring.model.policy.preemption import Victim
from mooring.model.reasons import Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.tenancy.admission import Checked
from mooring.model.workloads.workload import Workload


class Outcome(StrEnum):
    PLACED = "placed"
    RESERVED = "reserved"
    """Its placement is reserved while victims leave."""
    WAITING = "waiting"
    IMPOSSIBLE = "impossible"
    ERROR = "error"


SCORE_ONE = 1_000_000
"""The fixed-point scale of scores: this is a perfect 100."""


_SAME_START = timedelta(seconds=10)
"""Planned starts that differ by less are not stored again."""


class Placement(NamedTuple):
    """One task on one node, with its score and the node generation that the decision was based on."""

    task_id: UUID
    node_id: UUID
    node_name: str
    node_generation: int
    score: int
    ports: tuple[int, ...] = ()
    """The node ports that are assigned to it."""
    devices: tuple[DeviceShare, ...] = ()
    """The devices of the node, or device shares, that are assigned to it."""


class Decision(NamedTuple):
    """The decision. `placements` may cover a part of the tasks (except of a gang); `reason` explains the rest."""

    workload: Workload
    outcome: Outcome
    placements: tuple[Placement, ...] = ()
    reason: Reason | None = None
    feasible_nodes: int = 0
    victims: tuple[Victim, ...] = ()
    """The tasks to preempt before it can start; outcome `reserved`."""
    checked: Checked | None = None
    """The admission check, to be stored with the workload."""
    planned_start: datetime | None = None
    """The planned start of an unschedulable workload, if its pool plans starts."""
    planned_nodes: Mapping[str, int] | None = None
    """The nodes of the tasks that start then, with their numbers, by the present plan."""

    @property
    def has_new_code(self) -> bool:
        """True if the code of its reason differs from the stored one."""
        return self.reason is not None and self.reason.code != self.workload.waiting_code

    @property
    def has_new_reason(self) -> bool:
        """True if the stored reason is outdated. The text has the amounts, which change while the code stays."""
        return self.has_new_code or (self.reason is not None and self.reason.message != self.workload.waiting_reason)

    @property
    def is_replanned(self) -> bool:
        """True if its planned start differs from the stored one by more than a few seconds, or is on other nodes."""
        if self.start_to_store != self.workload.planned_start:
            return True
        return self.planned_start is not None and self.planned_nodes != self.workload.planned_nodes

    @property
    def start_to_store(self) -> datetime | None:
        """The planned start, or the stored one if that differs by a few seconds only."""
        before, planned = self.workload.planned_start, self.planned_start
        if before is None or planned is None or abs(planned - before) >= _SAME_START:
            return planned
        return before
