"""Only nodes that carry fewer tasks than they may; tasks that were placed in the same pass count."""

from __future__ import annotations

from mooring.model.nodes import Node
from mooring.model.quantity import INT64_MAX
from mooring.scheduling.columns import Cluster, Mask, Rows
from mooring.scheduling.hints import NodeChange, OwnChange, TaskChange
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

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        return _most(change.after) > _most(change.before)

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
        return change.before is not None and change.after is None

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        return False


def _most(node: Node | None) -> int:
    if node is None:
        return 0
    return INT64_MAX if node.max_tasks is None else node.max_tasks
