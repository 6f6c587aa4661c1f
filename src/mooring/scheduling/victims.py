"""Whom a workload needs to leave: a search on a trial of the cluster, which changes nothing.

Per node all tasks that may have to leave are thought away; if the workload fits then, they are given back, those first
whose loss breaks a budget, then the most important, as long as it still fits. Who is left over are the victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.constraints import Constraints
from mooring.model.devices import DeviceShare
from mooring.model.preemption import Resident, Victim
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Demand, Mask, Rows
from mooring.scheduling.displacement import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    NOBODY_LEAVES,
    Cost,
    Known,
    Option,
    Standing,
    Unit,
)
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.filters.devices import DevicesFilter
from mooring.scheduling.filters.host_ports import HostPortsFilter
from mooring.scheduling.filters.licence import LicenceFilter
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.task_anti_affinity import TaskAntiAffinityFilter, beside_members
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.filters.topology_spread import TopologySpreadFilter
from mooring.scheduling.plugins import ask_filter, ask_why
from mooring.scheduling.residents import importance, start_of
from mooring.scheduling.selection import own_tasks, select
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.trial import Trial

_COUNTING = (ResourcesFilter, TasksPerNodeFilter)
"""They ask about nothing but what tasks occupy on the node."""
_EASING = (DevicesFilter, HostPortsFilter, LicenceFilter, TaskAntiAffinityFilter, TopologySpreadFilter)
"""A node that passes them passes them, too, when tasks leave it."""
_NOBODY: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the workload fits once the victims have left."""

    row: int
    node_name: str
    victims: tuple[Victim, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Sight:
    """Those on a row who leave already, and those who may have to."""

    row: int
    node_id: UUID | None
    """Only what is on this node is moved; None: units are moved with all that they have elsewhere."""
    leaving: list[Resident]
    units: list[Unit]

    @property
    def present(self) -> list[Resident]:
        return [*self.leaving, *(resident for rank in range(len(self.units)) for resident in self.moved(rank))]

    def moved(self, rank: int) -> Sequence[Resident]:
        residents = self.units[rank].residents
        if self.node_id is None or len(residents) == 1:
            return residents
        return [resident for resident in residents if resident.node_id == self.node_id]


class Place(NamedTuple):
    """Where a task goes, with the ports and devices that it was given there."""

    row: int
    constraints: Constraints
    devices: tuple[DeviceShare, ...] = ()
    score: int = 0


class Search:
    """One workload's search for places, on a trial of the cluster."""

    def __init__(self, standing: Standing, workload: Workload, now: datetime) -> None:
        self._standing = standing
        self._cluster = standing.cluster
        self._residents = standing.residents
        self._workload = workload
        self._now = now
        self._owner = standing.owner(workload)
        self._claim = standing.claim(workload)
        self._started_by = now - timedelta(seconds=standing.rules.min_runtime_seconds)
        self._evaluation = Evaluation(shape_of(workload, self._cluster), self._cluster, standing.profile)
        asked = [plugin for plugin in self._evaluation.active.filters if plugin.depends_on != "static"]
        self._counting = [plugin for plugin in asked if isinstance(plugin, _COUNTING)]
        self._others = [plugin for plugin in asked if not isinstance(plugin, _COUNTING)]
        self._easing = all(isinstance(plugin, _EASING) for plugin in self._others)
        self._own = own_tasks(workload, self._cluster)
        self._at_once = 1
        """How many tasks have to fit on one node."""
        self._gone: dict[UUID, Constraints | None] = {}
        """The tasks that are thought away, each with what the cluster had counted of it."""
        self._units: list[Unit] = []
        self._victims: dict[UUID, Victim] = {}
        self.trial = Trial(self._cluster)
        self.needs_others = False
        """Some place is only there once others have left."""

    @property
    def victims(self) -> list[Victim]:
        leaving = [resident for unit in self._units for resident in unit.residents]
        return [self._victims[resident.task_id] for resident in sorted(leaving, key=importance)]

    def places(self, count: int, *, least: int) -> list[Place]:
        """Places for so many tasks, each counted before the next is looked for; none if they are fewer than `least`.

        The trial is left to be reverted.
        """
        workload, found = self._workload, list[Place]()
        self._at_once = count if workload.single_node else 1
        while len(found) < count:
            place = self._free_room() if self._at_once < count else None
            if place is not None:
                found.append(place)
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
        """The row whose victims are worth the least."""
        options, precedence = self._options(), self._cluster.precedence
        rows = sorted(options, key=lambda row: (options[row][0], -precedence[row]))
        row = next((row for row in rows if self._keeps_promises(row, options[row][1])), None)
        return None if row is None else (row, options[row][1])

    def _keeps_promises(self, row: int, units: Iterable[Unit]) -> bool:
        """Whether what is booked of a row later has its room, too, when others take the place of these."""
        timeline, workload = self._cluster.timeline, self._workload
        if row not in timeline.booked_rows:
            return True
        node_id = self._cluster.node(row).id
        leaving = {each.task_id: each.request for unit in units for each in unit.residents if each.node_id == node_id}
        demand = self._evaluation.demand.times(self._at_once)
        return timeline.fits_instead(row, demand, workload.longest_seconds, leaving)

    def _options(self) -> dict[int, Option]:
        """Every row on which leaving tasks would make room, with who has to leave."""
        cluster, residents, workload = self._cluster, self._residents, self._workload
        rows = curable(self._evaluation, cluster.rows_of_pool(workload.pool))
        if cluster.timeline.booked:
            # Whoever leaves there leaves room that is promised already.
            booked = cluster.timeline.conflicts(rows, self._evaluation.demand, workload.longest_seconds)
            rows = rows[~np.isin(rows, booked)]
        if workload.max_per_node is not None:
            rows = rows[self._own[rows] + self._at_once <= workload.max_per_node]
        if workload.single_node and workload.occupied:
            rows = rows[(self._own[rows] > 0) & (len(workload.occupied) == 1)]
        alike = (self._evaluation.shape, workload.priority, self._owner, self._at_once)
        known = self._standing.known(alike, self._now)
        if self._claim is not None or (self._units and self._standing.allowed):
            # What this plan has spent of the budgets, or may take back, is not known to others.
            known = Known(self._now)
        known.forget_stale(cluster, residents)
        # Rows that pass the other filters pass them whoever leaves, so that what tasks occupy is all that counts there.
        below = workload.priority if self._claim is None else HIGHEST_PRIORITY
        simple = self._at_once == 1 and self._easing and not (self._others and residents.any_whole(below))
        with cluster.unnoticed():
            counted = self._passing(rows, counted=False) if simple else np.zeros(len(rows), dtype=np.bool_)
            stale = [row for row in rows[counted].tolist() if row not in known.by_row]
            known.by_row.update(self._look(stale, counted=True))
            for row in rows[~counted].tolist():
                if row not in known.by_row or not self._evaluation.node_local:
                    hopeless = simple and not self._anybody_asked_about(row)
                    known.by_row.update({row: None} if hopeless else self._look([row], counted=False))
        options = {row: option for row in rows.tolist() if (option := known.by_row[row]) is not None}
        known.mark_seen(cluster, residents)
        if not self._evaluation.node_local:
            # What others ease from elsewhere has to be asked again next time.
            for row in rows[~counted].tolist():
                del known.by_row[row]
        return options

    def _anybody_asked_about(self, row: int) -> bool:
        """Whether somebody on a row is counted for anything that others may ask about, or has devices that it wants."""
        placed = self._cluster.placed
        for resident in self._residents.on(self._cluster.node(row).id):
            if resident.devices and self._evaluation.wants_devices:
                return True
            told = self._standing.told_constraints(resident, row)
            if told is not None and placed.is_asked_about(told, leaving=resident.leaving_for is not None):
                return True
        return False

    def _look(self, rows: Sequence[int], *, counted: bool) -> dict[int, Option | None]:
        """Who has to leave each row for the workload to fit there; None if nobody can make it fit, or nobody has to.

        `counted`: only what tasks occupy is looked at, so that many rows can be looked at side by side.
        """
        options: dict[int, Option | None] = dict.fromkeys(rows)
        sights = [sight for row in rows if (sight := self._sight(row, counted=counted)).present]
        sights = self._fitting(sights, False, counted=counted)
        trial, gone = Trial(self._cluster), dict(self._gone)
        try:
            self._think_away(trial, [resident for sight in sights for resident in sight.present], counted=counted)
            sights = self._fitting(sights, True, counted=counted)
            victims: dict[int, list[Unit]] = {sight.row: [] for sight in sights}
            for rank in range(max((len(sight.units) for sight in sights), default=0)):
                asked = [sight for sight in sights if rank < len(sight.units)]
                back = [resident for sight in asked for resident in sight.moved(rank)]
                self._give_back(trial, back, counted=counted)
                refused = self._fitting(asked, False, counted=counted)
                again = [resident for sight in refused for resident in sight.moved(rank)]
                self._think_away(trial, again, counted=counted)
                for sight in refused:
                    victims[sight.row].append(sight.units[rank])
            for sight in sights:
                options[sight.row] = _cost(victims[sight.row]), tuple(victims[sight.row])
            return options
        finally:
            self._gone = gone
            trial.revert()

    def _sight(self, row: int, *, counted: bool) -> _Sight:
        """Who is on a row, in the order in which they are given back."""
        node_id = self._cluster.node(row).id
        here = self._residents.on(node_id)
        leaving = [each for each in here if each.leaving_for is not None and each.task_id not in self._gone]
        units = self._units_on(here)
        if any(unit.violating for unit in units):
            units.sort(key=lambda unit: unit.order)
        return _Sight(row, node_id if counted else None, leaving, units)

    def _units_on(self, here: Iterable[Resident]) -> list[Unit]:
        """Who may have to leave one node. Budgets are spent from the most important on."""
        units: list[tuple[Resident, ...]] = []
        seen: set[UUID] = set()
        for resident in here:
            if resident.workload_id in seen:
                continue
            together: tuple[Resident, ...] = (resident,)
            if resident.whole:
                seen.add(resident.workload_id)
                together = tuple(self._residents.of_workload(resident.workload_id))
            if all(self._may_leave(each) for each in together):
                units.append(together)
        units.sort(key=lambda unit: importance(unit[0]))
        if self._claim is not None:
            units = self._claim.within(units, (unit.residents for unit in self._units))
        spent = Counter(resident.workload_id for unit in self._units for resident in unit.residents)
        violating: set[UUID] = set()
        for resident in (resident for unit in units for resident in unit) if self._standing.allowed else ():
            allowed = self._standing.allowed.get(resident.workload_id)
            if allowed is not None:
                spent[resident.workload_id] += 1
                if spent[resident.workload_id] > allowed:
                    violating.add(resident.task_id)
        if not violating:
            return [Unit(unit, _NOBODY) for unit in units]
        return [Unit(unit, frozenset(each.task_id for each in unit) & violating) for unit in units]

    def _may_leave(self, resident: Resident) -> bool:
        return (
            resident.preemptible
            and resident.leaving_for is None
            and (self._claim is not None or resident.priority < self._workload.priority)
            and (resident.started_at is None or resident.started_at <= self._started_by)
            and (self._owner is None or self._standing.owner(resident) == self._owner)
            and resident.task_id not in self._gone
        )

    def _fitting(self, sights: Sequence[_Sight], wanted: bool, *, counted: bool) -> list[_Sight]:
        """Those onto whose rows every filter lets the tasks as the trial has it; not `wanted`: the others."""
        rows = [sight.row for sight in sights]
        if counted:
            fits = self._passing(np.array(rows, dtype=np.intp), counted=True).tolist()
        else:
            fits = [self._fits_fully(row) for row in rows]
        return [sight for sight, does in zip(sights, fits, strict=True) if does == wanted]

    def _fits_fully(self, row: int) -> bool:
        """Whether all tasks that have to be on one node pass every filter there, one after the other."""
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
        """Which rows pass the filters that count what tasks occupy, or the others that tasks could ease by leaving."""
        passing = np.ones(len(rows), dtype=np.bool_)
        for plugin in (self._counting if counted else self._others) if len(rows) else ():
            passing &= ask_filter(plugin, self._evaluation.shape, self._cluster, rows)
        return passing

    def _assume(self, trial: Trial, row: int, score: int = 0) -> Place:
        constraints = self._cluster.with_ports(row, self._evaluation.shape.constraints)
        devices = self._evaluation.devices_on(row)
        trial.assume(np.array([row], dtype=np.intp), self._evaluation.demand, constraints, (devices,))
        return Place(row, constraints, devices, score)

    def _free_room(self) -> Place | None:
        """A place that needs nobody to leave, or nobody beyond those that this plan has chosen."""
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

    def _take(self, row: int, units: Sequence[Unit]) -> list[Place]:
        """Choose a row: who has to leave is gone for the rest of the search."""
        self.needs_others = True
        here = self._residents.on(self._cluster.node(row).id)
        leaving = [each for each in here if each.leaving_for is not None and each.task_id not in self._gone]
        self._think_away(self.trial, leaving)
        for unit in units:
            self._think_away(self.trial, unit.residents)
        self._units.extend(units)
        self._victims |= {victim.task_id: victim for victim in _victims(units)}
        self._own[row] += self._at_once
        return [self._assume(self.trial, row) for _ in range(self._at_once)]

    def _reprieve(self, places: Sequence[Place]) -> None:
        """Give back those whom only some of the places needed at their turn, and none needs now."""
        rows = [np.array([place.row], dtype=np.intp) for place in places]
        demand = self._evaluation.demand
        for unit in sorted(self._units, key=lambda unit: unit.order):
            self._give_back(self.trial, unit.residents)
            for row, place in zip(rows, places, strict=True):
                self.trial.forget(row, demand, place.constraints, (place.devices,))
            fits = True
            for row, place in zip(rows, places, strict=True):
                fits = fits and bool(self._passing(row, counted=True)[0] and self._passing(row, counted=False)[0])
                self.trial.assume(row, demand, place.constraints, (place.devices,))
            if fits:
                self._units.remove(unit)
            else:
                self._think_away(self.trial, unit.residents)

    def _think_away(self, trial: Trial, residents: Sequence[Resident], *, counted: bool = False) -> None:
        if counted:
            trial.shift(*self._occupied(residents), -1)
            return
        for resident in residents:
            row = self._cluster.row_of(resident.node_id)
            if row is not None:
                constraints = self._gone[resident.task_id] = self._standing.told_constraints(resident, row)
                leaving = resident.leaving_for is not None
                trial.forget(*self._counted(resident, row), constraints, (resident.devices,), leaving=leaving)

    def _give_back(self, trial: Trial, residents: Sequence[Resident], *, counted: bool = False) -> None:
        if counted:
            trial.shift(*self._occupied(residents), 1)
            return
        for resident in residents:
            row = self._cluster.row_of(resident.node_id)
            if row is not None:
                constraints = self._gone.pop(resident.task_id)
                leaving = resident.leaving_for is not None
                trial.assume(*self._counted(resident, row), constraints, (resident.devices,), leaving=leaving)

    def _occupied(self, residents: Sequence[Resident]) -> tuple[list[int], list[Amounts]]:
        """Where residents are, and what they occupy there."""
        rows = [self._cluster.row_of(resident.node_id) for resident in residents]
        known = [(row, resident.request) for row, resident in zip(rows, residents, strict=True) if row is not None]
        return [row for row, _ in known], [request for _, request in known]

    def _counted(self, resident: Resident, row: int) -> tuple[Rows, Demand]:
        return np.array([row], dtype=np.intp), self._cluster.demand(tuple(sorted(resident.request.items())))


def _cost(units: Sequence[Unit]) -> Cost:
    residents = [resident for unit in units for resident in unit.residents]
    if not residents:
        return NOBODY_LEAVES
    highest = max(resident.priority for resident in residents)
    return Cost(
        sum(len(unit.violating) for unit in units),
        highest,
        sum(resident.priority - LOWEST_PRIORITY for resident in residents),
        len(residents),
        -min(start_of(resident.started_at) for resident in residents if resident.priority == highest),
    )


def _victims(units: Iterable[Unit]) -> list[Victim]:
    """The most important first."""
    leaving = [(resident, resident.task_id in unit.violating) for unit in units for resident in unit.residents]
    leaving.sort(key=lambda each: importance(each[0]))
    return [Victim(each.task_id, each.workload_id, each.node_id, violates) for each, violates in leaving]


def curable(evaluation: Evaluation, rows: Rows) -> Rows:
    """The rows where nothing stands in the way that would not be cured if others left."""
    shape, cluster = evaluation.shape, evaluation.cluster
    for plugin in evaluation.active.filters:
        if not len(rows):
            break
        passing = ask_filter(plugin, shape, cluster, rows)
        if passing.all():
            continue
        if isinstance(plugin, TaskAntiAffinityFilter):
            # A strict group that keeps it away is not made to leave for it.
            rows = rows[~beside_members(shape, cluster, rows)]
        elif plugin.depends_on == "static" or ask_why(plugin, shape, cluster, rows[~passing]).cure != "release":
            rows = rows[passing]
    return rows
