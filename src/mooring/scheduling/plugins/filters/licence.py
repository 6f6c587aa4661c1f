"""Only nodes whose licence covers the task's and has a free session."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFilter
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, TaskChange

COVERS = {"enterprise": frozenset({"enterprise", "personal"})}
"""The licences that a licence covers, if it covers others than itself."""


class LicenceFilter:
    name = "licence"
    depends_on: DependsOn = "row"
    kernel_filter: KernelFilter = "unconcerned"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.constraints.licence is not None

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        if shape.constraints.licence is None:
            return np.ones(len(rows), dtype=np.bool_)
        left: Mask = cluster.sessions_allowed[rows] - cluster.placed_tasks.licences[rows] >= shape.tasks
        return left & _covered(shape, cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        wanted = shape.constraints.licence
        busy = int(_covered(shape, cluster, rows).sum())
        words = []
        if busy:
            words.append(f"{busy:,} without {_sessions(shape)} left of the licence")
        if busy < len(rows):
            words.append(f"{len(rows) - busy:,} without the licence (needs {wanted})")
        return Rejection(
            "licence-sessions-used" if busy else "licence-missing",
            ", ".join(words),
            cure="release" if busy else "change",
            details={"licence": wanted},
        )

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        before, after = change.before, change.after
        if before is None or after is None:
            return after is not None
        return (before.licence, before.sessions_allowed) != (after.licence, after.sessions_allowed)

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
        before, after = change.before, change.after
        used = before is not None and before.constraints.licence is not None
        return used and (after is None or after.constraints.licence is None)


def _sessions(shape: Shape) -> str:
    return "a session" if shape.tasks == 1 else f"{shape.tasks:,} sessions"


def _covered(shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
    wanted = shape.constraints.licence
    covered = [
        licence is not None and (wanted == licence or wanted in COVERS.get(licence, ()))
        for licence in cluster.licences.values
    ]
    answer: Mask = np.array(covered, dtype=np.bool_)[cluster.licence[rows]]
    return answer
