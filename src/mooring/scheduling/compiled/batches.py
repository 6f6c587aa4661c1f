"""Decisions through the compiled engine: as many workloads as possible in one call of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import repeat
from typing import cast

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.nodes.node import Node
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
        batch, now = self._batch, self._now
        by_kernels = self._synced and not self._booked
        codes = self._engine.known_codes(ordered) if by_kernels else repeat(None)
        for workload, code in zip(ordered, codes, strict=False):
            tasks = workload.tasks
            if (
                # Nearly all workloads of a pass are such, which are added without a call for each of their properties.
                by_kernels
                and code is not None
                and len(tasks) == 1
                and (tasks[0].not_before is None or tasks[0].not_before <= now)
                and not (workload.single_node or workload.pack or workload.spread or workload.max_per_node is not None)
            ):
                batch.entries.append((workload, code, 1, gang_size(workload)))
                continue
            self._decide_next(workload)
            if self._stopped:
                return
            batch, by_kernels = self._batch, self._synced and not self._booked
        self._decide_batch()

    def _decide_next(self, workload: Workload) -> None:
        code = self._code_of(workload)
        if not self._stopped and not self._add(workload, code):
            self._decide_alone(workload)

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
        """Turn placements into decisions, a column at a time, since a loop over the workloads takes longer."""
        entries, found = batch.entries, placements.found
        decisions, first = self.decisions, len(self.decisions)
        workloads, _, counts, _ = zip(*entries, strict=True)
        each: Iterable[tuple[Placement, ...]]
        if max(counts) == 1 and min(found) == 1:
            each = zip(self._placements(workloads, placements), strict=True)
        elif any(found):
            every = list(self._placements(workloads, placements))
            spans = zip(placements.start, found, strict=False)
            each = [tuple(every[start : start + number]) for start, number in spans]
        else:
            each = repeat(())
        feasible = placements.feasible
        none = repeat(None)
        values = zip(workloads, repeat(Outcome.PLACED), each, none, feasible, repeat(()), none, none, none)
        decisions.extend(map(tuple.__new__, repeat(Decision), values))
        lacking = [index for index, (count, number) in enumerate(zip(counts, found, strict=False)) if number < count]
        for index in lacking:
            workload, _, count, min_tasks = entries[index]
            start, number = placements.start[index], found[index]
            rows = placements.rows[start : start + number]
            self.short.append((first + index, UnplacedTasks(rows, count, min_tasks)))
            if number < max(min_tasks, 1):
                outcome = Outcome.IMPOSSIBLE if fails_if_unschedulable(workload) else Outcome.WAITING
                decisions[first + index] = Decision(workload, outcome, (), None, placements.feasible[index])

    def _placements(self, workloads: Sequence[Workload], placements: Placements) -> Iterator[Placement]:
        """Yield a placement per task. Where a task found no node, it is meaningless."""
        # Without a node for a task, its row is that of the first node; there is one, since some task found a node.
        of_row = cast("list[Node]", self._engine.cluster.nodes)
        nodes = [of_row[row] for row in placements.rows]
        values = zip(
            [task.id for workload in workloads for task in workload.tasks],
            [node.id for node in nodes],
            [node.name for node in nodes],
            [node.generation for node in nodes],
            placements.scores,
            repeat(()),
            placements.devices,
            strict=False,
        )
        return map(tuple.__new__, repeat(Placement), values)
