"""The pending workloads of a pool, grouped into classes that are equally placeable, so that a long queue is tried fast.

Workloads of a class differ only in their duration. If one finds no node, the members of its class that run as long or
longer find none either until a task ends. A workload that exceeds the free amounts of all nodes together is not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.policy.pools import BackfillOrder
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Amount, Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.plugins.evaluation import Evaluation, Evaluations
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.protocols import PluginFailed

_MANY = 1 << 20
"""Maximum number of tasks counted per node, so that the sum over all nodes fits into 64 bits."""
_MAX_COUNTED = 1 << 22
"""Maximum entries in the table of requests and nodes. Requests beyond it are tried whether or not there is capacity."""
_KNOWN_A_STEP = 64
"""Workloads of known shapes that are classified in the time that one of a new shape takes."""


class PendingClasses:
    """Pending workloads, numbered in backfill order."""

    def __init__(self, cluster: Cluster, evaluations: Evaluations, due: Callable[[Workload], int]) -> None:
        """`due`: the second from which a workload may be placed."""
        self.workloads: list[Workload] = []
        self.hopeless: list[Workload] = []
        """Workloads that fit on no node, not even on an empty one."""
        self._cluster = cluster
        self._evaluations = evaluations
        self._due = due
        self._number: dict[UUID, int] = {}
        self._left = 0
        self._in_queue_order: Rows = np.empty(0, dtype=np.intp)
        self._later: list[tuple[int, int]] = []
        """The workloads that are not due yet, as (due second, number)."""
        self._shapes: dict[Shape, tuple[int, Hashable] | None] = {}
        """By shape: its request number and the class key shared by its workloads; None if a plugin failed."""
        self._classes: dict[Hashable, int] = {}
        self._requests = _Requests(cluster)

    def __len__(self) -> int:
        """Return the number of workloads that have not started."""
        return self._left

    def sort(self, queue: Sequence[Workload], order: BackfillOrder, moment: int) -> Iterator[int]:
        """Classify the workloads of `queue`, which is in queue order. Yield the cost of each part in steps."""
        members: list[_Member] = []
        for number, workload in enumerate(queue):
            known = len(self._shapes)
            found = self._request_and_class(workload)
            if found is None:
                self.hopeless.append(workload)
            else:
                members.append(_Member(workload, *found, _least_nodes(workload), length(workload), self._due(workload)))
            if len(self._shapes) > known or number % _KNOWN_A_STEP == 0:
                yield 1
        filling = _filling_order([member.workload for member in members], order)
        members = [members[position] for position in filling]
        self.workloads = [member.workload for member in members]
        self._number = {workload.id: number for number, workload in enumerate(self.workloads)}
        self._left = len(members)
        self._position = np.array(filling, dtype=np.int64)
        self._in_queue_order = np.argsort(self._position)
        numbers = np.array([member[1:] for member in members], dtype=np.int64).reshape(-1, 5)
        self._request, self._class, self._least, self._seconds, due = numbers.T.copy()
        self._pending: Mask = due <= moment
        self._later = [(int(due[number]), number) for number in np.flatnonzero(~self._pending).tolist()]
        heapify(self._later)
        yield 1 + len(queue) // _KNOWN_A_STEP

    @property
    def next_due(self) -> int | None:
        """The second at which the next workload becomes due; None if all are due."""
        return self._later[0][0] if self._later else None

    def admit(self, moment: int) -> None:
        """Make the workloads that have become due eligible for placement."""
        while self._later and self._later[0][0] <= moment:
            self._pending[heappop(self._later)[1]] = True

    def any_fits(self) -> bool:
        """Return whether there may be capacity for any due workload."""
        return bool((self._pending & self._may_fit()).any())

    def in_queue_order(self) -> Iterator[int]:
        """Yield the numbers of the due workloads in queue order."""
        yield from self._in_queue_order[self._pending[self._in_queue_order]].tolist()

    def backfill_order(self, behind: int | None) -> Iterator[int]:
        """Yield the numbers of the workloads that may find nodes: those after `behind` in queue order, or all if None.

        A workload that has not started when the next one is requested has found no node.
        """
        mask = self._pending.copy()
        if behind is not None:
            mask &= self._position > self._position[behind]
        number = -1
        while True:
            mask &= self._may_fit()
            number += 1
            ahead = mask[number:]
            if not len(ahead) or not ahead[first := int(ahead.argmax())]:
                return
            number += first
            code, seconds = self._class[number], self._seconds[number]
            yield number
            if self._pending[number]:
                mask[(self._class == code) & (self._seconds >= seconds)] = False

    def start(self, number: int) -> None:
        """Remove a workload whose tasks have all started or can never start."""
        self._pending[number] = False
        self._left -= 1

    def start_in_part(self, number: int, rest: Workload, moment: int) -> None:
        """Replace a workload by `rest`, its tasks that have not started.

        It then forms a class of its own, because its tasks elsewhere may exclude nodes.
        """
        self.workloads[number], self._pending[number] = rest, False
        self._class[number] = self._classes.setdefault(rest.id, len(self._classes))
        self._least[number] = _least_nodes(rest)
        self._enter(number, rest, moment)

    def end_in_part(self, workload_id: UUID, nodes: Sequence[UUID]) -> None:
        """Release the nodes of ended tasks if other tasks of the workload have not started."""
        number = self._number[workload_id]
        rest = self.workloads[number]
        if rest.occupied:
            occupied = Counter(dict(rest.occupied))
            occupied.subtract(nodes)
            self.workloads[number] = replace(rest, occupied=dict(+occupied))

    def among(self, ids: Iterable[UUID]) -> list[Workload]:
        """Return the workloads with these ids that are due and have not started."""
        numbers = (self._number[id] for id in ids if id in self._number)
        return [self.workloads[number] for number in numbers if self._pending[number]]

    def rest(self) -> list[Workload]:
        """Return all workloads that have not started, in queue order."""
        later = {number for _, number in self._later}
        left = (number for number in self._in_queue_order.tolist() if self._pending[number] or number in later)
        return [self.workloads[number] for number in left]

    def _enter(self, number: int, workload: Workload, moment: int) -> None:
        due = self._due(workload)
        if due <= moment:
            self._pending[number] = True
        else:
            heappush(self._later, (due, number))

    def _may_fit(self) -> Mask:
        fits: Mask = self._requests.capacity()[self._request] >= self._least
        return fits

    def _request_and_class(self, workload: Workload) -> tuple[int, int] | None:
        """Return the request number and the class number; None for a workload that fits on no node."""
        shape = shape_on_node(workload, self._cluster, len(workload.tasks))
        if shape not in self._shapes:
            try:
                evaluation = self._evaluations.of(shape)
            except PluginFailed:
                self._shapes[shape] = None
            else:
                own = None if evaluation.depends_on_slots_alone else shape
                self._shapes[shape] = (self._requests.add(evaluation), own)
        found = self._shapes[shape]
        if found is None or self._requests.when_empty(found[0]) < _least_nodes(workload):
            return None
        request, rest = found
        rules = (gang_size(workload), workload.max_per_node, workload.pack, workload.spread, workload.single_node)
        key = (request, rest, rules, workload.id if workload.occupied else None)
        return request, self._classes.setdefault(key, len(self._classes))


class _Member(NamedTuple):
    """A workload with the numbers that `PendingClasses` holds in its arrays."""

    workload: Workload
    request: int
    code: int
    least: int
    seconds: int
    due: int


class _Requests:
    """Table of how many times each request fits on each node, by the node's free amounts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number: dict[Hashable, int] = {}
        self._when_empty: list[int] = []
        self._demands: list[dict[int, int]] = []
        self._masks: list[Mask] = []
        self._seen = -1
        self._amounts: Amount = np.zeros((0, 0, 1), dtype=np.int64)
        self._may: Mask = np.zeros((0, 0), dtype=np.bool_)
        self._table: Amount = np.zeros((0, 0), dtype=np.int64)
        self._capacity: Amount = np.zeros(0, dtype=np.int64)

    def add(self, evaluation: Evaluation) -> int:
        """Return the number of a shape's request on its eligible nodes; equal requests share one number."""
        cluster, demand = self._cluster, dict[int, int]()
        for plugin in evaluation.active.filters:
            if isinstance(plugin, ResourcesFilter):
                looked_at = plugin.demand(evaluation.shape, cluster)
                demand |= dict(zip(looked_at.slots[:, 0].tolist(), looked_at.amounts[:, 0].tolist(), strict=True))
        mask = evaluation.may_ever.copy()
        key = (tuple(demand.items()), mask.tobytes())
        if key not in self._number:
            self._number[key] = len(self._demands)
            self._demands.append(demand)
            self._masks.append(mask)
            rows = np.flatnonzero(mask)
            amounts = self._upright([demand])
            self._when_empty.append(int(_times(amounts, cluster.allocatable[:, rows]).sum()))
            self._seen = -1
        return self._number[key]

    def when_empty(self, number: int) -> int:
        """Return how many times the request fits on all nodes together if they are empty."""
        return self._when_empty[number]

    def capacity(self) -> Amount:
        """Return how many times each request fits on all nodes together by the amounts free now."""
        cluster = self._cluster
        rows = None if self._seen < 0 else cluster.changes.since(self._seen)
        self._seen = cluster.changes.revision
        if rows is None:
            self._count_all()
        elif len(rows):
            free = cluster.allocatable[: self._amounts.shape[1], rows] - cluster.taken[: self._amounts.shape[1], rows]
            now = np.where(self._may[:, rows], _times(self._amounts, free), 0)
            counted = len(now)
            self._capacity[:counted] += (now - self._table[:, rows]).sum(axis=1)
            self._table[:, rows] = now
        return self._capacity

    def _count_all(self) -> None:
        cluster = self._cluster
        counted = min(len(self._demands), max(_MAX_COUNTED // cluster.capacity, 1))
        self._amounts = self._upright(self._demands[:counted])
        self._may = np.array(self._masks[:counted], dtype=np.bool_).reshape(counted, cluster.capacity)
        self._capacity = np.full(len(self._demands), _MANY, dtype=np.int64)
        self._table = np.zeros((counted, cluster.capacity), dtype=np.int64)
        free = cluster.allocatable - cluster.taken
        for number in range(counted):
            times = _times(self._amounts[number : number + 1], free)[0]
            self._table[number] = np.where(self._may[number], times, 0)
        self._capacity[:counted] = self._table.sum(axis=1)

    def _upright(self, demands: Sequence[dict[int, int]]) -> Amount:
        """Return the amounts as [request, slot, 1]."""
        amounts = np.zeros((len(demands), len(self._cluster.allocatable), 1), dtype=np.int64)
        for number, demand in enumerate(demands):
            amounts[number, list(demand), 0] = list(demand.values())
        return amounts


def _times(amounts: Amount, free: Amount) -> Amount:
    """Return how many times each request fits into the free amounts, as [request, row]."""
    times = np.where(amounts > 0, free[None] // np.maximum(amounts, 1), _MANY).min(axis=1, initial=_MANY)
    whole: Amount = np.maximum(times, 0)
    return whole


def _filling_order(queue: Sequence[Workload], order: BackfillOrder) -> list[int]:
    """Return the queue positions in backfill order."""
    if order is BackfillOrder.QUEUE:
        return list(range(len(queue)))
    bands = groupby(range(len(queue)), key=lambda position: queue[position].priority)
    return [position for _, band in bands for position in sorted(band, key=lambda each: length(queue[each]))]


def _least_nodes(workload: Workload) -> int:
    """Return how many times the request has to fit for any task of the workload to start."""
    return 1 if workload.single_node else max(gang_size(workload), 1)


def length(workload: Workload) -> int:
    """Return the expected run time in seconds; INT64_MAX without an end."""
    return INT64_MAX if workload.expected_seconds is None else workload.expected_seconds
