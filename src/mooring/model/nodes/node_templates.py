"""Node templates: the kinds of nodes that a pool can be given more of, and the rules by which it grows and shrinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.constraints import Taint
from mooring.model.devices import Device
from mooring.model.errors import InvalidInput
from mooring.model.nodes import Node
from mooring.model.reasons import Reason
from mooring.model.slots import Amounts


class Goal(StrEnum):
    """What a pool grows by: the least cost, or the fewest nodes."""

    CHEAPEST = "cheapest"
    FEWEST = "fewest"


class Shrink(StrEnum):
    """What becomes of nodes that a pool can do without: people are told, or they are drained as well."""

    ADVISE = "advise"
    DRAIN = "drain"


class ScaleRequestStatus(StrEnum):
    REQUESTED = "REQUESTED"
    """Whoever makes nodes has not taken it yet."""
    DELIVERED = "DELIVERED"
    SATISFIED = "SATISFIED"
    """All its nodes have joined."""
    REFUSED = "REFUSED"
    """Whoever makes nodes will not."""
    EXPIRED = "EXPIRED"
    """Not all of its nodes have joined in time."""


OPEN = frozenset({ScaleRequestStatus.REQUESTED, ScaleRequestStatus.DELIVERED})
"""Nodes are on their way by these."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What a node that is asked for will be like once it has joined."""

    name: str
    pool: str = "default"
    allocatable: Amounts = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    architecture: str = "x86_64"
    runtimes: frozenset[str] = frozenset({"container", "process"})
    region: str | None = None
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str = ""
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    max_tasks: int | None = None
    cost: int = 1
    """Of one node for an hour, in a unit that is the same for all templates of the pool."""
    boot_seconds: int = 1200
    """From the request until the node can run tasks."""
    least: int = 0
    """So many of its nodes stay although they are idle."""
    most: int | None = None
    """There are at most so many of its nodes, those on their way included."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInput("a node template needs a name", code="invalid-template")
        if not any(amount > 0 for amount in self.allocatable.values()):
            raise InvalidInput(f"template {self.name!r}: its nodes offer nothing", code="invalid-template")
        if self.cost < 1:
            raise InvalidInput(f"template {self.name!r}: a node costs at least 1", code="invalid-template")
        if self.boot_seconds < 0 or self.least < 0:
            raise InvalidInput(f"template {self.name!r}: there is nothing below 0 here", code="invalid-template")
        if self.most is not None and self.most < self.least:
            raise InvalidInput(
                f"template {self.name!r}: at least {self.least} nodes are more than at most {self.most}",
                code="invalid-template",
            )

    def node(self, name: str) -> Node:
        """A node of this template, empty and ready."""
        return Node(
            name=name,
            pool=self.pool,
            allocatable=self.allocatable,
            labels=self.labels,
            taints=self.taints,
            architecture=self.architecture,
            runtimes=self.runtimes,
            region=self.region,
            licence=self.licence,
            machine_image=self.machine_image,
            machine_image_version=self.machine_image_version,
            devices=self.devices,
            max_tasks=self.max_tasks,
        )

    def describes(self, node: Node) -> bool:
        """Whether a node that joined is one of those asked for: it is where and what they are, and offers as much."""
        return (
            node.pool == self.pool
            and node.architecture == self.architecture
            and node.region == self.region
            and node.licence == self.licence
            and node.runtimes >= self.runtimes
            and (self.machine_image is None or node.machine_image == self.machine_image)
            and self.labels.items() <= node.labels.items()
            and set(node.taints) == set(self.taints)
            and all(node.allocatable.get(slot, 0) >= amount for slot, amount in self.allocatable.items())
        )


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """How a pool grows and shrinks."""

    goal: Goal = Goal.CHEAPEST
    least: int = 0
    most: int | None = None
    """Of all nodes of the pool together, those on their way included."""
    cooldown_seconds: int = 60
    """Between two requests for nodes: what waits meanwhile is asked for together."""
    idle_seconds: int = 600
    """So long a node has nothing to do before it is advised to go."""
    shrink_cooldown_seconds: int = 300
    """After the pool grew or shrank, until a node is advised to go."""
    shrink: Shrink = Shrink.ADVISE


@dataclass(frozen=True, slots=True)
class Stock:
    """A template with how many of its nodes there are, and those that were asked for and have not joined yet."""

    template: NodeTemplate
    existing: int = 0
    coming: tuple[Mapping[UUID, int], ...] = ()
    """Per node on its way how many tasks of which workloads it is for."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Nodes of one template to ask for: per node how many tasks of which workloads it is for."""

    template: NodeTemplate
    nodes: tuple[Mapping[UUID, int], ...]

    @property
    def workloads(self) -> frozenset[UUID]:
        return frozenset(workload for tasks in self.nodes for workload in tasks)


@dataclass(frozen=True, slots=True)
class ScaleUp:
    additions: tuple[Addition, ...] = ()
    unmet: Mapping[UUID, Reason] = field(default_factory=dict)
    """Per workload why no more nodes are asked for it although it finds no room."""
    not_before: datetime | None = None
    """Nothing is asked for until then."""

    @property
    def cost(self) -> int:
        return sum(addition.template.cost * len(addition.nodes) for addition in self.additions)


_LATE_SECONDS = 300
"""Nodes may take twice as long as their template says, and so much longer."""


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """Nodes of one template that a pool has asked for."""

    id: UUID
    """Whoever is asked tells a repetition by it."""
    pool: str
    template: str
    status: ScaleRequestStatus
    wanted: tuple[Mapping[UUID, int], ...]
    """Per node how many tasks of which workloads it is for."""
    expires_at: datetime
    created_at: datetime
    joined: int = 0
    """How many of its nodes have."""
    attempts: int = 0
    next_attempt_at: datetime | None = None
    """When it is delivered, or tried again; None: no more."""
    error: str | None = None
    """What stood in the way of its delivery last."""
    delivered_at: datetime | None = None
    version: int = 1

    @property
    def coming(self) -> tuple[Mapping[UUID, int], ...]:
        return self.wanted[self.joined :]


def late_at(asked_at: datetime, template: NodeTemplate) -> datetime:
    """When nodes that were asked for then are given up."""
    return asked_at + timedelta(seconds=2 * template.boot_seconds + _LATE_SECONDS)
