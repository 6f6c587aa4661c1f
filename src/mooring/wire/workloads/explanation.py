"""Why a workload waits, or is where it is, and what a dry run would do: the one record of all three."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from mooring.wire.fields import Answer

Score = Annotated[float, Field(ge=0, le=1)]


class Removed(Answer):
    """Nodes that one filter turned down before any other did."""

    by: str
    nodes: int
    code: str
    words: str
    """For people: `3,100 lack 2 gpu (best has 1)`."""
    cure: Literal["release", "change", "never"]
    """What would cure it: others leave, nodes or the request change, nothing."""
    details: dict[str, Any]
    """The amounts, in base units."""


class ScoredNode(Answer):
    node: str
    score: Score
    """The mean of the scores by their weights."""
    scores: dict[str, Score]
    """By scorer."""


class NearMiss(Answer):
    node: str
    rejections: list[Removed]
    """Every filter that turns it down."""


class TaskPlace(Answer):
    index: int
    node: str | None
    status: str
    score: float | None
    """What its node was, or would be, chosen with."""
    ports: list[int] = []
    devices: dict[str, list[tuple[int, int]]] = {}
    """Per slot the devices of its node that are, or would be, its own: index and amount in base units."""


class Explanation(Answer):
    id: UUID | None
    """None: a dry run."""
    name: str
    status: str | None
    pool: str
    simulated: bool
    """True: nothing really runs there."""
    outcome: Literal["placed", "waiting", "impossible", "error", "ended"]
    """Of a pass over this workload alone with the nodes as they are now."""
    summary: str
    """`0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    reason: dict[str, Any] | None
    """Why all or some of its tasks wait: code, message, by, cure, details."""
    ahead: int | None = None
    """Of one that waits: how many of its pool have their turn before it."""
    planned_start: datetime | None = None
    """It starts then at the latest, by the plan of its pool."""
    estimated_start: datetime | None = None
    """When it would start, were all that are before it in the line to start in turn; None: that is not known."""
    not_before: datetime | None = None
    """It is not tried earlier."""
    nodes: int
    candidates: int
    removed: list[Removed]
    """The most nodes first."""
    weights: dict[str, int]
    """By scorer."""
    winner: ScoredNode | None
    """The node that the first task would get; of a placed workload the best of its own."""
    runner_up: ScoredNode | None
    nearest_misses: list[NearMiss]
    placed_on: list[ScoredNode]
    """The nodes that it is on, with the scores that they would have for it now."""
    tasks: list[TaskPlace]
    """Where its tasks are, or would go."""
