"""One call of the placement kernels: the workloads in it, and the placements that it found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout

_MAX_LIMIT = 1 << 30


class Batch:
    """Workloads that are placed in one call."""

    __slots__ = ("entries", "limited", "task_codes")

    def __init__(self) -> None:
        self.entries: list[tuple[Workload, int, int, int]] = []
        """Each workload with the code of its shape, the number of its tasks, and the least number to place."""
        self.limited: list[int] = []
        """The positions of those that limit or spread their own tasks per node."""
        self.task_codes: dict[int, int] = {}
        """By position the code of one task's shape, for workloads whose tasks all go to one node."""

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, workload: Workload, code: int, count: int, *, min_tasks: int = 0) -> None:
        if workload.max_per_node is not None or workload.spread:
            self.limited.append(len(self.entries))
        self.entries.append((workload, code, count, min_tasks))


@dataclass(frozen=True, slots=True)
class Placements:
    """The answer of the kernels for a batch, or for the first `decided` workloads of it.

    The placements of workload `i` are `start[i]` to `start[i] + found[i]`.
    """

    rows: list[int]
    scores: list[int]
    start: list[int]
    found: list[int]
    feasible: list[int]
    devices: list[tuple[DeviceShare, ...]]
    decided: int


def queue_of(batch: Batch, cluster: Cluster) -> layout.Queue:
    """Return a batch as the arrays that the kernels read."""
    workloads, codes, counts, min_tasks = zip(*batch.entries, strict=True)
    size = len(batch)
    task_shape = np.full(size, -1, dtype=np.int32)
    task_shape[list(batch.task_codes)] = list(batch.task_codes.values())
    limit = np.zeros(size, dtype=np.int32)
    spread = np.zeros(size, dtype=np.uint8)
    own_start = np.zeros(size + 1, dtype=np.int32)
    own_rows: list[int] = []
    own_counts: list[int] = []
    for index in batch.limited:
        workload = workloads[index]
        limit[index] = min(workload.max_per_node or 0, _MAX_LIMIT)
        spread[index] = workload.spread
        before = len(own_rows)
        for node_id, tasks in workload.occupied.items():
            row = cluster.row_of(node_id)
            if row is not None and tasks > 0:
                own_rows.append(row)
                own_counts.append(tasks)
        own_start[index + 1] = len(own_rows) - before
    np.cumsum(own_start, out=own_start)
    count = np.array(counts, dtype=np.int32)
    start = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(count, out=start[1:])
    return layout.Queue(
        shape=np.array(codes, dtype=np.int32),
        tasks=count,
        min_tasks=np.array(min_tasks, dtype=np.int32),
        task_shape=task_shape,
        limit=limit,
        spread=spread,
        own_start=own_start,
        own_rows=np.array(own_rows or [0], dtype=np.int32),
        own_counts=np.array(own_counts or [0], dtype=np.int32),
        start=start,
    )


def new_results(queue: layout.Queue) -> layout.Results:
    """Return the arrays that the kernels write the placements of a queue to."""
    workloads, placements = len(queue.shape), max(int(queue.start[-1]), 1)
    return layout.Results(
        keys=np.zeros(placements, dtype=np.int64),
        found=np.zeros(workloads, dtype=np.int32),
        feasible=np.zeros(workloads, dtype=np.int32),
        devices=np.zeros(placements, dtype=np.int64),
    )
