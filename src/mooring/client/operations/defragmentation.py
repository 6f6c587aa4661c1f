"""Operations on defragmentation: plans of moves, and one move."""

from __future__ import annotations

from mooring.client.operations.operation import Operation, segment
from mooring.wire.cluster.defragmentation import (
    AutomaticPlanList,
    DefragmentationPlan,
    DefragmentationRequest,
    MoveRequest,
)


def plan_defragmentation(pool: str, request: DefragmentationRequest) -> Operation[DefragmentationPlan]:
    """Return a plan of moves of running tasks that make capacity usable; nothing moves."""
    return Operation("POST", f"/api/pools/{segment(pool)}/defragmentation", DefragmentationPlan, body=request)


def automatic_plans(pool: str) -> Operation[AutomaticPlanList]:
    """Return the newest plans of automatic defragmentation with their moves, the newest first."""
    return Operation("GET", f"/api/pools/{segment(pool)}/defragmentation", AutomaticPlanList)


def move_task(pool: str, request: MoveRequest) -> Operation[None]:
    """Evict a task so that its replacement goes to another node."""
    return Operation("POST", f"/api/pools/{segment(pool)}/defragmentation/moves", type(None), body=request)
