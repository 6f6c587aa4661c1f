"""Only nodes where the ports that the task names are free, and enough of those that it wants any of."""

from __future__ import annotations

import numpy as np

from mooring.model.constraints import Constraints, HostPort
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.hints import Described, NodeChange, TaskChange
from mooring.scheduling.placed import excludes
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class HostPortsFilter:
    name = "host_ports"
    depends_on: DependsOn = "row"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.host_ports or shape.constraints.ports_wanted)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.full(len(rows), not _doubled(shape))
        for port in shape.constraints.host_ports:
            mask &= cluster.placed.conflicts(port)[rows] == 0
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
            most = int((cluster.ports_offered[rows] - cluster.placed.range_used[rows]).max())
            words.append(f"{short:,} with too few free ports (needs {wanted}; the most on one node is {most})")
        possible = short < len(rows) or bool((cluster.ports_offered[rows] >= wanted).any())
        return Rejection("ports-in-use", ", ".join(words), cure="release" if possible else "change")

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        before, after = change.before, change.after
        return after is not None and (before is None or before.port_range != after.port_range)

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
        return bool(_in_the_way(shape.constraints, change.before) - _in_the_way(shape.constraints, change.after))

    def _enough(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        """A named port inside the range is one less to give away; that it is free was asked for already."""
        wanted = shape.constraints.ports_wanted
        if not wanted:
            return np.ones(len(rows), dtype=np.bool_)
        wanted += len({port.port for port in shape.constraints.host_ports})
        enough: Mask = cluster.ports_offered[rows] - cluster.placed.range_used[rows] >= wanted
        return enough


def _doubled(shape: Shape) -> bool:
    """Several tasks on one node name the same port."""
    return shape.tasks > 1 and bool(shape.constraints.host_ports)


def _named(shape: Shape) -> str:
    return ", ".join(f"{port.port}/{port.protocol}" for port in shape.constraints.host_ports)


def _in_the_way(wanted: Constraints, task: Described | None) -> set[HostPort]:
    """The ports of a task that keep another one away; any port does where some of a range are wanted."""
    used = () if task is None else task.constraints.host_ports
    if wanted.ports_wanted:
        return set(used)
    return {port for port in used if any(excludes(port, own) for own in wanted.host_ports)}
