"""Nodes, their taints, slots and devices, and the tokens with which they join."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mooring.model.calendar.durations import MAX_DURATION_SECONDS
from mooring.wire.fields import (
    INT32_MAX,
    MAX_LABELS,
    UNSHOWN,
    Answer,
    LabelName,
    Name,
    Quantity,
    Request,
    Said,
    ShortText,
    SlotName,
)
from mooring.wire.workloads.placement import LicenceName, MachineImageName, MachineVersion, TaintRequest


class NodeRequest(Request):
    """A simulated node; real ones join through `mooring agent`."""

    name: Name
    simulated: Literal[True]
    pool: Name = "simulated"
    """A pool of simulated nodes; `simulated` is created if it does not exist."""
    resources: Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
    region: Name | None = None
    architecture: ShortText = "x86_64"
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    max_tasks: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    taints: Annotated[list[TaintRequest], Field(max_length=32)] = []
    licence: LicenceName | None = None
    machine_image: MachineImageName | None = None
    machine_image_version: MachineVersion = ""


class NodeChange(Request):
    """Only the given fields change. Running tasks stay where they are."""

    labels: Annotated[dict[LabelName, ShortText | None], Field(max_length=MAX_LABELS)] = {}
    """Labels to set; null removes one."""
    region: Name | Literal[""] | None = None
    """"" removes it."""


class DrainRequest(Request):
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_DURATION_SECONDS)] | None = None
    """The remaining tasks are ended after this time; not given: sessions run to completion."""
    reason: Said | None = None


class DrainEffect(Answer):
    """The effect of a drain on one task of the node."""

    task_id: UUID
    workload_id: UUID
    workload: str
    index: int
    user: str
    status: str
    effect: Literal["moves", "finishes", "requeued", "ends"]
    """It moves at once, runs to its end, or is requeued or ended at the timeout."""
    target: str | None
    """The node that would take it now, if it moves or is requeued; null: no node has capacity."""


class DrainPreview(Answer):
    node: str
    tasks: list[DrainEffect]
    moves: int
    """Tasks that leave for another node."""
    waiting: int
    """Those of them that no other node has capacity for now."""


class TaintRemoval(Request):
    key: LabelName
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Not given: any effect."""


class TaintsChange(Request):
    """An added taint replaces one with the same key and effect."""

    add: Annotated[list[TaintRequest], Field(max_length=32)] = []
    remove: Annotated[list[TaintRemoval], Field(max_length=32)] = []


class TaintView(Answer):
    key: str
    value: str
    effect: str
    since: datetime
    reason: str | None = None
    """The reason, if Mooring set it."""


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
    """The node template of the request that it joined for."""
    scale_request_id: UUID | None = None
    """The request that it joined for."""
    architecture: str
    runtimes: list[str]
    labels: dict[str, str]
    slots: dict[str, SlotView]
    devices: dict[str, list[DeviceView]] = {}
    enforces: dict[str, str]
    """By slot, the enforcement of limits; `environment` and `none` are advice to the task only."""
    isolation: str = "none"
    """Isolation level of process tasks there: none, user, namespaces, or container where only those run."""
    isolation_reason: str = ""
    """The reason why it is not higher."""
    tasks: int
    cpu_percent: float
    memory_percent: float
    last_seen_at: datetime | None
    owner: str | None
    taints: list[TaintView] = []
    draining: bool = False
    drain_reason: str | None = None
    drain_until: datetime | None = None
    """The time at which the remaining tasks are ended."""
    drained_at: datetime | None = None
    """The time since which it has had no tasks."""


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
