"""The scheduler: one pass over the waiting workloads, decisions out. Usable as a library, without a server:

>>> from datetime import UTC, datetime
>>> from uuid import UUID
>>> from mooring.model.nodes import Node
>>> from mooring.model.workloads import Kind, Task, Workload
>>> from mooring.scheduling import Scheduler

>>> big, small = ({"cpu": cores * 1000, "memory": cores << 31} for cores in (8, 2))
>>> process = frozenset({"process"})
>>> scheduler = Scheduler([
...     Node(UUID(int=1), "big", "default", runtimes=process, allocatable=big),
...     Node(UUID(int=2), "small", "default", runtimes=process, allocatable=small),
... ])
>>> now = datetime(2026, 1, 1, tzinfo=UTC)
>>> work = Workload(
...     id=UUID(int=3), name="work", kind=Kind.SESSION, pool="default", user_id=UUID(int=4), runtime="process",
...     request={"cpu": 4000}, tasks=(Task(UUID(int=5), index=0),), created_at=now,
... )
>>> decision = scheduler.run([work], now).decisions[0]
>>> decision.outcome.value, decision.placements[0].node_name
('placed', 'big')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.nodes import Node
from mooring.model.workloads import OnInsufficient, Task, Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.evaluation import Evaluations
from mooring.scheduling.explanation import Explanations, backing_off
from mooring.scheduling.ordering.fifo import FifoSequencer
from mooring.scheduling.plugins import PluginFailed, Sequencer
from mooring.scheduling.profiles import Profile, Registry
from mooring.scheduling.selection import Selection, select
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.trial import Trial


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass decided, in the order in which it decided."""

    decisions: tuple[Decision, ...]

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
    ) -> None:
        self.cluster = Cluster() if cluster is None else cluster
        for node in nodes:
            self.cluster.upsert(node)
        self.sequencer: Sequencer = FifoSequencer() if sequencer is None else sequencer
        self.profile = Registry().profile() if profile is None else profile
        self._evaluations = Evaluations(self.cluster, self.profile)
        self._explanations = Explanations()

    def run(self, workloads: Sequence[Workload], now: datetime) -> Pass:
        """One pass: decide for every workload, best first. One that does not fit does not block those behind it."""
        ordered = self.sequencer.order(workloads)
        return Pass(tuple(self._decide(workload, now) for workload in ordered))

    def _decide(self, workload: Workload, now: datetime) -> Decision:
        due, later = _split(workload.tasks, now)
        together = _all_or_nothing(workload)
        if later and (together or not due):
            return Decision(workload, Outcome.WAITING, reason=backing_off(workload, later, together=together))
        decision = self._place(workload, due, together=together)
        if later and decision.outcome is Outcome.PLACED and decision.reason is None:
            return replace(decision, reason=backing_off(workload, later, together=together))
        return decision

    def _place(self, workload: Workload, tasks: Sequence[Task], *, together: bool) -> Decision:
        """Choose nodes for the tasks; where not all find one, say why and, if they belong together, undo."""
        shape = shape_of(workload, self.cluster)
        trial = Trial(self.cluster)
        reason = None
        try:
            evaluation = self._evaluations.of(shape)
            selection = select(evaluation, trial, workload, len(tasks), together=together)
            short = len(selection.rows) < len(tasks)
            if short:
                reason = self._explanations.of_shortage(evaluation, workload, selection, len(tasks), together=together)
        except PluginFailed as failure:
            trial.revert()
            self._evaluations.drop(shape)
            return Decision(workload, Outcome.ERROR, reason=failure.reason)
        if short and (together or not selection.rows):
            trial.revert()
            outcome = Outcome.IMPOSSIBLE if _fails_at_once(workload) else Outcome.WAITING
            return Decision(workload, outcome, reason=reason, feasible_nodes=selection.feasible_nodes)
        placements = self._placements(tasks, selection)
        return Decision(workload, Outcome.PLACED, placements, reason, selection.feasible_nodes)

    def _placements(self, tasks: Sequence[Task], selection: Selection) -> tuple[Placement, ...]:
        nodes = map(self.cluster.node, selection.rows)
        return tuple(
            Placement(task.id, node.id, node.name, node.generation, score)
            for task, node, score in zip(tasks, nodes, selection.scores, strict=False)
        )


def _split(tasks: Iterable[Task], now: datetime) -> tuple[list[Task], list[Task]]:
    """Tasks that may be placed now, and those that still back off after an error."""
    due: list[Task] = []
    later: list[Task] = []
    for task in tasks:
        (due if task.not_before is None or task.not_before <= now else later).append(task)
    return due, later


def _all_or_nothing(workload: Workload) -> bool:
    return workload.gang or _fails_at_once(workload)


def _fails_at_once(workload: Workload) -> bool:
    """It is not to wait for its first placement."""
    return workload.on_insufficient is OnInsufficient.FAIL and not workload.placed_before
