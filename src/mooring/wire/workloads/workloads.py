"""Workloads: submission, comparison, scaling and their views."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from mooring.wire.fields import MAX_TASKS, Answer, Name, Request
from mooring.wire.workloads.rollouts import RolloutRequest, RolloutView
from mooring.wire.workloads.sessions import ScheduleView
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workload_fields import WorkloadFields


class WorkloadRequest(WorkloadFields):
    name: Name | None = None
    """None: one is generated."""
    kind: Literal["session", "deployment"] = "session"
    type: Name = "batch"
    rollout: RolloutRequest | None = None
    """Of a deployment: how its tasks are replaced when it changes."""


class Difference(Answer):
    """A field that differs from the request; None: it is not set."""

    field: str
    """`replicas`, `containers.main.image`."""
    present: str | None
    wanted: str | None


class Comparison(Answer):
    """The comparison of a workload with a request: their differences, and whether the workload is alive."""

    id: UUID
    kind: str
    status: str
    ended: bool
    removed: bool
    differences: list[Difference]


TIMES_NOTED = "times=noted"
"""A parameter of the content type of output for which `since` or `timestamps` was regarded."""


class WorkloadAccepted(Answer):
    id: UUID
    name: str
    status: str
    pool: str
    simulated: bool
    message: str


class ScaleRequest(Request):
    replicas: Annotated[int, Field(ge=0, le=MAX_TASKS)]
    """0 stops all tasks and keeps the deployment."""


class StartView(Answer):
    """The expected start of a pending workload."""

    position: int | None = None
    """The position in the queue of its pool; 1 is next. Approximate in pools other than `fifo` and `lifo`. None: a list
    without positions was requested."""
    planned_at: datetime | None = None
    """The latest start by the plan of its pool."""
    nodes: dict[str, int] = {}
    """The nodes of the tasks that start at `planned_at`, with their numbers, by the present plan: others may be chosen
    then."""
    estimated_at: datetime | None = None
    """The estimated start if nothing else is submitted; not a guarantee.

    All work runs as long as its owner's last runs took on average, or to its time limit where there were none.
    """
    ends_at: datetime | None = None
    """The end of its time limit after the planned or estimated start."""
    first_at: datetime | None = None
    """The first planned or estimated start; later ones replaced it."""
    moves: int = 0
    """The number of times that its planned or estimated start was replaced by a later one."""
    unless: str | None = None
    """It cannot start unless this changes; it has no planned or estimated start then."""
    not_before: datetime | None = None
    """It is not tried earlier: its start time, its booking or its next attempt."""
    waits_for: Literal["room", "quota", "dependency", "time", "turn", "change"] = "room"
    by_prediction: bool = False
    """Its pool plans with predicted run times: the planned start is expected, not promised."""


class WorkloadView(Answer):
    id: UUID
    name: str
    kind: str
    type: str
    status: str
    health: (
        Literal["healthy", "starting", "degraded", "crash-looping", "image-pull-failing", "scaled-to-zero"] | None
    ) = None
    """Whether it does what it was submitted for; None: it has ended or is being stopped.

    `degraded`: it runs with fewer tasks than it wants, or tasks of an array have failed. `crash-looping`: a task ended
    soon after its start, at least twice in a row. `scaled-to-zero`: a deployment that wants no replicas, whose
    status stays RUNNING.
    """
    health_reason: str | None = None
    """The reason why it is not healthy, if known."""
    restarts: int = 0
    """Restarts of its tasks, in place and by replacement, since they last ran for a minute."""
    last_exit_code: int | None = None
    """The exit code of the last end of the task that restarted most often."""
    last_reason: str | None = None
    """The reason of that end."""
    next_retry_at: datetime | None = None
    """The next start of that task, if it backs off."""
    simulated: bool
    """True: no process runs; show the status as, for example, "running (simulated)"."""
    pool: str
    project: str
    user: str
    image: str | None
    command: list[str]
    replicas: int
    running: int
    ready: int = 0
    """The number of running tasks that are ready."""
    counts: dict[str, int] = {}
    """The number of its tasks by status."""
    rollout: RolloutView | None = None
    """Of a deployment."""
    resources: dict[str, str]
    qos: Literal["Guaranteed", "Burstable", "BestEffort"] = "Burstable"
    """The quality-of-service class: when a node runs out of memory, BestEffort is killed first, Guaranteed last."""
    region: str | None
    priority: int
    labels: dict[str, str]
    reason: dict[str, Any] | None
    """The reason why it is pending or failed: code, message, by, cure, details."""
    start: StartView | None = None
    """Of a pending workload."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    removed: bool
    version: int


class ContainerView(Answer):
    name: str
    role: Literal["init", "sidecar", "main"]
    image: str | None
    command: list[str]
    ports: list[int] = []
    mounts: dict[str, str] = {}
    """Volumes by mount path."""
    terminal: bool = False
    """It has a terminal and an input, to which `attach` connects."""
    stdin: bool = False
    """Its standard input is open, and `attach` connects to it."""


class WorkloadDetail(WorkloadView, ScheduleView):
    tasks: list[TaskView]
    """Of a large array, only the first tasks."""
    containers: list[ContainerView] = []
    """Of each task, in the order of their start."""
    environment: dict[str, dict[str, str]] | None = None
    """By container; shown to the owner only."""
    stopping: bool = False
    gang: bool = False
    min_tasks: int | None = None
    single_node: bool = False
    pack: list[str] = []
    group: str | None = None
    preempts: bool = True
    preemptible: bool = True
    min_available: int | None = None
    admission: dict[str, Any] | None = None
    """The last admission check: its time, the validators that passed, and those that failed with their records."""


class WorkloadList(Answer):
    workloads: list[WorkloadView]
    total: int
    limit: int
    offset: int
