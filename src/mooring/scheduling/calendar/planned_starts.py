"""Planned starts of work that requests more than slots: the first moment at which the ordinary selection finds nodes.

Near moments at which capacity is released are tried one after the other. Among distant ones the first is found by
doubling the distance and then bisecting. A promised moment was itself tried, so it holds whether or not nodes only ever
become freer. Where they do not, an earlier distant moment may be missed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from mooring.model.reasons import Cure, Reason
from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.constraints import HostPort
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.future_cluster import Future, future_of
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.filter_report import look, summary, with_own_rules
from mooring.scheduling.gangs import shape_on_node
from mooring.scheduling.node_selection import Selection, own_tasks, select
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.profiles import Profile

_NEAR = 16
"""Moments that are tried one after the other."""
_ROUNDS = 8
"""Maximum start moments of one workload whose tasks do not start together."""
_STEPS = 20_000
"""Cluster changes that the search may make in one pass, so that no workload delays the pass for long."""
_STEPS_OF_A_LOOK = 50
"""The cost of trying a moment, in addition to its changes."""
_OPEN_ENDED = "work without a time limit holds the missing capacity"


class StartSearch:
    """The search for planned starts in one pass, with its budget of steps."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        # Node selection is only a query here: it must not change the state of a selector.
        self._profile = profile if profile.selector is None else replace(profile, selector=None)
        self._steps = _STEPS

    def plan(self, workload: Workload, evaluation: Evaluation, count: int, least: int, first: int) -> int | Reason:
        """Plan up to `count` tasks at the first moments at which `least` of them fit; return the start or why not."""
        rows = np.flatnonzero(evaluation.may_ever)
        at_once = 1 if workload.single_node else least
        seconds = self._cluster.timeline.planned_seconds(workload)
        first = self._cluster.timeline.earliest_for_gang(rows, evaluation.demand, seconds, at_once, first)
        if first == NEVER:
            return not_planned()
        start, rest = NEVER, workload
        for number in range(_ROUNDS):
            with future_of(self._cluster, self._candidate_rows(evaluation, workload, rows)) as future:
                search = _Search(self._cluster, self._profile, future, rest, count, min(least, count))
                found = search.first(first, self._steps, None if number else workload.planned_start)
                self._steps = search.steps
                if found is None:
                    if not number:
                        return search.why()
                    break
            moment, selection = found
            self._promise(workload, selection, moment, number)
            start, count = min(start, moment), count - len(selection.rows)
            if not count:
                break
            rest, first = _with_more_tasks(rest, self._cluster, selection.rows), moment + 1
        return start

    def _candidate_rows(self, evaluation: Evaluation, workload: Workload, rows: Rows) -> list[int]:
        """Return the rows on which an end matters: the eligible nodes, or the whole pool if tasks elsewhere matter."""
        local = all(plugin.depends_on in ("static", "row") for plugin in evaluation.active.filters)
        asked: list[int] = (rows if local else self._cluster.rows_of_pool(workload.pool)).tolist()
        return asked

    def _promise(self, workload: Workload, selection: Selection, start: int, number: int) -> None:
        timeline = self._cluster.timeline
        seconds = timeline.planned_seconds(workload)
        end = None if seconds is None else start + max(seconds, 1)
        amounts = dict(shape_of(workload, self._cluster).request)
        given = zip(selection.rows, selection.ports, selection.devices, strict=True)
        for task, (row, ports, devices) in enumerate(given):
            footprint = Footprint(with_host_ports(workload.constraints, map(HostPort, ports)), devices)
            timeline.plan(workload.pool, workload.id, (number, task), row, start, end, amounts, footprint)
        self._cluster.plans.renew(set(selection.rows))


class _Search:
    """The search for one moment at which at least `least` of a workload's tasks find nodes."""

    def __init__(
        self, cluster: Cluster, profile: Profile, future: Future, workload: Workload, count: int, least: int
    ) -> None:
        self.steps = 0
        """The remaining budget."""
        self._cluster = cluster
        self._future = future
        self._workload = workload
        self._seconds = None if workload.longest_seconds is None else cluster.timeline.planned_seconds(workload)
        self._count = count
        self._least = least
        self._evaluation = Evaluation(shape_on_node(workload, cluster, count), cluster, profile)
        self._moments: Sequence[int] = ()
        self._free_now = {name: column.free.copy() for name, column in cluster.devices.columns.items()}

    def first(self, not_before: int, steps: int, promised: datetime | None = None) -> tuple[int, Selection] | None:
        """Return the first moment found, with its node selection; a previously promised moment is held if possible."""
        self.steps = steps
        moments = {not_before, *(moment for moment in self._future.moments if moment > not_before)}
        known = 0 if promised is None else seconds_of(promised)
        if known > not_before:
            moments.add(known)
        self._moments = sorted(moments)
        best: tuple[int, Selection] | None = None
        end = len(self._moments)
        if known > not_before:
            at = bisect_left(self._moments, known)
            selection = self._try(known)
            if selection is not None:
                best, end = (known, selection), at
        low = 0
        for at in _near_then_far(end):
            if self.steps <= 0:
                return best
            selection = self._try(self._moments[at])
            if selection is not None:
                best, end = (self._moments[at], selection), at
                break
            low = at + 1
        while low < end and best is not None and self.steps > 0:
            middle = (low + end) // 2
            selection = self._try(self._moments[middle])
            if selection is None:
                low = middle + 1
            else:
                best, end = (self._moments[middle], selection), middle
        return best

    def why(self) -> Reason:
        """Return why no moment was found, by the state of the nodes at the last one."""
        if self.steps <= 0:
            return not_planned("the search exceeds the steps of a pass")
        self._future.move_to(self._moments[-1], self._seconds)
        self._evaluation.refresh()
        own = own_tasks(self._workload, self._cluster)
        report = with_own_rules(look(self._evaluation), self._evaluation, self._workload, own)
        cures = {rejected.why.cure for rejected in report.rejected}
        cure: Cure = "change" if cures and "release" not in cures else "release"
        what = f"once all work with a time limit has ended, {summary(report, self._workload.pool)}"
        return not_planned(what, cure)

    def _try(self, moment: int) -> Selection | None:
        """Return the node selection at a moment if it covers enough tasks."""
        changes = self._future.move_to(moment, self._seconds)
        self.steps -= changes + _STEPS_OF_A_LOOK
        self._evaluation.refresh()
        trial = Trial(self._cluster)
        try:
            selection = select(self._evaluation, trial, self._workload, self._count, least=self._least)
        finally:
            trial.revert()
        if len(selection.rows) < max(self._least, 1):
            return None
        return replace(selection, devices=self._as_they_come_back(selection)) if any(selection.devices) else selection

    def _as_they_come_back(self, selection: Selection) -> list[tuple[DeviceShare, ...]]:
        """Return the selection's devices, each replaced by an equal one of which the least must be withheld."""
        columns = self._cluster.devices.columns
        free = {name: column.free.copy() for name, column in columns.items()}
        given: list[tuple[DeviceShare, ...]] = []
        for row, shares in zip(selection.rows, selection.devices, strict=True):
            chosen: list[DeviceShare] = []
            for slot, device, amount in shares:
                column, then, now = columns[slot], free[slot][row], self._free_now[slot][row]
                index, taken = column.index[row], {each.device for each in chosen if each.slot == slot}
                [at] = np.flatnonzero((index == device) & (column.capacity[row] > 0)).tolist()
                matching = np.ones(len(index), dtype=np.bool_)
                for kind in (column.capacity[row], column.memory[row], column.model[row]):
                    matching &= kind == kind[at]
                matching &= (then >= amount) & ~np.isin(index, list(taken))
                withheld = np.maximum(amount - (then - now), 0)
                order = np.lexsort((then, withheld))
                suitable = order[matching[order]]
                if not len(suitable):
                    return selection.devices
                best = int(suitable[0])
                then[best] -= amount
                chosen.append(DeviceShare(slot, int(index[best]), amount))
            given.append(tuple(chosen))
        return given


def not_planned(why: str = _OPEN_ENDED, cure: Cure = "release") -> Reason:
    """Return the reason of a start that cannot be planned, for which nothing is withheld."""
    return Reason("no-planned-start", f"its start cannot be planned: {why}", "backfill", cure)


def _near_then_far(number: int) -> Iterator[int]:
    """Yield positions below a number: the first ones, then ones at doubling distances, then the last."""
    yield from range(min(_NEAR, number))
    at, distance = _NEAR, 1
    while at < number - 1:
        yield at
        at, distance = at + distance, 2 * distance
    if number > _NEAR:
        yield number - 1


def _with_more_tasks(workload: Workload, cluster: Cluster, rows: Sequence[int]) -> Workload:
    """Return the workload as it is once further tasks of it are on these rows."""
    occupied = Counter(dict(workload.occupied))
    occupied.update(cluster.node(row).id for row in rows)
    return replace(workload, occupied=dict(occupied))
