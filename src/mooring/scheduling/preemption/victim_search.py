"""Victim search: finds the tasks to preempt for a workload, on a trial of the cluster that is reverted afterwards.

Remove all candidate victims of a node. If the workload then fits, reprieve them in order, budget violations first, then
the most important, as long as the workload still fits. The tasks that are not reprieved are the victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.policy.preemption import RunningTask, Victim
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Demand, Mask, Rows
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.node_selection import own_tasks, select
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.filters.devices import DevicesFilter
from mooring.scheduling.plugins.filters.host_ports import HostPortsFilter
from mooring.scheduling.plugins.filters.licence import LicenceFilter
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.task_anti_affinity import TaskAntiAffinityFilter, rejected_by_group_alone
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.plugins.protocols import ask_filter, ask_why
from mooring.scheduling.preemption.running_tasks import importance, start_of
from mooring.scheduling.preemption.victim_candidates import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    NOBODY_LEAVES,
    CachedOptions,
    Cost,
    Option,
    PreemptionState,
    Unit,
)

_COUNTING = (ResourcesFilter, TasksPerNodeFilter)
"""Filters that read only the amounts occupied on the node."""
_EASING = (DevicesFilter, HostPortsFilter, LicenceFilter, TaskAntiAffinityFilter, TopologySpreadFilter)
"""Filters that a passing node still passes after tasks leave it."""
_NOBODY: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the workload fits once the victims have ended."""

    row: int
    node_name: str
    victims: tuple[Victim, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class _NodeVictims:
    """The tasks on a row that are already leaving, and the candidate victims."""

    row: int
    node_id: UUID | None
    """Only tasks on this node are removed and returned; None: also the tasks of its units on other nodes."""
    leaving: list[RunningTask]
    units: list[Unit]

    @property
    def present(self) -> list[RunningTask]:
        return [*self.leaving, *(task for rank in range(len(self.units)) for task in self.moved(rank))]

    def moved(self, rank: int) -> Sequence[RunningTask]:
        running_tasks = self.units[rank].running_tasks
        if self.node_id is None or len(running_tasks) == 1:
            return running_tasks
        return [task for task in running_tasks if task.node_id == self.node_id]


class TrialPlacement(NamedTuple):
    """The placement of one task, with its assigned ports and devices."""

    row: int
    constraints: Constraints
    devices: tuple[DeviceShare, ...] = ()
    score: int = 0


class Search:
    """The search for placements of one workload, on a trial of the cluster."""

    def __init__(self, state: PreemptionState, workload: Workload, now: datetime) -> None:
        self._state = state
        self._cluster = state.cluster
        self._running_tasks = state.running_tasks
        self._workload = workload
        self._now = now
        self._owner = state.owner(workload)
        self._claim = state.claim(workload)
        self._started_by = now - timedelta(seconds=state.rules.min_runtime_seconds)
        self._evaluation = Evaluation(shape_of(workload, self._cluster), self._cluster, state.profile)
        asked = [plugin for plugin in self._evaluation.active.filters if plugin.depends_on != "static"]
        self._counting = [plugin for plugin in asked if isinstance(plugin, _COUNTING)]
        self._others = [plugin for plugin in asked if not isinstance(plugin, _COUNTING)]
        self._easing = all(isinstance(plugin, _EASING) for plugin in self._others)
        self._own = own_tasks(workload, self._cluster)
        self._at_once = 1
        """The number of tasks that must fit on one node."""
        self._removed: dict[UUID, Constraints | None] = {}
        """The removed tasks, each with the constraints under which the cluster counted it."""
        self._units: list[Unit] = []
        self._victims: dict[UUID, Victim] = {}
        self.trial = Trial(self._cluster)
        self.needs_others = False
        """Some placement depends on other tasks leaving."""

    @property
    def victims(self) -> list[Victim]:
        leaving = [task for unit in self._units for task in unit.running_tasks]
        return [self._victims[task.task_id] for task in sorted(leaving, key=importance)]

    def placements(self, count: int, *, least: int) -> list[TrialPlacement]:
        """Return up to `count` placements, or none if fewer than `least` exist. Each is assumed before the next search.

        The caller reverts the trial.
        """
        workload, found = self._workload, list[TrialPlacement]()
        self._at_once = count if workload.single_node else 1
        while len(found) < count:
            placement = self._place_without_victims() if self._at_once < count else None
            if placement is not None:
                found.append(placement)
                continue
            best = self._best()
            if best is None:
                break
            found.extend(self._take(*best))
        if len(found) < least:
            return []
        if len(found) > 1:
            self._reprieve(found)
        return found

    def candidates(self) -> list[Candidate]:
        cluster = self._cluster
        options = sorted(self._options().items(), key=lambda option: (option[1][0], -cluster.precedence[option[0]]))
        return [Candidate(row, cluster.node(row).name, tuple(_victims(units)), cost) for row, (cost, units) in options]

    def _best(self) -> tuple[int, tuple[Unit, ...]] | None:
        """Return the row with the cheapest victims, and those victims; None if no row qualifies."""
        options, precedence = self._options(), self._cluster.precedence
        rows = sorted(options, key=lambda row: (options[row][0], -precedence[row]))
        row = next((row for row in rows if self._keeps_promises(row, options[row][1])), None)
        return None if row is None else (row, options[row][1])

    def _keeps_promises(self, row: int, units: Iterable[Unit]) -> bool:
        """Return whether the later bookings of a row still fit once the workload replaces these units."""
        timeline, workload = self._cluster.timeline, self._workload
        if row not in timeline.booked_rows:
            return True
        node_id = self._cluster.node(row).id
        leaving = {
            each.task_id: each.request for unit in units for each in unit.running_tasks if each.node_id == node_id
        }
        demand = self._evaluation.demand.times(self._at_once)
        return timeline.fits_instead(row, demand, workload.longest_seconds, leaving, timeline.notice(workload))

    def _options(self) -> dict[int, Option]:
        """Return every row on which preemption makes the workload fit, with its victims."""
        cluster, running_tasks, workload = self._cluster, self._running_tasks, self._workload
        rows = curable(self._evaluation, cluster.rows_of_pool(workload.pool))
        if cluster.timeline.booked:
            # The capacity that victims would release on these rows is already booked.
            demand, notice = self._evaluation.demand, cluster.timeline.notice(workload)
            booked = cluster.timeline.conflicts(rows, demand, workload.longest_seconds, notice)
            rows = rows[~np.isin(rows, booked)]
        if workload.max_per_node is not None:
            rows = rows[self._own[rows] + self._at_once <= workload.max_per_node]
        if workload.single_node and workload.occupied:
            rows = rows[(self._own[rows] > 0) & (len(workload.occupied) == 1)]
        key = (self._evaluation.shape, workload.priority, self._owner, self._at_once)
        known = self._state.known(key, self._now)
        if self._claim is not None or (self._units and self._state.allowed):
            # The result depends on this workload's claim or on the budget this plan has spent: do not share the cache.
            known = CachedOptions(self._now)
        known.forget_stale(cluster, running_tasks)
        # Rows that pass the easing filters pass them whichever tasks leave, so only occupied amounts matter there.
        below = workload.priority if self._claim is None else HIGHEST_PRIORITY
        simple = self._at_once == 1 and self._easing and not (self._others and running_tasks.any_whole(below))
        with cluster.without_journal():
            counted = self._passing(rows, counted=False) if simple else np.zeros(len(rows), dtype=np.bool_)
            stale = [row for row in rows[counted].tolist() if row not in known.by_row]
            known.by_row.update(self._look(stale, counted=True))
            affecting = cluster.placed_tasks.rows_affecting_counts()
            # Tasks on other nodes may change the other results: cache them only if filters look at one row.
            rejected = known.by_row if self._evaluation.node_local else {}
            for row in rows[~counted].tolist():
                if row not in rejected:
                    unaffecting = not affecting[row] and not self._evaluation.wants_devices
                    hopeless = simple and (unaffecting or not self._affects_shared_state(row))
                    rejected.update({row: None} if hopeless else self._look([row], counted=False))
        found = {row: known.by_row[row] for row in rows[counted].tolist()}
        found |= {row: rejected[row] for row in rows[~counted].tolist()}
        known.mark_seen(cluster, running_tasks)
        return {row: option for row, option in found.items() if option is not None}

    def _affects_shared_state(self, row: int) -> bool:
        """Return whether a task on the row changes any count in use, or holds devices of a kind the workload wants."""
        placed = self._cluster.placed_tasks
        for task in self._running_tasks.on(self._cluster.node(row).id):
            if task.devices and self._evaluation.wants_devices:
                return True
            counted_under = self._state.counted_constraints(task, row)
            if counted_under is not None and placed.affects_counts(counted_under, leaving=task.leaving_for is not None):
                return True
        return False

    def _look(self, rows: Sequence[int], *, counted: bool) -> dict[int, Option | None]:
        """Return the victims that make the workload fit on each row; None if no victims help, or none are needed.

        `counted`: check only occupied amounts, so that many rows can be evaluated side by side.
        """
        options: dict[int, Option | None] = dict.fromkeys(rows)
        candidates = [candidate for row in rows if (candidate := self._node_victims(row, counted=counted)).present]
        candidates = self._fitting(candidates, False, counted=counted)
        trial, gone = Trial(self._cluster), dict(self._removed)
        try:
            self._remove(trial, [task for candidate in candidates for task in candidate.present], counted=counted)
            candidates = self._fitting(candidates, True, counted=counted)
            victims: dict[int, list[Unit]] = {candidate.row: [] for candidate in candidates}
            for rank in range(max((len(candidate.units) for candidate in candidates), default=0)):
                asked = [candidate for candidate in candidates if rank < len(candidate.units)]
                back = [task for candidate in asked for task in candidate.moved(rank)]
                self._restore(trial, back, counted=counted)
                refused = self._fitting(asked, False, counted=counted)
                again = [task for candidate in refused for task in candidate.moved(rank)]
                self._remove(trial, again, counted=counted)
                for candidate in refused:
                    victims[candidate.row].append(candidate.units[rank])
            for candidate in candidates:
                options[candidate.row] = _cost(victims[candidate.row]), tuple(victims[candidate.row])
            return options
        finally:
            self._removed = gone
            trial.revert()

    def _node_victims(self, row: int, *, counted: bool) -> _NodeVictims:
        """Return the tasks on a row, in the order in which they are reprieved."""
        node_id = self._cluster.node(row).id
        here = self._running_tasks.on(node_id)
        leaving = [each for each in here if each.leaving_for is not None and each.task_id not in self._removed]
        units = self._units_on(node_id)
        if any(unit.violating for unit in units):
            units.sort(key=lambda unit: unit.order)
        return _NodeVictims(row, node_id if counted else None, leaving, units)

    def _units_on(self, node_id: UUID) -> list[Unit]:
        """Return the candidate victims of a node. Budgets are spent from the most important task on."""
        units = [unit for unit in self._running_tasks.units_on(node_id) if all(self._may_leave(each) for each in unit)]
        if self._claim is not None:
            units = self._claim.within(units, (unit.running_tasks for unit in self._units))
        spent = Counter(task.workload_id for unit in self._units for task in unit.running_tasks)
        violating: set[UUID] = set()
        for task in (task for unit in units for task in unit) if self._state.allowed else ():
            allowed = self._state.allowed.get(task.workload_id)
            if allowed is not None:
                spent[task.workload_id] += 1
                if spent[task.workload_id] > allowed:
                    violating.add(task.task_id)
        if not violating:
            return [Unit(unit, _NOBODY) for unit in units]
        return [Unit(unit, frozenset(each.task_id for each in unit) & violating) for unit in units]

    def _may_leave(self, task: RunningTask) -> bool:
        return (
            task.preemptible
            and task.leaving_for is None
            and (self._claim is not None or task.priority < self._workload.priority)
            and (task.started_at is None or task.started_at <= self._started_by)
            and (self._owner is None or self._state.owner(task) == self._owner)
            and task.task_id not in self._removed
        )

    def _fitting(self, candidates: Sequence[_NodeVictims], wanted: bool, *, counted: bool) -> list[_NodeVictims]:
        """Return the candidates whose rows pass every filter in the trial's current state; not `wanted`: the others."""
        rows = [candidate.row for candidate in candidates]
        if counted:
            fits = self._passing(np.array(rows, dtype=np.intp), counted=True).tolist()
        else:
            fits = [self._fits_fully(row) for row in rows]
        return [candidate for candidate, does in zip(candidates, fits, strict=True) if does == wanted]

    def _fits_fully(self, row: int) -> bool:
        """Return whether all tasks that must share a node pass every filter there, one after the other."""
        rows, trial = np.array([row], dtype=np.intp), Trial(self._cluster)
        try:
            for number in range(self._at_once):
                if number:
                    self._assume(trial, row)
                if not (self._passing(rows, counted=True)[0] and self._passing(rows, counted=False)[0]):
                    return False
            return True
        finally:
            trial.revert()

    def _passing(self, rows: Rows, *, counted: bool) -> Mask:
        """Return a mask of the rows that pass the counting filters, or (not `counted`) all other non-static filters."""
        passing = np.ones(len(rows), dtype=np.bool_)
        for plugin in (self._counting if counted else self._others) if len(rows) else ():
            passing &= ask_filter(plugin, self._evaluation.shape, self._cluster, rows)
        return passing

    def _assume(self, trial: Trial, row: int, score: int = 0) -> TrialPlacement:
        constraints = self._cluster.with_ports(row, self._evaluation.shape.constraints)
        devices = self._evaluation.devices_on(row)
        trial.assume(np.array([row], dtype=np.intp), self._evaluation.demand, constraints, (devices,))
        return TrialPlacement(row, constraints, devices, score)

    def _place_without_victims(self) -> TrialPlacement | None:
        """Assume and return a placement that needs no victims beyond those already chosen; None if there is none."""
        occupied = {self._cluster.node(row).id: int(self._own[row]) for row in np.flatnonzero(self._own).tolist()}
        self._evaluation.refresh()
        trial = Trial(self._cluster)
        selection = select(self._evaluation, trial, replace(self._workload, occupied=occupied), 1, least=0)
        trial.revert()
        if not selection.rows:
            return None
        row = selection.rows[0]
        self._own[row] += 1
        return self._assume(self.trial, row, selection.scores[0])

    def _take(self, row: int, units: Sequence[Unit]) -> list[TrialPlacement]:
        """Choose a row: its victims count as gone for the rest of the search."""
        self.needs_others = True
        here = self._running_tasks.on(self._cluster.node(row).id)
        leaving = [each for each in here if each.leaving_for is not None and each.task_id not in self._removed]
        self._remove(self.trial, leaving)
        for unit in units:
            self._remove(self.trial, unit.running_tasks)
        self._units.extend(units)
        self._victims |= {victim.task_id: victim for victim in _victims(units)}
        self._own[row] += self._at_once
        return [self._assume(self.trial, row) for _ in range(self._at_once)]

    def _reprieve(self, placements: Sequence[TrialPlacement]) -> None:
        """Reprieve units that were needed when their placement was chosen and that no placement needs any more."""
        rows = [np.array([placement.row], dtype=np.intp) for placement in placements]
        demand = self._evaluation.demand
        for unit in sorted(self._units, key=lambda unit: unit.order):
            self._restore(self.trial, unit.running_tasks)
            for row, placement in zip(rows, placements, strict=True):
                self.trial.forget(row, demand, placement.constraints, (placement.devices,))
            fits = True
            for row, placement in zip(rows, placements, strict=True):
                fits = fits and bool(self._passing(row, counted=True)[0] and self._passing(row, counted=False)[0])
                self.trial.assume(row, demand, placement.constraints, (placement.devices,))
            if fits:
                self._units.remove(unit)
            else:
                self._remove(self.trial, unit.running_tasks)

    def _remove(self, trial: Trial, running_tasks: Sequence[RunningTask], *, counted: bool = False) -> None:
        if counted:
            trial.count_amounts(*self._occupied(running_tasks), -1)
            return
        for task in running_tasks:
            row = self._cluster.row_of(task.node_id)
            if row is not None:
                constraints = self._removed[task.task_id] = self._state.counted_constraints(task, row)
                leaving = task.leaving_for is not None
                trial.forget(*self._counted(task, row), constraints, (task.devices,), leaving=leaving)

    def _restore(self, trial: Trial, running_tasks: Sequence[RunningTask], *, counted: bool = False) -> None:
        if counted:
            trial.count_amounts(*self._occupied(running_tasks), 1)
            return
        for task in running_tasks:
            row = self._cluster.row_of(task.node_id)
            if row is not None:
                constraints = self._removed.pop(task.task_id)
                leaving = task.leaving_for is not None
                trial.assume(*self._counted(task, row), constraints, (task.devices,), leaving=leaving)

    def _occupied(self, running_tasks: Sequence[RunningTask]) -> tuple[list[int], list[Amounts]]:
        """Return the rows of running tasks and the amounts that they occupy there."""
        rows = [self._cluster.row_of(task.node_id) for task in running_tasks]
        known = [(row, task.request) for row, task in zip(rows, running_tasks, strict=True) if row is not None]
        return [row for row, _ in known], [request for _, request in known]

    def _counted(self, task: RunningTask, row: int) -> tuple[Rows, Demand]:
        return np.array([row], dtype=np.intp), self._cluster.demand(tuple(sorted(task.request.items())))


def _cost(units: Sequence[Unit]) -> Cost:
    running_tasks = [task for unit in units for task in unit.running_tasks]
    if not running_tasks:
        return NOBODY_LEAVES
    highest = max(task.priority for task in running_tasks)
    return Cost(
        sum(len(unit.violating) for unit in units),
        highest,
        sum(task.priority - LOWEST_PRIORITY for task in running_tasks),
        len(running_tasks),
        -min(start_of(task.started_at) for task in running_tasks if task.priority == highest),
    )


def _victims(units: Iterable[Unit]) -> list[Victim]:
    """Return the tasks of the units as victims, the most important first."""
    leaving = [(task, task.task_id in unit.violating) for unit in units for task in unit.running_tasks]
    leaving.sort(key=lambda each: importance(each[0]))
    return [Victim(each.task_id, each.workload_id, each.node_id, violates) for each, violates in leaving]


def curable(evaluation: Evaluation, rows: Rows) -> Rows:
    """Return the rows that no filter rejects for a reason other than capacity that running tasks can release."""
    shape, cluster = evaluation.shape, evaluation.cluster
    for plugin in evaluation.active.filters:
        if not len(rows):
            break
        passing = ask_filter(plugin, shape, cluster, rows)
        if passing.all():
            continue
        if isinstance(plugin, TaskAntiAffinityFilter):
            # A strict group preempts nothing: rows that it rejects are no candidates.
            rows = rows[~rejected_by_group_alone(shape, cluster, rows)]
        elif plugin.depends_on == "static" or ask_why(plugin, shape, cluster, rows[~passing]).cure != "release":
            rows = rows[passing]
    return rows
