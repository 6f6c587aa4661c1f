"""Only nodes where the task's named host ports are free, and enough other ports of the node's range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.placed_tasks import excludes
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, PortsInUse
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import Described, NodeChange, TaskChange


class HostPortsFilter:
    name = "host_ports"
    depends_on: DependsOn = "row"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.host_ports or shape.constraints.ports_wanted)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.full(len(rows), not _doubled(shape))
        for port in shape.constraints.host_ports:
            mask &= cluster.placed_tasks.conflicts(port)[rows] == 0
        return mask & self._enough(shape, cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        wanted = shape.constraints.ports_wanted
        if _doubled(shape):
            doubled = f"{len(rows):,} cannot open a port for more than one task ({_named(shape)})"
            return Rejection("ports-doubled", doubled, cure="never")
        short = int((~self._enough(shape, cluster, rows)).sum())
        words = []
        if short < len(rows):
            words.append(f"{len(rows) - short:,} with a port in use that it needs ({_named(shape)})")
        if short:
            most = int((cluster.ports_offered[rows] - cluster.placed_tasks.range_used[rows]).max())
            words.append(f"{short:,} with too few free ports (needs {wanted}; the most on one node is {most})")
        possible = short < len(rows) or bool((cluster.ports_offered[rows] >= wanted).any())
        return Rejection("ports-in-use", ", ".join(words), cure="release" if possible else "change")

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        for port in shape.constraints.host_ports:
            yield KernelTerm(KernelTermKind.ANTI_AFFINITY, PortsInUse(port), NODE_NAME)

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        before, after = change.before, change.after
        if after is None or before is None or before.port_range != after.port_range:
            return after is not None
        return not set(before.occupied_ports) <= set(after.occupied_ports)

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
        return bool(_conflicting(shape.constraints, change.before) - _conflicting(shape.constraints, change.after))

    def _enough(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        """Return the rows with enough free ports in their range, where a named port may be inside the range."""
        wanted = shape.constraints.ports_wanted
        if not wanted:
            return np.ones(len(rows), dtype=np.bool_)
        wanted += len({port.port for port in shape.constraints.host_ports})
        enough: Mask = cluster.ports_offered[rows] - cluster.placed_tasks.range_used[rows] >= wanted
        return enough


def _doubled(shape: Shape) -> bool:
    """Return whether several tasks on one node would use the same port."""
    return shape.tasks > 1 and bool(shape.constraints.host_ports)


def _named(shape: Shape) -> str:
    return ", ".join(f"{port.port}/{port.protocol}" for port in shape.constraints.host_ports)


def _conflicting(wanted: Constraints, task: Described | None) -> set[HostPort]:
    """Return the ports of a task that conflict with those wanted; any port if some of the range are wanted."""
    used = () if task is None else task.constraints.host_ports
    if wanted.ports_wanted:
        return set(used)
    return {port for port in used if any(excludes(port, own) for own in wanted.host_ports)}
