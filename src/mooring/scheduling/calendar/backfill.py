"""Backfill: work that lacks capacity gets a planned start on the timeline; work behind it runs in the gaps.

A plan exists only where there is a moment at which the work fits in every respect. Work that requests only amounts of
slots is planned on the timeline. For all other work (devices, ports, licences, the number of tasks on a node, other
tasks) the ordinary node selection is tried on the cluster as it will be at that moment (see `future_cluster`). The
plan withholds exactly what that selection takes, and nothing if no moment is found.

A planned start is a promise like any other, so that work behind it is placed by the usual rule: it fits from now until
it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision
from mooring.model.policy.pools import Backfill, BackfillOrder
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import LONG_AGO, Workload
from mooring.scheduling.calendar.planned_starts import StartSearch, not_planned
from mooring.scheduling.calendar.seconds import seconds_of, time_of
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.calendar.timeline import Suspended
from mooring.scheduling.cluster.arrays import Amount, Rows
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.gangs import shape_on_node, tasks_that_fit
from mooring.scheduling.node_selection import own_tasks
from mooring.scheduling.plugins.evaluation import Evaluation, Evaluations
from mooring.scheduling.plugins.protocols import PluginFailed
from mooring.scheduling.queue.pending_classes import length

_TASKS_PLANNED = 64
"""Maximum planned tasks of a workload whose tasks start independently."""
_UNPLANNED_SEEN = 64
"""Workloads without a planned start that are passed over before the search for further plans ends. Workloads that are
alike count once."""

_MAX_PASSED_OVER = 10_000
"""Workloads remembered as passed over; a forgotten one may make standing plans give way."""
_STEPS = 20_000
"""Planned starts on small pools for which one pass has time; on large pools each counts for more."""
_ROWS_A_STEP = 64
_MOST_SUMMED = 2_000
"""Up to this many promises, summing all that running tasks release takes less time than a new plan."""


class Planned(NamedTuple):
    """The latest start of tasks that found no node, or the reason why it is unknown."""

    start: datetime | None
    why: Reason | None = None


class Held(NamedTuple):
    """The decision on a workload with a planned start, which holds as long as nothing in the cluster changes."""

    decision: Decision
    unplaced: UnplacedTasks
    revisions: tuple[int, int]
    """The revisions of the columns and of the timeline with the plan."""


class PlanMemory:
    """The part of the planned starts that outlasts a pass."""

    def __init__(self) -> None:
        self.passed_over: dict[UUID, None] = {}
        """Pending workloads whose start could not be planned."""
        self.held: Held | None = None
        """The last decision on a workload with the only planned start."""


class Planner:
    """The planned starts of one pass.

    Plans of the last pass stand until their workload is offered. It is then planned anew while the plans of all
    others stand, so that it is never planned later than before: its old placement is still available. Only work ahead
    of it in the queue without a planned start makes the plans behind it give way, unless that work could not be planned
    in an earlier pass: the workloads behind it were promised their starts since.
    """

    def __init__(
        self,
        cluster: Cluster,
        evaluations: Evaluations,
        rules: Backfill,
        now: datetime,
        memory: PlanMemory | None = None,
    ) -> None:
        """`memory`: what earlier passes noted; this pass adds to it."""
        self._cluster = cluster
        self._evaluations = evaluations
        self._rules = rules
        self._now = now
        self._memory = PlanMemory() if memory is None else memory
        self._passed_over = self._memory.passed_over
        self._start_search: StartSearch | None = None
        self._heads: Counter[str] = Counter()
        """Number of workloads with a planned start, by pool."""
        self._unplanned: dict[str, dict[Hashable, Planned]] = {}
        """By pool, the results for workloads without a planned start, valid in this pass: capacity only shrinks in it.

        The key includes whether the workload was passed over: if so, plans behind it stood when it was planned.
        """
        self._renewed: set[UUID] = set()
        """Workloads that are planned while the plans of others stand, which may determine the result."""
        self._previous: dict[UUID, str] = {}
        """The workloads, with their pools, whose planned starts of the last pass still stand."""
        self._steps = _STEPS
        self._on_slots = False
        """Whether the last plan was made on the timeline."""

    def begin(self, workloads: Iterable[Workload]) -> None:
        """Begin a pass over these workloads: drop the planned starts of all others in their pools."""
        pools = {workload.pool for workload in workloads}
        planned = self._cluster.timeline.planned_owners(pools)
        if planned:
            self._previous = {workload.id: workload.pool for workload in workloads if workload.id in planned}
            self._cluster.timeline.drop_plans(pools, keep=self._previous)

    def has_previous_plan(self, workload: Workload) -> bool:
        """Return whether the workload has a planned start from the last pass."""
        return bool(self._previous) and workload.id in self._previous

    def renew(self, workload: Workload) -> None:
        """Drop a workload's plan, if it still stands, before it is placed: its own plan must not block it."""
        if self._previous and self._previous.pop(workload.id, None) is not None:
            self._renewed.add(workload.id)
            self._discard(self._cluster.timeline.suspend_plans([workload.id]))

    def hold(self, workload: Workload) -> Held | None:
        """Keep a workload's plan of the last pass if a new one would be the same, and return the decision on it.

        While nothing changes but the time, amounts are only ever promised from some time on, never released: what did
        not fit when it was planned does not fit before the planned start. After other changes the start is computed
        again, which mostly gives the same: most tasks that end are not those that the workload waits for.
        """
        held = self._memory.held
        if held is None or held.decision.workload is not workload:
            return None
        assert held.decision.planned_start is not None
        start = seconds_of(held.decision.planned_start)
        if start <= self._cluster.timeline.now:
            return None
        if held.revisions != self._revisions:
            held = self._tried_anew(workload, held, start)
            if held is None:
                return None
            self._memory.held = held
        del self._previous[workload.id]
        self._heads[workload.pool] += 1
        return held

    def _tried_anew(self, workload: Workload, held: Held, start: int) -> Held | None:
        """Return the decision of a new attempt if that would end in the same plan; None if not, or if it is unknown.

        It is known for the only planned start, of one task or a gang that requests slots. Without other promises,
        capacity only grows with time, as running tasks end: the gang starts once enough has been released.
        """
        timeline, count = self._cluster.timeline, len(workload.tasks)
        is_plain = not workload.single_node and workload.max_per_node is None and not workload.occupied
        is_whole_gang = max(held.unplaced.least, 1) == held.unplaced.count == count
        if not (is_plain and is_whole_gang and timeline.has_no_promises_but(workload.id)):
            return None
        if len(timeline) > _MOST_SUMMED:
            return None
        shape = shape_on_node(workload, self._cluster, count)
        evaluation, feasible_nodes = self._evaluations.of_lacking(shape), 0
        if evaluation is None:
            try:
                evaluation = self._evaluations.of(shape)
            except PluginFailed:
                return None
            feasible_nodes = int(np.count_nonzero(evaluation.feasible))
            if tasks_that_fit(evaluation, own_tasks(workload, self._cluster), None).sum() >= count:
                return None
        if not evaluation.depends_on_slots_alone or not evaluation.node_local:
            return None
        seconds = timeline.planned_seconds(workload)
        window = start, None if seconds is None else start + max(seconds, 1)
        plan = [each.promise for each in timeline.plans_of(workload.pool)]
        if any((each.start, each.end) != window for each in plan):
            return None
        rows = self._rows(evaluation, workload)
        before, then = timeline.capacities_without(plan, rows, evaluation.demand, (start - 1, start))
        if (start > timeline.now + 1 and before.sum() >= count) or then.sum() < count:
            return None
        if _shared_out(then, rows, count) != {each.row: each.tasks for each in plan}:
            return None
        decision = held.decision._replace(feasible_nodes=feasible_nodes)
        return Held(decision, held.unplaced, self._revisions)

    def remember(self, decision: Decision, unplaced: UnplacedTasks) -> None:
        """Remember the decision on a workload with a planned start, for `hold`.

        Next to other promises the number of feasible nodes changes with the time, and the start of work that requests
        more than slots is searched for among a part of the moments.
        """
        alone = self._cluster.timeline.has_no_promises_but(decision.workload.id)
        if decision.planned_start is not None and alone and self._on_slots:
            self._memory.held = Held(decision, unplaced, self._revisions)

    @property
    def _revisions(self) -> tuple[int, int]:
        return self._cluster.changes.revision, self._cluster.timeline.revision

    def give_way(self, pool: str) -> list[Suspended]:
        """Suspend the plans of work behind a workload that has no plan itself."""
        suspended = self._cluster.timeline.suspend_plans([id for id, of in self._previous.items() if of == pool])
        self._cluster.plans.renew({each.promise.row for each in suspended})
        return suspended

    def settle(self, suspended: Sequence[Suspended], *, stand: bool) -> None:
        """Restore suspended plans (`stand`), or drop them."""
        if stand:
            self._cluster.timeline.resume_plans(suspended)
            self._cluster.plans.renew({each.promise.row for each in suspended})
            return
        for each in suspended:
            self._previous.pop(each.owner, None)
        self._discard(suspended)

    def drop_previous_plans(self) -> None:
        """Drop the plans that still stand from the last pass: none of their workloads was offered."""
        if self._previous:
            self.settle(self._cluster.timeline.suspend_plans(self._previous), stand=False)
            self._previous = {}

    def _discard(self, suspended: Sequence[Suspended]) -> None:
        self._cluster.timeline.discard_plans(suspended)
        self._cluster.plans.renew({each.promise.row for each in suspended})

    def is_spent(self, pool: str) -> bool:
        """Return whether no further start is planned in the pool: its depth is reached, or the pass is out of time.

        A workload whose start cannot be planned does not count towards the depth: otherwise those behind it would get
        no plan, and other work would pass them indefinitely.
        """
        unplanned = len(self._unplanned.get(pool, ()))
        return self._heads[pool] >= self._rules.depth or unplanned >= _UNPLANNED_SEEN or self._steps <= 0

    def is_finished(self, pool: str) -> bool:
        """Return whether no start in the pool is planned or renewed any more: plans are renewed beyond the depth."""
        return self.is_spent(pool) and pool not in self._previous.values()

    def has_waited_too_long(self, workload: Workload) -> bool:
        """Return whether other work has passed this workload for `max_bypass_seconds`, counted from when it could run.

        A workload without a planned start that is overdue preempts in its turn, before work behind it is placed. It
        still holds nothing back: the time at which the missing capacity is released is unknown, if it ever is.
        """
        since = max(workload.created_at, workload.starts_at or LONG_AGO)
        return self._now - since >= timedelta(seconds=self._rules.max_bypass_seconds)

    def backfill_order(self, workloads: Sequence[Workload]) -> Sequence[Workload]:
        """Return the workloads behind the planned ones in backfill order."""
        if self._rules.order is BackfillOrder.QUEUE:
            return workloads
        bands = groupby(workloads, key=lambda workload: workload.priority)
        return [workload for _, band in bands for workload in sorted(band, key=length)]

    def plan(self, workload: Workload, unplaced: UnplacedTasks, not_before: int = 0) -> Planned:
        """Plan the start of the tasks that found no node, at the first moment at which they fit in every respect.

        Without such a moment there is no plan, and nothing is held back.
        """
        planned = self._plan(workload, unplaced, not_before)
        if planned.start is not None:
            self._heads[workload.pool] += 1
            self._passed_over.pop(workload.id, None)
            return planned
        if workload.id not in self._renewed:
            key = (self._class_key(workload), self.was_passed_over(workload))
            self._unplanned.setdefault(workload.pool, {})[key] = planned
        self.pass_over(workload)
        return planned

    def nodes_at(self, workload: Workload, start: datetime) -> dict[str, int]:
        """Return the nodes of the tasks whose start is planned for this moment, with their numbers."""
        rows = self._cluster.timeline.tasks_by_row(workload.pool, workload.id, seconds_of(start))
        return {self._cluster.node(row).name: tasks for row, tasks in rows.items()}

    def pass_over(self, workload: Workload) -> None:
        """Note that a workload has no planned start, so that plans made before it gets one stand."""
        self._passed_over[workload.id] = None
        while len(self._passed_over) > _MAX_PASSED_OVER:
            del self._passed_over[next(iter(self._passed_over))]

    def was_passed_over(self, workload: Workload) -> bool:
        """Return whether the workload could not be planned in an earlier pass."""
        return workload.id in self._passed_over

    def why_unplanned(self, workload: Workload) -> Reason | None:
        """Return why the workload has no planned start if one alike was found to have none, otherwise None."""
        unplanned = self._unplanned.get(workload.pool)
        if not unplanned:
            return None
        class_key = self._class_key(workload)
        known = unplanned.get((class_key, False))
        if known is None and self.was_passed_over(workload):
            known = unplanned.get((class_key, True))
        return None if known is None else known.why

    def _class_key(self, workload: Workload) -> Hashable:
        """Return everything that the planned start of a workload depends on."""
        return (
            shape_on_node(workload, self._cluster, len(workload.tasks)),
            len(workload.tasks),
            gang_size(workload),
            workload.single_node,
            workload.max_per_node,
            frozenset(workload.occupied.items()),
            self._cluster.timeline.planned_seconds(workload),
        )

    def _plan(self, workload: Workload, unplaced: UnplacedTasks, not_before: int) -> Planned:
        count = unplaced.count - (0 if unplaced.undone else len(unplaced.rows))
        evaluation = self._evaluations.of(shape_on_node(workload, self._cluster, unplaced.count))
        first = max(not_before, self._cluster.timeline.now + 1)
        self._on_slots = evaluation.depends_on_slots_alone
        if not self._on_slots:
            least = count if workload.single_node else max(unplaced.least, 1) if unplaced.undone else 1
            most = count if workload.single_node or least > 1 else min(count, _TASKS_PLANNED)
            try:
                if self._start_search is None:
                    self._start_search = StartSearch(self._cluster, self._evaluations.profile)
                answer = self._start_search.plan(workload, evaluation, most, least, first)
            except PluginFailed as failure:
                return Planned(None, failure.reason)
            return Planned(None, answer) if isinstance(answer, Reason) else Planned(time_of(answer))
        rows = self._rows(evaluation, workload)
        if workload.single_node:
            pieces = [1]
        elif unplaced.least > 1:
            pieces = [count]
        else:
            pieces = [1] * min(count, _TASKS_PLANNED)
        starts = [
            self._promise(evaluation, workload, rows, piece, number, first) for number, piece in enumerate(pieces)
        ]
        return Planned(None, not_planned()) if starts[0] == NEVER else Planned(time_of(starts[0]))

    def _rows(self, evaluation: Evaluation, workload: Workload) -> Rows:
        """Return the rows that the workload may ever use, in the order of node precedence."""
        cluster = self._cluster
        rows = np.flatnonzero(evaluation.may_ever)
        if workload.max_per_node is not None:
            rows = rows[own_tasks(workload, cluster)[rows] < workload.max_per_node]
        return rows if len(rows) == 1 else rows[np.argsort(-cluster.precedence[rows])]

    def _promise(
        self, evaluation: Evaluation, workload: Workload, rows: Rows, count: int, number: int, first: int
    ) -> int:
        """Promise capacity for `count` tasks that start together and return their start; NEVER if there is none."""
        timeline, demand = self._cluster.timeline, evaluation.demand
        seconds = timeline.planned_seconds(workload)
        self._steps -= 1 + len(rows) // _ROWS_A_STEP
        most = NEVER if workload.max_per_node is None else _fewest_left(workload)
        if seconds is not None:
            seconds = max(seconds, 1)
        if count == 1:
            start, at = timeline.soonest(rows, demand, seconds, first)
            task_capacity = at.astype(np.int64)
        else:
            start, task_capacity = timeline.gang_start(
                rows, demand, seconds, count, first, horizon=NEVER, most=min(most, count)
            )
        if start == NEVER:
            return NEVER
        end = None if seconds is None else start + seconds
        tasks = _shared_out(task_capacity, rows, count)
        request, size = evaluation.shape.request, evaluation.shape.tasks
        amounts = {each * size: {name: units * each for name, units in request} for each in set(tasks.values())}
        tasks_by_row = [(row, each * size) for row, each in tasks.items()]
        footprint = Footprint(workload.constraints)
        timeline.plan_all(workload.pool, workload.id, number, tasks_by_row, start, end, amounts, footprint)
        return start


def _shared_out(task_capacity: Amount, rows: Rows, count: int) -> dict[int, int]:
    """Return the number of tasks by row if each of the rows, in order, takes as many of the tasks as it can."""
    given: dict[int, int] = {}
    for row, most in zip(rows.tolist(), task_capacity.tolist(), strict=True):
        if count <= 0:
            break
        if most > 0:
            given[row] = min(most, count)
            count -= given[row]
    return given


def _fewest_left(workload: Workload) -> int:
    """Return how many more tasks every node below the limit per node may take, at least one."""
    assert workload.max_per_node is not None
    below = [count for count in workload.occupied.values() if count < workload.max_per_node]
    return max(workload.max_per_node - max(below, default=0), 1)
