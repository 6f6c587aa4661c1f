"""What a request says about how its tasks belong together. What contradicts itself is refused."""

from __future__ import annotations

from mooring.model.constraints import Constraints
from mooring.model.errors import InvalidInput
from mooring.model.groups import RESERVED_PREFIX, Direction, Enforcement, Group, reserved_keys
from mooring.model.labels import key_problem
from mooring.wire.api import WorkloadRequest


def check_together(request: WorkloadRequest) -> None:
    """InvalidInput for what no cluster could ever do."""
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


def group_of_request(request: WorkloadRequest, constraints: Constraints) -> Group | None:
    """The group that its tasks belong to. The label by which members know each other is not for requests to name."""
    reserved = reserved_keys(constraints)
    if reserved:
        raise InvalidInput(
            f"labels that begin with {RESERVED_PREFIX} are Mooring's own: {', '.join(reserved)}", code="reserved-label"
        )
    asked = request.group
    return None if asked is None else Group(asked.name, Direction(asked.direction), Enforcement(asked.enforcement))


def _check_single_node(request: WorkloadRequest) -> None:
    replicas, placement, group = request.replicas, request.placement, request.group
    if request.pack:
        raise InvalidInput("tasks on one node cannot be nearer: leave out single_node or pack", code="invalid-gang")
    if replicas == 1:
        return
    if request.max_per_node is not None and request.max_per_node < replicas:
        raise InvalidInput(
            f"{replicas:,} tasks on one node, of which it may have {request.max_per_node:,}: "
            "raise max_per_node or leave out single_node",
            code="invalid-gang",
        )
    if placement is not None and placement.host_ports:
        raise InvalidInput("tasks on one node cannot open the same host port", code="invalid-gang")
    if group is not None and group.direction == "spread" and group.enforcement == "strict":
        raise InvalidInput(
            f"the members of group {group.name!r} are strictly apart, so its tasks cannot be on one node",
            code="invalid-gang",
        )
