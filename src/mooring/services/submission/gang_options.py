"""Gang and placement options of a request. Contradictions are refused."""

from __future__ import annotations

from typing import Any

from mooring.model.errors import InvalidInput
from mooring.model.labels import key_problem
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.groups import (
    RESERVED_PREFIX,
    Direction,
    Enforcement,
    Group,
    reserved_keys,
)
from mooring.model.workloads.workload import PLACEMENT_OPTIONS, OnInsufficient
from mooring.wire.workloads.workloads import WorkloadRequest


def check_gang_options(request: WorkloadRequest) -> None:
    """Raise InvalidInput for options that no cluster could satisfy."""
    replicas = request.replicas
    for name, number in (("min_tasks", request.min_tasks), ("min_available", request.min_available)):
        if number is not None and number > replicas:
            tasks = "1 task" if replicas == 1 else f"{replicas:,} tasks"
            raise InvalidInput(f"{name} is {number:,}, but the workload has {tasks}", code="invalid-gang")
    if request.gang and request.min_tasks is not None:
        raise InvalidInput("a gang starts all its tasks together: leave out gang or min_tasks", code="invalid-gang")
    for key in request.pack:
        if problem := key_problem(key):
            raise InvalidInput(f"pack: {problem}", code="invalid-label")
    if len(set(request.pack)) != len(request.pack):
        raise InvalidInput("pack names a label twice", code="invalid-gang")
    if request.single_node:
        _check_single_node(request)


def placement_options_of(request: WorkloadRequest, group: Group | None, default: str) -> dict[str, Any]:
    """Return the placement options of a request; `default` is the `on_insufficient` of its pool."""
    on_insufficient = OnInsufficient(request.on_insufficient or default)
    return {name: getattr(request, name) for name in PLACEMENT_OPTIONS} | {
        "gang": request.gang or (on_insufficient is OnInsufficient.FAIL and request.min_tasks is None),
        "pack": tuple(request.pack),
        "spread": request.spread and (group is None or group.direction is not Direction.PACK),
        "on_insufficient": on_insufficient,
    }


def group_of_request(request: WorkloadRequest, constraints: Constraints) -> Group | None:
    """Return the group of its tasks; raise for labels that are reserved for groups."""
    reserved = reserved_keys(constraints)
    if reserved:
        raise InvalidInput(
            f"labels that begin with {RESERVED_PREFIX} are reserved for Mooring: {', '.join(reserved)}",
            code="reserved-label",
        )
    asked = request.group
    return None if asked is None else Group(asked.name, Direction(asked.direction), Enforcement(asked.enforcement))


def _check_single_node(request: WorkloadRequest) -> None:
    replicas, placement, group = request.replicas, request.placement, request.group
    if request.pack:
        raise InvalidInput("single_node and pack exclude each other: leave one of them out", code="invalid-gang")
    if replicas == 1:
        return
    if request.max_per_node is not None and request.max_per_node < replicas:
        raise InvalidInput(
            f"single_node needs {replicas:,} tasks on one node, and max_per_node allows {request.max_per_node:,}: "
            "raise max_per_node or leave out single_node",
            code="invalid-gang",
        )
    if placement is not None and placement.host_ports:
        raise InvalidInput("tasks on one node cannot use the same host port", code="invalid-gang")
    if group is not None and group.direction == "spread" and group.enforcement == "strict":
        raise InvalidInput(
            f"group {group.name!r} is spread strictly, so its tasks cannot be on one node",
            code="invalid-gang",
        )
