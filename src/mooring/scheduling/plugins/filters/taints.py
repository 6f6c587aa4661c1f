"""Only nodes whose NoSchedule and NoExecute taints the task tolerates."""

from __future__ import annotations

from collections import Counter

from mooring.model.workloads.constraints import Taint
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.node_matching import HARD, tolerated, untolerated
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import OwnChange


class TaintsFilter:
    name = "taints"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(untolerated(taints, shape.constraints.tolerations, HARD) for taints in cluster.taint_sets.values)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return tolerated(shape.constraints, cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        """Return the rejection. Each node counts for its first taint that is not tolerated."""
        first: Counter[Taint] = Counter()
        for code, count in Counter(cluster.taints[rows].tolist()).items():
            first[untolerated(cluster.taint_sets.values[code], shape.constraints.tolerations, HARD)[0]] += count
        words = [f"{count:,} with untolerated taint {taint}" for taint, count in first.most_common(3)]
        rest = len(rows) - sum(count for _, count in first.most_common(3))
        if rest:
            words.append(f"{rest:,} with other untolerated taints")
        return Rejection(
            "taint-not-tolerated",
            ", ".join(words),
            details={"taints": {str(taint): count for taint, count in first.items()}},
        )

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        return change.before.constraints.tolerations != change.after.constraints.tolerations
