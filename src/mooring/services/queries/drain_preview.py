"""The effect of a drain on the tasks of a node, tried on a copy of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal
from uuid import UUID

from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.defragmentation import PlacedTask
from mooring.model.workloads.lifetime.retries import is_requeued_after_eviction
from mooring.model.workloads.workload import Kind
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.trial_moves import TrialMoves, moves_alone
from mooring.scheduling.plugins.profiles import Profile
from mooring.store.core.types import AnyRow
from mooring.wire.cluster.nodes import DrainEffect, DrainPreview

Effect = Literal["moves", "finishes", "requeued", "ends"]
_LEAVES: frozenset[Effect] = frozenset({"moves", "requeued"})


def drain_preview(
    node: str,
    node_id: UUID,
    tasks: Sequence[AnyRow],
    placed: Sequence[PlacedTask],
    cluster: Cluster,
    profile: Profile,
    *,
    timeout: bool,
) -> DrainPreview:
    """Move each task that a drain sends away to the node that would take it now. `cluster`: a copy, which changes."""
    effects = {task.id: _effect(task, timeout=timeout) for task in tasks}
    leaving = {task_id for task_id, effect in effects.items() if effect in _LEAVES}
    targets = _targets(node_id, leaving, placed, cluster, profile)
    shown = [
        DrainEffect(
            task_id=task.id,
            workload_id=task.workload_id,
            workload=task.name,
            index=task.task_index,
            user=task.username,
            status=task.status,
            effect=effects[task.id],
            target=targets.get(task.id),
        )
        for task in tasks
    ]
    waiting = sum(task_id not in targets for task_id in leaving)
    return DrainPreview(node=node, tasks=shown, moves=len(leaving), waiting=waiting)


def _effect(task: AnyRow, *, timeout: bool) -> Effect:
    status = TaskStatus(task.status)
    if status is TaskStatus.RESERVED or task.kind == Kind.DEPLOYMENT:
        return "moves"
    if not timeout:
        return "finishes"
    return "requeued" if is_requeued_after_eviction(status, type=task.type) else "ends"


def _targets(
    node_id: UUID, leaving: set[UUID], placed: Sequence[PlacedTask], cluster: Cluster, profile: Profile
) -> dict[UUID, str]:
    """Return the nodes of the tasks that another node takes, one after the other."""
    row = cluster.row_of(node_id)
    if row is None:
        return {}
    trial = TrialMoves(cluster, profile, [replace(task, movable=task.task_id in leaving) for task in placed])
    targets: dict[UUID, str] = {}
    for task in list(trial.on[row].values()):
        # The tasks of a gang start together, on nodes that are chosen then.
        if not task.movable or not moves_alone(task.workload):
            continue
        if (move := trial.move(task, row, barred=(row,))) is not None:
            targets[task.task_id] = move.target
    return targets
