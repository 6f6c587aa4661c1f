"""Decisions through the compiled engine: as many workloads as possible in one call of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.booking_mask import BookingMask
from mooring.scheduling.compiled.engine import TOO_FEW_SLOTS, CompiledEngine
from mooring.scheduling.compiled.placement_batch import Batch, Placements
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from mooring.scheduling.gang_size import fails_if_unschedulable, gang_size

Short = list[tuple[int, UnplacedTasks]]
"""The positions of the decisions that found too few nodes; the reasons are found at the end of the pass."""

OneByOne = Callable[[Workload, datetime], tuple[Decision, UnplacedTasks | None]]


def decide_in_batches(
    engine: CompiledEngine,
    ordered: Sequence[Workload],
    now: datetime,
    *,
    one_by_one: OneByOne,
    on_decided: Callable[[Sequence[Decision]], None],
    stop: bool = False,
) -> tuple[list[Decision], Short]:
    """Decide workloads in their order. `one_by_one` decides those that the kernels cannot place.

    `on_decided` is called with the decisions of each batch. `stop`: end after the first workload that finds too few
    nodes.
    """
    batches = _Batches(engine, now, one_by_one, on_decided, stop)
    batches.decide_all(ordered)
    return batches.decisions, batches.short


class _Batches:
    """The decisions of a pass, and the batch that is being filled."""

    def __init__(
        self,
        engine: CompiledEngine,
        now: datetime,
        one_by_one: OneByOne,
        on_decided: Callable[[Sequence[Decision]], None],
        stop: bool,
    ) -> None:
        self.decisions: list[Decision] = []
        self.short: Short = []
        self._engine = engine
        self._now = now
        self._one_by_one = one_by_one
        self._on_decided = on_decided
        self._stop = stop
        self._stopped = False
        self._batch = Batch()
        self._synced = engine.sync()
        self._booked = engine.cluster.timeline.booked
        self._booking_mask = BookingMask(engine.cluster, only_where_it_fits=engine.filters_resources)

    def decide_all(self, ordered: Sequence[Workload]) -> None:
        for workload in ordered:
            code = self._code_of(workload)
            if not self._stopped and not self._add(workload, code):
                self._decide_alone(workload)
            if self._stopped:
                return
        self._decide_batch()

    def _code_of(self, workload: Workload) -> int | None:
        """Return the code of the workload's shape, or None if the kernels cannot place it now.

        The batch is decided first where the code depends on it.
        """
        engine = self._engine
        if not self._synced or not workload.tasks:
            return None
        for task in workload.tasks:
            if task.not_before is not None and task.not_before > self._now:
                return None
        code = engine.code_of(workload)
        if code == TOO_FEW_SLOTS:
            self._decide_batch()
            if self._stopped:
                return None
            engine.add_slots(workload)
            code = engine.code_of(workload)
        return self._code_outside_bookings(workload, code) if self._booked and code is not None else code

    def _code_outside_bookings(self, workload: Workload, code: int) -> int | None:
        """Return the code of the shape without the rows where it would be in the way of a booking."""
        closed = self._booking_mask.closed_to(workload)
        if closed is None and len(self._batch):
            self._decide_batch()
            if self._stopped:
                return None
            closed = self._booking_mask.closed_to(workload)
        if closed is None or self._engine.cluster.plans.would_lift(workload):
            return None
        return self._engine.code_with_closed_rows(code, closed)

    def _add(self, workload: Workload, code: int | None) -> bool:
        """Add a workload to the batch. Return False if the kernels cannot place it."""
        if code is None:
            return False
        batch, engine, count = self._batch, self._engine, len(workload.tasks)
        if workload.single_node:
            all_tasks = engine.code_on_single_node(workload)
            if all_tasks is None:
                return False
            batch.task_codes[len(batch)] = code
            code = all_tasks
        elif workload.pack:
            return False
        elif workload.spread or workload.max_per_node is not None:
            if not engine.can_limit(workload, count):
                return False
            batch.limited.append(len(batch))
        batch.entries.append((workload, code, count, gang_size(workload)))
        if self._booked:
            self._booking_mask.add(workload)
        return True

    def _decide_alone(self, workload: Workload) -> None:
        self._decide_batch()
        if self._stopped:
            return
        decision, unplaced = self._one_by_one(workload, self._now)
        if unplaced is not None:
            self.short.append((len(self.decisions), unplaced))
        self.decisions.append(decision)
        self._stopped = self._stop and (unplaced is not None or not decision.placements)
        if not self._stopped:
            self._synced = self._engine.sync()
            self._booking_mask.begin()

    def _decide_batch(self) -> None:
        """Place the workloads in the batch, and begin another one."""
        first, batch = len(self.decisions), self._batch
        if len(batch):
            placements = self._engine.place(batch, stop=self._stop)
            del batch.entries[placements.decided :]
            self._read(batch, placements)
        self._on_decided(self.decisions[first:])
        self._batch = Batch()
        self._booking_mask.begin()
        self._stopped = self._stop and bool(self.short)

    def _read(self, batch: Batch, placements: Placements) -> None:
        """Turn placements into decisions. Named tuples are built by `tuple.__new__`, which takes half the time."""
        decisions, first, nodes = self.decisions, len(self.decisions), self._engine.cluster.nodes
        rows, scores, devices = placements.rows, placements.scores, placements.devices
        placed, new = Outcome.PLACED, tuple.__new__
        lacking: list[int] = []
        for index, ((workload, _, count, _), start, found, feasible) in enumerate(
            zip(batch.entries, placements.start, placements.found, placements.feasible, strict=False)
        ):
            if found < count:
                lacking.append(index)
            if found == 1:
                node = nodes[rows[start]]
                assert node is not None
                task = workload.tasks[0]
                placement = new(
                    Placement, (task.id, node.id, node.name, node.generation, scores[start], (), devices[start])
                )
                decisions.append(new(Decision, (workload, placed, (placement,), None, feasible, (), None, None)))
            else:
                several = tuple(
                    [
                        new(Placement, (task.id, node.id, node.name, node.generation, scores[at], (), devices[at]))
                        for task, at in zip(workload.tasks, range(start, start + found), strict=False)
                        if (node := nodes[rows[at]]) is not None
                    ]
                )
                decisions.append(new(Decision, (workload, placed, several, None, feasible, (), None, None)))
        for index in lacking:
            workload, _, count, min_tasks = batch.entries[index]
            start, found = placements.start[index], placements.found[index]
            self.short.append((first + index, UnplacedTasks(rows[start : start + found], count, min_tasks)))
            if found < max(min_tasks, 1):
                outcome = Outcome.IMPOSSIBLE if fails_if_unschedulable(workload) else Outcome.WAITING
                decisions[first + index] = Decision(workload, outcome, (), None, placements.feasible[index])
