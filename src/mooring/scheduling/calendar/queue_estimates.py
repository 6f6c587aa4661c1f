"""Estimated starts of a whole queue, a bounded number of steps at a time.

The pool's own passes are simulated (see `estimates`) on a copy of its nodes, so that the simulation can continue after
any number of real passes. Each node is copied at one moment, so its taken amounts and its promises agree.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.cluster_copy import copy_node, copy_plans, empty_copy
from mooring.scheduling.calendar.estimates import RunSeconds, Simulation
from mooring.scheduling.calendar.future_cluster import Future
from mooring.scheduling.calendar.promises import Promise
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import PluginFailed
from mooring.scheduling.scheduler import Scheduler

_STEPS_OF_A_WORKLOAD, _FEWEST_STEPS = 8, 20_000
"""Simulation steps per workload, and their minimum in total. The remaining workloads are estimated in queue order."""
_PROMISES_A_STEP = 32


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated start of a workload; None if there is none."""

    workload_id: UUID
    start: datetime | None


class ExpectedEnd(NamedTuple):
    """The expected end of a running task, where it is earlier than its time limit or the task has no limit."""

    node_id: UUID
    ends_at: datetime
    request: Amounts
    devices: tuple[DeviceShare, ...] = ()


NO_ENDS: Mapping[UUID, ExpectedEnd] = MappingProxyType({})


def until_limit(workload: Workload) -> int | None:
    return workload.time_limit_seconds


class QueueEstimates:
    """The estimates of one pool's queue, in the order of their starts."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool: str,
        queue: Sequence[Workload],
        now: datetime,
        *,
        run_seconds: RunSeconds = until_limit,
        ends: Mapping[UUID, ExpectedEnd] = NO_ENDS,
    ) -> None:
        """`queue` is in the order of `Scheduler.queue_order`.

        `run_seconds`: the expected run time of pending work. `ends`: by task, the expected ends of running work that
        differ from its time limit. Planned starts and backfill still use time limits.
        """
        self.done = False
        self._scheduler = scheduler
        self._pool = pool
        self._queue = [each for each in queue if each.booking is None]
        self._now = now
        self._run_seconds = run_seconds
        self._ends = ends
        self._simulation: Simulation | None = None
        self._reported = 0
        self._work = self._run()

    def advance(self, steps: int) -> list[Estimate]:
        """Run the next `steps` and return the estimates that they find."""
        while steps > 0 and not self.done:
            try:
                cost = next(self._work, None)
            except PluginFailed:
                cost = None
            if cost is None:
                self.done = True
            else:
                steps -= cost
        if self._simulation is None:
            return []
        starts, found = self._simulation.starts, self._simulation.found[self._reported :]
        self._reported += len(found)
        return [Estimate(workload_id, starts[workload_id]) for workload_id in found]

    def _run(self) -> Iterator[int]:
        cluster, copy = self._scheduler.cluster, empty_copy(self._scheduler.cluster)
        for row in cluster.rows_of_pool(self._pool).tolist():
            node = cluster.nodes[row]
            if node is not None and node.pool == self._pool:
                yield 1 + copy_node(cluster, row, copy) // _PROMISES_A_STEP
        now = seconds_of(self._now)
        copy.timeline.advance(now)
        future = self._future(copy)
        copy_plans(cluster, self._pool, copy)
        ahead = self._scheduler.ahead(copy, self._queue)
        simulation = self._simulation = Simulation(copy, self._queue, future, ahead, self._run_seconds)
        yield 1 + len(copy.timeline) // _PROMISES_A_STEP
        left = max(_FEWEST_STEPS, _STEPS_OF_A_WORKLOAD * len(self._queue))
        for cost in simulation.run(now):
            yield cost
            left -= cost
            if left < 0:
                yield from simulation.plan_rest()
                return

    def _future(self, copy: Cluster) -> Future:
        ends: dict[Hashable, int] = {}
        unpromised: list[tuple[Hashable, Promise]] = []
        for task_id, expected in self._ends.items():
            row, end = copy.row_of(expected.node_id), seconds_of(expected.ends_at)
            if copy.timeline.get(task_id) is not None:
                ends[task_id] = end
            elif row is not None:
                amounts = tuple((copy.slot(name), amount) for name, amount in expected.request.items())
                footprint = Footprint(None, expected.devices)
                unpromised.append((task_id, Promise(row, None, max(end, copy.timeline.now + 1), amounts, footprint)))
        return Future(copy, copy.rows.tolist(), prompt=True, ends=ends, unpromised=unpromised)
