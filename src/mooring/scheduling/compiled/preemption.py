"""Preemption through the kernels, for workloads of one task.

The plans are those of `preemption`, which remains the definition and plans all other cases: several tasks, affinity to
tasks, spread and anti-affinity where victims are among the counted tasks, bookings, reclaim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.policy.preemption import RunningTask, Victim, VictimScope
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.compiled import layout, preemption_kernels
from mooring.scheduling.compiled.array_allocation import log_changes
from mooring.scheduling.compiled.engine import CompiledEngine
from mooring.scheduling.preemption.preemption import Preemptor
from mooring.scheduling.preemption.running_tasks import NOT_STARTED, importance, start_of
from mooring.scheduling.preemption.victim_candidates import LOWEST_PRIORITY

_KINDS = 64
"""Most kinds of preemptors whose costs are kept."""
_BATCH = 512
"""Most preemptors per kernel call."""
_WORKLOADS = 64
"""Initial number of gangs and workloads with a budget."""
_MICROSECONDS = 1_000_000

if (layout.LOWEST_PRIORITY, layout.NEWEST) != (LOWEST_PRIORITY, NOT_STARTED):
    raise AssertionError("the kernels were written for other priorities or start times")

OneByOne = Callable[[Workload, int], Decision | None]


def plan_in_batches(
    compiled: CompiledPreemptor, workloads: Sequence[tuple[Workload, int]], now: datetime, *, one_by_one: OneByOne
) -> list[Decision | None]:
    """Plan preemption for workloads in order, each with the least number of its tasks to place.

    `one_by_one` plans for those that the kernels cannot plan for.
    """
    decisions: list[Decision | None] = [None] * len(workloads)
    synced, next_one = compiled.sync(), 0
    while next_one < len(workloads):
        batch: list[tuple[Workload, int]] = []
        positions: list[int] = []
        while next_one < len(workloads) and len(batch) < _BATCH:
            workload, _ = workloads[next_one]
            if compiled.preemptor.could_find_victims(workload):
                code = compiled.code_of(workload) if synced else None
                if code is None:
                    break
                batch.append((workload, code))
                positions.append(next_one)
            next_one += 1
        planned = compiled.plan(batch, now)
        for position, decision in zip(positions, planned, strict=False):
            decisions[position] = decision
        if len(planned) < len(batch):
            next_one = positions[len(planned)]
            if planned:
                # The counts of tasks are outdated.
                synced = compiled.sync()
                continue
        elif len(batch) == _BATCH or next_one == len(workloads):
            continue
        decisions[next_one] = one_by_one(*workloads[next_one])
        synced = compiled.sync()
        next_one += 1
    return decisions


class CompiledPreemptor:
    """The running tasks as arrays, kept in step with the preemptor."""

    def __init__(self, engine: CompiledEngine, preemptor: Preemptor) -> None:
        self._engine = engine
        self.preemptor = preemptor
        self._units_on: list[Sequence[tuple[RunningTask, ...]]] = []
        """By row, in the order of the arrays."""
        self._workloads: dict[UUID, int] = {}
        """The numbers of workloads that are gangs or have a disruption budget."""
        self._positions: defaultdict[UUID, dict[int, list[int]]] = defaultdict(dict)
        """The indices of the units of these workloads, by row."""
        self._labels: dict[Constraints, int] = {}
        """The numbers of the constraints of running tasks, from 1."""
        self._counted_for: tuple[tuple[int, int], int] = (-1, -1), 0
        """The counters known, and the number of constraints, when it was noted which of these are counted."""
        self._device_index: NDArray[np.int64] | None = None
        """[row, device]: the index of each device when its row was written."""
        self._owners: dict[UUID | None, int] = {}
        self._kinds: dict[tuple[int, int, int], int] = {}
        self._running: layout.RunningTaskArrays
        self._costs: layout.VictimCosts
        self._nodes: layout.Nodes | None = None
        self._seen = self._membership = -1
        self._now: datetime | None = None

    def code_of(self, workload: Workload) -> int | None:
        """Return the code of the workload's shape, or None if the kernels cannot plan for it. Call `sync` before."""
        preemptor = self.preemptor
        several = len(workload.tasks) != 1 or workload.max_per_node is not None or workload.single_node
        reclaims, booked = preemptor.rules.scope is VictimScope.RECLAIM, self._engine.cluster.timeline.booked
        if several or reclaims or booked:
            return None
        code = self._engine.code_of(workload)
        if code is None or code < 0:
            return None
        filtering = self._engine.filtering_terms(code)
        if layout.AFFINITY in filtering or (filtering and preemptor.running_tasks.any_whole(workload.priority)):
            # Victims may take away a task that the workload must be next to; gangs change counts on other rows.
            return None
        return code

    def plan(self, preemptors: Sequence[tuple[Workload, int]], now: datetime) -> list[Decision | None]:
        """Plan for workloads with one task each, in order. Each plan counts at once.

        Return fewer decisions if the kernels cannot decide on the next workload, or not before a `sync`.
        """
        decisions: list[Decision | None] = []
        for part in self._parts(preemptors):
            of_part = self._plan(part, now)
            decisions += of_part
            if len(of_part) < len(part):
                break
        return decisions

    def _plan(self, preemptors: Sequence[tuple[Workload, int]], now: datetime) -> list[Decision | None]:
        plans = self.queue(preemptors)
        decided = self.run(plans, now)
        cluster = self._engine.cluster
        decisions: list[Decision | None] = []
        start, rows = plans.start[: decided + 1].tolist(), plans.row[:decided].tolist()
        devices = plans.devices.tolist()
        victims = list(zip(plans.victims[: start[-1]].tolist(), plans.violating[: start[-1]].tolist(), strict=True))
        for index, ((workload, code), row) in enumerate(zip(preemptors, rows, strict=False)):
            if row == layout.NOWHERE:
                decisions.append(None)
                continue
            node = cluster.node(row)
            chosen = self._victims(row, victims[start[index] : start[index + 1]])
            given = self._engine.named_devices(code, row, devices[index])
            placement = Placement(workload.tasks[0].id, node.id, node.name, node.generation, 0, (), given)
            self.preemptor.accept(workload, chosen)
            cluster.placed_tasks.add(row, workload.constraints)
            cluster.changes.note((row,))
            decisions.append(Decision(workload, Outcome.RESERVED, (placement,), victims=chosen))
        # The changes that were just accepted are those that the kernels wrote.
        self._seen = self.preemptor.running_tasks.revision
        return decisions

    def _victims(self, row: int, units: Sequence[tuple[int, int]]) -> tuple[Victim, ...]:
        """Return the tasks of units, the most important first; the last tasks of a unit violate its budget."""
        here = self._units_on[row]
        leaving = [
            (task, at >= len(here[index]) - violating)
            for index, violating in units
            for at, task in enumerate(here[index])
        ]
        leaving.sort(key=lambda each: importance(each[0]))
        return tuple([Victim(task.task_id, task.workload_id, task.node_id, violates) for task, violates in leaving])

    def queue(self, preemptors: Sequence[tuple[Workload, int]]) -> layout.PreemptionPlans:
        """Return preemptors, of at most _KINDS kinds, as arrays. Call `sync` before."""
        self._engine.prepare({code for _, code in preemptors})
        self._note_counted()
        kinds = [self._kind_of(workload, code) for workload, code in preemptors]
        unknown = set(kinds) - self._kinds.keys()
        if len(self._kinds) + len(unknown) > _KINDS:
            self._kinds.clear()
            unknown = set(kinds)
        costs = self._costs
        for kind in sorted(unknown):
            number = self._kinds[kind] = len(self._kinds)
            costs.shape[number], costs.priority[number], costs.owner[number] = kind
            costs.position[number] = layout.NEVER
        return layout.PreemptionPlans(
            kind=np.array([self._kinds[kind] for kind in kinds], dtype=np.int32),
            row=np.zeros(len(kinds), dtype=np.int32),
            start=np.zeros(len(kinds) + 1, dtype=np.int64),
            victims=np.zeros(max(int(self._running.units.sum()), 1), dtype=np.int32),
            violating=np.zeros(max(int(self._running.units.sum()), 1), dtype=np.int32),
            devices=np.zeros(len(kinds), dtype=np.int64),
        )

    def run(self, plans: layout.PreemptionPlans, now: datetime) -> int:
        """Call the kernels once. Return the number of preemptors that they decided.

        They write the amounts of the placements into the cluster's columns.
        """
        if self.preemptor.rules.min_runtime_seconds and self._now != now:
            self._costs.position[:] = layout.NEVER
        self._now = now
        engine, moment = self._engine, start_of(now)
        decided = preemption_kernels.preempt(
            engine.nodes, engine.shapes, engine.topology.counters, self._running, self._costs, plans, moment
        )
        return int(decided)

    def sync(self) -> bool:
        """Take over the changes since the last call. Return False if the kernels cannot apply the profile."""
        engine, running_tasks = self._engine, self.preemptor.running_tasks
        changed = running_tasks.changed_since(self._seen)
        nodes = running_tasks.nodes if changed is None or self._nodes is None else changed
        for node_id in nodes:
            for task in running_tasks.on(node_id):
                # The columns may have to grow for the slots that it occupies.
                engine.cluster.demand(tuple(sorted(task.request.items())))
        if not engine.sync():
            return False
        most = max((len(running_tasks.on(node_id)) for node_id in nodes), default=0)
        outdated = self._nodes is not engine.nodes or self._membership != engine.cluster.membership or changed is None
        if outdated or most > self._running.priority.shape[1]:
            self._reset(max((len(running_tasks.on(node_id)) for node_id in running_tasks.nodes), default=0))
        else:
            assert changed is not None
            renamed = self._renamed_devices()
            if changed or renamed:
                self._copy_nodes({*(changed or ()), *renamed})
        self._seen = running_tasks.revision
        return True

    def _reset(self, most: int) -> None:
        engine = self._engine
        rows, slots = engine.nodes.free_by_row.shape
        units_per_row = 1 << max(most - 1, 3).bit_length()
        self._nodes, self._membership = engine.nodes, engine.cluster.membership
        self._units_on, self._kinds = [()] * rows, {}
        self._workloads.clear()
        self._positions.clear()
        self._labels.clear()
        self._counted_for = (-1, -1), 0
        self._device_index = engine.device_index()
        devices = engine.nodes.devices.shape[1]

        def per_unit(dtype: type[np.int64 | np.int32]) -> NDArray[Any]:
            return np.zeros((rows, units_per_row), dtype=dtype)

        self._running = layout.RunningTaskArrays(
            units=np.zeros(rows, dtype=np.int32),
            priority=per_unit(np.int64),
            started=per_unit(np.int64),
            owner=per_unit(np.int64),
            preemptible_from=per_unit(np.int64),
            size=per_unit(np.int32),
            total=per_unit(np.int64),
            take=np.zeros((rows, units_per_row, slots), dtype=np.int64),
            devices=np.zeros((rows, units_per_row, devices), dtype=np.int32),
            leaving=np.zeros((rows, slots), dtype=np.int64),
            leaving_devices=np.zeros((rows, devices), dtype=np.int64),
            workload=per_unit(np.int32),
            labels=per_unit(np.int32),
            counted=np.ones(_WORKLOADS, dtype=np.uint8),
            next_row=per_unit(np.int32),
            next_index=per_unit(np.int32),
            allowed=np.zeros(_WORKLOADS, dtype=np.int64),
            gang=np.zeros(_WORKLOADS, dtype=np.uint8),
        )
        self._costs = layout.VictimCosts(
            cost=np.zeros((_KINDS, rows, layout.AGE + 1), dtype=np.int64),
            tree=np.zeros((_KINDS, 2 * rows), dtype=np.int32),
            position=np.full(_KINDS, layout.NEVER, dtype=np.int64),
            shape=np.zeros(_KINDS, dtype=np.int64),
            priority=np.zeros(_KINDS, dtype=np.int64),
            owner=np.zeros(_KINDS, dtype=np.int64),
            slack=np.zeros(slots, dtype=np.int64),
            requested_slots=np.zeros(slots, dtype=np.int32),
            devices=np.zeros(devices, dtype=np.int64),
            candidates=np.zeros(units_per_row, dtype=np.int32),
            victims=np.zeros(units_per_row, dtype=np.int32),
            violating=np.zeros(units_per_row, dtype=np.int32),
            rejected=np.zeros(rows, dtype=np.uint8),
            counted=np.zeros(rows, dtype=np.uint8),
            spent=np.zeros(_WORKLOADS, dtype=np.int64),
        )
        self._copy_nodes(self.preemptor.running_tasks.nodes)

    def _renamed_devices(self) -> list[UUID]:
        """Return the nodes whose devices changed other than in their free capacity."""
        before, self._device_index = self._device_index, self._engine.device_index()
        if before is None or self._device_index is None:
            return []
        cluster, changed = self._engine.cluster, (before != self._device_index).any(axis=1)
        return [cluster.node(row).id for row in cluster.rows[changed[cluster.rows]].tolist()]

    def _copy_nodes(self, nodes: Iterable[UUID]) -> None:
        rows: set[int] = set()
        workloads: set[UUID] = set()
        for node_id in nodes:
            row = self._engine.cluster.row_of(node_id)
            if row is not None and row not in rows:
                workloads |= self._write_row(row, node_id)
                rows.add(row)
        for workload_id in workloads:
            self._link(workload_id)
        log_changes(self._engine.nodes, np.array(sorted(rows), dtype=np.intp))

    def _write_row(self, row: int, node_id: UUID) -> set[UUID]:
        """Write the units on a row. Return the workloads that have, or had, a gang or budgeted unit there."""
        running, running_tasks = self._running, self.preemptor.running_tasks
        workloads = {unit[0].workload_id for unit in self._units_on[row]} & self._workloads.keys()
        for workload_id in workloads:
            self._positions[workload_id].pop(row, None)
        self._units_on[row] = units = running_tasks.units_on(node_id)
        running.units[row] = len(units)
        running.take[row] = running.devices[row] = 0
        running.leaving[row] = running.leaving_devices[row] = 0
        for task in running_tasks.on(node_id):
            if task.leaving_for is not None:
                self._add_amounts(row, task, running.leaving[row], running.leaving_devices[row])
        for index, unit in enumerate(units):
            self._write_unit(row, index, unit)
            for task in unit:
                if task.node_id == node_id:
                    self._add_amounts(row, task, running.take[row, index], running.devices[row, index])
            first = unit[0]
            running.workload[row, index] = layout.UNSHARED
            if first.whole or first.workload_id in self.preemptor.allowed:
                running.workload[row, index] = self._number(first.workload_id)
                self._positions[first.workload_id].setdefault(row, []).append(index)
                workloads.add(first.workload_id)
        return workloads

    def _write_unit(self, row: int, index: int, unit: Sequence[RunningTask]) -> None:
        running, first = self._running, unit[0]
        minimum_runtime = self.preemptor.rules.min_runtime_seconds * _MICROSECONDS
        owners = {self._owner(self.preemptor.owner(task)) for task in unit}
        candidate = len(owners) == 1 and all(task.preemptible for task in unit)
        running.owner[row, index] = owners.pop()
        running.priority[row, index] = first.priority if candidate else layout.NOT_A_CANDIDATE
        if any(task.leaving_for is not None for task in unit):
            running.priority[row, index] = layout.LEAVING
        running.labels[row, index] = self._label(unit)
        running.started[row, index] = start_of(first.started_at)
        starts = [start_of(task.started_at) + minimum_runtime for task in unit if task.started_at is not None]
        running.preemptible_from[row, index] = max(starts, default=-layout.NEWEST)
        running.size[row, index] = len(unit)
        running.total[row, index] = sum(task.priority - layout.LOWEST_PRIORITY for task in unit)

    def _add_amounts(self, row: int, task: RunningTask, amounts: NDArray[Any], devices: NDArray[Any]) -> None:
        demand = self._engine.cluster.demand(tuple(sorted(task.request.items())))
        amounts[demand.slots[:, 0]] += demand.amounts[:, 0]
        amounts[-1] += 1
        if self._device_index is not None:
            for share in task.devices:
                if share.slot == DEVICE_SLOT:
                    devices[self._device_index[row] == share.device] += share.amount

    def _link(self, workload_id: UUID) -> None:
        """Write the ring of a workload's units, its budget, and whether it is a gang."""
        running, number = self._running, self._workloads[workload_id]
        units = [(row, index) for row, here in self._positions[workload_id].items() for index in here]
        for (row, index), (next_row, next_index) in zip(units, units[1:] + units[:1], strict=True):
            running.next_row[row, index], running.next_index[row, index] = next_row, next_index
        running.allowed[number] = self.preemptor.allowed.get(workload_id, layout.NO_BUDGET)
        running.gang[number] = any(self._units_on[row][index][0].whole for row, index in units)
        if not units:
            del self._positions[workload_id]

    def _label(self, unit: Sequence[RunningTask]) -> int:
        """Return the number of the constraints of a unit; 0, which always counts, for a gang or assigned ports."""
        if len(unit) > 1 or unit[0].ports:
            return 0
        number = self._labels.setdefault(unit[0].constraints, len(self._labels) + 1)
        if number >= len(self._running.counted):
            more = np.ones(len(self._running.counted), dtype=np.uint8)
            self._running = self._running._replace(counted=np.concatenate((self._running.counted, more)))
        return number

    def _note_counted(self) -> None:
        """Note which constraints counters include, after counters or constraints appeared."""
        counters, known = self._engine.counters_known(), len(self._labels)
        if (counters, known) != self._counted_for:
            start = self._counted_for[1] if counters == self._counted_for[0] else 0
            placed = self._engine.cluster.placed_tasks
            for constraints, number in islice(self._labels.items(), start, None):
                self._running.counted[number] = placed.affects_counts(constraints)
            self._counted_for = counters, known

    def _number(self, workload_id: UUID) -> int:
        """Return the number of a gang or a workload with a budget."""
        number = self._workloads.setdefault(workload_id, len(self._workloads))
        if number == len(self._running.allowed):
            more = np.zeros(number, dtype=np.int64)
            self._costs = self._costs._replace(spent=np.concatenate((self._costs.spent, more)))
            self._running = self._running._replace(
                allowed=np.concatenate((self._running.allowed, more)),
                gang=np.concatenate((self._running.gang, more.astype(np.uint8))),
            )
        return number

    def _owner(self, owner: UUID | None) -> int:
        return self._owners.setdefault(owner, len(self._owners))

    def _kind_of(self, workload: Workload, code: int) -> tuple[int, int, int]:
        """Return the kind of a preemptor. Preemptors of one kind share their costs."""
        return code, workload.priority, self._owner(self.preemptor.owner(workload))

    def _parts(self, preemptors: Sequence[tuple[Workload, int]]) -> Iterator[list[tuple[Workload, int]]]:
        """Split preemptors, in order, into parts with at most _KINDS kinds each."""
        part: list[tuple[Workload, int]] = []
        kinds: set[tuple[int, int, int]] = set()
        for workload, code in preemptors:
            kind = self._kind_of(workload, code)
            if kind not in kinds and len(kinds) == _KINDS:
                yield part
                part, kinds = [], set()
            kinds.add(kind)
            part.append((workload, code))
        yield part
