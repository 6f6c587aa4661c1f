"""Fields of every workload, shared by the requests of the API and by manifests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mooring.wire.fields import MAX_LABELS, MAX_TASKS, LabelName, Name, ShortText
from mooring.wire.workloads.containers import ContainerFields, TaskTemplateRequest, TemplateFields
from mooring.wire.workloads.placement import GroupRequest, PlacementRequest
from mooring.wire.workloads.sessions import ScheduleRequest, SessionType
from mooring.wire.workloads.uploads import FilesRequest

_MAX_NODES = 32


class CommonFields(TemplateFields, ScheduleRequest):
    """Fields of every workload except for its containers and tasks."""

    pool: Name | None = None
    """None: a pool that offers the runtime it needs."""
    region: Name | None = None
    priority: Annotated[int, Field(ge=0, le=100)] = 10
    labels: Annotated[dict[LabelName, ShortText], Field(max_length=MAX_LABELS)] = {}
    pack: Annotated[list[LabelName], Field(max_length=8)] = []
    """Label keys of nested domains, the widest first: all tasks go into the smallest domain that holds them."""
    group: GroupRequest | None = None
    spread: bool = True
    """Prefer nodes with the fewest of its own tasks; without effect on one node, or in a group that packs."""
    max_per_node: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = None
    on_insufficient: Literal["wait", "fail", "scale_up"] | None = None
    """None: the pool's default."""
    placement: PlacementRequest | None = None
    """Placement constraints and preferences; task affinity sees the workload's labels on its tasks."""
    preempts: bool = True
    """It may preempt work with a lower priority, if its pool allows preemption."""
    preemptible: bool = True
    """Work with a higher priority may preempt it, if its pool allows preemption."""
    min_available: Annotated[int, Field(ge=0, le=MAX_TASKS)] | None = None
    """Preemption leaves this many of its tasks running, if it can."""
    files: FilesRequest | None = None
    """Of a session: files that each of its tasks finds in its working folder."""


class WorkloadFields(TaskTemplateRequest, CommonFields):
    """Fields of every workload, whatever its kind."""

    replicas: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1
    gang: bool = False
    """All waiting tasks start together or none."""
    min_tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = None
    """This many tasks start together or none; the others as capacity allows."""
    single_node: bool = False
    """All tasks on one node."""


class SessionRequest(ContainerFields, CommonFields):
    """One container, or one process, on one node or on several that start together.

    Others may start before it and run alongside it (`init_containers`).
    """

    name: Name | None = None
    """None: one is generated."""
    type: SessionType = "interactive"
    cluster_size: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1
    """The number of tasks, which start together: the first has the role `main`, the others `sub`."""
    mode: Literal["single-node", "multi-node"] = "multi-node"
    """`single-node`: all its tasks on one node."""
    nodes: Annotated[list[Name], Field(max_length=_MAX_NODES)] = []
    """Nodes that are preferred to all others."""
    nodes_strictly: bool = False
    """Only these nodes; this needs the right `designate`."""
