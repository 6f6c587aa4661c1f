"""Schemas of defragmentation: a plan of moves with their gain, and one move."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias
from uuid import UUID

from pydantic import Field

from mooring.model.policy.defragmentation import MAX_MOVES
from mooring.wire.fields import Answer, Name, Request

GainName: TypeAlias = Literal["gpu", "largest-gang", "drain-nodes"]


class DefragmentationRequest(Request):
    """A plan to compute. Nothing moves."""

    gain: GainName = "gpu"
    max_moves: Annotated[int, Field(ge=1, le=MAX_MOVES)] = 10
    max_lost_seconds: Annotated[int, Field(ge=0, le=10**9)] = 3600
    """Batch tasks that have run for longer stay: their work would be repeated."""
    interactive: bool = False
    """Interactive sessions may move too; their processes restart."""


class MoveView(Answer):
    task_id: UUID
    workload_id: UUID
    workload: str
    source: str
    target: str
    resources: dict[str, str]
    lost_seconds: int
    """The run time that is repeated."""


class StartView(Answer):
    """A pending task that starts after a step."""

    workload_id: UUID | None = None
    """None: a typical request, for work of its kind to come."""
    workload: str
    node: str
    resources: dict[str, str]


class StepView(Answer):
    """Moves in order, with their joint gain."""

    moves: list[MoveView]
    starts: list[StartView]
    emptied: list[str]


class DefragmentationPlan(Answer):
    id: UUID
    pool: str
    gain: GainName
    steps: list[StepView]
    gained: float
    """Devices that start work, additional tasks of the gang, or emptied nodes."""
    moves: int
    movable: int
    placed: int
    gang: dict[str, str] = {}
    """For the largest gang: the request of each of its tasks."""
    gang_before: int = 0
    """The tasks of the gang that fit without moves."""
    bound: float | None = None
    """Proven: no number of moves gains more. None: not computed, for `bound_reason`."""
    bound_reason: str | None = None
    """The reason for a missing bound, or for one that may be far above what is possible."""


class AutomaticMoveView(Answer):
    """A move of an automatic plan."""

    number: int
    status: Literal["PLANNED", "MOVING", "ARRIVED", "DEPARTED", "LEFT_OUT"]
    workload_id: UUID
    workload: str
    task_id: UUID
    replacement_id: UUID | None = None
    """The task on the target."""
    source: str
    target: str
    lost_seconds: int
    reason: str | None = None
    evicted_at: datetime | None = None
    ended_at: datetime | None = None


class AutomaticPlanView(Answer):
    """A plan that the leader computed and executes."""

    id: UUID
    status: Literal["EXECUTING", "COMPLETED", "STOPPED"]
    gain: GainName
    gained: float
    bound: float | None = None
    bound_reason: str | None = None
    reason: str | None = None
    """The reason why the rest was left out."""
    created_at: datetime
    ended_at: datetime | None = None
    moves: list[AutomaticMoveView]


class AutomaticPlanList(Answer):
    plans: list[AutomaticPlanView]
    """The newest first."""


class MoveRequest(Request):
    """One move of a plan. The task is evicted, and its replacement prefers the target."""

    plan: Annotated[UUID, Field(strict=False)]
    task_id: Annotated[UUID, Field(strict=False)]
    source: Name
    target: Name
