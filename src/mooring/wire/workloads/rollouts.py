"""Deployments over time: updates, rollbacks, revisions, progress and endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from mooring.wire.fields import (
    INT32_MAX,
    MAX_COMMAND,
    MAX_ENVIRONMENT,
    MAX_TASKS,
    Answer,
    EnvironmentName,
    Image,
    Name,
    Quantity,
    Request,
    Said,
    SlotName,
    Text,
)
from mooring.wire.workloads.containers import TaskTemplateRequest

Share = Annotated[int, Field(ge=0, le=MAX_TASKS)] | Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}%?$")]
"""A number of tasks, or a percentage of those that are wanted: 1, "25%"."""


class RolloutRequest(Request):
    """The rollout policy from now on; only the given fields change."""

    surge: Share | None = None
    """Maximum extra replicas during an update (default 1)."""
    unavailable: Share | None = None
    """Maximum unavailable replicas during an update (default 0)."""
    steady_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Seconds that a task has to be ready before it counts as available (default 0)."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Seconds between leaving the endpoints and the stop (default 5)."""
    deadline_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Seconds without progress after which the rollout stalls (default 600)."""


class UpdateRequest(Request):
    """A new template of a deployment, changes of one container, or only new numbers."""

    template: TaskTemplateRequest | None = None
    container: Name | None = None
    """The container that the following fields change; None: the first."""
    image: Image | None = None
    command: Annotated[list[Text], Field(max_length=MAX_COMMAND)] | None = None
    environment: Annotated[dict[EnvironmentName, Text | None], Field(max_length=MAX_ENVIRONMENT)] = {}
    """Variables to set; null removes one."""
    resources: Annotated[dict[SlotName, Quantity], Field(max_length=32)] = {}
    """Amounts to set; others stay."""
    replicas: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = None
    rollout: RolloutRequest | None = None
    cause: Said | None = None
    """The reason for the change, shown in the list of revisions; None: a summary of the changed fields."""


class RollbackRequest(Request):
    revision: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    """None: the one before the present one."""


class RolloutView(Answer):
    """The progress of a deployment towards its newest revision."""

    phase: Literal["done", "rolling", "paused", "stalled"]
    revision: int
    updated: int
    """Tasks of it that are ready."""
    outdated: int
    """Tasks of older revisions that are not on their way out yet."""
    surge: str
    unavailable: str
    steady_seconds: int = 0
    drain_seconds: int
    deadline_seconds: int
    stalls_at: datetime | None = None
    """It stops then unless something gets better."""
    reason: str | None = None
    """The reason why it stalled, and how to continue or roll back."""


class RevisionView(Answer):
    number: int
    cause: str
    images: list[str]
    resources: dict[str, str]
    created_by: str
    created_at: datetime
    present: bool
    """New tasks are created from it."""


class RevisionList(Answer):
    revisions: list[RevisionView]


class EndpointView(Answer):
    task: UUID
    index: int
    revision: int
    node: str
    address: str | None
    """Of the task itself, if its engine gives it one; otherwise it is reached by its node."""
    ports: list[int]
    """Ports of the node that lead to it."""


class EndpointList(Answer):
    """The tasks that may receive traffic: running, ready and not retiring."""

    endpoints: list[EndpointView]
    cursor: str
    """The cursor for `GET /api/events/stream`: its events `ready`, `unready`, `retiring` and the statuses of tasks
    tell when to ask again."""
