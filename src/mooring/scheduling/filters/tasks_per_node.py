"""Only nodes that carry fewer tasks than they may; tasks that were placed in the same pass count."""

from __future__ import annotations

from mooring.scheduling.columns import Cluster, Mask, Rows
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class TasksPerNodeFilter:
    name = "tasks_per_node"
    depends_on: DependsOn = "row"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return cluster.tasks[rows] < cluster.max_tasks[rows]

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        most = int(cluster.max_tasks[rows].max())
        verb = "has as many tasks as it" if len(rows) == 1 else "have as many tasks as they"
        return Rejection(
            "tasks-per-node",
            f"{len(rows):,} {verb} may (at most {most})",
            cure="release" if most > 0 else "change",
            details={"max_tasks": most},
        )
