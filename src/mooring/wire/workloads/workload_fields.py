"""What can be said of every workload, written once: for requests over the API in either words, and for files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mooring.wire.containers import ContainerFields, TaskTemplateRequest, TemplateFields
from mooring.wire.fields import MAX_LABELS, MAX_TASKS, LabelName, Name, ShortText
from mooring.wire.placement import GroupRequest, PlacementRequest
from mooring.wire.sessions import SessionType, TermsRequest

_MOST_NODES = 32


class CommonFields(TemplateFields, TermsRequest):
    """What can be said of every workload, in whatever words its containers and tasks are told."""

    pool: Name | None = None
    """None: the pool that offers the runtime it needs."""
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
    """None: as its pool says."""
    placement: PlacementRequest | None = None
    """Where its tasks may and should run; task affinity sees the workload's labels on its tasks."""
    preempts: bool = True
    """It may take the place of work with a lower priority, where its pool allows that."""
    preemptible: bool = True
    """Work with a higher priority may take its place, where its pool allows that."""
    min_available: Annotated[int, Field(ge=0, le=MAX_TASKS)] | None = None
    """Preemption leaves so many of its tasks alone, if it can."""


class WorkloadFields(TaskTemplateRequest, CommonFields):
    """What can be said of every workload, whatever its kind."""

    replicas: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1
    gang: bool = False
    """All waiting tasks start together or none."""
    min_tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = None
    """So many tasks start together or none; the others as they find room."""
    single_node: bool = False
    """All tasks on one node."""


class SessionRequest(ContainerFields, CommonFields):
    """One container, or one process, on one node or on several that start together; others may start before it and
    run beside it (`init_containers`).
    """

    name: Name | None = None
    """None: one is made up."""
    type: SessionType = "interactive"
    cluster_size: Annotated[int, Field(ge=1, le=MAX_TASKS)] = 1
    """So many tasks that start together: the first has the role `main`, the others `sub`."""
    mode: Literal["single-node", "multi-node"] = "multi-node"
    """`single-node`: all its tasks on one node."""
    nodes: Annotated[list[Name], Field(max_length=_MOST_NODES)] = []
    """Preferred before all others."""
    nodes_strictly: bool = False
    """Only those nodes; this needs a right."""
