"""Node templates: the kinds of nodes that a pool can add, and its rules for scaling up and down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.nodes.node import Node
from mooring.model.reasons import Reason
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Taint


class Goal(StrEnum):
    """The objective of a scale-up: the least cost, or the fewest nodes."""

    CHEAPEST = "cheapest"
    FEWEST = "fewest"


class Shrink(StrEnum):
    """The treatment of unneeded nodes: only a recommendation, or also draining."""

    ADVISE = "advise"
    DRAIN = "drain"


class ScaleRequestStatus(StrEnum):
    REQUESTED = "REQUESTED"
    """Not yet accepted by the provisioner."""
    DELIVERED = "DELIVERED"
    SATISFIED = "SATISFIED"
    """All nodes have joined."""
    REFUSED = "REFUSED"
    """Declined by the provisioner."""
    EXPIRED = "EXPIRED"
    """Not all nodes have joined in time."""


OPEN = frozenset({ScaleRequestStatus.REQUESTED, ScaleRequestStatus.DELIVERED})
"""Statuses in which nodes are still expected."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The properties of a requested node once it has joined."""

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
    """Cost of one node per hour, in a unit common to all templates of the pool."""
    boot_seconds: int = 1200
    """The time from the request until the node can run tasks."""
    least: int = 0
    """Minimum nodes of this template, which stay even if idle."""
    most: int | None = None
    """Maximum nodes of this template, requested ones included."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidInput("a node template needs a name", code="invalid-template")
        if not any(amount > 0 for amount in self.allocatable.values()):
            raise InvalidInput(f"template {self.name!r}: its nodes have no resources", code="invalid-template")
        if self.cost < 1:
            raise InvalidInput(f"template {self.name!r}: a node costs at least 1", code="invalid-template")
        if self.boot_seconds < 0 or self.least < 0:
            raise InvalidInput(f"template {self.name!r}: no value can be below 0", code="invalid-template")
        if self.most is not None and self.most < self.least:
            raise InvalidInput(
                f"template {self.name!r}: the minimum of {self.least} nodes exceeds the maximum of {self.most}",
                code="invalid-template",
            )

    def node(self, name: str) -> Node:
        """Return an empty, ready node of this template."""
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
        """Return whether a joined node matches the template: pool, properties and at least its amounts."""
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
    """The scaling rules of a pool."""

    goal: Goal = Goal.CHEAPEST
    least: int = 0
    most: int | None = None
    """Maximum nodes of the pool, requested ones included."""
    cooldown_seconds: int = 60
    """Pause between two requests for nodes, so that pending work is batched."""
    idle_seconds: int = 600
    """Idle time after which the removal of a node is recommended."""
    shrink_cooldown_seconds: int = 300
    """Pause after a scaling of the pool before the removal of a node is recommended."""
    shrink: Shrink = Shrink.ADVISE


@dataclass(frozen=True, slots=True)
class Stock:
    """A template with the number of its nodes, and the requested ones that have not joined yet."""

    template: NodeTemplate
    existing: int = 0
    coming: tuple[Mapping[UUID, int], ...] = ()
    """By expected node, the number of tasks by workload that need it."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Nodes of one template to request: by node, the number of tasks by workload that need it."""

    template: NodeTemplate
    nodes: tuple[Mapping[UUID, int], ...]

    @property
    def workloads(self) -> frozenset[UUID]:
        return frozenset(workload for tasks in self.nodes for workload in tasks)


@dataclass(frozen=True, slots=True)
class PackingCost:
    """The cost of the new nodes for tasks that request amounts only: nodes are packed with them at the least cost."""

    cost: int
    """In the unit of the pool's goal: the cost of the templates, or the number of nodes."""
    bound: int
    """Proven: no packing of these tasks costs less."""
    nodes: int


@dataclass(frozen=True, slots=True)
class ScaleUp:
    additions: tuple[Addition, ...] = ()
    unmet: Mapping[UUID, Reason] = field(default_factory=dict)
    """By unschedulable workload, the reason why no more nodes are requested for it."""
    not_before: datetime | None = None
    """No nodes are requested until then."""
    packing: PackingCost | None = None
    """The cost of the packed nodes among them; None if there are none."""

    @property
    def cost(self) -> int:
        return sum(addition.template.cost * len(addition.nodes) for addition in self.additions)


_LATE_SECONDS = 300
"""Added to twice the provisioning time of the template before requested nodes are given up."""


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """Nodes of one template that a pool has requested."""

    id: UUID
    """By which the provisioner recognises a repeated request."""
    pool: str
    template: str
    status: ScaleRequestStatus
    wanted: tuple[Mapping[UUID, int], ...]
    """By node, the number of tasks by workload that need it."""
    expires_at: datetime
    created_at: datetime
    joined: int = 0
    """The number of nodes that have joined."""
    attempts: int = 0
    next_attempt_at: datetime | None = None
    """The time of its next delivery attempt; None: no further attempt."""
    error: str | None = None
    """The last delivery error."""
    delivered_at: datetime | None = None
    packing: PackingCost | None = None
    """Of the scale-up that it belongs to."""
    version: int = 1

    @property
    def coming(self) -> tuple[Mapping[UUID, int], ...]:
        return self.wanted[self.joined :]


def late_at(asked_at: datetime, template: NodeTemplate) -> datetime:
    """Return the time at which nodes requested at `asked_at` are given up."""
    return asked_at + timedelta(seconds=2 * template.boot_seconds + _LATE_SECONDS)
