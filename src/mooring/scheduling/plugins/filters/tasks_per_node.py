"""Only nodes below their maximum number of tasks, including tasks placed in the same pass."""

from __future__ import annotations

from mooring.model.nodes.node import Node
from mooring.model.resources.quantity import INT64_MAX
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFilter
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, OwnChange, TaskChange


class TasksPerNodeFilter:
    name = "tasks_per_node"
    depends_on: DependsOn = "row"
    kernel_filter: KernelFilter = "tasks_per_node"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        fits: Mask = cluster.max_tasks[rows] - cluster.tasks[rows] >= shape.tasks
        return fits

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        most = int(cluster.max_tasks[rows].max())
        verb = "has reached its" if len(rows) == 1 else "have reached their"
        words = f"{len(rows):,} {verb} task limit (at most {most})"
        if shape.tasks > 1:
            words = f"{len(rows):,} without capacity for {shape.tasks:,} more tasks (at most {most})"
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
