"""Preemption: who has to leave so that a workload finds room. This is the definition; nothing is touched before a plan
is complete, and a plan that is not carried out can be withdrawn.

Per node all tasks that may have to leave are thought away; if the workload fits then, they are given back, those first
whose loss breaks a budget, then the most important, as long as it still fits. Who is left over are the victims. A task
that leaves for an earlier plan counts as gone for the plans that follow, and as present for everybody else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.constraints import Constraints, HostPort
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.preemption import Budgets, Preemption, Resident, Victim, VictimScope
from mooring.model.slots import Amounts
from mooring.model.workloads import Task, Workload
from mooring.scheduling.columns import Cluster, Demand, Mask, Rows, with_host_ports
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.explanation import forget
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins import ask_filter, ask_why
from mooring.scheduling.profiles import Profile
from mooring.scheduling.residents import NOT_STARTED, Residents, importance, shown_constraints, start_of
from mooring.scheduling.selection import own_tasks, select
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.trial import Trial

LOWEST_PRIORITY = -(1 << 31)
"""Sums of priorities count from here, so that no victim makes a sum smaller."""
_COSTS_KEPT = 64


class Cost(NamedTuple):
    """What the victims on a node are worth; the smallest is chosen, by name among equals."""

    violations: int
    highest: int
    total: int
    victims: int
    age: int
    """The later the longest-running of the highest priority started, the smaller."""


NOBODY_LEAVES = Cost(0, 2 * LOWEST_PRIORITY, 0, 0, -NOT_STARTED)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node on which the workload fits once the victims have left."""

    row: int
    node_name: str
    victims: tuple[Victim, ...]
    cost: Cost


class Preemptor:
    """Plans by one pool's rules. What it plans counts at once: the place is taken, and the victims are spoken for."""

    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        residents: Residents,
        rules: Preemption,
        budgets: Budgets | None = None,
    ) -> None:
        self.cluster = cluster
        self.profile = profile
        self.residents = residents
        self.rules = rules
        self.allowed: dict[UUID, int] = {}
        """How many more tasks of a workload may be disturbed, what was planned subtracted."""
        self._known: dict[tuple[object, ...], _Known] = {}
        self.tell_budgets(budgets or Budgets())

    def tell_budgets(self, budgets: Budgets) -> None:
        """How many tasks may be disturbed from now on; plans made before are no longer subtracted."""
        for workload_id in self.allowed.keys() | budgets.allowed.keys():
            if self.allowed.get(workload_id) != budgets.allowed.get(workload_id):
                self.residents.note_workload(workload_id)
        self.allowed = dict(budgets.allowed)

    def may_preempt(self, workload: Workload) -> bool:
        """Not one that never does, and not while tasks still leave for it on a node where it may run."""
        if not workload.preempts:
            return False
        leaving = {self.cluster.row_of(resident.node_id) for resident in self.residents.leaving_for(workload.id)}
        rows = np.array([row for row in leaving if row is not None], dtype=np.intp)
        if not len(rows):
            return True
        return not len(_curable(Evaluation(shape_of(workload, self.cluster), self.cluster, self.profile), rows))

    def plan(self, workload: Workload, tasks: Sequence[Task], now: datetime, *, together: bool) -> Decision | None:
        """Places for tasks that found no room, and who has to leave for them; None if even that does not help.

        `together`: all of the tasks get a place or none; each may use free room, or preempt.
        """
        if not self.could_find_victims(workload):
            return None
        search = _Search(self, workload, now)
        try:
            places = search.places(len(tasks), together=together)
        finally:
            search.trial.revert()
        return self._carry_out(workload, tasks, places, search.victims) if places and search.needs_others else None

    def could_find_victims(self, workload: Workload) -> bool:
        """Whether a plan is worth a look at the nodes."""
        lowest = self.residents.lowest_priority
        return lowest is not None and lowest < workload.priority and self.may_preempt(workload)

    def candidates(self, workload: Workload, now: datetime) -> list[Candidate]:
        """All nodes where others leaving would make room for one task, the best first. Nothing is planned."""
        return _Search(self, workload, now).candidates() if self.may_preempt(workload) else []

    def withdraw(self, decision: Decision) -> None:
        """Undo a plan: its place is free again, and its victims stay."""
        forget(self.cluster, decision)
        self._mark(decision.victims, decision.workload.id, None)

    def accept(self, workload: Workload, victims: Sequence[Victim]) -> None:
        """The victims are spoken for: they still occupy what they have, and only this workload counts on it."""
        self._mark(victims, None, workload.id)

    def owner(self, one: Resident | Workload) -> UUID | None:
        """Whose tasks may have to leave for whose: those with the same answer."""
        match self.rules.scope:
            case VictimScope.USER:
                return one.user_id
            case VictimScope.PROJECT:
                return one.project_id
            case VictimScope.DOMAIN:
                return one.domain_id
            case VictimScope.POOL:
                return None

    def told_constraints(self, resident: Resident, row: int) -> Constraints | None:
        """What the cluster counts of a task for others to ask about; None where it was not told of it."""
        for constraints in (shown_constraints(resident), resident.constraints):
            if self.cluster.placed.has(row, constraints, leaving=resident.leaving_for is not None):
                return constraints
        return None

    def known(self, key: tuple[object, ...], now: datetime) -> _Known:
        """What is kept about nodes for workloads that are alike."""
        known = self._known.get(key)
        if known is None or (known.now != now and self.rules.min_runtime_seconds):
            if len(self._known) >= _COSTS_KEPT:
                self._known.clear()
            known = self._known[key] = _Known(now)
        return known

    def _carry_out(
        self, workload: Workload, tasks: Sequence[Task], places: Sequence[_Place], victims: Sequence[Victim]
    ) -> Decision:
        cluster, shape = self.cluster, shape_of(workload, self.cluster)
        demand = cluster.demand(shape.request, shape.uncounted)
        placements: list[Placement] = []
        for task, place in zip(tasks, places, strict=False):
            constraints = cluster.with_ports(place.row, shape.constraints)
            if len(constraints.host_ports) < len(place.constraints.host_ports):
                # Only victims' ports are left of the range.
                constraints = place.constraints
            cluster.assume(np.array([place.row], dtype=np.intp), demand, constraints)
            node = cluster.node(place.row)
            ports = tuple(port.port for port in constraints.host_ports[len(shape.constraints.host_ports) :])
            placements.append(Placement(task.id, node.id, node.name, node.generation, place.score, ports))
        self.accept(workload, victims)
        return Decision(workload, Outcome.RESERVED, tuple(placements), victims=tuple(victims))

    def _mark(self, victims: Sequence[Victim], before: UUID | None, after: UUID | None) -> None:
        """Victims leave for `after` instead of `before`; those that changed in between are left alone."""
        by_node: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for victim in victims:
            by_node[victim.node_id].add(victim.task_id)
        for node_id, tasks in by_node.items():
            row = self.cluster.row_of(node_id)
            marked: dict[UUID, UUID | None] = {}
            for resident in self.residents.on(node_id):
                if resident.task_id in tasks and resident.leaving_for == before:
                    marked[resident.task_id] = after
                    constraints = None if row is None else self.told_constraints(resident, row)
                    if row is not None and constraints is not None:
                        self.cluster.set_leaving(row, constraints, after is not None)
                    if resident.workload_id in self.allowed:
                        self.allowed[resident.workload_id] += 1 if after is None else -1
                        self.residents.note_workload(resident.workload_id)
            self.residents.mark(node_id, marked)


class _Unit(NamedTuple):
    """Tasks that leave together: one, or all of a workload that lives or dies as a whole; the most important first."""

    residents: tuple[Resident, ...]
    violating: frozenset[UUID]
    """Those whose loss breaks a budget."""

    @property
    def order(self) -> tuple[bool, tuple[int, int, int]]:
        """Who is given back first."""
        return not self.violating, importance(self.residents[0])


@dataclass(frozen=True, slots=True)
class _Sight:
    """Those on a row who leave already, and those who may have to."""

    row: int
    node_id: UUID | None
    """Only what is on this node is moved; None: units are moved with all that they have elsewhere."""
    leaving: list[Resident]
    units: list[_Unit]

    @property
    def present(self) -> list[Resident]:
        return [*self.leaving, *(resident for rank in range(len(self.units)) for resident in self.moved(rank))]

    def moved(self, rank: int) -> Sequence[Resident]:
        residents = self.units[rank].residents
        if self.node_id is None or len(residents) == 1:
            return residents
        return [resident for resident in residents if resident.node_id == self.node_id]


class _Place(NamedTuple):
    row: int
    constraints: Constraints
    score: int = 0


class _Known:
    """What leaving tasks would make of the rows, as long as nothing changes there."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.by_row: dict[int, tuple[Cost, tuple[_Unit, ...]] | None] = {}
        self._seen = self._residents_seen = -1

    def forget_stale(self, cluster: Cluster, residents: Residents) -> None:
        rows, nodes = cluster.changes.since(self._seen), residents.changed_since(self._residents_seen)
        if rows is None or nodes is None:
            self.by_row.clear()
            return
        for row in (*rows.tolist(), *map(cluster.row_of, nodes)):
            self.by_row.pop(row, None)

    def mark_seen(self, cluster: Cluster, residents: Residents) -> None:
        self._seen, self._residents_seen = cluster.changes.revision, residents.revision


class _Search:
    """One workload's search for places, on a trial of the cluster."""

    def __init__(self, preemptor: Preemptor, workload: Workload, now: datetime) -> None:
        self._preemptor = preemptor
        self._cluster = preemptor.cluster
        self._residents = preemptor.residents
        self._workload = workload
        self._now = now
        self._owner = preemptor.owner(workload)
        self._started_by = now - timedelta(seconds=preemptor.rules.min_runtime_seconds)
        self._evaluation = Evaluation(shape_of(workload, self._cluster), self._cluster, preemptor.profile)
        asked = [plugin for plugin in self._evaluation.active.filters if plugin.depends_on != "static"]
        self._filters = asked
        self._counters_alone = all(isinstance(plugin, ResourcesFilter | TasksPerNodeFilter) for plugin in asked)
        """No filter that others could cure by leaving asks about more than what they occupy."""
        self._own = own_tasks(workload, self._cluster)
        self._at_once = 1
        """How many tasks have to fit on one node."""
        self._gone: dict[UUID, Constraints | None] = {}
        """The tasks that are thought away, each with what the cluster had counted of it."""
        self._units: list[_Unit] = []
        self._victims: dict[UUID, Victim] = {}
        self.trial = Trial(self._cluster)
        self.needs_others = False
        """Some place is only there once others have left."""

    @property
    def victims(self) -> list[Victim]:
        leaving = [resident for unit in self._units for resident in unit.residents]
        return [self._victims[resident.task_id] for resident in sorted(leaving, key=importance)]

    def places(self, count: int, *, together: bool) -> list[_Place]:
        """Places for so many tasks, each counted before the next is looked for; the trial is left to be reverted."""
        workload, found = self._workload, list[_Place]()
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
        if together and len(found) < count:
            return []
        if len(found) > 1:
            self._reprieve(found)
        return found

    def candidates(self) -> list[Candidate]:
        cluster = self._cluster
        options = sorted(self._options().items(), key=lambda option: (option[1][0], -cluster.precedence[option[0]]))
        return [Candidate(row, cluster.node(row).name, tuple(_victims(units)), cost) for row, (cost, units) in options]

    def _best(self) -> tuple[int, tuple[_Unit, ...]] | None:
        """The row whose victims are worth the least."""
        options, precedence = self._options(), self._cluster.precedence
        if not options:
            return None
        row = min(options, key=lambda row: (options[row][0], -precedence[row]))
        return row, options[row][1]

    def _options(self) -> dict[int, tuple[Cost, tuple[_Unit, ...]]]:
        """Every row on which leaving tasks would make room, with who has to leave."""
        cluster, residents, workload = self._cluster, self._residents, self._workload
        rows = _curable(self._evaluation, cluster.rows_of_pool(workload.pool))
        if workload.max_per_node is not None:
            rows = rows[self._own[rows] + self._at_once <= workload.max_per_node]
        alike = (self._evaluation.shape, workload.priority, self._owner, self._at_once)
        known = self._preemptor.known(alike, self._now)
        known.forget_stale(cluster, residents)
        if not self._evaluation.node_local:
            known.by_row.clear()
        stale = [row for row in rows.tolist() if row not in known.by_row]
        if self._counters_alone and self._at_once == 1:
            known.by_row.update(self._look(stale))
        else:
            for row in stale:
                known.by_row.update(self._look([row]))
        known.mark_seen(cluster, residents)
        return {row: option for row in rows.tolist() if (option := known.by_row[row]) is not None}

    def _look(self, rows: Sequence[int]) -> dict[int, tuple[Cost, tuple[_Unit, ...]] | None]:
        """Who has to leave each row for the workload to fit there; None if nobody can make it fit, or nobody has to.

        Several rows are looked at side by side, which is only right where nothing on one row concerns another.
        """
        options: dict[int, tuple[Cost, tuple[_Unit, ...]] | None] = dict.fromkeys(rows)
        sights = [sight for row in rows if (sight := self._sight(row, alone=len(rows) == 1)).present]
        sights = [sight for sight, fits in self._fitting(sights) if not fits]
        trial = Trial(self._cluster)
        gone = dict(self._gone)
        try:
            self._think_away(trial, [resident for sight in sights for resident in sight.present])
            sights = [sight for sight, fits in self._fitting(sights) if fits]
            victims: dict[int, list[_Unit]] = {sight.row: [] for sight in sights}
            for rank in range(max((len(sight.units) for sight in sights), default=0)):
                asked = [sight for sight in sights if rank < len(sight.units)]
                self._give_back(trial, [resident for sight in asked for resident in sight.moved(rank)])
                refused = [sight for sight, fits in self._fitting(asked) if not fits]
                self._think_away(trial, [resident for sight in refused for resident in sight.moved(rank)])
                for sight in refused:
                    victims[sight.row].append(sight.units[rank])
            for sight in sights:
                options[sight.row] = _cost(victims[sight.row]), tuple(victims[sight.row])
            return options
        finally:
            self._gone = gone
            trial.revert()

    def _sight(self, row: int, *, alone: bool) -> _Sight:
        """Who is on a row, in the order in which they are given back."""
        node_id = self._cluster.node(row).id
        here = self._residents.on(node_id)
        leaving = [each for each in here if each.leaving_for is not None and each.task_id not in self._gone]
        units = sorted(self._units_on(here), key=lambda unit: unit.order)
        return _Sight(row, None if alone else node_id, leaving, units)

    def _units_on(self, here: Iterable[Resident]) -> list[_Unit]:
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
        spent: defaultdict[UUID, int] = defaultdict(int)
        violating: set[UUID] = set()
        for resident in (resident for unit in units for resident in unit):
            allowed = self._preemptor.allowed.get(resident.workload_id)
            if allowed is not None:
                spent[resident.workload_id] += 1
                if spent[resident.workload_id] > allowed:
                    violating.add(resident.task_id)
        return [_Unit(unit, frozenset(each.task_id for each in unit) & violating) for unit in units]

    def _may_leave(self, resident: Resident) -> bool:
        return (
            resident.preemptible
            and resident.leaving_for is None
            and resident.priority < self._workload.priority
            and (resident.started_at is None or resident.started_at <= self._started_by)
            and self._preemptor.owner(resident) == self._owner
            and resident.task_id not in self._gone
        )

    def _fitting(self, sights: Sequence[_Sight]) -> Iterable[tuple[_Sight, bool]]:
        """Of each row whether every filter lets the tasks onto it as the trial has it."""
        fits = self._passing(np.array([sight.row for sight in sights], dtype=np.intp))
        if self._at_once > 1:
            fits &= [self._fits_several(sight.row) for sight in sights]
        return zip(sights, fits.tolist(), strict=True)

    def _fits_several(self, row: int) -> bool:
        """Whether tasks that have to be on one node fit on it, one after the other."""
        trial = Trial(self._cluster)
        try:
            for _ in range(self._at_once - 1):
                if not self._passing(np.array([row], dtype=np.intp))[0]:
                    return False
                self._assume(trial, row)
            return bool(self._passing(np.array([row], dtype=np.intp))[0])
        finally:
            trial.revert()

    def _passing(self, rows: Rows) -> Mask:
        passing = np.ones(len(rows), dtype=np.bool_)
        for plugin in self._filters if len(rows) else ():
            passing &= ask_filter(plugin, self._evaluation.shape, self._cluster, rows)
        return passing

    def _assume(self, trial: Trial, row: int) -> Constraints:
        constraints = self._cluster.with_ports(row, self._evaluation.shape.constraints)
        trial.assume(np.array([row], dtype=np.intp), self._evaluation.demand, constraints)
        return constraints

    def _free_room(self) -> _Place | None:
        """A place that needs nobody to leave, or nobody beyond those that this plan has chosen."""
        occupied = {self._cluster.node(row).id: int(self._own[row]) for row in np.flatnonzero(self._own).tolist()}
        self._evaluation.refresh()
        selection = select(self._evaluation, self.trial, replace(self._workload, occupied=occupied), 1, together=False)
        if not selection.rows:
            return None
        row = selection.rows[0]
        self._own[row] += 1
        given = (HostPort(port) for port in selection.ports[0])
        return _Place(row, with_host_ports(self._evaluation.shape.constraints, given), selection.scores[0])

    def _take(self, row: int, units: Sequence[_Unit]) -> list[_Place]:
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
        return [_Place(row, self._assume(self.trial, row)) for _ in range(self._at_once)]

    def _reprieve(self, places: Sequence[_Place]) -> None:
        """Give back those whom only some of the places needed at their turn, and none needs now."""
        rows = [np.array([place.row], dtype=np.intp) for place in places]
        demand = self._evaluation.demand
        for unit in sorted(self._units, key=lambda unit: unit.order):
            self._give_back(self.trial, unit.residents)
            for row, place in zip(rows, places, strict=True):
                self.trial.forget(row, demand, place.constraints)
            fits = True
            for row, place in zip(rows, places, strict=True):
                fits = fits and bool(self._passing(row)[0])
                self.trial.assume(row, demand, place.constraints)
            if fits:
                self._units.remove(unit)
            else:
                self._think_away(self.trial, unit.residents)

    def _think_away(self, trial: Trial, residents: Sequence[Resident]) -> None:
        if self._counters_alone:
            self._gone.update(dict.fromkeys(resident.task_id for resident in residents))
            trial.shift(*self._occupied(residents), -1)
            return
        for resident in residents:
            row = self._cluster.row_of(resident.node_id)
            if row is not None:
                constraints = self._gone[resident.task_id] = self._preemptor.told_constraints(resident, row)
                trial.forget(*self._counted(resident, row), constraints, leaving=resident.leaving_for is not None)

    def _give_back(self, trial: Trial, residents: Sequence[Resident]) -> None:
        if self._counters_alone:
            for resident in residents:
                del self._gone[resident.task_id]
            trial.shift(*self._occupied(residents), 1)
            return
        for resident in residents:
            row = self._cluster.row_of(resident.node_id)
            if row is not None:
                constraints = self._gone.pop(resident.task_id)
                trial.assume(*self._counted(resident, row), constraints, leaving=resident.leaving_for is not None)

    def _occupied(self, residents: Sequence[Resident]) -> tuple[list[int], list[Amounts]]:
        """Where residents are, and what they occupy there."""
        rows = [self._cluster.row_of(resident.node_id) for resident in residents]
        known = [(row, resident.request) for row, resident in zip(rows, residents, strict=True) if row is not None]
        return [row for row, _ in known], [request for _, request in known]

    def _counted(self, resident: Resident, row: int) -> tuple[Rows, Demand]:
        return np.array([row], dtype=np.intp), self._cluster.demand(tuple(sorted(resident.request.items())))


def _cost(units: Sequence[_Unit]) -> Cost:
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


def _victims(units: Iterable[_Unit]) -> list[Victim]:
    """The most important first."""
    leaving = [(resident, resident.task_id in unit.violating) for unit in units for resident in unit.residents]
    leaving.sort(key=lambda each: importance(each[0]))
    return [Victim(each.task_id, each.workload_id, each.node_id, violates) for each, violates in leaving]


def _curable(evaluation: Evaluation, rows: Rows) -> Rows:
    """The rows where nothing stands in the way that would not be cured if others left."""
    shape, cluster = evaluation.shape, evaluation.cluster
    for plugin in evaluation.active.filters:
        if not len(rows):
            break
        passing = ask_filter(plugin, shape, cluster, rows)
        if passing.all():
            continue
        if plugin.depends_on == "static" or ask_why(plugin, shape, cluster, rows[~passing]).cure != "release":
            rows = rows[passing]
    return rows
