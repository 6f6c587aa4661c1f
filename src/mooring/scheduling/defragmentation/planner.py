"""The planner: greedy steps of moves, the one with the highest gain per move first.

For each request that lacks capacity and each node, the cheapest evictions that make it fit are candidates. Evicted
tasks go to the nodes that the pool's profile prefers; where none fits, a task of another node moves first (a chain).
Clearing a node is the eviction of all its tasks. Each candidate is tried on the cluster, with all filters, before it
counts: after every single move, every task fits its node.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.policy.defragmentation import Gain, Move, PlacedTask, Plan, Start, Step
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.bound import bound
from mooring.scheduling.defragmentation.evictions import evictions, nearest
from mooring.scheduling.defragmentation.fill import best_filling, fill_of
from mooring.scheduling.defragmentation.trial_moves import TrialMoves, moves_alone
from mooring.scheduling.defragmentation.wanted import Wanted, wanted_of
from mooring.scheduling.plugins.profiles import Profile

_EFFORT = 200_000
"""The maximum number of evictions searched and candidates tried (each counts as `_TRIED`) for one plan."""
_TRIED = 20
_ROUNDING = 1e-3
"""Tolerance when a bound is rounded down to a whole number."""
_EVICTIONS = 16
"""The maximum number of tasks that leave one node for a request."""
_CHAIN_NODES = 24
"""The nodes that are searched for one task whose departure makes such a move possible."""
_CHAINS = 4
"""The maximum number of nodes tried for a task that fits nowhere, if another task leaves them first."""


class _Candidate(NamedTuple):
    """Evictions that serve a request on a row. The least comes first."""

    ratio: float
    """The gain per move, negated."""
    value: float
    """The gain, negated."""
    cost: tuple[int, int]
    """The run time that is lost, and the amounts that move."""
    row: int
    wanted: int
    """The position of the request; -1: of all requests that then fit on the row."""
    version: int
    """Of the row."""
    moves: int
    leaving: tuple[UUID, ...] = ()
    """For all requests: the tasks to evict."""


def plan(
    cluster: Cluster,
    profile: Profile,
    pool: str,
    placed: Iterable[PlacedTask],
    pending: Sequence[Workload],
    *,
    gain: Gain = Gain.GPU,
    most: int = 10,
    budgets: Mapping[UUID, int] | None = None,
    with_bound: bool = True,
) -> Plan:
    """Return at most `most` moves in order. The cluster is a copy, which the plan changes.

    `pending`: the workloads of the pool that lack capacity. `budgets`: by workload the number of tasks that may be
    disrupted at a time; a task of a workload without any left does not move.
    """
    spare = budgets or {}
    tasks = [
        replace(task, movable=task.movable and moves_alone(task.workload) and spare.get(task.workload.id, 1) > 0)
        for task in placed
    ]
    planner = _Planner(cluster, profile, pool, tasks, pending, gain, most)
    wanted = [(each.sample, each.value, each.left) for each in planner.wanted]
    found = planner.plan()
    if not with_bound:
        return found
    proven = bound(cluster, profile, pool, tasks, wanted, gain)
    if proven.value is None:
        return replace(found, bound=proven)
    # The bound counts all starts and empty nodes: the plan gains those that were not possible without moves.
    value = proven.value - planner.without_moves
    if gain is not Gain.GPU:
        # Whole tasks and whole nodes.
        value = float(floor(value + _ROUNDING))
    value = max(round(value, 3), found.gained)
    return replace(found, bound=replace(proven, value=value))


class _Planner:
    def __init__(
        self,
        cluster: Cluster,
        profile: Profile,
        pool: str,
        tasks: Sequence[PlacedTask],
        pending: Sequence[Workload],
        gain: Gain,
        most: int,
    ) -> None:
        self._cluster = cluster
        self._gain = gain
        self._most = most
        self._trial = TrialMoves(cluster, profile, tasks)
        self._rows = cluster.rows_of_pool(pool)[cluster.ready[cluster.rows_of_pool(pool)]].tolist()
        self.wanted = wanted_of(gain, cluster, pool, pending)
        self._tasks = tasks
        self._steps: list[Step] = []
        self._emptied: set[int] = set()
        self._gained = 0.0
        self.without_moves = 0.0
        """The gain that needs no moves: requests that fit now, or nodes that are empty."""
        self._effort = _EFFORT
        self._heap: list[_Candidate] = []
        self._order = _fill_order(self.wanted)

    def plan(self) -> Plan:
        before = self._place_fitting()
        self.without_moves = sum(self._value_of(start) for start in before)
        if self._gain is Gain.DRAIN_NODES:
            self._empty_nodes()
        else:
            self._serve()
        asked = self.wanted[0].sample.request if self._gain is Gain.LARGEST_GANG and self.wanted else {}
        return Plan(
            self._gain,
            tuple(self._steps),
            self._gained,
            movable=sum(task.movable for task in self._tasks),
            placed=len(self._tasks),
            gang=asked,
            gang_before=len(before) if asked else 0,
        )

    @property
    def _left(self) -> int:
        return self._most - sum(len(step.moves) for step in self._steps)

    # --- requests

    def _serve(self) -> None:
        for at in range(len(self.wanted)):
            self._offer(at, self._rows)
        self._offer_fillings(self._rows)
        while self._heap and self._left and self._effort > 0:
            best = heapq.heappop(self._heap)
            if best.moves > self._left:
                continue
            wanted = None if best.wanted < 0 else self.wanted[best.wanted]
            if wanted is not None and wanted.left < wanted.least:
                continue
            gang = wanted is not None and wanted.least > 1
            if not gang and best.version != self._trial.versions[best.row]:
                continue
            changed = self._serve_gang(wanted) if wanted is not None and gang else self._serve_on(best)
            for row in changed:
                for other in range(len(self.wanted)):
                    self._offer(other, [row])
            self._offer_fillings(changed)

    def _offer(self, at: int, rows: Sequence[int]) -> None:
        """Add the candidates of a request on rows. A gang is one candidate, by the evictions of its first task."""
        wanted = self.wanted[at]
        if wanted.left < wanted.least:
            return
        may = self._trial.evaluation(wanted.sample).may_ever
        for row in nearest(self._cluster, wanted.sample, np.flatnonzero(may), rows):
            if self._effort <= 0:
                return
            leaving, ahead = self._evictions(row, wanted.sample), 0
            if leaving is None:
                leaving, ahead = self._evictions(row, wanted.sample, chains=True), 1
            if leaving:
                number = len(leaving) + ahead
                version = self._trial.versions[row]
                ratio = -wanted.value / number
                heapq.heappush(self._heap, _Candidate(ratio, -wanted.value, _cost(leaving), row, at, version, number))

    def _offer_fillings(self, rows: Sequence[int]) -> None:
        """Add for each row the evictions with the highest gain of all requests that then fit on it."""
        may = [self._trial.evaluation(each.sample).may_ever for each in self.wanted]
        for row in rows:
            tasks = [
                task for task in self._trial.on[row].values() if task.movable and self._trial.fits_elsewhere(task, row)
            ]
            fitting = [self.wanted[at] for at in self._order if may[at][row]]
            if not tasks or not fitting or self._effort <= 0:
                continue
            self._effort -= len(tasks)
            found = best_filling(self._cluster, row, tasks, fitting, self._left)
            if found is not None:
                number, version = len(found.leaving), self._trial.versions[row]
                heapq.heappush(
                    self._heap,
                    _Candidate(
                        -found.gain / number,
                        -found.gain,
                        _cost(found.leaving),
                        row,
                        -1,
                        version,
                        number,
                        tuple(task.task_id for task in found.leaving),
                    ),
                )

    def _evictions(
        self, row: int, sample: Workload, most: int = _EVICTIONS, *, chains: bool = False
    ) -> list[PlacedTask] | None:
        """Return the tasks to move: those that fit elsewhere; with `chains`, also those that may once others moved."""
        self._effort -= 1
        tasks = [
            task
            for task in self._trial.on[row].values()
            if task.movable and (chains or self._trial.fits_elsewhere(task, row))
        ]
        return evictions(self._cluster, row, sample.request, tasks, min(most, self._left))

    def _serve_on(self, best: _Candidate) -> list[int]:
        """Clear a row and place the requests that then fit. Return the rows that changed; none if without success.

        A step that gains less per move than estimated goes back to the candidates if another may gain more.
        """
        row = best.row
        mark, before = self._trial.mark(), self._trial.versions.copy()
        moves = self._moves_for(best)
        served = [] if moves is None else self._fill(row, best.wanted)
        if moves is None or not served:
            self._trial.revert(mark)
            self._trial.versions = before
            return []
        value = sum(self.wanted[at].value for at in served)
        ratio = value / max(len(moves), 1)
        if self._heap and -self._heap[0][0] > ratio:
            self._trial.revert(mark)
            self._trial.versions = before
            if ratio < -best.ratio:
                heapq.heappush(self._heap, best._replace(ratio=-ratio, value=-value, moves=len(moves)))
            return []
        self._commit(moves, [self._start(self.wanted[at], row) for at in served], value)
        return self._changed_since(before)

    def _moves_for(self, best: _Candidate) -> list[Move] | None:
        """Clear the row of a candidate. Return the moves; None if they are impossible."""
        if best.wanted >= 0:
            return self._clear(best.row, self.wanted[best.wanted].sample, barred=(best.row,))
        self._effort -= _TRIED
        tasks = self._trial.on[best.row]
        if any(task_id not in tasks for task_id in best.leaving):
            return None
        return self._move_all(
            [tasks[task_id] for task_id in best.leaving], best.row, {best.row, *self._emptied}, self._left
        )

    def _fill(self, row: int, first: int) -> list[int]:
        """Place requests on a row while they fit, `first` before the others. Return their positions; [] if it fails."""
        served: list[int] = []
        if first >= 0:
            if self._trial.place(self.wanted[first].sample, row) is None:
                return []
            served.append(first)
        evaluations = {at: self._trial.evaluation(self.wanted[at].sample) for at in self._order}
        may = [at for at in self._order if evaluations[at].may_ever[row]]
        # Those that fit by amounts, then whatever else fits.
        for position in fill_of(self._cluster, row, [self.wanted[at] for at in may]):
            at = may[position]
            if served.count(at) < self.wanted[at].left and self._trial.place(self.wanted[at].sample, row) is not None:
                served.append(at)
        for at in may:
            wanted = self.wanted[at]
            if wanted.least > 1:
                continue
            while served.count(at) < wanted.left and self._trial.place(wanted.sample, row) is not None:
                served.append(at)
        return served

    def _serve_gang(self, wanted: Wanted) -> list[int]:
        """Make capacity for all tasks of a gang, each on the node that needs the fewest evictions."""
        mark, before = self._trial.mark(), self._trial.versions.copy()
        moves: list[Move] = []
        starts: list[tuple[Workload, int]] = []
        used: set[int] = set()
        for _ in range(wanted.least):
            row = self._trial.place(wanted.sample)
            if row is None:
                may = self._trial.evaluation(wanted.sample).may_ever
                near = nearest(self._cluster, wanted.sample, np.flatnonzero(may), self._rows)
                found = [
                    (len(leaving), _cost(leaving), each)
                    for each in near
                    if (leaving := self._evictions(each, wanted.sample))
                ]
                for _, _, candidate in sorted(found)[:_CHAINS]:
                    inner = self._trial.mark()
                    cleared = self._clear(candidate, wanted.sample, barred={*used, candidate}, spent=len(moves))
                    if cleared is not None and self._trial.place(wanted.sample, candidate) is not None:
                        moves += cleared
                        row = candidate
                        break
                    self._trial.revert(inner)
            if row is None:
                self._trial.revert(mark)
                self._trial.versions = before
                wanted.waiting.clear()
                return []
            used.add(row)
            starts.append((wanted.sample, row))
        self._commit(moves, [self._start(wanted, row) for _, row in starts], wanted.value * wanted.least)
        return self._changed_since(before)

    def _clear(self, row: int, sample: Workload, *, barred: Collection[int], spent: int = 0) -> list[Move] | None:
        """Move the evictions that a request needs on a row, the largest task first."""
        self._effort -= _TRIED
        leaving = self._evictions(row, sample)
        if leaving is None:
            leaving = self._evictions(row, sample, chains=True)
        if leaving is None:
            return None
        return self._move_all(leaving, row, {*barred, *self._emptied}, self._left - spent)

    def _move_all(
        self, leaving: Iterable[PlacedTask], row: int, barred: Collection[int], most: int
    ) -> list[Move] | None:
        moves: list[Move] = []
        for task in sorted(leaving, key=lambda each: (-sum(each.workload.request.values()), each.task_id.int)):
            found = self._move(task, row, barred, most - len(moves))
            if found is None:
                return None
            moves += found
        return moves

    def _move(self, task: PlacedTask, row: int, barred: Collection[int], most: int) -> list[Move] | None:
        """Move a task, if need be after another task has left its new node."""
        if most < 1:
            return None
        move = self._trial.move(task, row, barred=barred)
        if move is not None:
            return [move]
        if most < 2:
            return None
        may = self._trial.evaluation(task.workload).may_ever
        tried = 0
        for other in nearest(self._cluster, task.workload, np.flatnonzero(may), self._rows, _CHAIN_NODES):
            if other in barred or other == row or tried >= _CHAINS or self._effort <= 0:
                continue
            first = self._evictions(other, task.workload, most=1)
            if not first:
                continue
            tried += 1
            mark = self._trial.mark()
            ahead = self._trial.move(first[0], other, barred={*barred, row})
            only = np.zeros(self._cluster.capacity, dtype=np.bool_)
            only[other] = True
            move = None if ahead is None else self._trial.move(task, row, barred=(), among=only)
            if ahead is not None and move is not None:
                return [ahead, move]
            self._trial.revert(mark)
        return None

    # --- empty nodes

    def _empty_nodes(self) -> None:
        """Empty the nodes with the fewest tasks, whose tasks fit on nodes that stay in use."""
        occupied = [row for row in self._rows if self._cluster.tasks[row] > 0]
        idle = {row for row in self._rows if self._cluster.tasks[row] == 0}
        occupied.sort(key=lambda row: (int(self._cluster.tasks[row]), row))
        self._emptied |= idle
        self.without_moves = float(len(idle))
        for row in occupied:
            tasks = list(self._trial.on[row].values())
            count = int(self._cluster.tasks[row])
            if count > self._left or len(tasks) != count or not all(task.movable for task in tasks):
                continue
            self._effort -= _TRIED
            if self._effort <= 0:
                return
            mark = self._trial.mark()
            moves = self._move_all(tasks, row, {row, *self._emptied}, self._left)
            if moves is None:
                self._trial.revert(mark)
                continue
            self._emptied.add(row)
            self._commit(moves, [], 1.0, emptied=(self._cluster.node(row).name,))

    # --- results

    def _place_fitting(self) -> list[Start]:
        """Place the requests that fit now: they start without moves. Return them."""
        starts: list[Start] = []
        for wanted in self.wanted:
            if wanted.least > 1:
                continue
            while wanted.left:
                row = self._trial.place(wanted.sample)
                if row is None:
                    break
                starts.append(self._start(wanted, row))
        return starts

    def _start(self, wanted: Wanted, row: int) -> Start:
        workload = wanted.take()
        identity = None if wanted.typical else workload.id
        return Start(identity, workload.name, self._cluster.node(row).name, workload.request)

    def _commit(
        self, moves: Sequence[Move], starts: Sequence[Start], value: float, emptied: tuple[str, ...] = ()
    ) -> None:
        also = self._place_fitting() if starts else []
        self._trial.forget_fits()
        self._gained += value + sum(self._value_of(start) for start in also)
        self._steps.append(Step(tuple(moves), (*starts, *also), emptied))

    def _value_of(self, start: Start) -> float:
        return next(each.value for each in self.wanted if each.sample.request == start.request)

    def _changed_since(self, before: Mapping[int, int]) -> list[int]:
        return [row for row, version in self._trial.versions.items() if version != before.get(row, 0)]


def _fill_order(wanted: Sequence[Wanted]) -> list[int]:
    """Return the positions of the requests in the order in which they fill a node: most gain, then least amounts."""
    return sorted(range(len(wanted)), key=lambda at: (-wanted[at].value, sum(wanted[at].sample.request.values()), at))


def _cost(leaving: Iterable[PlacedTask]) -> tuple[int, int]:
    tasks = list(leaving)
    return sum(task.lost_seconds for task in tasks), sum(sum(task.workload.request.values()) for task in tasks)
