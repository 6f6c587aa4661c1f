"""The scheduler: one pass over the pending workloads, decisions out. Usable as a library, without a server:

>>> from mooring import Node, Scheduler, Workload, amounts
>>> nodes = [Node(name="big", allocatable=amounts(cpu=8)), Node(name="small", allocatable=amounts(cpu=2))]
>>> scheduler = Scheduler(nodes)
>>> decision = scheduler.decide(Workload(name="work", request=amounts(cpu=4)))
>>> decision.outcome.value, decision.placements[0].node_name
('placed', 'big')
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision, Outcome
from mooring.model.nodes.node import Node
from mooring.model.policy.pools import Backfill, BackfillOrder, HeadOfLine
from mooring.model.policy.preemption import (
    Budgets,
    Preemption,
    RunningTask,
)
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.fair_share import Factors
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.calendar.backfill import PlanMemory, Planner
from mooring.scheduling.calendar.estimates import Ahead, estimated_starts
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import compilation
from mooring.scheduling.explain.explanation import (
    Explanation,
    explain,
    explain_placed,
    forget,
)
from mooring.scheduling.explain.inspection import Inspection, inspect
from mooring.scheduling.explain.unschedulable_reasons import (
    UnplacedTasks,
    behind_gates,
)
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.placer import Placer
from mooring.scheduling.plugins.ordering.bands import in_bands, ordered
from mooring.scheduling.plugins.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins.profiles import Profile, Registry
from mooring.scheduling.plugins.protocols import (
    END_OF_TIME,
    NO_FACTORS,
    Binder,
    Filter,
    Offer,
    OrderingContext,
    PluginFailed,
    Scorer,
    Selector,
    Sequencer,
    follows_placements,
)
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.preemption.running_tasks import RunningTasks, register_running_tasks
from mooring.scheduling.reservation_placement import place_in_reservations
from mooring.scheduling.scheduling_pass import SchedulingPass, rejected_decision

_ESTIMATE_STEPS = 3_000
"""Simulation steps of an estimate: about two seconds at most."""
_PLANNED_IN_ORDER = 500
"""Workloads whose start is estimated in queue order once these steps are spent."""
_PLANS_AHEAD, _FEWEST_PLANS_AHEAD = 20_000, 4
"""Planned starts in simulated passes: the total over all workloads, and the minimum per pass."""
_NO_ROWS: Rows = np.empty(0, dtype=np.intp)
MOST_AHEAD = 500
"""Maximum workloads ahead of one whose start is estimated."""
_MOST_BEHIND = 500
"""Workloads behind it that may be backfilled before it starts."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The result of a pass, in the order of its decisions."""

    decisions: tuple[Decision, ...]
    short: tuple[tuple[int, UnplacedTasks], ...] = ()
    """The positions of decisions with too few nodes whose reason is not determined yet."""
    refused: tuple[Rejection, ...] = ()
    """The workloads that admission rejected, with the changes they await; each also has a decision."""

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """The number of workloads by outcome."""
        return Counter(decision.outcome for decision in self.decisions)

    @property
    def placements(self) -> int:
        return sum(len(decision.placements) for decision in self.decisions)


class Scheduler:
    """Decides where pending workloads run. It serves all pools; a workload only ever sees the nodes of its own.

    Placements stay counted in `cluster` until the nodes are passed in anew, so that the next pass does not use the same
    capacity again while the decisions are being made durable.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        *,
        cluster: Cluster | None = None,
        profile: Profile | None = None,
        sequencer: Sequencer | None = None,
        filters: Sequence[Filter] | None = None,
        scorers: Sequence[tuple[Scorer, int]] | None = None,
        selector: Selector | None = None,
        binder: Binder | None = None,
        compiled: bool | None = None,
        preemption: Preemption | None = None,
        running_tasks: RunningTasks | Iterable[RunningTask] = (),
        budgets: Budgets | None = None,
        head_of_line: HeadOfLine = HeadOfLine.SKIP,
        backfill: Backfill | None = None,
        ageing_seconds: int = 0,
    ) -> None:
        """Everything has a default: `filters`, `scorers` (with weights) and `selector` replace those of the profile.

        `head_of_line`: whether a workload that lacks capacity blocks those behind it. `backfill`: the rules by which
        these may pass it otherwise. `ageing_seconds`: the time in the queue that raises the priority by one (0: no
        ageing).

        A `binder` makes each placement effective as it is decided; without one the caller does so. The kernels are
        compiled in the background and used once they are ready; `compiled` True waits for them, False does without.

        With `preemption`, workloads that find no capacity may evict `running_tasks`, within `budgets`. Running tasks in
        a plain iterable are registered with the cluster; a caller that passes `RunningTasks` registers them by
        `Cluster.set_tasks`.
        """
        self.cluster = Cluster() if cluster is None else cluster
        for node in nodes:
            self.cluster.upsert(node)
        self.sequencer: Sequencer = FifoSequencer() if sequencer is None else sequencer
        self.head_of_line = head_of_line
        self.backfill = Backfill() if backfill is None else backfill
        self.ageing_seconds = ageing_seconds
        given = Registry().profile() if profile is None else profile
        self.profile = Profile(
            given.name,
            given.filters if filters is None else tuple(filters),
            given.scorers if scorers is None else tuple(scorers),
            given.selector if selector is None else selector,
        )
        self.binder = binder
        self.running_tasks = (
            running_tasks
            if isinstance(running_tasks, RunningTasks)
            else register_running_tasks(self.cluster, running_tasks)
        )
        self.preemptor: Preemptor | None = None
        if preemption is not None:
            self.preemptor = Preemptor(self.cluster, self.profile, self.running_tasks, preemption, budgets)
        self._placer = Placer(
            self.cluster,
            self.profile,
            binder=binder,
            preemptor=self.preemptor,
            compiled=compiled is not False,
            notes_ends=head_of_line is HeadOfLine.BACKFILL,
        )
        self._plan_memory = PlanMemory()
        if compiled:
            compilation.wait()
        elif compiled is None and binder is None:
            compilation.start()

    def run(self, workloads: Sequence[Workload], now: datetime = END_OF_TIME) -> Pass:
        """Run one pass that decides on every workload, best first, with reasons.

        Without a time, no task counts as backed off.
        """
        return self.explained(self.place(workloads, now))

    def place(
        self,
        workloads: Sequence[Workload],
        now: datetime = END_OF_TIME,
        *,
        admission: Admission | None = None,
        factors: Factors = NO_FACTORS,
        as_query: bool = False,
    ) -> Pass:
        """Run a pass without the reasons of unplaced tasks, so that the caller can bind placements before `explained`.

        `admission` admits workloads and charges their tenants; `factors` are the fair-share factors. `as_query`: the
        pass answers a query, so that the starts planned by the last pass stand.
        """
        if self.preemptor is not None:
            self.preemptor.used_in = None if admission is None else admission.context.usage.used_in
        if now != END_OF_TIME:
            self.cluster.timeline.advance(seconds_of(now))
        planner = self._new_planner(now)
        if planner is not None:
            planner.begin(workloads)
        elif not as_query:
            self.cluster.timeline.drop_plans({workload.pool for workload in workloads})
        with self.cluster.plans.in_force(), _WithoutGarbageCollection():
            return self._place(workloads, now, admission, factors, planner)

    def _place(
        self,
        workloads: Sequence[Workload],
        now: datetime,
        admission: Admission | None,
        factors: Factors,
        planner: Planner | None,
    ) -> Pass:
        gated: list[Workload] = []
        reserved: list[Workload] = []
        queued = [workload for workload in workloads if not workload.gates and workload.booking is None]
        if len(queued) < len(workloads):
            gated = [workload for workload in workloads if workload.gates]
            reserved = [workload for workload in workloads if not workload.gates and workload.booking is not None]
        in_reservations, rejected = place_in_reservations(self._placer, self.cluster, reserved, now, admission)

        sequencer = self.sequencer
        follows = follows_placements(sequencer)
        pieces_of = {workload.id: workload for workload in queued} if follows else None
        current = self._new_pass(now, planner, admission, pieces_of)
        bands = in_bands(queued, now, self.ageing_seconds)
        for offer in sequencer.offers(bands, self.ordering_context(now, admission, factors)):
            decisions = current.decide(offer)
            if follows_placements(sequencer):
                sequencer.placed(decisions)
        current.finish()

        if not (gated or rejected or in_reservations or current.refused):
            return Pass(tuple(current.decisions), tuple(current.short))
        refused = (*current.refused, *rejected)
        waiting = [Decision(each, Outcome.WAITING, reason=behind_gates(each)) for each in gated]
        decided = (*current.decisions, *in_reservations, *waiting, *map(rejected_decision, refused))
        return Pass(decided, tuple(current.short), refused)

    @contextmanager
    def open_pass(self, pool: str, planned: Sequence[Workload], now: datetime) -> Iterator[IncrementalPass]:
        """Begin a pass over one pool to which the caller offers workloads in queue order, without preemption.

        `planned`: the pending workloads that have planned starts. Once no further start is planned, workloads are
        offered in backfill order; those that certainly find no node may be left out.
        """
        self.cluster.timeline.advance(seconds_of(now))
        planner = self._new_planner(now)
        self.cluster.timeline.drop_plans({pool}, keep={each.id for each in planned})
        if planner is not None:
            planner.begin(planned)
        with self.cluster.plans.in_force():
            current = self._new_pass(now, planner)
            yield IncrementalPass(current, planner, pool, self.head_of_line)
            current.finish()

    def _new_planner(self, now: datetime) -> Planner | None:
        if self.head_of_line is not HeadOfLine.BACKFILL or now == END_OF_TIME:
            return None
        return Planner(self.cluster, self._placer.evaluations, self.backfill, now, self._plan_memory)

    def _new_pass(
        self,
        now: datetime,
        planner: Planner | None,
        admission: Admission | None = None,
        pieces_of: Mapping[UUID, Workload] | None = None,
    ) -> SchedulingPass:
        strict = self.head_of_line is HeadOfLine.STRICT
        return SchedulingPass(
            self._placer, now, strict=strict, planner=planner, admission=admission, pieces_of=pieces_of
        )

    def best(
        self,
        workloads: Sequence[Workload],
        number: int,
        now: datetime,
        *,
        admission: Admission | None = None,
        factors: Factors = NO_FACTORS,
    ) -> Sequence[Workload]:
        """Return the workloads to try if there is capacity for `number` of them: the first in queue order.

        If the order changes with every placement, these are the first `number` of every user.
        """
        in_order = ordered(
            self.sequencer, workloads, self.ordering_context(now, admission, factors), self.ageing_seconds
        )
        if not follows_placements(self.sequencer):
            return in_order[:number]
        of_user: dict[UUID, list[Workload]] = {}
        for workload in in_order:
            of_user.setdefault(workload.user_id, []).append(workload)
        return [workload for own in of_user.values() for workload in own[:number]]

    def queue_order(
        self,
        pool: str,
        waiting: Iterable[Workload],
        now: datetime,
        *,
        admission: Admission | None = None,
        factors: Factors = NO_FACTORS,
    ) -> list[Workload]:
        """Return the pending workloads of a pool in queue order."""
        own = [each for each in waiting if each.pool == pool and not each.gates]
        return ordered(self.sequencer, own, self.ordering_context(now, admission, factors), self.ageing_seconds)

    def estimate(self, workload: Workload, queue: Sequence[Workload], now: datetime) -> datetime | None:
        """Return the estimated start of a workload; None if it is unknown, or too many workloads are ahead of it.

        `queue` holds it and the other pending workloads of its pool, as `queue_order` returns them.
        """
        at = next((at for at, each in enumerate(queue) if each.id == workload.id), None)
        if at is None or at > MOST_AHEAD:
            return None
        return self.estimates(queue[: at + 1 + _MOST_BEHIND], now, last=workload.id).get(workload.id)

    def estimates(
        self, queue: Sequence[Workload], now: datetime, *, last: UUID | None = None, steps: int = _ESTIMATE_STEPS
    ) -> Mapping[UUID, datetime]:
        """Return the estimated starts of the workloads of one pool if all of them run to their time limits.

        `queue` is in the order that `queue_order` returns. With `last`, the search ends once that workload has started.
        Unlike a planned start, an estimate assumes that tasks stop at once at their limits. Nothing stays placed or
        planned. Once the steps are spent, some of the rest are estimated strictly in queue order.
        """
        if not queue:
            return {}
        try:
            ahead = self.ahead(self.cluster, queue)
            return estimated_starts(
                self.cluster, queue, now, ahead, last=last, steps=steps, most_in_order=_PLANNED_IN_ORDER
            )
        except PluginFailed:
            return {}

    def ahead(self, cluster: Cluster, queue: Sequence[Workload]) -> Ahead:
        """Return this scheduler for simulated passes over one pool's queue on a cluster.

        Fewer starts are planned per pass for a long queue, in which planning each of them would take too long.
        """
        depth = min(self.backfill.depth, max(_PLANS_AHEAD // max(len(queue), 1), _FEWEST_PLANS_AHEAD))
        trial = Scheduler(
            cluster=cluster,
            profile=self._copied_profile(),
            compiled=False,
            head_of_line=self.head_of_line,
            backfill=replace(self.backfill, depth=depth),
        )
        order = self.backfill.order if self.head_of_line is HeadOfLine.BACKFILL else BackfillOrder.QUEUE
        pool = queue[0].pool if queue else ""
        return Ahead(partial(trial.open_pass, pool), trial._plan_in_order, trial._placer.evaluations, order)

    def _plan_in_order(self, queue: Sequence[Workload], now: datetime) -> Iterator[tuple[UUID, datetime | None]]:
        """Yield the estimated starts of the workloads of one pool if they start strictly in queue order."""
        timeline = self.cluster.timeline
        planner = Planner(self.cluster, self._placer.evaluations, self.backfill, now)
        pools = {each.pool for each in queue}
        timeline.drop_plans(pools)
        rows = np.concatenate([self.cluster.rows_of_pool(pool) for pool in sorted(pools)] or [_NO_ROWS])
        with timeline.without_grace(rows):
            for each in queue:
                unplaced = UnplacedTasks([], len(each.tasks), gang_size(each))
                prompt = replace(each, stop_grace_seconds=0)
                yield each.id, planner.plan(prompt, unplaced, seconds_of(first_try(each, now))).start

    def ordering_context(
        self, now: datetime, admission: Admission | None = None, factors: Factors = NO_FACTORS
    ) -> OrderingContext:
        """Return the context in which the sequencer orders workloads."""
        capacity = partial(_remembered, {}, self.cluster.capacity_of)
        if admission is None:
            return OrderingContext(now, capacity, factors=factors)
        return OrderingContext(now, capacity, admission.context.usage.used_in, factors)

    def explained(self, result: Pass) -> Pass:
        """Return the pass with every reason, by the present state of the nodes."""
        if not result.short:
            return result
        decisions = list(result.decisions)
        for position, unplaced in result.short:
            decisions[position] = self.with_reason(decisions[position], unplaced)
        return Pass(tuple(decisions), refused=result.refused)

    def with_reason(self, decision: Decision, unplaced: UnplacedTasks) -> Decision:
        """Return the decision with the reason why tasks found no node, by the present state of the nodes."""
        return self._placer.with_reason(decision, unplaced)

    def decide(self, workload: Workload, now: datetime = END_OF_TIME) -> Decision:
        """Run a pass over one workload and return its decision."""
        return self.run([workload], now).decisions[0]

    def rows_for(self, workload: Workload) -> Rows:
        """Return the nodes that are eligible for its tasks, whether or not they have capacity."""
        return np.flatnonzero(self._placer.evaluations.of(shape_of(workload, self.cluster)).may_ever)

    def inspect(self, workload: Workload) -> Inspection:
        """Return the result of every filter and scorer on every node of the workload's pool; nothing is placed."""
        return inspect(self._placer.evaluations.of(shape_on_node(workload, self.cluster, len(workload.tasks))))

    def explain(
        self,
        workload: Workload,
        now: datetime = END_OF_TIME,
        *,
        nearest: int = 3,
        admission: Admission | None = None,
    ) -> Explanation:
        """Return the decision of a pass over this workload alone, with its reasons and the `nearest` misses.

        Nothing stays placed or charged.
        """
        answer = workload if admission is None else admission.admit(workload)
        if isinstance(answer, Rejection):
            decision = rejected_decision(answer)
        else:
            if admission is not None:
                admission.refund(answer)
            trial = Scheduler(cluster=self.cluster, profile=self._copied_profile(), compiled=False)
            with self.cluster.timeline.without_plan(answer.id):
                decision = trial.explained(trial.place([answer], now, as_query=True)).decisions[0]
                with self.cluster.timeslots.lifted(answer.booking):
                    forget(self.cluster, decision)
                    return explain(self.cluster, self._copied_profile(), decision, nearest=nearest)
        return explain(self.cluster, self._copied_profile(), decision, nearest=nearest)

    def explain_placed(
        self,
        workload: Workload,
        *,
        nearest: int = 3,
        devices: Mapping[UUID, Sequence[DeviceShare]] | None = None,
    ) -> Explanation:
        """Compare the nodes that a workload runs on (its `occupied`) with all others, as if it were placed there now.

        `devices`: by node, the device shares of its tasks there.
        """
        return explain_placed(self.cluster, self._copied_profile(), workload, nearest=nearest, devices=devices or {})

    def _copied_profile(self) -> Profile:
        """Return the profile with a copy of its selector, so that queries do not change the selector's state."""
        return replace(self.profile, selector=deepcopy(self.profile.selector))


class IncrementalPass:
    """A pass to which workloads of one pool are offered one at a time."""

    def __init__(self, current: SchedulingPass, planner: Planner | None, pool: str, head_of_line: HeadOfLine) -> None:
        self._pass = current
        self._planner = planner
        self._pool = pool
        self._strict = head_of_line is HeadOfLine.STRICT

    @property
    def plans(self) -> bool:
        """Whether the next workload that finds no node gets a planned start, or blocks those behind it."""
        return self._strict if self._planner is None else not self._planner.is_finished(self._pool)

    @property
    def is_blocked(self) -> bool:
        """Whether a workload that found no node blocks those behind it."""
        return self._pass.is_blocked(self._pool)

    def is_hopeless(self, workload: Workload) -> bool:
        """Return whether a workload alike found no node in this pass and no moment at which it could start."""
        # Otherwise one of its tasks may find a node although a task of the other workload found none.
        all_or_none = len(workload.tasks) == 1 or gang_size(workload) == len(workload.tasks)
        return all_or_none and self._planner is not None and self._planner.why_unplanned(workload) is not None

    def offer(self, workload: Workload) -> Decision:
        return self._pass.decide(Offer([workload]))[0]


def _remembered(known: dict[str, Amounts], capacity_of: Callable[[str], Amounts], pool: str) -> Amounts:
    """Return the capacity of a pool, computed once."""
    if pool not in known:
        known[pool] = capacity_of(pool)
    return known[pool]


def first_try(workload: Workload, now: datetime) -> datetime:
    """Return the earliest time at which the workload, or one of its tasks, may be placed."""
    tasks = min((task.not_before or now for task in workload.tasks), default=now)
    return max(tasks, workload.starts_at or now, now)


class _WithoutGarbageCollection:
    """Defers the search for cyclic garbage until the pass ends.

    A pass creates thousands of small objects that all stay and form no cycles; every thousand would start a search,
    which costs an eighth of the pass. The switch is global: cycles of other threads are found a few milliseconds later.
    `gc.freeze` would help as much, but would exempt the caller's objects permanently.
    """

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting:
            gc.enable()
