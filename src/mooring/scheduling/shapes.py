"""Shapes: everything about a task that placement depends on. Equal shapes are one class, answered for once."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from mooring.model.workloads import Workload
from mooring.scheduling.columns import Cluster, Request


@dataclass(frozen=True, slots=True)
class Shape:
    pool: str
    request: Request
    runtime: str
    architecture: str | None = None
    region: str | None = None
    owner: UUID | None = None
    """The user, if some node belongs to that user; users without nodes of their own are all alike to placement."""


def shape_of(workload: Workload, cluster: Cluster) -> Shape:
    return Shape(
        pool=workload.pool,
        request=tuple(sorted(workload.request.items())),
        runtime=workload.runtime,
        architecture=workload.architecture,
        region=workload.region,
        owner=workload.user_id if workload.user_id in cluster.owners else None,
    )
