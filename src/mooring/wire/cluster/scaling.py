"""Pools that grow and shrink, as they travel: node templates, requests for nodes, and what the leader advises."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from mooring.model.devices import MOST_DEVICES
from mooring.wire.fields import INT32_MAX, MAX_LABELS, Answer, LabelName, Name, Quantity, Request, ShortText, SlotName
from mooring.wire.placement import DeviceModel, LicenceName, MachineImageName, MachineVersion, TaintRequest


class TemplateDevices(Request):
    """So many devices that are alike."""

    count: Annotated[int, Field(ge=1, le=MOST_DEVICES)] = 1
    model: DeviceModel | None = None
    memory: Quantity | None = None
    """Of each."""


class TemplateRequest(Request):
    """What a node that is asked for will be like once it has joined."""

    resources: Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=32)]
    """What it will have to give."""
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
    """Of one node for an hour, in a unit that is the same for all templates of the pool."""
    boot_seconds: Annotated[int, Field(ge=0, le=86_400)] = 1200
    """From the request until the node can run tasks."""
    least: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """So many of its nodes stay although they are idle."""
    most: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    """There are at most so many of its nodes, those on their way included."""


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


class ScaleRequestView(Answer):
    """Nodes of one template that a pool has asked for."""

    id: UUID
    pool: str
    template: str
    status: str
    nodes: int
    joined: int
    workloads: list[UUID]
    """For which they are."""
    attempts: int
    """How often its delivery was tried."""
    next_attempt_at: datetime | None = None
    error: str | None = None
    created_at: datetime
    delivered_at: datetime | None = None
    expires_at: datetime
    """What has not joined by then is asked for again if it is still needed."""


class UnmetView(Answer):
    """Work for which no more nodes are asked although it lacks room."""

    pool: str
    workload_id: UUID
    workload: str | None
    code: str
    message: str


class AdviceView(Answer):
    """A node that its pool can do without."""

    pool: str
    node: str
    step: str
    """`drain` it, or `remove` it since it is drained."""
    since: datetime


class ScalingView(Answer):
    requests: list[ScaleRequestView]
    """The newest first."""
    unmet: list[UnmetView]
    advice: list[AdviceView]
