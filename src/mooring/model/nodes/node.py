"""Nodes: machines that run tasks, as placement sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.constraints import Taint
from mooring.model.devices import Device
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import NodeStatus
from mooring.model.slots import Amounts

REGIONS = ("us-east", "us-west", "eu-west", "eu-central", "ap-south", "ap-northeast")
"""The regions whose distances are known; a node may name any other."""

DEFAULT_PORTS = (2000, 9999)
"""The first and the last port that tasks may be given."""

FROM_NAME = UUID(int=0)
"""The id that says: derive one from the name."""

SESSIONS_OF_LICENCE = {"personal": 1}
"""How many sessions a licence allows where the node does not say; others allow any number."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node with what it offers and what is taken of it, per slot in base units.

    A name and `allocatable` are enough; the id then comes from the name.
    """

    id: UUID = FROM_NAME
    name: str = ""
    pool: str = "default"
    status: NodeStatus = NodeStatus.READY
    schedulable: bool = True
    unschedulable_reason: str | None = None
    runtimes: frozenset[str] = frozenset({"container", "process"})
    architecture: str = "x86_64"
    region: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    images: Mapping[str, int] = field(default_factory=dict)
    """Container images that are present, with their size in bytes."""
    machine_image: str | None = None
    machine_image_version: str = ""
    licence: str | None = None
    licence_sessions: int | None = None
    """How many tasks with a licence may run at a time; None for what the licence allows by itself."""
    port_range: tuple[int, int] = DEFAULT_PORTS
    simulated: bool = False
    owner: UUID | None = None
    """Only this user's tasks may run here (an agent without root runs nothing of others)."""
    max_tasks: int | None = None
    generation: int = 1
    """Raised by every change that placement depends on, other than the counters."""
    allocatable: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    reserved: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """The devices behind a slot; a slot of devices without any named has whole ones numbered from 0."""
    tasks: int = 0
    """How many tasks occupy it."""
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    """Measured load, 0..100."""
    uncounted: Amounts = field(default_factory=dict)
    """What scoring adds to the taken processor and memory for containers that asked for none."""

    def __post_init__(self) -> None:
        if self.id == FROM_NAME:
            if not self.name:
                raise InvalidInput("a node needs a name", code="invalid-node")
            object.__setattr__(self, "id", uuid5(NAMESPACE_OID, f"node:{self.name}"))

    @property
    def ready(self) -> bool:
        return self.status is NodeStatus.READY and self.schedulable

    @property
    def sessions_allowed(self) -> int | None:
        """How many tasks with a licence it takes; None for any number."""
        return SESSIONS_OF_LICENCE.get(self.licence or "") if self.licence_sessions is None else self.licence_sessions
