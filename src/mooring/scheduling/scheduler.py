"""The scheduler: one pass over the waiting workloads, decisions out. Usable as a library, without a server:

>>> from mooring import Node, Scheduler, Workload, amounts
>>> nodes = [Node(name="big", allocatable=amounts(cpu=8)), Node(name="small", allocatable=amounts(cpu=2))]
>>> scheduler = Scheduler(nodes)
>>> decision = scheduler.decide(Workload(name="work", request=amounts(cpu=4)))
>>> decision.outcome.value, decision.placements[0].node_name
('placed', 'big')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.devices import DeviceShare
from mooring.model.fair_share import Factors
from mooring.model.nodes import Node
from mooring.model.pools import Backfill, HeadOfLine
from mooring.model.preemption import Budgets, Preemption, Resident, VictimScope
from mooring.model.workloads import Task, Workload
from mooring.scheduling import compilation
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.arrays import Rows
from mooring.scheduling.backfill import Planner
from mooring.scheduling.columns import Cluster
from mooring.scheduling.evaluation import Evaluations
from mooring.scheduling.explanation import Explanation, explain, explain_placed, forget
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.inside import place_inside
from mooring.scheduling.inspection import Inspection, inspect
from mooring.scheduling.ordering.bands import in_bands, ordered
from mooring.scheduling.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins import (
    END_OF_TIME,
    NO_FACTORS,
    Binder,
    Filter,
    FollowsPlacements,
    PluginFailed,
    Scorer,
    Selector,
    Sequencer,
    Situation,
)
from mooring.scheduling.preemption import Preemptor
from mooring.scheduling.profiles import Profile, Registry
from mooring.scheduling.residents import Residents, told_residents
from mooring.scheduling.rounds import Round, kept_out
from mooring.scheduling.selection import Selection, select
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.shortage import Shortage, Shortages, backing_off, behind_gates
from mooring.scheduling.timeline import seconds_of
from mooring.scheduling.together import fails_at_once, least_together
from mooring.scheduling.trial import Trial

if TYPE_CHECKING:
    from mooring.scheduling.compiled_preemption import CompiledPreemptor
    from mooring.scheduling.engine import Engine


_LONGEST_LINE = 500
"""A start is estimated for those that have no more before them."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass decided, in the order in which it decided."""

    decisions: tuple[Decision, ...]
    short: tuple[tuple[int, Shortage], ...] = ()
    """Which decisions found too few nodes, where the reasons are not said yet."""
    refused: tuple[Rejection, ...] = ()
    """Who was not let in, and what would change that; the decisions say so, too."""

    @property
    def outcomes(self) -> Mapping[Outcome, int]:
        """How many workloads came out how."""
        return Counter(decision.outcome for decision in self.decisions)

    @property
    def placements(self) -> int:
        return sum(len(decision.placements) for decision in self.decisions)


class Scheduler:
    """Decides where waiting workloads run. It serves all pools; a workload only ever sees the nodes of its own.

    What it places stays counted in `cluster` until the nodes are told anew, so that the next pass does not place
    into the same room again while the decisions are being made durable.
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
        residents: Residents | Iterable[Resident] = (),
        budgets: Budgets | None = None,
        head_of_line: HeadOfLine = HeadOfLine.SKIP,
        backfill: Backfill | None = None,
        ageing_seconds: int = 0,
    ) -> None:
        """Everything has a default: `filters`, `scorers` (with weights) and `selector` replace those of the profile.

        `head_of_line` says whether a workload that lacks room stops those behind it, `backfill` how these may go before
        it where it does not, and `ageing_seconds` how long it takes to wait oneself one priority higher (0: for ever).

        A `binder` makes placements so as they are decided; without one that is the caller's. The kernels are compiled
        in the background and used from when they are ready; `compiled` True waits for them, False does without.

        With `preemption`, workloads that find no room may have `residents` leave for them, within `budgets`. Residents
        that are listed are told to the cluster; who hands in `Residents` tells it by `Cluster.tell_tasks`.
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
        self.residents = residents if isinstance(residents, Residents) else told_residents(self.cluster, residents)
        self.preemptor: Preemptor | None = None
        if preemption is not None:
            self.preemptor = Preemptor(self.cluster, self.profile, self.residents, preemption, budgets)
        self._evaluations = Evaluations(self.cluster, self.profile)
        self._shortages = Shortages(self.cluster, self.profile)
        self._engine: Engine | None = None
        self._compiled_preemptor: CompiledPreemptor | None = None
        self._compiled = compiled is not False and binder is None
        if compiled:
            compilation.wait()
        elif self._compiled:
            compilation.start()

    def run(self, workloads: Sequence[Workload], now: datetime = END_OF_TIME) -> Pass:
        """One pass: decide for every workload, best first.

        Without a time no task is too early.
        """
        return self.explained(self.place(workloads, now))

    def place(
        self,
        workloads: Sequence[Workload],
        now: datetime = END_OF_TIME,
        *,
        admission: Admission | None = None,
        factors: Factors = NO_FACTORS,
        aside: bool = False,
    ) -> Pass:
        """A pass that leaves the reasons of shortages to `explained`: a caller may bind what was placed before that.

        `admission` says who may be placed at all and counts who is; `factors` say who used how little lately. `aside`
        it is a question, for which the starts that the last pass planned stand as they are.
        """
        waiting = [workload for workload in workloads if not workload.gates]
        if self.preemptor is not None:
            self.preemptor.used_in = None if admission is None else admission.context.usage.used_in
        if now != END_OF_TIME:
            self.cluster.timeline.advance(seconds_of(now))
        if not aside:
            self.cluster.timeline.drop_plans({workload.pool for workload in workloads})
        booked = [workload for workload in waiting if workload.booking is not None]
        if booked:
            waiting = [workload for workload in waiting if workload.booking is None]
        alone = partial(self._decide_alone, now=now)
        inside, kept_outside = place_inside(self.cluster, booked, now, alone, admission)
        planner: Planner | None = None
        if self.head_of_line is HeadOfLine.BACKFILL and now != END_OF_TIME:
            planner = Planner(self.cluster, self._evaluations, self.backfill, now)
        current = Round(
            lambda ordered, stop: self._decide_all(ordered, now, stop),
            now,
            plan=None if self.preemptor is None else partial(self._plans, self.preemptor, now=now),
            one_plan_at_a_time=self.preemptor is not None and self.preemptor.rules.scope is VictimScope.RECLAIM,
            admission=admission,
            pieces_of={each.id: each for each in waiting} if isinstance(self.sequencer, FollowsPlacements) else None,
            stops=self._lacks_room if planner is not None or self.head_of_line is HeadOfLine.STRICT else None,
            planner=planner,
        )
        bands = in_bands(waiting, now, self.ageing_seconds)
        for offer in self.sequencer.offers(bands, self.situation(now, admission, factors)):
            decided = current.take(offer)
            if isinstance(self.sequencer, FollowsPlacements):
                self.sequencer.placed(decided)
        current.finish()
        gated = [Decision(each, Outcome.WAITING, reason=behind_gates(each)) for each in workloads if each.gates]
        refused = (*current.refused, *kept_outside)
        return Pass((*current.decisions, *inside, *gated, *map(kept_out, refused)), tuple(current.short), refused)

    def best(
        self, workloads: Sequence[Workload], number: int, now: datetime, factors: Factors = NO_FACTORS
    ) -> Sequence[Workload]:
        """Workloads among which are those whose turn it is when there is room for so many of them.

        Where shares move with every placement, anybody's first ones may be among these.
        """
        in_turn = ordered(self.sequencer, workloads, self.situation(now, factors=factors), self.ageing_seconds)
        if not isinstance(self.sequencer, FollowsPlacements):
            return in_turn[:number]
        of_user: dict[UUID, list[Workload]] = {}
        for workload in in_turn:
            of_user.setdefault(workload.user_id, []).append(workload)
        return [workload for own in of_user.values() for workload in own[:number]]

    def ahead_of(
        self, workload: Workload, waiting: Iterable[Workload], now: datetime, factors: Factors = NO_FACTORS
    ) -> list[Workload]:
        """Those that wait in the same pool and have their turn before it, were all placed in turn."""
        others = [each for each in waiting if each.pool == workload.pool and not each.gates and each.id != workload.id]
        in_turn = ordered(
            self.sequencer, [workload, *others], self.situation(now, factors=factors), self.ageing_seconds
        )
        return list(takewhile(lambda each: each.id != workload.id, in_turn))

    def estimate(self, workload: Workload, ahead: Sequence[Workload], now: datetime) -> datetime | None:
        """When a workload would start, were all that are `ahead` to start in turn and nothing to end early.

        None: that is not known, or too many are ahead. Nothing stays planned.
        """
        if len(ahead) > _LONGEST_LINE or workload.gates:
            return None
        timeline, start = self.cluster.timeline, None
        timeline.advance(seconds_of(now))
        planner = Planner(self.cluster, self._evaluations, self.backfill, now)
        try:
            for each in (*ahead, workload):
                shortage = Shortage([], len(each.tasks), least_together(each))
                start = planner.plan(each, shortage, seconds_of(_first_try(each, now)))
        except PluginFailed:
            return None
        finally:
            for each in (*ahead, workload):
                timeline.drop_plan(each.id)
        return start

    def situation(self, now: datetime, admission: Admission | None = None, factors: Factors = NO_FACTORS) -> Situation:
        """What the sequencer may ask about."""
        capacity = cache(self.cluster.capacity_of)
        if admission is None:
            return Situation(now, capacity, factors=factors)
        return Situation(now, capacity, admission.context.usage.used_in, factors)

    def explained(self, result: Pass) -> Pass:
        """The pass with every reason, said of the nodes as they are now."""
        if not result.short:
            return result
        decisions = list(result.decisions)
        for position, shortage in result.short:
            decisions[position] = self.with_reason(decisions[position], shortage)
        return Pass(tuple(decisions), refused=result.refused)

    def with_reason(self, decision: Decision, shortage: Shortage) -> Decision:
        """The decision with the reason why some or all of its tasks found no node, as the nodes are now."""
        workload = decision.workload
        try:
            return decision._replace(reason=self._shortages.reason(workload, shortage))
        except PluginFailed as failure:
            if decision.placements:
                return decision._replace(reason=failure.reason)
            return Decision(workload, Outcome.ERROR, reason=failure.reason)

    def decide(self, workload: Workload, now: datetime = END_OF_TIME) -> Decision:
        """A pass of one workload."""
        return self.run([workload], now).decisions[0]

    def rows_for(self, workload: Workload) -> Rows:
        """The nodes that may take its tasks by what they are, whether or not there is room."""
        return np.flatnonzero(self._evaluations.of(shape_of(workload, self.cluster)).may_ever)

    def inspect(self, workload: Workload) -> Inspection:
        """What every filter and scorer says about every node of the workload's pool; nothing is placed."""
        return inspect(self._evaluations.of(shape_on_node(workload, self.cluster, len(workload.tasks))))

    def explain(
        self,
        workload: Workload,
        now: datetime = END_OF_TIME,
        *,
        nearest: int = 3,
        admission: Admission | None = None,
    ) -> Explanation:
        """What a pass of this workload alone would decide, and why, with so many of the nearest misses.

        Nothing stays placed or charged.
        """
        answer = workload if admission is None else admission.admit(workload)
        if isinstance(answer, Rejection):
            decision = kept_out(answer)
        else:
            if admission is not None:
                admission.refund(answer)
            apart = Scheduler(cluster=self.cluster, profile=self._copied_profile(), compiled=False)
            with self.cluster.timeline.without_plan(answer.id):
                decision = apart.explained(apart.place([answer], now, aside=True)).decisions[0]
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
        """How the nodes that a workload is on (its `occupied`) compare with all others, were it placed there now.

        `devices`: per node what its tasks there have of the devices.
        """
        return explain_placed(self.cluster, self._copied_profile(), workload, nearest=nearest, devices=devices or {})

    def _copied_profile(self) -> Profile:
        """The profile with a selector for questions: answering them moves nothing that a selector remembers."""
        return replace(self.profile, selector=deepcopy(self.profile.selector))

    def _lacks_room(self, decision: Decision, shortage: Shortage) -> bool:
        """Whether it would find its nodes once others had left them; otherwise it stands in nobody's way."""
        reason = self.with_reason(decision, shortage).reason
        return reason is not None and reason.cure == "release"

    def _decide_all(
        self, ordered: Sequence[Workload], now: datetime, stop: bool
    ) -> tuple[list[Decision], list[tuple[int, Shortage]]]:
        if not (self._compiled and compilation.ready()):
            return self._decide_one_by_one(ordered, now, stop)
        # Imported here, since the kernels may not be compiled when this module is.
        from mooring.scheduling.batches import decide_in_batches

        tell = partial(self._expect_ends, now=now)
        return decide_in_batches(self._ready_engine(), ordered, now, one_by_one=self._decide, tell=tell, stop=stop)

    def _ready_engine(self) -> Engine:
        from mooring.scheduling.engine import Engine

        if self._engine is None:
            self._engine = Engine(self.cluster, self.profile)
        return self._engine

    def _decide_one_by_one(
        self, ordered: Sequence[Workload], now: datetime, stop: bool
    ) -> tuple[list[Decision], list[tuple[int, Shortage]]]:
        decisions: list[Decision] = []
        short: list[tuple[int, Shortage]] = []
        for position, workload in enumerate(ordered):
            decision, shortage = self._decide(workload, now)
            decisions.append(decision)
            if shortage is not None:
                short.append((position, shortage))
            if stop and (shortage is not None or not decision.placements):
                break
        return decisions, short

    def _plans(
        self, preemptor: Preemptor, asked: Sequence[tuple[Workload, int]], *, now: datetime
    ) -> Sequence[Decision | None]:
        """Places for workloads that found none, with who has to leave them; None where nobody can."""
        if self._compiled and compilation.ready():
            return self._plan_in_batches(preemptor, asked, now)
        return [self._plan(preemptor, workload, now, least) for workload, least in asked]

    def _plan_in_batches(
        self, preemptor: Preemptor, asked: Sequence[tuple[Workload, int]], now: datetime
    ) -> list[Decision | None]:
        # Imported here, as the engine is.
        from mooring.scheduling.compiled_preemption import CompiledPreemptor, plan_in_batches

        if self._compiled_preemptor is None:
            self._compiled_preemptor = CompiledPreemptor(self._ready_engine(), preemptor)

        def one_by_one(workload: Workload, least: int) -> Decision | None:
            return self._plan(preemptor, workload, now, least)

        return plan_in_batches(self._compiled_preemptor, asked, now, one_by_one=one_by_one)

    def _plan(self, preemptor: Preemptor, workload: Workload, now: datetime, least: int) -> Decision | None:
        try:
            decision = preemptor.plan(workload, _split(workload.tasks, now)[0], now, least=least)
        except PluginFailed as failure:
            return Decision(workload, Outcome.ERROR, reason=failure.reason)
        refused = None if self.binder is None or decision is None else self.binder.bind(decision)
        if decision is not None and refused is not None:
            preemptor.withdraw(decision)
            return Decision(workload, Outcome.WAITING, reason=refused)
        return decision

    def _decide(self, workload: Workload, now: datetime) -> tuple[Decision, Shortage | None]:
        due, later = _split(workload.tasks, now)
        least = least_together(workload)
        if later and len(due) < max(least, 1):
            return Decision(workload, Outcome.WAITING, reason=backing_off(workload, later, least - len(due))), None
        decision, shortage = self._place(workload, due, least)
        self._expect_ends([decision], now, inside=workload.booking is not None)
        if later and decision.outcome is Outcome.PLACED and shortage is None:
            return decision._replace(reason=backing_off(workload, later, 1)), None
        return decision, shortage

    def _decide_alone(self, workload: Workload, now: datetime) -> Decision:
        """With the reason why some of its tasks found no node."""
        decision, shortage = self._decide(workload, now)
        return decision if shortage is None else self.with_reason(decision, shortage)

    def _expect_ends(self, decisions: Iterable[Decision], now: datetime, *, inside: bool = False) -> None:
        """Tell the timeline when what was placed will end, where somebody asks for that in this pass."""
        timeline = self.cluster.timeline
        if now == END_OF_TIME or not (inside or timeline.booked or self.head_of_line is HeadOfLine.BACKFILL):
            return
        for workload, _, placements, *_ in decisions:
            if workload.longest_seconds is not None:
                end = timeline.now + workload.longest_seconds
                for placement in placements:
                    row = self.cluster.row_of(placement.node_id)
                    assert row is not None
                    timeline.expect(placement.task_id, row, end, workload.request)

    def _place(self, workload: Workload, tasks: Sequence[Task], least: int) -> tuple[Decision, Shortage | None]:
        """Choose nodes for the tasks; where fewer than `least` find one, they are undone."""
        shape = shape_on_node(workload, self.cluster, len(tasks))
        trial = Trial(self.cluster)
        try:
            evaluation = self._evaluations.of(shape)
            selection = select(evaluation, trial, workload, len(tasks), least=least)
        except PluginFailed as failure:
            trial.revert()
            self._evaluations.drop(shape)
            return Decision(workload, Outcome.ERROR, reason=failure.reason), None
        found = len(selection.rows)
        shortage = Shortage(selection.rows, len(tasks), least) if found < len(tasks) else None
        feasible = selection.feasible_nodes
        if shortage is not None and found < max(least, 1):
            trial.revert()
            outcome = Outcome.IMPOSSIBLE if fails_at_once(workload) else Outcome.WAITING
            return Decision(workload, outcome, feasible_nodes=feasible), shortage
        decision = Decision(workload, Outcome.PLACED, self._placements(tasks, selection), None, feasible)
        refused = None if self.binder is None else self.binder.bind(decision)
        if refused is not None:
            trial.revert()
            return Decision(workload, Outcome.WAITING, reason=refused, feasible_nodes=feasible), None
        return decision, shortage

    def _placements(self, tasks: Sequence[Task], selection: Selection) -> tuple[Placement, ...]:
        nodes = map(self.cluster.node, selection.rows)
        chosen = zip(tasks, nodes, selection.scores, selection.ports, selection.devices, strict=False)
        return tuple(
            Placement(task.id, node.id, node.name, node.generation, score, ports, devices)
            for task, node, score, ports, devices in chosen
        )


def _first_try(workload: Workload, now: datetime) -> datetime:
    """When it, or a task of it, may be placed at the earliest."""
    tasks = min((task.not_before or now for task in workload.tasks), default=now)
    return max(tasks, workload.starts_at or now, now)


def _split(tasks: Iterable[Task], now: datetime) -> tuple[list[Task], list[Task]]:
    """Tasks that may be placed now, and those that still back off after an error."""
    due: list[Task] = []
    later: list[Task] = []
    for task in tasks:
        (due if task.not_before is None or task.not_before <= now else later).append(task)
    return due, later
