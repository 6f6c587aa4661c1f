"""Only nodes that are ready and schedulable."""

from __future__ import annotations

from collections import Counter

from mooring.model.lifecycle import NodeStatus
from mooring.model.workloads.constraints import Constraints, Taint
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import OwnChange

NOT_READY = "node-not-ready"
_LEAVING = ("drained", "draining")
CORDON = Taint("node.kubernetes.io/unschedulable")
"""A task that tolerates this taint may run on a cordoned node."""


class ReadyFilter:
    name = "ready"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        ready = cluster.ready[rows]
        if _tolerates_cordon(shape.constraints):
            ready = ready | cluster.cordoned[rows]
        return ready

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        found = Counter(state for row in rows if (state := _state(cluster, int(row))) is not None)
        if len(found) == 1 and found.total() == len(rows) and (only := next(iter(found))) in _LEAVING:
            words = f"{len(rows):,} {only}"
        else:
            states = ", ".join(f"{number:,} {state}" for state, number in sorted(found.items()))
            words = f"{len(rows):,} not ready" + (f" ({states})" if states else "")
        return Rejection(NOT_READY, words, details=dict(sorted(found.items())))

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        return _tolerates_cordon(change.after.constraints)


def _state(cluster: Cluster, row: int) -> str | None:
    """Return the state of a node that an administrator would ask about; None if there is nothing more to say."""
    node = cluster.nodes[row]
    if node is None or node.status is NodeStatus.READY:
        return None
    # An explanation of placed work takes its tasks out of the columns, but they are still on the node.
    if node.status is NodeStatus.DRAINING and not (node.tasks or cluster.tasks[row]):
        return "drained"
    return node.status.lower()


def _tolerates_cordon(constraints: Constraints) -> bool:
    return any(toleration.tolerates(CORDON) for toleration in constraints.tolerations)
