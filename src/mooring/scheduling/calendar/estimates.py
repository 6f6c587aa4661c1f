"""Estimated starts: the scheduler's own passes over a queue, simulated ahead of time.

An estimate assumes that nothing else is submitted and that every task runs as long as expected and then stops at once.
The simulated passes decide as real ones do: they select nodes by score, backfill short work, and plan starts with the
tasks' stop grace. Work that is backfilled in reality is therefore backfilled in the estimate as well. Unlike a real
pass, a simulated one skips workloads that certainly find no node (see `pending_classes`).

The simulation proceeds in steps, each about as long as trying one workload, so that it can be bounded and interrupted.
Workloads that have not started when the bound is reached are planned on the timeline one after the other, from the
moment reached; that costs one step each and follows the queue strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple, Protocol
from uuid import UUID

from mooring.model.decisions import Decision, Outcome
from mooring.model.policy.pools import BackfillOrder
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.future_cluster import Future, future_of
from mooring.scheduling.calendar.seconds import seconds_of, time_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.explanation import forget
from mooring.scheduling.plugins.evaluation import Evaluations
from mooring.scheduling.queue.pending_classes import PendingClasses

_STEPS_OF_A_PLAN = 2
"""The additional cost of a workload whose start is planned."""
_SKIPPED_A_STEP = 64
"""Hopeless workloads that are skipped in the time that it takes to try one."""

RunSeconds = Callable[[Workload], int | None]
"""The expected run time of a workload's tasks in seconds; None: indefinite."""


class OpenPass(Protocol):
    """A pass to which workloads are offered one at a time."""

    @property
    def plans(self) -> bool:
        """Whether the next workload that finds no node gets a planned start, or blocks others."""

    @property
    def is_blocked(self) -> bool:
        """Whether nothing more may start in this pass."""

    def is_hopeless(self, workload: Workload) -> bool:
        """Return whether a workload alike found no node in this pass and no moment at which it could start."""

    def offer(self, workload: Workload) -> Decision: ...


class Ahead(NamedTuple):
    """The scheduler of a pool, as used by a simulation."""

    open_pass: Callable[[Sequence[Workload], datetime], AbstractContextManager[OpenPass]]
    """Begin a pass, given the workloads that have planned starts."""
    plan_in_order: Callable[[Sequence[Workload], datetime], Iterator[tuple[UUID, datetime | None]]]
    """Estimate starts strictly in queue order from a moment on."""
    evaluations: Evaluations
    order: BackfillOrder


def estimated_starts(
    cluster: Cluster,
    queue: Sequence[Workload],
    now: datetime,
    ahead: Ahead,
    *,
    last: UUID | None,
    steps: int,
    most_in_order: int,
) -> dict[UUID, datetime]:
    """Return the estimated starts of the workloads of one pool; those without an entry have no known start.

    With `last`, the search ends once that workload has started. When the steps are spent, `most_in_order` of the
    remaining workloads are estimated in queue order. The cluster is left unchanged.
    """
    timeline, pools = cluster.timeline, {workload.pool for workload in queue}
    timeline.advance(seconds_of(now))
    with cluster.without_journal(), timeline.undone():
        suspended = timeline.suspend_plans(timeline.planned_owners(pools))
        rows = [row for pool in pools for row in cluster.rows_of_pool(pool).tolist()]
        with future_of(cluster, rows, prompt=True) as future:
            timeline.resume_plans(suspended)
            simulation = Simulation(cluster, queue, future, ahead)
            work = simulation.run(seconds_of(now))
            try:
                for cost in work:
                    steps -= cost
                    if steps < 0 or last in simulation.starts:
                        break
                # End the current pass, which withholds the needs of planned starts.
                work.close()
                if steps < 0 and last not in simulation.starts:
                    for _ in simulation.plan_rest(most_in_order):
                        pass
            finally:
                work.close()
                simulation.undo()
    return {id: start for id, start in simulation.starts.items() if start is not None}


class Simulation:
    """Simulated passes from now on, with the tasks that they have placed."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Sequence[Workload],
        future: Future,
        ahead: Ahead,
        run_seconds: RunSeconds = lambda workload: workload.time_limit_seconds,
    ) -> None:
        self.starts: dict[UUID, datetime | None] = {}
        """The starts found so far; None for workloads without one."""
        self.found: list[UUID] = []
        """The workloads with a result, in the order in which it was found."""
        self._cluster = cluster
        self._queue = [each for each in queue if not each.gates and each.booking is None]
        self._future = future
        self._ahead = ahead
        self._run_seconds = run_seconds
        self._pending = PendingClasses(cluster, ahead.evaluations, _due)
        self._running: list[tuple[int, int, Decision]] = []
        """By the second at which their tasks end; the number prevents comparison of decisions."""
        self._endless: list[Decision] = []
        self._number = 0
        self._moment = 0

    def run(self, moment: int) -> Generator[int, None, None]:
        """Run passes from a moment on until nothing more starts. Yield the cost of each part in steps."""
        self._moment = moment
        self._move_to(moment)
        yield from self._pending.sort(self._queue, self._ahead.order, moment)
        self._without_start(self._pending.hopeless)
        while True:
            self._pending.admit(self._moment)
            if self._pending.any_fits():
                yield from self._pass()
            following = self._next_moment() if len(self._pending) else None
            if following is None:
                break
            yield self._move_to(following) // 32
        self._without_start(self._pending.rest())

    def plan_rest(self, most: int | None = None) -> Iterator[int]:
        """Estimate the remaining workloads strictly in queue order. Yield the cost of each in steps."""
        rest = [each for each in self._pending.rest() or self._queue if each.id not in self.starts]
        for workload_id, start in self._ahead.plan_in_order(rest[:most], time_of(self._moment)):
            self._note(workload_id, start)
            yield 1

    def undo(self) -> None:
        """Remove the placed tasks from the cluster."""
        for decision in (*self._endless, *(decision for _, _, decision in self._running)):
            forget(self._cluster, decision)
        self._running, self._endless = [], []

    def _pass(self) -> Iterator[int]:
        pending, behind, skipped = self._pending, None, 0
        planned = pending.among(self._cluster.timeline.planned_owners({self._queue[0].pool}))
        with self._ahead.open_pass(planned, time_of(self._moment)) as current:
            for number in pending.in_queue_order():
                if not current.plans:
                    break
                behind = number
                if current.is_hopeless(pending.workloads[number]):
                    skipped += 1
                    if skipped % _SKIPPED_A_STEP == 0:
                        yield 1
                    continue
                placed = self._offer(current, number)
                yield 1 if placed else 1 + _STEPS_OF_A_PLAN
                if current.is_blocked:
                    return
            for number in pending.backfill_order(behind):
                self._offer(current, number)
                yield 1

    def _offer(self, current: OpenPass, number: int) -> bool:
        """Try a workload; return False if none of its tasks started."""
        decision = current.offer(self._pending.workloads[number])
        workload, placements = decision.workload, decision.placements
        if decision.outcome in (Outcome.IMPOSSIBLE, Outcome.ERROR):
            self._pending.start(number)
            self._note(workload.id, None)
            return False
        if not placements:
            return False
        self._note(workload.id, time_of(self._moment))
        seconds = self._run_seconds(workload)
        if seconds is None:
            self._endless.append(decision)
        else:
            self._number += 1
            heappush(self._running, (self._moment + max(seconds, 1), self._number, decision))
        placed = {placement.task_id for placement in placements}
        left = tuple(task for task in workload.tasks if task.id not in placed)
        if not left:
            self._pending.start(number)
            return True
        occupied = dict(workload.occupied)
        for placement in placements:
            occupied[placement.node_id] = occupied.get(placement.node_id, 0) + 1
        self._pending.start_in_part(number, replace(workload, tasks=left, occupied=occupied), self._moment)
        return True

    def _note(self, workload_id: UUID, start: datetime | None) -> None:
        """Note the first start of a workload."""
        if workload_id not in self.starts:
            self.starts[workload_id] = start
            self.found.append(workload_id)

    def _without_start(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            self._note(workload.id, None)

    def _move_to(self, moment: int) -> int:
        """Move to a moment, end the tasks that end by then, and return the number of changes."""
        self._moment = moment
        ended = self._future.move_to(moment, None)
        while self._running and self._running[0][0] <= moment:
            _, _, decision = heappop(self._running)
            forget(self._cluster, decision)
            self._pending.end_in_part(decision.workload.id, [each.node_id for each in decision.placements])
            ended += 1
        return ended

    def _next_moment(self) -> int | None:
        """Return the next second at which a task ends or a workload becomes due."""
        ends = self._running[0][0] if self._running else None
        moments = (ends, self._future.next_moment(self._moment), self._pending.next_due)
        return min((each for each in moments if each is not None), default=None)


def _due(workload: Workload) -> int:
    """Return the second from which the workload, or the first of its tasks, may be placed."""
    tasks = min((0 if task.not_before is None else seconds_of(task.not_before) for task in workload.tasks), default=0)
    return max(tasks, 0 if workload.starts_at is None else seconds_of(workload.starts_at))
