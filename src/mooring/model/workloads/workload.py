"""Workloads, which tenants submit, and their tasks, which are placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.dependencies import Dependency

FROM_NAME = UUID(int=0)
"""Placeholder: derive the id from the name."""

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
NOBODY = UUID(int=0)
NO_CONSTRAINTS = Constraints()


class Kind(StrEnum):
    SESSION = "session"
    DEPLOYMENT = "deployment"


class OnInsufficient(StrEnum):
    """The policy for a workload that cannot be placed at first."""

    WAIT = "wait"
    FAIL = "fail"
    SCALE_UP = "scale_up"
    """It waits, and its pool requests nodes if one of its node templates fits."""


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one task, as placement sees it while it is pending."""

    id: UUID
    index: int
    attempt: int = 1
    version: int = 1
    not_before: datetime | None = None


ONE_TASK = (Task(FROM_NAME, 0),)


def new_tasks(name: str, count: int) -> tuple[Task, ...]:
    """Return tasks for a workload of that name, with ids derived from it."""
    return tuple(Task(uuid5(NAMESPACE_OID, f"task:{name}:{index}"), index) for index in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """The options of a workload that travel unchanged from its submission to placement and to its view.

    A submission, the workload that placement sees and the row that a view shows all have these fields, and the store
    has a column of the same name for each. An option that is added here, to the request and to the table is carried
    through without further code.
    """

    priority: int = 10
    region: str | None = None
    gang: bool = False
    """All waiting tasks are placed together or none."""
    min_tasks: int | None = None
    """This many tasks (running ones included) are placed together or none; the others as capacity allows."""
    single_node: bool = False
    """All its tasks are on one node."""
    pack: tuple[str, ...] = ()
    """Label keys of nested domains, the widest first: its tasks go into the smallest domain that holds them all."""
    max_per_node: int | None = None
    spread: bool = False
    """Prefer nodes that have the fewest tasks of this workload."""
    on_insufficient: OnInsufficient = OnInsufficient.WAIT
    preempts: bool = True
    """It may preempt other tasks, if its pool allows that."""


PLACEMENT_OPTIONS = tuple(each.name for each in fields(PlacementOptions))


def placement_options(source: PlacementOptions) -> dict[str, Any]:
    """Return the options as keyword arguments, to carry them from one record to another."""
    return {name: getattr(source, name) for name in PLACEMENT_OPTIONS}


@dataclass(frozen=True, slots=True)
class Workload(PlacementOptions):
    """A pending workload with the tasks that still need a node; all its tasks are alike.

    A name and a request are enough: the id is then derived from the name, and it has one task.
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
    architecture: str | None = None
    placed_before: bool = False
    """A task of it has had a node, so `OnInsufficient.FAIL` no longer applies."""
    occupied: Mapping[UUID, int] = field(default_factory=dict)
    """The number of its tasks by node."""
    version: int = 1
    waiting_reason: str | None = None
    """The stored message, so that an unchanged reason is not written again."""
    waiting_code: str | None = None
    """The code of that reason."""
    planned_start: datetime | None = None
    """The latest start by the last stored plan."""
    planned_nodes: Mapping[str, int] | None = None
    """The nodes of the tasks that start then, with their numbers."""
    constraints: Constraints = NO_CONSTRAINTS
    gates: tuple[str, ...] = ()
    """Scheduling gates: it is not tried until all are lifted."""
    scoring_request: Amounts | None = None
    """CPU and memory for scoring, if they differ because containers that request none count with a default."""
    type: str = "batch"
    access_key: str = ""
    private: bool = False
    """Exempt from quotas; it has a cap of its own."""
    starts_at: datetime | None = None
    """It does not start before this time."""
    dependencies: tuple[Dependency, ...] = ()
    behind: tuple[UUID, ...] = ()
    """The earlier workloads of the same singleton that have not ended: they run one after the other."""
    is_array: bool = False
    """Its tasks are independent of each other."""
    parallel: int | None = None
    """Maximum tasks that have a node at the same time."""
    time_limit_seconds: int | None = None
    stop_grace_seconds: int = 0
    """The time that its tasks have to stop at their time limit."""
    predicted_seconds: int | None = None
    """The run time predicted from earlier runs, where the pool plans with predictions; at most the time limit."""
    predicted_gap_seconds: int | None = None
    """With a prediction: how far ahead a planned start must be for the work to start in the gap before it."""
    booking: UUID | None = None
    """The timeslot whose reserved capacity it runs in; nowhere else, and at no other time."""

    @property
    def longest_seconds(self) -> int | None:
        """Return the longest time that a task occupies its node; None if unlimited."""
        return None if self.time_limit_seconds is None else self.time_limit_seconds + self.stop_grace_seconds

    @property
    def expected_seconds(self) -> int | None:
        """Return how long a task is expected to occupy its node; without a limit its end stays open."""
        return (
            self.longest_seconds
            if self.longest_seconds is None or self.predicted_seconds is None
            else max(min(self.predicted_seconds, self.longest_seconds), 1)
        )

    @property
    def gap_seconds(self) -> int | None:
        """Return how long a gap before a planned start must be for a task; None if it has no expected end."""
        expected = self.expected_seconds
        if expected is None or self.predicted_seconds is None or self.predicted_gap_seconds is None:
            return expected
        return max(min(self.predicted_gap_seconds, expected), 1)

    @property
    def exempt(self) -> bool:
        """True if its usage is not charged: private work, and work inside a timeslot, which is charged instead."""
        return self.private or self.booking is not None

    def __post_init__(self) -> None:
        if self.id == FROM_NAME:
            if not self.name:
                raise InvalidInput("a workload needs a name", code="invalid-workload")
            object.__setattr__(self, "id", uuid5(NAMESPACE_OID, f"workload:{self.name}"))
        if self.tasks is ONE_TASK:
            object.__setattr__(self, "tasks", new_tasks(self.name, 1))
