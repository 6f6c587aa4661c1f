"""The API's requests and answers. Requests are strict: a wrong type or an unknown field is an error, never a guess."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, SkipValidation, StringConstraints

from mooring.model.durations import LONGEST_SECONDS
from mooring.model.events import Noun
from mooring.wire.fields import (
    INT32_MAX,
    MAX_BATCH,
    MAX_ENVIRONMENT,
    MAX_LABELS,
    MAX_TASKS,
    UNSHOWN,
    Answer,
    EnvironmentName,
    IdempotencyKey,
    Image,
    LabelName,
    Name,
    Password,
    Quantity,
    Request,
    Said,
    ShortText,
    SlotName,
    Text,
)
from mooring.wire.placement import LicenceName, MachineImageName, MachineVersion, TaintRequest
from mooring.wire.rollouts import RolloutRequest, RolloutView
from mooring.wire.sessions import TermsView
from mooring.wire.workloads import WorkloadFields


class ErrorBody(Answer):
    """The one shape of every error."""

    code: str
    message: str
    details: dict[str, Any] = {}


# --- auth ---------------------------------------------------------------------------------------------------------


class LoginRequest(Request):
    username: ShortText
    password: Annotated[str, StringConstraints(max_length=256), UNSHOWN]


class Token(Answer):
    access_token: Annotated[str, UNSHOWN]
    token_type: Literal["bearer"] = "bearer"
    expires_in: int
    """Seconds."""


class PasswordChange(Request):
    old_password: Annotated[str, StringConstraints(max_length=256), UNSHOWN]
    new_password: Annotated[Password, UNSHOWN]


class UserRequest(Request):
    username: Name
    password: Annotated[Password | None, UNSHOWN] = None
    """None: a random one is made and shown once."""
    role: Literal["admin", "domain-admin", "user"] = "user"
    domain: Name | None = None
    """None: the domain of the one who asks."""
    project: Name | None = None
    """Made if it does not exist; None: the default project."""
    os_user: ShortText | None = None


class UserChange(Request):
    """Only what is given changes; `os_user` "" takes the mapping away, `policy` "" the policy."""

    role: Literal["admin", "domain-admin", "user"] | None = None
    active: bool | None = None
    os_user: ShortText | None = None
    password: Annotated[Password | None, UNSHOWN] = None
    project: Name | None = None
    """The default project: one that the user is a member of."""
    policy: Name | Literal[""] | None = None


class UserView(Answer):
    id: UUID
    username: str
    role: str
    active: bool
    domain: str
    project: str
    os_user: str | None
    policy: str | None = None
    created_at: datetime


class UserCreated(UserView):
    password: Annotated[str | None, UNSHOWN] = None


# --- workloads ----------------------------------------------------------------------------------------------------


class WorkloadRequest(WorkloadFields):
    name: Name | None = None
    """None: one is made up."""
    kind: Literal["session", "deployment"] = "session"
    type: Name = "batch"
    rollout: RolloutRequest | None = None
    """Of a deployment: how its tasks are replaced when it changes."""


class Difference(Answer):
    """A field that is other than it is wanted; None: there is no such field."""

    field: str
    """`replicas`, `containers.main.image`."""
    present: str | None
    wanted: str | None


class Comparison(Answer):
    """A workload beside a request: where they differ, and whether it lives on."""

    id: UUID
    kind: str
    status: str
    ended: bool
    removed: bool
    differences: list[Difference]


class WorkloadAccepted(Answer):
    id: UUID
    name: str
    status: str
    pool: str
    simulated: bool
    message: str


class ScaleRequest(Request):
    replicas: Annotated[int, Field(ge=1, le=MAX_TASKS)]


class TaskView(Answer):
    id: UUID
    index: int
    attempt: int
    current: bool
    status: str
    node: str | None
    score: float | None
    """What its node was chosen with, 0..1."""
    exit_code: int | None
    restarts: int
    failures: int = 0
    """Of its own in earlier attempts: they use up retries."""
    reason: str | None
    devices: dict[str, list[tuple[int, int]]] = {}
    """Per slot the devices of its node that are its own: index and amount in base units."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None = None
    """When its time is over; known from its start on."""
    revision: int = 1
    """The template of its deployment that it was made from."""
    ready: bool = False
    """It runs, and its readiness probes say yes if it has some."""
    retires_at: datetime | None = None
    """Nobody is sent to it any more, and then it is stopped."""
    digests: dict[str, str] = {}
    """By container: what its image was when it was started."""
    address: str | None = None
    """Where its peers reach it."""


class TaskList(Answer):
    tasks: list[TaskView]
    total: int
    limit: int
    offset: int


class StartView(Answer):
    """What is known of when a workload starts that waits."""

    position: int
    """Its place in the line of its pool by priority and arrival; 1 is next. Other orders are told by an explanation."""
    planned_at: datetime | None = None
    """It starts then at the latest, by the plan of its pool."""
    not_before: datetime | None = None
    """It is not tried earlier: its start time, its booking or its next attempt."""
    waits_for: Literal["room", "quota", "dependency", "time", "turn", "change"] = "room"


class WorkloadView(Answer):
    id: UUID
    name: str
    kind: str
    type: str
    status: str
    simulated: bool
    """True: nothing really runs; show the status as e.g. "running (simulated)"."""
    pool: str
    project: str
    user: str
    image: str | None
    command: list[str]
    replicas: int
    running: int
    ready: int = 0
    """How many of those that run are ready."""
    counts: dict[str, int] = {}
    """How many of its tasks have which status."""
    rollout: RolloutView | None = None
    """Of a deployment."""
    resources: dict[str, str]
    region: str | None
    priority: int
    labels: dict[str, str]
    reason: dict[str, Any] | None
    """Why it waits or failed: code, message, by, cure, details."""
    start: StartView | None = None
    """Of one that waits."""
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
    """Volumes by the path where they are."""
    terminal: bool = False
    """It has one, and an input, which `attach` reaches."""


class WorkloadDetail(WorkloadView, TermsView):
    tasks: list[TaskView]
    """Of a large array the first ones only."""
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
    """The last look at it: when, the validators that it passed, and those that it failed with their records."""


class WorkloadList(Answer):
    workloads: list[WorkloadView]
    total: int
    limit: int
    offset: int


class HistoryRow(Answer):
    at: datetime
    noun: str
    """`workload` or `task`."""
    object_id: UUID
    task_index: int | None = None
    attempt: int | None = None
    old_status: str
    new_status: str
    actor: str
    reason: str | None
    term: int | None


class AttemptRow(Answer):
    """Something that was tried; equal ones in a row are one record."""

    phase: Literal["place", "bind", "prepare", "start"]
    result: Literal["success", "retry", "expired", "give_up", "skipped"]
    code: str | None
    message: str | None
    task_index: int | None = None
    number: int
    """How many in a row."""
    first_at: datetime
    last_at: datetime


class HistoryList(Answer):
    history: list[HistoryRow]
    attempts: list[AttemptRow] = []
    """What was tried and did not work at once, oldest first. Waiting for room is no attempt."""


# --- batches --------------------------------------------------------------------------------------------------------


class BatchRequest(Request):
    """Each of the workloads is checked by itself: one that is wrong is refused alone."""

    workloads: Annotated[list[SkipValidation[WorkloadRequest]], Field(min_length=1, max_length=MAX_BATCH)]
    idempotency_key: IdempotencyKey | None = None
    """As the header `Idempotency-Key`."""


class BatchItem(Answer):
    """What became of one workload of a batch: accepted with its id, or refused with an error."""

    id: UUID | None = None
    name: str | None = None
    pool: str | None = None
    simulated: bool | None = None
    error: ErrorBody | None = None


class BatchAccepted(Answer):
    accepted: int
    refused: int
    workloads: list[BatchItem]
    """In the order of the request."""


# --- events ---------------------------------------------------------------------------------------------------------


class EventView(Answer):
    """One committed change. The names and `details` come only when they are asked for (`expand=true`)."""

    cursor: str
    """Its place in the feed; a reader that has it goes on with `since`."""
    revision: int
    """Unique; grows in the order in which changes were written, which is not always that of their commits."""
    noun: Noun
    id: UUID
    version: int
    kind: str
    at: datetime
    term: int | None = None
    """Of the leader that made the change; None for what users and agents did."""
    workload_id: UUID | None = None
    node_id: UUID | None = None
    workload: str | None = None
    task_index: int | None = None
    node: str | None = None
    pool: str | None = None
    timeslot: str | None = None
    details: dict[str, Any] | None = None
    """What the decision saw and chose."""


class EventList(Answer):
    events: list[EventView]
    next: str
    """The cursor to go on from."""
    more: bool


# --- deployments, as fog-compute's users know them -----------------------------------------------------------------


class DeploymentResources(Request):
    """The bounds are settings (`deployment_max_…`), checked by the route."""

    cpu: Annotated[float, Field(description="CPU cores", allow_inf_nan=False)]
    memory: Annotated[int, Field(description="Memory in MB")]
    gpu: Annotated[int, Field(description="GPU units")] = 0
    storage: Annotated[int, Field(description="Storage in GB")] = 10


class DeploymentRequest(Request):
    name: Name
    type: Literal["compute", "storage", "gateway", "mixnode"] = "compute"
    container_image: Image
    replicas: int = 1
    resources: DeploymentResources
    region: Name | None = None
    pool: Name | None = None
    environment: Annotated[dict[EnvironmentName, Text], Field(max_length=MAX_ENVIRONMENT)] = {}


class DeploymentAccepted(Answer):
    success: Literal[True] = True
    deployment_id: UUID
    status: str
    replicas: int
    message: str


class ReplicaView(Answer):
    id: UUID
    node: str | None
    node_id: UUID | None
    status: str
    score: float | None
    container_id: str | None = None
    simulated: bool


class DeploymentHistoryRow(Answer):
    old_status: str
    new_status: str
    changed_by: str
    changed_at: datetime
    reason: str | None


class DeploymentStatus(Answer):
    deployment_id: UUID
    name: str
    type: str
    status: str
    simulated: bool
    container_image: str | None
    target_replicas: int
    running_replicas: int
    health: Literal["healthy", "degraded", "unhealthy"]
    replicas: list[ReplicaView]
    reason: dict[str, Any] | None
    history: list[DeploymentHistoryRow]
    pool: str
    created_at: datetime
    updated_at: datetime


class DeploymentSummary(Answer):
    deployment_id: UUID
    name: str
    type: str
    status: str
    simulated: bool
    container_image: str | None
    target_replicas: int
    running_replicas: int
    created_at: datetime


class DeploymentList(Answer):
    deployments: list[DeploymentSummary]
    total: int
    limit: int
    offset: int


class DeploymentScaled(Answer):
    success: Literal[True] = True
    deployment_id: UUID
    replicas: int
    message: str


# --- nodes, pools, tokens -----------------------------------------------------------------------------------------


class NodeRequest(Request):
    """A simulated node; real ones join through `mooring agent`."""

    name: Name
    simulated: Literal[True]
    resources: Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
    region: Name | None = None
    architecture: ShortText = "x86_64"
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    max_tasks: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    taints: Annotated[list[TaintRequest], Field(max_length=32)] = []
    licence: LicenceName | None = None
    machine_image: MachineImageName | None = None
    machine_image_version: MachineVersion = ""


class DrainRequest(Request):
    timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_SECONDS)] | None = None
    """What is still there when they are over is ended, whatever it is; not given: sessions run to their end."""
    reason: Said | None = None


class TaintRemoval(Request):
    key: LabelName
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Not given: whatever its effect."""


class TaintsChange(Request):
    """What is added takes the place of what has the same key and effect."""

    add: Annotated[list[TaintRequest], Field(max_length=32)] = []
    remove: Annotated[list[TaintRemoval], Field(max_length=32)] = []


class TaintView(Answer):
    key: str
    value: str
    effect: str
    since: datetime
    reason: str | None = None
    """Why Mooring set it, where it did."""


class SlotView(Answer):
    capacity: str
    allocatable: str
    held: str
    reserved: str
    used: str
    free: str


class DeviceView(Answer):
    index: int
    model: str | None
    memory: int | None
    """Bytes."""
    capacity: int
    taken: int
    """In base units of its slot."""


class NodeView(Answer):
    id: UUID
    name: str
    pool: str
    status: str
    schedulable: bool
    reason: str | None
    simulated: bool
    region: str | None
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str | None = None
    template: str | None = None
    """The node template by which it was asked for."""
    scale_request_id: UUID | None = None
    """The request that it joined for."""
    architecture: str
    runtimes: list[str]
    labels: dict[str, str]
    slots: dict[str, SlotView]
    devices: dict[str, list[DeviceView]] = {}
    enforces: dict[str, str]
    """Per slot how a limit is kept; `environment` and `none` are advice to the task."""
    tasks: int
    cpu_percent: float
    memory_percent: float
    last_seen_at: datetime | None
    owner: str | None
    taints: list[TaintView] = []
    draining: bool = False
    drain_reason: str | None = None
    drain_until: datetime | None = None
    """When what is still there is ended."""
    drained_at: datetime | None = None
    """Since when nothing is left on it."""


class NodeList(Answer):
    nodes: list[NodeView]


class JoinTokenRequest(Request):
    name: Name
    pool: Name = "default"
    expires_in_seconds: Annotated[int, Field(ge=10, le=7 * 86400)] = 3600
    region: Name | None = None
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    taints: Annotated[list[TaintRequest], Field(max_length=32)] = []


class JoinToken(Answer):
    token: Annotated[str, UNSHOWN]
    name: str
    pool: str
    expires_at: datetime


# --- the server itself ---------------------------------------------------------------------------------------------


class Health(Answer):
    status: Literal["ok"]
    role: str
    version: str
    last_pass_at: datetime | None
    last_pass_ms: float | None
    passes: int


class Ready(Answer):
    ready: bool
    checks: dict[str, str]
    """Part to "ok" or what is wrong with it."""


class AuditFinding(Answer):
    rule: str
    subject: str
    expected: str
    found: str


class AuditReport(Answer):
    clean: bool
    checked: dict[str, int]
    findings: list[AuditFinding]
    repaired: int = 0
    repairs: list[AuditFinding] = []
    """What a repair found wrong and set right."""
