"""Workloads and their tasks: what a tenant asks for, and the units that are placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from mooring.model.slots import Amounts, total


class Kind(StrEnum):
    SESSION = "session"
    DEPLOYMENT = "deployment"


class OnInsufficient(StrEnum):
    """What happens to a workload whose first placement finds too little room."""

    WAIT = "wait"
    FAIL = "fail"


class Restart(StrEnum):
    """What the agent does with a process that ended by itself."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Container:
    """One process or container of a task. Without an image it is a process on the node itself."""

    name: str = "main"
    image: str | None = None
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_folder: str | None = None
    slots: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """What every task of a workload is made from."""

    containers: tuple[Container, ...]
    restart: Restart = Restart.NEVER
    max_restarts: int = 5
    stop_grace_seconds: int = 10
    architecture: str | None = None

    @property
    def runtime(self) -> str:
        return "container" if any(c.image is not None for c in self.containers) else "process"

    @property
    def request(self) -> dict[str, int]:
        return total(c.slots for c in self.containers)


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one task, as placement sees it while it waits."""

    id: UUID
    index: int
    attempt: int = 1
    version: int = 1
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A waiting workload with the tasks that still need a node; all its tasks are alike."""

    id: UUID
    name: str
    kind: Kind
    pool: str
    user_id: UUID
    runtime: str
    request: Amounts
    tasks: tuple[Task, ...]
    created_at: datetime
    priority: int = 10
    architecture: str | None = None
    region: str | None = None
    gang: bool = False
    """All waiting tasks are placed together or none."""
    max_per_node: int | None = None
    spread: bool = False
    """Prefer nodes that have the fewest tasks of this workload."""
    on_insufficient: OnInsufficient = OnInsufficient.WAIT
    placed_before: bool = False
    """Some task of it had a node once: failing at once is over."""
    occupied: Mapping[UUID, int] = field(default_factory=dict)
    """How many of its tasks are on which node already."""
    version: int = 1
    waiting_reason: str | None = None
    """The message stored with it at the last look, so that an unchanged reason is not written again."""
