"""Shapes: everything about a task that placement depends on. Equal shapes are one class, answered for once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from mooring.model.constraints import Constraints
from mooring.model.quantity import INT64_MAX
from mooring.model.resources import UNASKED
from mooring.model.volumes import STORAGE
from mooring.model.workloads import NO_CONSTRAINTS, Workload
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
    constraints: Constraints = NO_CONSTRAINTS
    uncounted: tuple[int, int] = (0, 0)
    """Processor and memory that scoring adds for containers which ask for none."""
    tasks: int = 1
    """How many tasks go to one node at once; all amounts are theirs together."""


def shape_of(workload: Workload, cluster: Cluster) -> Shape:
    return Shape(
        pool=workload.pool,
        request=_request(workload),
        runtime=workload.runtime,
        architecture=workload.architecture,
        region=workload.region,
        owner=workload.user_id if workload.user_id in cluster.owners else None,
        constraints=workload.constraints,
        uncounted=_uncounted(workload),
    )


def _request(workload: Workload) -> Request:
    brought = workload.constraints.volume_bytes
    if not brought:
        return tuple(sorted(workload.request.items()))
    return tuple(sorted({**workload.request, STORAGE: workload.request.get(STORAGE, 0) + brought}.items()))


def of_all(shape: Shape, count: int) -> Shape:
    """The shape of `count` tasks of a shape on one node."""
    cpu, memory = shape.uncounted
    return replace(
        shape,
        # Beyond int64 no node has enough either way.
        request=tuple((name, min(amount * count, INT64_MAX)) for name, amount in shape.request),
        uncounted=(cpu * count, memory * count),
        constraints=replace(shape.constraints, ports_wanted=shape.constraints.ports_wanted * count),
        tasks=count,
    )


def _uncounted(workload: Workload) -> tuple[int, int]:
    """What scoring adds to the request: where it is not told, one container that names what the request names."""
    request, scoring = workload.request, workload.scoring_request
    if scoring is None:
        return tuple(0 if name in request else units for name, units in UNASKED.items())  # type: ignore[return-value]
    return scoring.get("cpu", 0) - request.get("cpu", 0), scoring.get("memory", 0) - request.get("memory", 0)
