"""Nodes: machines that run tasks, as placement sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import NAMESPACE_OID, UUID, uuid5

from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import NodeStatus
from mooring.model.resources.devices import Device
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import HostPort, Taint

REGIONS = ("us-east", "us-west", "eu-west", "eu-central", "ap-south", "ap-northeast")
"""The regions with known distances; a node may have any other."""

DEFAULT_PORTS = (2000, 9999)
"""The first and the last port that can be assigned to tasks."""

MAX_REPORTED_PORTS = 256
"""Maximum occupied ports that an agent reports."""

FROM_NAME = UUID(int=0)
"""Placeholder: derive the id from the name."""

SESSIONS_OF_LICENCE = {"personal": 1}
"""Default sessions per licence, if the node gives no number; other licences are unlimited."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its allocatable and occupied amounts by slot, in base units.

    A name and `allocatable` are enough; the id is then derived from the name.
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
    """Maximum concurrent tasks with a licence; None: the default of the licence."""
    port_range: tuple[int, int] = DEFAULT_PORTS
    occupied_ports: tuple[HostPort, ...] = ()
    """Ports in use by other programs than its tasks."""
    simulated: bool = False
    owner: UUID | None = None
    """Only this user's tasks may run here (an agent without root runs no tasks of others)."""
    isolation: str = "container"
    """Isolation level of process tasks; see `model.nodes.isolation`."""
    required_isolation: str = "none"
    """Minimum isolation level that its pool requires for process tasks."""
    max_tasks: int | None = None
    generation: int = 1
    """Raised by every change that placement depends on, other than the counters."""
    allocatable: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    reserved: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """The devices of a slot; a device slot without a list has whole devices numbered from 0."""
    tasks: int = 0
    """The number of tasks that occupy it."""
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    """Measured load, 0..100."""
    uncounted: Amounts = field(default_factory=dict)
    """CPU and memory that scoring adds for containers without a request."""

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
        """Maximum tasks with a licence; None: unlimited."""
        return SESSIONS_OF_LICENCE.get(self.licence or "") if self.licence_sessions is None else self.licence_sessions
