"""Schemas of what-if questions about the live cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from mooring.wire.cluster.pools import PoolChange
from mooring.wire.fields import Answer, Name, Quantity, Request, ShortText, SlotName
from mooring.wire.tenancy.quotas import MAX_SLOTS, ScopeName

MAX_ADDED_NODES = 1000
MAX_SHOWN = 1000
MAX_SECONDS = 90 * 86_400
_DAY_SECONDS = 86_400

Reference = Annotated[ShortText, Field(min_length=1)]
"""A workload by id, or an own one by name."""


class NodesLike(Request):
    """Empty nodes to add."""

    like: Name
    """The node whose capacity, pool, labels and taints they have."""
    count: Annotated[int, Field(ge=1, le=MAX_ADDED_NODES)] = 1


class NodeChoice(Request):
    """Nodes by name, or by their labels."""

    names: Annotated[list[Name], Field(max_length=MAX_ADDED_NODES)] = []
    selector: ShortText | None = None
    """Labels, such as `rack=r7`."""


class LimitChange(Request):
    """New limits of a tenant; limits of other slots stay."""

    scope: ScopeName
    tenant: Reference
    """A keypair by access key, any other by name or id."""
    limits: Annotated[dict[SlotName, Quantity], Field(min_length=1, max_length=MAX_SLOTS)]


class SizeSearch(Request):
    """The smallest number of added nodes with which the 95th percentile of the waits is at most this."""

    like: Name
    p95_wait_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)]
    most: Annotated[int, Field(ge=1, le=MAX_ADDED_NODES)] = 64


class WhatIfRequest(Request):
    """Hypothetical changes, all made now."""

    add_nodes: Annotated[list[NodesLike], Field(max_length=16)] = []
    remove_nodes: NodeChoice | None = None
    """Nodes that accept no more work; their running work continues. Admins only."""
    fail_nodes: NodeChoice | None = None
    """Nodes that are lost; their work is requeued. Admins only."""
    cancel: Annotated[list[Reference], Field(max_length=100)] = []
    limits: Annotated[list[LimitChange], Field(max_length=32)] = []
    pools: Annotated[dict[Name, PoolChange], Field(max_length=16)] = {}
    search: SizeSearch | None = None
    workloads: Annotated[list[Reference], Field(max_length=100)] = []
    """Workloads that the answer shows in any case."""
    everyone: bool = False
    """Answer about all workloads that the caller may see, not only about the caller's own."""
    seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = 7 * _DAY_SECONDS
    """The time to simulate."""
    limit: Annotated[int, Field(ge=1, le=MAX_SHOWN)] = 100
    """Maximum workloads in the answer."""


class WaitsView(Answer):
    """The waits of pending workloads from their submission to their first start, in seconds."""

    workloads: int
    started: int
    """Within the simulated time."""
    mean_seconds: float | None
    median_seconds: float | None
    p95_seconds: float | None
    """None: more than a twentieth of them do not start within the simulated time."""


class WorkloadEffect(Answer):
    """One workload, without and with the changes; no time: not within the simulated time."""

    id: UUID
    name: str
    pool: str
    created_at: datetime
    running: bool
    """It has tasks on nodes now."""
    stopped: bool
    """With the changes, running tasks of it are lost or preempted."""
    cancelled: bool
    start: datetime | None
    """The next start of pending tasks, or of tasks that were stopped."""
    changed_start: datetime | None
    end: datetime | None
    changed_end: datetime | None


class SizeTry(Answer):
    nodes: int
    p95_seconds: float | None


class SizeFound(Answer):
    nodes: int | None
    """The number of nodes to add; None: not even the largest number suffices."""
    tries: list[SizeTry]


class WhatIfAnswer(Answer):
    at: datetime
    until: datetime
    nodes: int
    """Ready nodes now."""
    without: WaitsView
    changed: WaitsView
    earlier: int
    """Pending workloads that start earlier with the changes."""
    later: int
    unchanged: int
    stopped: int
    workloads: list[WorkloadEffect]
    workloads_left_out: int
    search: SizeFound | None
    assumptions: list[str]
