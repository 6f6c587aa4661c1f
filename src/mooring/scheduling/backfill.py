"""Backfill: work that lacks room gets a planned start on the timeline; what is behind it runs where it stays possible.

A planned start is a promise like any other, so that whoever comes later in the pass is placed by the usual rule: it
fits from now until it ends. Every pass plans anew; since nobody took what was promised, and work ends by its limit at
the latest, a planned start only ever moves to an earlier time.

Resources are planned exactly. What is asked of a node beyond them (devices, ports, other tasks there, a number of
tasks) is not foreseen: the nodes of such a plan are kept wholly from its start on. What depends on other nodes has no
planned start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

import numpy as np

from mooring.model.pools import Backfill, BackfillOrder
from mooring.model.quantity import INT64_MAX
from mooring.model.workloads import LONG_AGO, Workload
from mooring.scheduling.arrays import Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.evaluation import Evaluation, Evaluations
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.selection import own_tasks
from mooring.scheduling.shortage import Shortage
from mooring.scheduling.timeline import NEVER, time_of

_TASKS_PLANNED = 64
"""Of a workload whose tasks start one by one."""
_OTHERS_SEEN = 64
"""Workloads that wait for something else than room and are passed over before the search for heads ends."""


class Planner:
    """The planned starts of one pass."""

    def __init__(self, cluster: Cluster, evaluations: Evaluations, rules: Backfill, now: datetime) -> None:
        self._cluster = cluster
        self._evaluations = evaluations
        self._rules = rules
        self._now = now
        self._heads: Counter[str] = Counter()
        """Per pool how many workloads were planned, or could not be."""
        self._others: Counter[str] = Counter()
        """Per pool how many were looked at that wait for something else than room."""

    def is_spent(self, pool: str) -> bool:
        """As many workloads of the pool as its depth allows were looked at; others are passed over."""
        return self._heads[pool] >= self._rules.depth or self._others[pool] >= _OTHERS_SEEN

    def count(self, workload: Workload, *, lacks_room: bool) -> None:
        (self._heads if lacks_room else self._others)[workload.pool] += 1

    def has_waited_too_long(self, workload: Workload) -> bool:
        """Work without a planned start was passed by others for long enough, counted from when it could first run."""
        since = max(workload.created_at, workload.starts_at or LONG_AGO)
        return self._now - since >= timedelta(seconds=self._rules.max_bypass_seconds)

    def in_turn(self, workloads: Sequence[Workload]) -> Sequence[Workload]:
        """Those behind the planned ones, in the order in which they may fill gaps."""
        if self._rules.order is BackfillOrder.QUEUE:
            return workloads
        bands = groupby(workloads, key=lambda workload: workload.priority)
        return [workload for _, band in bands for workload in sorted(band, key=_length)]

    def plan(self, workload: Workload, shortage: Shortage, not_before: int = 0) -> datetime | None:
        """When the tasks that found no node will start at the latest, which is promised to them; None: not known."""
        count = shortage.count - (0 if shortage.undone else len(shortage.rows))
        evaluation = self._evaluations.of(shape_on_node(workload, self._cluster, shortage.count))
        if not evaluation.node_local:
            return None
        rows = self._rows(evaluation, workload)
        if workload.single_node:
            pieces = [1]
        elif shortage.least > 1:
            pieces = [count]
        else:
            pieces = [1] * min(count, _TASKS_PLANNED)
        starts = [
            self._promise(evaluation, workload, rows, piece, number, not_before) for number, piece in enumerate(pieces)
        ]
        return None if starts[0] == NEVER else time_of(starts[0])

    def _rows(self, evaluation: Evaluation, workload: Workload) -> Rows:
        """Where it may ever run and tasks can be counted on; those with the best name first."""
        cluster = self._cluster
        rows = np.flatnonzero(evaluation.may_ever & (cluster.tasks < cluster.max_tasks))
        if workload.max_per_node is not None:
            rows = rows[own_tasks(workload, cluster)[rows] < workload.max_per_node]
        return rows[np.argsort(-cluster.precedence[rows])]

    def _promise(
        self, evaluation: Evaluation, workload: Workload, rows: Rows, count: int, number: int, not_before: int
    ) -> int:
        """Promise places for so many tasks that start together; NEVER if there is no time for that."""
        timeline, demand, seconds = self._cluster.timeline, evaluation.demand, workload.longest_seconds
        most = NEVER if workload.max_per_node is None else _fewest_left(workload)
        first = max(not_before, timeline.now + 1)
        start = timeline.earliest_together(rows, demand, seconds, count, first, most_per_row=most)
        if start == NEVER:
            return NEVER
        end = None if seconds is None else start + max(seconds, 1)
        room = np.minimum(timeline.room(rows, demand, start, end), min(most, count))
        given = np.minimum(room, np.maximum(count - (np.cumsum(room) - room), 0))
        whole = _asks_beyond_slots(evaluation)
        for row, tasks in zip(rows[given > 0].tolist(), given[given > 0].tolist(), strict=True):
            amounts = {name: units * tasks for name, units in evaluation.shape.request}
            if whole or self._cluster.max_tasks[row] != INT64_MAX:
                amounts = dict(zip(self._cluster.slot_names, self._cluster.allocatable[:, row].tolist(), strict=False))
            timeline.plan(workload.pool, workload.id, (number, row), row, start, end, amounts)
        return start


def _asks_beyond_slots(evaluation: Evaluation) -> bool:
    """Whether something on the node itself may keep the task away that the timeline does not know."""
    return any(
        plugin.depends_on != "static" and not isinstance(plugin, ResourcesFilter | TasksPerNodeFilter)
        for plugin in evaluation.active.filters
    )


def _fewest_left(workload: Workload) -> int:
    """How many more of its tasks any node may have that has room for one by its limit."""
    assert workload.max_per_node is not None
    below = [count for count in workload.occupied.values() if count < workload.max_per_node]
    return max(workload.max_per_node - max(below, default=0), 1)


def _length(workload: Workload) -> int:
    return NEVER if workload.longest_seconds is None else workload.longest_seconds
