"""Schemas of autoscaling: node templates, requests for nodes, and recommendations of the leader."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mooring.model.resources.devices import MAX_DEVICES
from mooring.wire.fields import INT32_MAX, MAX_LABELS, Answer, LabelName, Name, Quantity, Request, ShortText, SlotName
from mooring.wire.workloads.placement import (
    DeviceModel,
    LicenceName,
    MachineImageName,
    MachineVersion,
    TaintRequest,
)


class TemplateDevices(Request):
    """A number of identical devices."""

    count: Annotated[int, Field(ge=1, le=MAX_DEVICES)] = 1
    model: DeviceModel | None = None
    memory: Quantity | None = None
    """Of each."""


class TemplateRequest(Request):
    """The properties of a requested node once it has joined."""

    resources: Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
    """Its allocatable amounts."""
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    taints: Annotated[list[TaintRequest], Field(max_length=32)] = []
    architecture: ShortText = "x86_64"
    runtimes: Annotated[list[Literal["process", "container"]], Field(min_length=1)] | None = None
    """None: those of the pool."""
    region: Name | None = None
    licence: LicenceName | None = None
    machine_image: MachineImageName | None = None
    machine_image_version: MachineVersion = ""
    devices: Annotated[dict[SlotName, Annotated[list[TemplateDevices], Field(max_length=32)]], Field(max_length=8)] = {}
    """Behind slots of `resources`; where none are named they are whole ones of any model."""
    max_tasks: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    cost: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    """Cost of one node per hour, in a unit common to all templates of the pool."""
    boot_seconds: Annotated[int, Field(ge=0, le=86_400)] = 1200
    """The time from the request until the node can run tasks."""
    least: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """Minimum nodes of this template, which stay even if idle."""
    most: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    """Maximum nodes of this template, requested ones included."""


class TemplateTaint(Answer):
    key: str
    value: str = ""
    effect: str


class TemplateDevice(Answer):
    index: int
    model: str | None = None
    memory: int | None = None


class TemplateView(Answer):
    name: str
    pool: str
    resources: dict[str, str]
    labels: dict[str, str] = {}
    taints: list[TemplateTaint] = []
    architecture: str
    runtimes: list[str]
    region: str | None = None
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    devices: dict[str, list[TemplateDevice]] = {}
    max_tasks: int | None = None
    cost: int
    boot_seconds: int
    least: int
    most: int | None = None
    version: int


class TemplateList(Answer):
    templates: list[TemplateView]


class PackingView(Answer):
    """The cost of the new nodes for tasks that request amounts only."""

    cost: int
    """In the unit of the pool's goal: the cost of the templates, or the number of nodes."""
    bound: int
    """Proven: no packing of these tasks costs less."""
    nodes: int


class ScaleRequestView(Answer):
    """Nodes of one template that a pool has requested."""

    id: UUID
    pool: str
    template: str
    status: str
    nodes: int
    joined: int
    workloads: list[UUID]
    """The workloads that need them."""
    packing: PackingView | None = None
    """Of the scale-up that it belongs to; None if its nodes were not packed."""
    attempts: int
    """Attempts to deliver the request."""
    next_attempt_at: datetime | None = None
    error: str | None = None
    created_at: datetime
    delivered_at: datetime | None = None
    expires_at: datetime
    """Nodes that have not joined by then are requested again if they are still needed."""


class UnmetView(Answer):
    """Pending work for which no more nodes are requested."""

    pool: str
    workload_id: UUID
    workload: str | None
    code: str
    message: str


class AdviceView(Answer):
    """A node that its pool does not need."""

    pool: str
    node: str
    step: str
    """`drain` it, or `remove` it because it is drained."""
    since: datetime


class ScalingView(Answer):
    requests: list[ScaleRequestView]
    """The newest first."""
    unmet: list[UnmetView]
    advice: list[AdviceView]
