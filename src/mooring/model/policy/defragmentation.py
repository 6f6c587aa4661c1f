"""Defragmentation as data: running tasks that may move, and the plan of moves with their gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.workload import Workload

MAX_MOVES = 200
"""The limit on the moves of one plan."""


class Gain(StrEnum):
    """The purpose of moves: devices for pending work, capacity for the largest gang, or empty nodes."""

    GPU = "gpu"
    LARGEST_GANG = "largest-gang"
    DRAIN_NODES = "drain-nodes"


@dataclass(frozen=True, slots=True)
class DefragmentationRules:
    """The automatic moves of a pool."""

    moves_per_hour: int = 0
    """The maximum number of moves in any hour; 0: none."""
    gain: Gain = Gain.GPU
    max_lost_seconds: int = 3600
    """Batch tasks that have run for longer stay."""
    interactive: bool = False
    """Interactive sessions move too."""


class PlanStatus(StrEnum):
    """The state of an automatic plan: its moves follow one another, all were made, or the rest was left out."""

    EXECUTING = "EXECUTING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"


class MoveStatus(StrEnum):
    """The state of an automatic move: ahead, evicted, running on its target, gone elsewhere, or left out."""

    PLANNED = "PLANNED"
    MOVING = "MOVING"
    ARRIVED = "ARRIVED"
    DEPARTED = "DEPARTED"
    LEFT_OUT = "LEFT_OUT"


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A task on a node. Only movable ones are moved; the others stay."""

    task_id: UUID
    node_id: UUID
    workload: Workload
    """As placement would see its replacement."""
    constraints: Constraints
    """As the node counts them, without the assigned ports."""
    devices: tuple[DeviceShare, ...] = ()
    movable: bool = True
    lost_seconds: int = 0
    """The run time that is repeated if it moves."""
    ports: tuple[HostPort, ...] = ()
    """Its assigned node ports."""


@dataclass(frozen=True, slots=True)
class Move:
    """One task goes from its node to another."""

    task_id: UUID
    workload_id: UUID
    workload: str
    source_id: UUID
    source: str
    target_id: UUID
    target: str
    request: Amounts
    lost_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Tasks of a pending workload that start on a node after a step."""

    workload_id: UUID | None
    """None: of typical requests, for the time when work of their kind arrives."""
    workload: str
    node: str
    request: Amounts


@dataclass(frozen=True, slots=True)
class Step:
    """Moves in order, with their joint gain."""

    moves: tuple[Move, ...]
    starts: tuple[Start, ...] = ()
    emptied: tuple[str, ...] = ()
    """Nodes without tasks after the step."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A proven upper bound of what any number of moves can gain; the reason why there is none, or why it is loose."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    gain: Gain
    steps: tuple[Step, ...] = ()
    gained: float = 0
    """Devices that start work, additional tasks of the gang, or emptied nodes."""
    movable: int = 0
    """Tasks that could move."""
    placed: int = 0
    """All tasks."""
    gang: Amounts = field(default_factory=dict)
    """For the largest gang: the request of each of its tasks."""
    gang_before: int = 0
    """The tasks of the gang that fit without moves."""
    bound: Bound = Bound(None, "not computed")

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(move for step in self.steps for move in step.moves)
