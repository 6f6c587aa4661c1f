"""Placement of admitted workloads: filter, score and select nodes, or reserve nodes that victims of preemption leave.

Once they are compiled, the kernels place workloads in batches. They decide exactly as `Placer.place_one`, which remains
the reference and places the workloads that the kernels cannot.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.policy.preemption import VictimScope
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling.calendar.timeline import Expected
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import compilation
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks, UnschedulableReasons, backing_off
from mooring.scheduling.few_nodes import NO_ROW, only_open_row
from mooring.scheduling.gang_size import fails_if_unschedulable, gang_size
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.node_selection import Selection, select
from mooring.scheduling.plugins.evaluation import Evaluation, Evaluations
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import END_OF_TIME, Binder, FollowsQueue, PluginFailed
from mooring.scheduling.preemption.preemption import Preemptor

if TYPE_CHECKING:
    from mooring.scheduling.compiled.engine import CompiledEngine
    from mooring.scheduling.compiled.preemption import CompiledPreemptor

Short: TypeAlias = list[tuple[int, UnplacedTasks]]
"""The positions of decisions on workloads that found too few nodes, with their unplaced tasks."""

_NO_DEVICES: tuple[tuple[DeviceShare, ...]] = ((),)
_FEW_NODES = 256
_FEW_WORKLOADS, _FEW_WORKLOADS_ON_FEW_NODES = 8, 64
"""Up to this many workloads are placed without the kernels where starts are planned: a batch first finds the rows that
the promises close to each workload, which takes longer than placing them. Scores that follow the queue, such as
expected fill, are the exception: without the kernels each of them takes far longer."""


class Placer:
    """Selects nodes for the tasks of workloads. Placements count in the cluster at once."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        *,
        binder: Binder | None,
        preemptor: Preemptor | None,
        compiled: bool,
        notes_ends: bool,
    ) -> None:
        """`notes_ends`: note the expected ends of all placed tasks on the timeline even if nothing is booked.

        With a `binder`, placements are bound one by one, so the kernels are not used.
        """
        self.evaluations = Evaluations(cluster, profile)
        self.preemptor = preemptor
        self._cluster = cluster
        self._profile = profile
        self._binder = binder
        self._compiled = compiled and binder is None
        self._notes_ends = notes_ends
        self._reasons = UnschedulableReasons(cluster, profile)
        followers = [scorer for scorer, _ in profile.scorers if isinstance(scorer, FollowsQueue)]
        self._follower: FollowsQueue | None = followers[0] if followers else None
        self._engine: CompiledEngine | None = None
        self._compiled_preemptor: CompiledPreemptor | None = None

    @property
    def preempts_one_at_a_time(self) -> bool:
        """Whether victim searches depend on the usage of projects, so that each must see the result of the last."""
        return self.preemptor is not None and self.preemptor.rules.scope is VictimScope.RECLAIM

    def place(self, workloads: Sequence[Workload], now: datetime, *, stop: bool) -> tuple[list[Decision], Short]:
        """Decide on workloads in order; with `stop`, up to the first that finds too few nodes."""
        if self._follower is None:
            return self._place_portion(workloads, now, stop)
        decisions: list[Decision] = []
        short: Short = []
        for portion in self._follower.portions(workloads, self._cluster):
            decided, lacking = self._place_portion(portion, now, stop)
            short.extend((len(decisions) + at, unplaced) for at, unplaced in lacking)
            decisions.extend(decided)
            if stop and decided and (lacking or not decided[-1].placements):
                break
        return decisions, short

    def _place_portion(self, workloads: Sequence[Workload], now: datetime, stop: bool) -> tuple[list[Decision], Short]:
        most = _FEW_WORKLOADS if len(self._cluster) > _FEW_NODES else _FEW_WORKLOADS_ON_FEW_NODES
        few = self._notes_ends and self._follower is None and len(workloads) <= most
        if self._uses_kernels() and not few:
            return self._place_in_batches(workloads, now, stop)
        decisions: list[Decision] = []
        short: Short = []
        for workload in workloads:
            if self._place_next(workload, now, decisions, short) and stop:
                break
        return decisions, short

    def place_one(self, workload: Workload, now: datetime) -> tuple[Decision, UnplacedTasks | None]:
        """Decide on one workload without the kernels: filter, score and select nodes for its tasks."""
        if self._follower is not None:
            self._follower.begin_workload(workload.pool, self._cluster)
        due, later = _due_and_later(workload.tasks, now)
        least = gang_size(workload)
        if later and len(due) < max(least, 1):
            return Decision(workload, Outcome.WAITING, reason=backing_off(workload, later, least - len(due))), None
        if self._cluster.plans.withholds:
            with self._cluster.plans.lifted_for(workload):
                decision, unplaced = self._choose_nodes(workload, due, least)
        else:
            decision, unplaced = self._choose_nodes(workload, due, least)
        if decision.placements:
            self._note_ends([decision], now, reserved=workload.booking is not None)
        if later and decision.outcome is Outcome.PLACED and unplaced is None:
            return decision._replace(reason=backing_off(workload, later, 1)), None
        return decision, unplaced

    def place_one_explained(self, workload: Workload, now: datetime) -> Decision:
        """Decide on one workload, with the reason if some of its tasks found no node."""
        decision, unplaced = self.place_one(workload, now)
        return decision if unplaced is None else self.with_reason(decision, unplaced)

    def preempt(self, asked: Sequence[tuple[Workload, int]], now: datetime) -> Sequence[Decision | None]:
        """Reserve nodes that victims leave, for workloads with their gang sizes; None if there are no such nodes."""
        preemptor = self.preemptor
        if preemptor is None:
            return [None] * len(asked)
        # Planned starts do not restrict preemption: they are planned again.
        with self._cluster.plans.lifted():
            if self._uses_kernels():
                return self._preempt_in_batches(preemptor, asked, now)
            return [self._preempt_one(preemptor, workload, now, least) for workload, least in asked]

    def with_reason(self, decision: Decision, unplaced: UnplacedTasks) -> Decision:
        """Return the decision with the reason why tasks found no node, by the present state of the nodes."""
        workload = decision.workload
        try:
            return decision._replace(reason=self._reasons.reason(workload, unplaced))
        except PluginFailed as failure:
            if decision.placements:
                return decision._replace(reason=failure.reason)
            return Decision(workload, Outcome.ERROR, reason=failure.reason)

    def waits_for_release(self, decision: Decision, unplaced: UnplacedTasks) -> bool:
        """Return whether the workload would find nodes if other tasks released them."""
        reason = self.with_reason(decision, unplaced).reason
        return reason is not None and reason.cure == "release"

    def _choose_nodes(
        self, workload: Workload, tasks: Sequence[Task], least: int
    ) -> tuple[Decision, UnplacedTasks | None]:
        """Select nodes for the tasks; if fewer than `least` find one, nothing is placed."""
        shape = shape_on_node(workload, self._cluster, len(tasks))
        known = self.evaluations.known(shape) if tasks else None
        if known is not None:
            row = only_open_row(known, workload) if len(tasks) == 1 and self._binder is None else None
            if row == NO_ROW or (row is None and known.lacks_amounts()):
                return self._unplaced(workload, UnplacedTasks([], len(tasks), least), 0)
            if row is not None:
                return self._place_on(known, workload, tasks[0], row), None
        trial = Trial(self._cluster)
        try:
            evaluation = self.evaluations.of(shape)
            if tasks and not np.count_nonzero(evaluation.feasible):
                return self._unplaced(workload, UnplacedTasks([], len(tasks), least), 0)
            selection = select(evaluation, trial, workload, len(tasks), least=least)
        except PluginFailed as failure:
            trial.revert()
            self.evaluations.drop(shape)
            return Decision(workload, Outcome.ERROR, reason=failure.reason), None
        found = len(selection.rows)
        unplaced = UnplacedTasks(selection.rows, len(tasks), least) if found < len(tasks) else None
        feasible = selection.feasible_nodes
        if unplaced is not None and found < max(least, 1):
            trial.revert()
            return self._unplaced(workload, unplaced, feasible)
        decision = Decision(workload, Outcome.PLACED, self._placements(tasks, selection), None, feasible)
        refused = None if self._binder is None else self._binder.bind(decision)
        if refused is not None:
            trial.revert()
            return Decision(workload, Outcome.WAITING, reason=refused, feasible_nodes=feasible), None
        return decision, unplaced

    def _place_on(self, evaluation: Evaluation, workload: Workload, task: Task, row: int) -> Decision:
        """Place a task on the only row that is open to it."""
        try:
            score = evaluation.score_on(row)
        except PluginFailed as failure:
            self.evaluations.drop(evaluation.shape)
            return Decision(workload, Outcome.ERROR, reason=failure.reason)
        rows = np.array([row], dtype=np.intp)
        self._cluster.assume(rows, evaluation.demand, evaluation.shape.constraints, _NO_DEVICES)
        node = self._cluster.node(row)
        placement = Placement(task.id, node.id, node.name, node.generation, score)
        return Decision(workload, Outcome.PLACED, (placement,), None, 1)

    def _unplaced(
        self, workload: Workload, unplaced: UnplacedTasks, feasible_nodes: int
    ) -> tuple[Decision, UnplacedTasks | None]:
        outcome = Outcome.IMPOSSIBLE if fails_if_unschedulable(workload) else Outcome.WAITING
        return Decision(workload, outcome, feasible_nodes=feasible_nodes), unplaced

    def _placements(self, tasks: Sequence[Task], selection: Selection) -> tuple[Placement, ...]:
        nodes = map(self._cluster.node, selection.rows)
        chosen = zip(tasks, nodes, selection.scores, selection.ports, selection.devices, strict=False)
        return tuple(
            Placement(task.id, node.id, node.name, node.generation, score, ports, devices)
            for task, node, score, ports, devices in chosen
        )

    def _note_ends(self, decisions: Iterable[Decision], now: datetime, *, reserved: bool = False) -> None:
        """Note on the timeline when placed tasks end by their limits, if anything in this pass depends on it."""
        timeline = self._cluster.timeline
        if now == END_OF_TIME or not (reserved or timeline.booked or self._notes_ends):
            return
        tasks: dict[Hashable, Expected] = {}
        for workload, _, placements, *_ in decisions:
            if workload.longest_seconds is None:
                continue
            end = timeline.now + workload.longest_seconds
            expected = workload.expected_seconds
            guessed = None if expected is None or expected == workload.longest_seconds else timeline.now + expected
            plain = Footprint(workload.constraints, (), False, workload.stop_grace_seconds)
            for placement in placements:
                row = self._cluster.row_of(placement.node_id)
                assert row is not None
                footprint = plain
                if placement.ports or placement.devices:
                    constraints = with_host_ports(workload.constraints, map(HostPort, placement.ports))
                    footprint = plain._replace(constraints=constraints, devices=placement.devices)
                tasks[placement.task_id] = Expected(row, end, workload.request, footprint, guessed)
        if tasks:
            timeline.expect_all(tasks)

    def _place_next(self, workload: Workload, now: datetime, decisions: list[Decision], short: Short) -> bool:
        """Append the decision on one workload and return whether it found too few nodes."""
        decision, unplaced = self.place_one(workload, now)
        if unplaced is not None:
            short.append((len(decisions), unplaced))
        decisions.append(decision)
        return unplaced is not None or not decision.placements

    def _place_in_batches(
        self, workloads: Sequence[Workload], now: datetime, stop: bool
    ) -> tuple[list[Decision], Short]:
        """Place as many workloads per kernel call as possible, and the others one by one in between."""
        # Imported here because the kernels may not be compiled when this module is imported.
        from mooring.scheduling.compiled.batches import decide_in_batches

        note_ends = partial(self._note_ends, now=now)
        return decide_in_batches(
            self._ready_engine(), workloads, now, one_by_one=self.place_one, on_decided=note_ends, stop=stop
        )

    def _preempt_in_batches(
        self, preemptor: Preemptor, asked: Sequence[tuple[Workload, int]], now: datetime
    ) -> list[Decision | None]:
        # Imported here for the same reason as the engine.
        from mooring.scheduling.compiled.preemption import CompiledPreemptor, plan_in_batches

        if self._compiled_preemptor is None:
            self._compiled_preemptor = CompiledPreemptor(self._ready_engine(), preemptor)

        def one_by_one(workload: Workload, least: int) -> Decision | None:
            return self._preempt_one(preemptor, workload, now, least)

        return plan_in_batches(self._compiled_preemptor, asked, now, one_by_one=one_by_one)

    def _preempt_one(self, preemptor: Preemptor, workload: Workload, now: datetime, least: int) -> Decision | None:
        try:
            decision = preemptor.plan(workload, _due_and_later(workload.tasks, now)[0], now, least=least)
        except PluginFailed as failure:
            return Decision(workload, Outcome.ERROR, reason=failure.reason)
        refused = None if self._binder is None or decision is None else self._binder.bind(decision)
        if decision is not None and refused is not None:
            preemptor.withdraw(decision)
            return Decision(workload, Outcome.WAITING, reason=refused)
        return decision

    def _uses_kernels(self) -> bool:
        return self._compiled and compilation.ready()

    def _ready_engine(self) -> CompiledEngine:
        from mooring.scheduling.compiled.engine import CompiledEngine

        if self._engine is None:
            self._engine = CompiledEngine(self._cluster, self._profile)
        return self._engine


def _due_and_later(tasks: Sequence[Task], now: datetime) -> tuple[Sequence[Task], list[Task]]:
    """Return the tasks that may be placed now, and those still backed off."""
    due: list[Task] = []
    later: list[Task] = []
    if len(tasks) == 1 and tasks[0].not_before is None:
        return tasks, later
    for task in tasks:
        (due if task.not_before is None or task.not_before <= now else later).append(task)
    return due, later
