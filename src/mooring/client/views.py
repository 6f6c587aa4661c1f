"""Structs for the answers of the commands that have to start fast, with the fields that these commands show.

The schemas in `wire` define the answers; a test compares the two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct


class Start(Struct, frozen=True):
    position: int | None = None
    planned_at: datetime | None = None
    estimated_at: datetime | None = None
    first_at: datetime | None = None
    moves: int = 0
    unless: str | None = None
    not_before: datetime | None = None


class Workload(Struct, frozen=True):
    id: str
    name: str
    kind: str
    status: str
    simulated: bool
    pool: str
    project: str
    user: str
    image: str | None
    command: list[str]
    replicas: int
    running: int
    resources: dict[str, str]
    priority: int
    labels: dict[str, str]
    reason: dict[str, Any] | None
    created_at: datetime
    ready: int = 0
    counts: dict[str, int] = {}
    health: (
        Literal["healthy", "starting", "degraded", "crash-looping", "image-pull-failing", "scaled-to-zero"] | None
    ) = None
    health_reason: str | None = None
    restarts: int = 0
    next_retry_at: datetime | None = None
    start: Start | None = None


class Workloads(Struct):
    workloads: list[Workload]
    total: int


class WorkloadDocuments(Struct):
    """The same answer with all fields, for output that prints it whole."""

    workloads: list[dict[str, Any]]
    total: int
    limit: int
    offset: int


class Slot(Struct, frozen=True):
    allocatable: str
    free: str


class Taint(Struct, frozen=True):
    reason: str | None = None


class Node(Struct, frozen=True):
    name: str
    pool: str
    status: str
    schedulable: bool
    reason: str | None
    simulated: bool
    region: str | None
    architecture: str
    runtimes: list[str]
    labels: dict[str, str]
    slots: dict[str, Slot]
    tasks: int
    cpu_percent: float
    memory_percent: float
    last_seen_at: datetime | None
    owner: str | None
    licence: str | None = None
    machine_image: str | None = None
    machine_image_version: str | None = None
    template: str | None = None
    isolation: str = "none"
    taints: list[Taint] = []
    draining: bool = False
    drain_reason: str | None = None
    drain_until: datetime | None = None
    drained_at: datetime | None = None


class Nodes(Struct, frozen=True):
    nodes: list[Node]
