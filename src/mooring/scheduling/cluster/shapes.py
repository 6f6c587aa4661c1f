"""Shapes: everything about a task that placement depends on. Tasks with equal shapes share one evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias
from uuid import UUID

from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.task_resources import UNASKED
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.volumes import STORAGE
from mooring.model.workloads.workload import NO_CONSTRAINTS, Workload
from mooring.scheduling.cluster.value_codes import Codes

Request: TypeAlias = tuple[tuple[str, int], ...]
"""Slot names with amounts in base units, sorted by name."""
_MAX_NOTED = 1 << 15
"""Workloads whose shapes are noted."""


@dataclass(frozen=True, slots=True)
class Shape:
    pool: str
    request: Request
    runtime: str
    architecture: str | None = None
    region: str | None = None
    owner: UUID | None = None
    """The user, if some node belongs to that user; all other users are equal to placement."""
    constraints: Constraints = NO_CONSTRAINTS
    uncounted: tuple[int, int] = (0, 0)
    """CPU and memory that scoring adds for containers without a request."""
    tasks: int = 1
    """Number of tasks that go to one node together; the amounts are their total."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Computed once: shapes are the keys of many caches."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.pool, self.request, self.constraints, self.owner, self.tasks)))

    def __hash__(self) -> int:
        return self._hash


class Owners(Protocol):
    """The part of a cluster that a shape depends on; its columns have it."""

    owners: Codes[UUID | None]
    """The users that nodes belong to."""
    shapes: dict[UUID, tuple[tuple[object, ...], Shape]]
    """By workload, the properties that its shape depends on, and the shape, as `shape_of` notes them."""
    distinct_shapes: dict[Shape, Shape]


def shape_of(workload: Workload, cluster: Owners) -> Shape:
    """Return the shape of a workload's tasks. It is noted, since a pending workload is asked about in many passes."""
    # Equal values are mostly the same objects, which are compared fast. Tasks are not held: there may be many.
    given = (
        workload.request,
        workload.constraints,
        workload.pool,
        workload.runtime,
        workload.architecture,
        workload.region,
        workload.user_id,
        workload.scoring_request,
        len(cluster.owners.values),
    )
    known = cluster.shapes.get(workload.id)
    if known is not None and known[0] == given:
        return known[1]
    if len(cluster.shapes) >= _MAX_NOTED:
        cluster.shapes.clear()
        cluster.distinct_shapes.clear()
    shape = _shape_of(workload, cluster)
    # Equal shapes are one object, so that dictionaries compare them by identity.
    shape = cluster.distinct_shapes.setdefault(shape, shape)
    cluster.shapes[workload.id] = given, shape
    return shape


def _shape_of(workload: Workload, cluster: Owners) -> Shape:
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
    """Return the shape of `count` tasks on one node."""
    cpu, memory = shape.uncounted
    return replace(
        shape,
        # No node has more than int64 anyway.
        request=tuple((name, min(amount * count, INT64_MAX)) for name, amount in shape.request),
        uncounted=(cpu * count, memory * count),
        constraints=replace(shape.constraints, ports_wanted=shape.constraints.ports_wanted * count),
        tasks=count,
    )


def _uncounted(workload: Workload) -> tuple[int, int]:
    """Return what scoring adds to the request; by default for one container with the requested slots."""
    request, scoring = workload.request, workload.scoring_request
    if scoring is None:
        return tuple(0 if name in request else units for name, units in UNASKED.items())  # type: ignore[return-value]
    return scoring.get("cpu", 0) - request.get("cpu", 0), scoring.get("memory", 0) - request.get("memory", 0)
