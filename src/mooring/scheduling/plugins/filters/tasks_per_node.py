"""Only nodes that carry fewer tasks than they may; tasks that were placed in the same pass count."""

from __future__ import annotations

from mooring.model.nodes import Node
from mooring.model.quantity import INT64_MAX
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.hints import NodeChange, OwnChange, TaskChange
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class TasksPerNodeFilter:
    name = "tasks_per_node"
    depends_on: DependsOn = "row"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        room: Mask = cluster.max_tasks[rows] - cluster.tasks[rows] >= shape.tasks
        return room

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        most = int(cluster.max_tasks[rows].max())
        verb = "has as many tasks as it" if len(rows) == 1 else "have as many tasks as they"
        words = f"{len(rows):,} {verb} may (at most {most})"
        if shape.tasks > 1:
            words = f"{len(rows):,} without room for {shape.tasks:,} more tasks (at most {most})"
        return Rejection(
            "tasks-per-node",
            words,
            cure="release" if most >= shape.tasks else "change",
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
