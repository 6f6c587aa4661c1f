"""Placement constraints of requests. Names follow Kubernetes where it has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from mooring.model.names import NAME_PATTERN
from mooring.model.workloads.groups import MAX_NAME_LENGTH
from mooring.wire.fields import INT32_MAX, LabelName, Name, Quantity, Request, SlotName

_MANY = 32
Weight = Annotated[int, Field(ge=1, le=100)]
TopologyKey = LabelName
LabelValue = Annotated[str, StringConstraints(max_length=255, pattern=r"^[^\x00]*$")]
DeviceModel = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


LicenceName = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$", max_length=63)]
MachineImageName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x20]*$")]
MachineVersion = Annotated[str, StringConstraints(max_length=63, pattern=r"^[^\x00-\x20]*$")]


class RequirementRequest(Request):
    key: LabelName
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[list[LabelValue], Field(max_length=_MANY)] = []


class NodeTermRequest(Request):
    """All requirements must hold."""

    match: Annotated[list[RequirementRequest], Field(min_length=1, max_length=_MANY)]


class PreferredNodesRequest(NodeTermRequest):
    weight: Weight = 1


class TaintRequest(Request):
    key: LabelName
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class TolerationRequest(Request):
    key: LabelName | Literal[""] = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    """With the effect NoExecute: the time that a running task stays on the node; not given: indefinitely."""


class TasksRequest(Request):
    """Tasks with these labels, seen from a domain of the topology key (`node`, or any label of nodes)."""

    topology_key: TopologyKey = "node"
    labels: Annotated[dict[LabelName, LabelValue], Field(max_length=_MANY)] = {}
    match: Annotated[list[RequirementRequest], Field(max_length=_MANY)] = []


class PreferredTasksRequest(TasksRequest):
    weight: Annotated[int, Field(ge=-100, le=100)]
    """Negative: prefer to be apart."""


class SpreadRequest(TasksRequest):
    """Without labels and match: the workload's own tasks."""

    max_skew: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    hard: bool = True
    min_domains: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None


class HostPortRequest(Request):
    port: Annotated[int, Field(ge=1, le=65535)]
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class DevicesRequest(Request):
    """Requirements for each device of a slot that a task is assigned."""

    slot: SlotName = "gpu"
    models: Annotated[list[DeviceModel], Field(max_length=_MANY)] = []
    """Any of these models; empty: any model."""
    memory: Quantity = 0
    """Device memory that comes with the device share: half a device brings half of its memory."""


class MachineImageRequest(Request):
    """The image that nodes must be made from."""

    name: MachineImageName
    """A name, or a pattern: `cml-*`."""
    version: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[^\x00]*$")] = "*"
    """A pattern, or comparisons: `2.7.*`, `>=2.4,<3`."""


class GroupRequest(Request):
    """A group of the user's workloads that are spread over nodes or packed together, as a preference or strictly."""

    name: Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$", max_length=MAX_NAME_LENGTH)]
    direction: Literal["spread", "pack"] = "spread"
    enforcement: Literal["preferred", "strict"] = "preferred"


class PlacementRequest(Request):
    node_selector: Annotated[dict[LabelName, LabelValue], Field(max_length=_MANY)] = {}
    node_affinity: Annotated[list[NodeTermRequest], Field(max_length=_MANY)] = []
    """At least one must hold."""
    preferred_nodes: Annotated[list[PreferredNodesRequest], Field(max_length=_MANY)] = []
    tolerations: Annotated[list[TolerationRequest], Field(max_length=_MANY)] = []
    affinity: Annotated[list[TasksRequest], Field(max_length=_MANY)] = []
    anti_affinity: Annotated[list[TasksRequest], Field(max_length=_MANY)] = []
    preferred_tasks: Annotated[list[PreferredTasksRequest], Field(max_length=_MANY)] = []
    spread: Annotated[list[SpreadRequest], Field(max_length=_MANY)] = []
    host_ports: Annotated[list[HostPortRequest], Field(max_length=_MANY)] = []
    ports: Annotated[int, Field(ge=0, le=_MANY)] = 0
    """The number of node ports that each task needs; it finds them in its environment (MOORING_PORTS)."""
    devices: Annotated[list[DevicesRequest], Field(max_length=_MANY)] = []
    licence: LicenceName | None = None
    """Only nodes whose licence covers it and has a session left."""
    machine_image: MachineImageRequest | None = None
    volume_zones: Annotated[
        dict[LabelName, Annotated[list[LabelValue], Field(min_length=1, max_length=_MANY)]], Field(max_length=_MANY)
    ] = {}
    """By label key, the zones or regions in which the task's volumes can be reached; other nodes are excluded."""
    nodes: Annotated[list[Name], Field(max_length=_MANY)] = []
    """Preferred regardless of score."""
    nodes_strictly: bool = False
    """Only these nodes; this needs the right `designate`."""
