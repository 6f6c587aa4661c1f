"""Plans of moves, computed in a thread from a copy of the cluster, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mooring.model.policy.defragmentation import Gain, Move, PlacedTask, Plan, Start, Step
from mooring.model.resources.slots import format_amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.autoscaling.scale_up import copy_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.planner import plan
from mooring.scheduling.plugins.profiles import Profile
from mooring.store.core.ids import new_id
from mooring.wire.cluster.defragmentation import (
    DefragmentationPlan,
    DefragmentationRequest,
    MoveView,
    StartView,
    StepView,
)


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The copied state of a pool."""

    cluster: Cluster
    profile: Profile
    placed: Sequence[PlacedTask]
    pending: Sequence[Workload]
    budgets: Mapping[UUID, int]


class DefragmentationPlanner:
    """Computes one plan at a time, so that at most one thread is busy with them."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def plan(self, pool: str, request: DefragmentationRequest, state: PlanInput) -> DefragmentationPlan:
        async with self._one_at_a_time:
            return await asyncio.to_thread(_planned, pool, request, state)


def copied(cluster: Cluster) -> Cluster:
    return copy_of(cluster)


def _planned(pool: str, request: DefragmentationRequest, state: PlanInput) -> DefragmentationPlan:
    found = plan(
        state.cluster,
        state.profile,
        pool,
        state.placed,
        state.pending,
        gain=Gain(request.gain),
        most=request.max_moves,
        budgets=state.budgets,
    )
    return _view(pool, found)


def _view(pool: str, found: Plan) -> DefragmentationPlan:
    return DefragmentationPlan(
        id=new_id(),
        pool=pool,
        gain=found.gain.value,
        steps=[_step(step) for step in found.steps],
        gained=round(found.gained, 3),
        moves=len(found.moves),
        movable=found.movable,
        placed=found.placed,
        gang=format_amounts(found.gang),
        gang_before=found.gang_before,
        bound=found.bound.value,
        bound_reason=found.bound.reason,
    )


def _step(step: Step) -> StepView:
    return StepView(
        moves=[_move(move) for move in step.moves],
        starts=[_start(start) for start in step.starts],
        emptied=list(step.emptied),
    )


def _move(move: Move) -> MoveView:
    return MoveView(
        task_id=move.task_id,
        workload_id=move.workload_id,
        workload=move.workload,
        source=move.source,
        target=move.target,
        resources=format_amounts(move.request),
        lost_seconds=move.lost_seconds,
    )


def _start(start: Start) -> StartView:
    return StartView(
        workload_id=start.workload_id,
        workload=start.workload,
        node=start.node,
        resources=format_amounts(start.request),
    )
