"""Decisions: what a scheduling pass says about one workload. Values only; binding makes them so."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from mooring.model.admission import Checked
from mooring.model.devices import DeviceShare
from mooring.model.preemption import Victim
from mooring.model.reasons import Reason
from mooring.model.workloads import Workload


class Outcome(StrEnum):
    PLACED = "placed"
    RESERVED = "reserved"
    """Its place is kept while victims leave it."""
    WAITING = "waiting"
    IMPOSSIBLE = "impossible"
    ERROR = "error"


SCORE_ONE = 1_000_000
"""The fixed-point scale of scores: this much is a perfect 100."""


_SAME_START = timedelta(seconds=10)
"""Planned starts that differ by less are not worth storing again."""


class Placement(NamedTuple):
    """One task on one node, with the score that it was chosen with and the node generation that was looked at."""

    task_id: UUID
    node_id: UUID
    node_name: str
    node_generation: int
    score: int
    ports: tuple[int, ...] = ()
    """The ports of the node's range that it was given."""
    devices: tuple[DeviceShare, ...] = ()
    """The devices of the node that it was given, or shares of them."""


class Decision(NamedTuple):
    """`placements` may cover a part of the waiting tasks (unless it is a gang); `reason` says why the rest waits."""

    workload: Workload
    outcome: Outcome
    placements: tuple[Placement, ...] = ()
    reason: Reason | None = None
    feasible_nodes: int = 0
    victims: tuple[Victim, ...] = ()
    """The tasks that have to leave before it can start; outcome `reserved`."""
    checked: Checked | None = None
    """How admission looked at it, to be stored with it."""
    planned_start: datetime | None = None
    """When what found no node will start at the latest, where its pool plans that."""

    @property
    def is_replanned(self) -> bool:
        """Whether its planned start is another than the one stored with it, by more than a few seconds."""
        before, planned = self.workload.planned_start, self.planned_start
        if before is None or planned is None:
            return before is not planned
        return abs(planned - before) >= _SAME_START
