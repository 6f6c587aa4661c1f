"""The explanation of a pending workload, of a placed one, and of a dry run, in one record."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from mooring.wire.fields import Answer

Score = Annotated[float, Field(ge=0, le=1)]


class Removed(Answer):
    """The nodes that one filter is the first to reject."""

    by: str
    nodes: int
    code: str
    words: str
    """The rejection as text: `3,100 lack 2 gpu (best has 1)`."""
    cure: Literal["release", "change", "never"]
    """The remedy: released capacity, a change of nodes or of the request, or none."""
    details: dict[str, Any]
    """The amounts, in base units."""


class ScoredNode(Answer):
    node: str
    score: Score
    """The weighted mean of `scores`."""
    scores: dict[str, Score]
    """By scorer."""


class NearMiss(Answer):
    node: str
    rejections: list[Removed]
    """Every filter that rejects it."""


class TaskPlacement(Answer):
    index: int
    node: str | None
    status: str
    score: float | None
    """The score of its node, or of the node that would be chosen."""
    ports: list[int] = []
    devices: dict[str, list[tuple[int, int]]] = {}
    """By slot, the devices of its node that are or would be assigned to it: index and amount in base units."""


class Explanation(Answer):
    id: UUID | None
    """None: a dry run."""
    name: str
    status: str | None
    pool: str
    simulated: bool
    """True: the pool runs no real tasks."""
    outcome: Literal["placed", "waiting", "impossible", "error", "ended"]
    """The outcome of a pass over this workload alone with the current nodes."""
    summary: str
    """`0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    reason: dict[str, Any] | None
    """The reason why all or some of its tasks are pending: code, message, by, cure, details."""
    ahead: int | None = None
    """The number of workloads of its pool that are queued ahead of it, if it is pending."""
    planned_start: datetime | None = None
    """The latest start by the plan of its pool."""
    estimated_start: datetime | None = None
    """Its approximate start if all work runs to its time limit and nothing else is submitted; None: unknown."""
    first_start: datetime | None = None
    """The first planned or estimated start; later ones replaced it."""
    start_moves: int = 0
    """The number of times that its planned or estimated start was replaced by a later one."""
    unless: str | None = None
    """It cannot start unless this changes; it has no planned or estimated start then."""
    estimate_is_stored: bool = False
    """The estimate is the one that the leader stored last; too many workloads are ahead for a new one."""
    scheduling: str | None = None
    """The reason why nothing is scheduled at present: no server is the leader."""
    not_before: datetime | None = None
    """It is not tried earlier."""
    nodes: int
    candidates: int
    removed: list[Removed]
    """Those first that released capacity cures, those last whose nodes are not ready; then the most nodes first."""
    weights: dict[str, int]
    """By scorer."""
    winner: ScoredNode | None
    """The node that the first task would get; of a placed workload the best of its own."""
    runner_up: ScoredNode | None
    nearest_misses: list[NearMiss]
    placed_on: list[ScoredNode]
    """The nodes that it is on, with the scores that they would have for it now."""
    tasks: list[TaskPlacement]
    """The nodes of its tasks, or those they would get; at most the first 1,000 tasks."""
