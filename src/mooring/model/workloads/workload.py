"""Workloads and their tasks: what a tenant asks for, and the units that are placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.constraints import Constraints
from mooring.model.dependencies import Dependency
from mooring.model.errors import InvalidInput
from mooring.model.slots import Amounts

FROM_NAME = UUID(int=0)
"""The id that says: derive one from the name."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
NOBODY = UUID(int=0)
NO_CONSTRAINTS = Constraints()


class Kind(StrEnum):
    SESSION = "session"
    DEPLOYMENT = "deployment"


class OnInsufficient(StrEnum):
    """What happens to a workload whose first placement finds too little room."""

    WAIT = "wait"
    FAIL = "fail"
    SCALE_UP = "scale_up"
    """It waits, and nodes are asked for where its pool has templates that would take it."""


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one task, as placement sees it while it waits."""

    id: UUID
    index: int
    attempt: int = 1
    version: int = 1
    not_before: datetime | None = None


ONE_TASK = (Task(FROM_NAME, 0),)


def new_tasks(name: str, count: int) -> tuple[Task, ...]:
    """Tasks for a workload of that name, with ids that come from it."""
    return tuple(Task(uuid5(NAMESPACE_OID, f"task:{name}:{index}"), index) for index in range(count))


@dataclass(frozen=True, slots=True)
class Workload:
    """A waiting workload with the tasks that still need a node; all its tasks are alike.

    A name and a request are enough: the id then comes from the name, and it has one task.
    """

    id: UUID = FROM_NAME
    name: str = ""
    kind: Kind = Kind.DEPLOYMENT
    pool: str = "default"
    user_id: UUID = NOBODY
    project_id: UUID = NOBODY
    domain_id: UUID = NOBODY
    runtime: str = "process"
    request: Amounts = field(default_factory=dict)
    tasks: tuple[Task, ...] = ONE_TASK
    created_at: datetime = LONG_AGO
    priority: int = 10
    architecture: str | None = None
    region: str | None = None
    gang: bool = False
    """All waiting tasks are placed together or none."""
    min_tasks: int | None = None
    """So many tasks (those that have a node included) are placed together or none; the others as they find room."""
    single_node: bool = False
    """All its tasks are on one node."""
    pack: tuple[str, ...] = ()
    """Label keys of nested domains, the widest first: its tasks go into the smallest domain that holds them all."""
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
    planned_start: datetime | None = None
    """When it starts at the latest by the last plan that was stored with it."""
    constraints: Constraints = NO_CONSTRAINTS
    preempts: bool = True
    """It may make room for itself where its pool allows that."""
    gates: tuple[str, ...] = ()
    """Names of what is still to be settled elsewhere: until all are lifted it waits and is not tried."""
    scoring_request: Amounts | None = None
    """Processor and memory as scoring counts them, where containers that ask for none make a difference."""
    type: str = "batch"
    access_key: str = ""
    private: bool = False
    """Exempt from quotas; it has a cap of its own."""
    starts_at: datetime | None = None
    """It is not to start before."""
    dependencies: tuple[Dependency, ...] = ()
    behind: tuple[UUID, ...] = ()
    """What came just before it in the same turn and has not ended: they run one after the other."""
    parallel: int | None = None
    """So many of its tasks have a node at the same time."""
    time_limit_seconds: int | None = None
    stop_grace_seconds: int = 0
    """So long its tasks may take to stop when their time is over."""
    booking: UUID | None = None
    """The timeslot whose room it runs in; nowhere else, and at no other time."""

    @property
    def longest_seconds(self) -> int | None:
        """For how long a task of it occupies its place at most; None: for ever."""
        return None if self.time_limit_seconds is None else self.time_limit_seconds + self.stop_grace_seconds

    @property
    def exempt(self) -> bool:
        """What it uses is charged to nobody as its own: private work, and work inside a timeslot, which is charged."""
        return self.private or self.booking is not None

    def __post_init__(self) -> None:
        if self.id == FROM_NAME:
            if not self.name:
                raise InvalidInput("a workload needs a name", code="invalid-workload")
            object.__setattr__(self, "id", uuid5(NAMESPACE_OID, f"workload:{self.name}"))
        if self.tasks is ONE_TASK:
            object.__setattr__(self, "tasks", new_tasks(self.name, 1))
