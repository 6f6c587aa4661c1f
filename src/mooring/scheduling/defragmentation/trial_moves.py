"""Moves and placements on a trial of the cluster, checked by all filters, so that the fit rule holds after each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from uuid import UUID

import numpy as np

from mooring.model.policy.defragmentation import Move, PlacedTask
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.shapes import Shape, shape_of
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.node_selection import open_keys, own_tasks
from mooring.scheduling.plugins.evaluation import INFEASIBLE, Evaluation
from mooring.scheduling.plugins.profiles import Profile


class TrialMoves:
    """The cluster with the tasks on its nodes. A task moves once. Changes are undone back to a `mark`."""

    def __init__(self, cluster: Cluster, profile: Profile, placed: Iterable[PlacedTask]) -> None:
        self.cluster = cluster
        self._profile = profile
        self._evaluations: dict[Shape, Evaluation] = {}
        self.on: defaultdict[int, dict[UUID, PlacedTask]] = defaultdict(dict)
        """The tasks by row."""
        self.versions: Counter[int] = Counter()
        """The number of changes by row."""
        self._occupied: defaultdict[UUID, Counter[UUID]] = defaultdict(Counter)
        self._fits: dict[Shape, frozenset[int]] = {}
        """By shape, up to two of the rows that fit."""
        self._undo: list[Callable[[], None]] = []
        for task in placed:
            row = cluster.row_of(task.node_id)
            if row is not None:
                shown = with_host_ports(task.constraints, task.ports)
                # The tasks were read after the cluster: those that it does not count yet stay.
                counted = task.movable and cluster.placed_tasks.has(row, shown)
                self.on[row][task.task_id] = replace(task, constraints=shown, movable=counted)
                self._occupied[task.workload.id][task.node_id] += 1

    def mark(self) -> int:
        return len(self._undo)

    def revert(self, mark: int) -> None:
        """Undo all changes since a mark."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def evaluation(self, workload: Workload) -> Evaluation:
        shape = shape_of(workload, self.cluster)
        found = self._evaluations.get(shape)
        if found is None or not found.concerns_the_same():
            found = self._evaluations[shape] = Evaluation(shape, self.cluster, self._profile)
        found.refresh()
        return found

    def fits_elsewhere(self, task: PlacedTask, row: int) -> bool:
        """Return whether a node other than that of `row` passes the filters for a task now, by its last evaluation.

        Changes since then are not considered until `forget_fits`.
        """
        shape = shape_of(task.workload, self.cluster)
        known = self._fits.get(shape)
        if known is None:
            found = np.flatnonzero(self.evaluation(task.workload).feasible)[:2].tolist()
            known = self._fits[shape] = frozenset(found)
        return bool(known - {row})

    def forget_fits(self) -> None:
        self._fits.clear()

    def place(self, workload: Workload, row: int | None = None) -> int | None:
        """Place a pending task on a row, by default on the best one. Return the row; None if it is not feasible."""
        keys = self._keys(workload)
        chosen = int(keys.argmax()) if row is None else row
        if keys[chosen] == INFEASIBLE:
            return None
        self._assume(workload, chosen, None)
        return chosen

    def move(self, task: PlacedTask, source: int, *, barred: Collection[int], among: Mask | None = None) -> Move | None:
        """Move a task to the best node that takes it, outside the `barred` rows. Return None if there is none."""
        mark = self.mark()
        self._forget(task, source)
        keys = self._keys(task.workload).copy()
        keys[list({source, *barred})] = INFEASIBLE
        if among is not None:
            keys[~among] = INFEASIBLE
        target = int(keys.argmax())
        if keys[target] == INFEASIBLE:
            self.revert(mark)
            return None
        self._assume(task.workload, target, task)
        here, there = self.cluster.node(source), self.cluster.node(target)
        return Move(
            task.task_id,
            task.workload.id,
            task.workload.name,
            here.id,
            here.name,
            there.id,
            there.name,
            task.workload.request,
            task.lost_seconds,
        )

    def _keys(self, workload: Workload) -> Scores:
        there = replace(workload, occupied=self._occupied.get(workload.id, {}))
        return open_keys(self.evaluation(there), there, own_tasks(there, self.cluster))

    def _forget(self, task: PlacedTask, row: int) -> None:
        trial = Trial(self.cluster)
        demand = self.evaluation(task.workload).demand
        trial.forget(_one(row), demand, task.constraints, (task.devices,))
        del self.on[row][task.task_id]
        self._count(task.workload.id, row, -1)
        self._undo.append(partial(self._remember, trial, row, task))

    def _assume(self, workload: Workload, row: int, task: PlacedTask | None) -> None:
        evaluation = self.evaluation(workload)
        devices = evaluation.devices_on(row)
        constraints = self.cluster.with_ports(row, workload.constraints)
        trial = Trial(self.cluster)
        trial.assume(_one(row), evaluation.demand, constraints, (devices,))
        self._count(workload.id, row, 1)
        if task is not None:
            node_id = self.cluster.node(row).id
            self.on[row][task.task_id] = replace(
                task, node_id=node_id, constraints=constraints, devices=devices, movable=False
            )
        self._undo.append(partial(self._drop, trial, row, workload.id, None if task is None else task.task_id))

    def _remember(self, trial: Trial, row: int, task: PlacedTask) -> None:
        trial.revert()
        self.on[row][task.task_id] = task
        self._count(task.workload.id, row, 1)

    def _drop(self, trial: Trial, row: int, workload_id: UUID, task_id: UUID | None) -> None:
        trial.revert()
        self._count(workload_id, row, -1)
        if task_id is not None:
            del self.on[row][task_id]

    def _count(self, workload_id: UUID, row: int, sign: int) -> None:
        self._occupied[workload_id][self.cluster.node(row).id] += sign
        self._occupied[workload_id] += Counter()
        self.versions[row] += 1


def moves_alone(workload: Workload) -> bool:
    """Return whether one task of a workload can move while its other tasks stay."""
    return not (workload.single_node or workload.pack or workload.gang or workload.min_tasks)


def _one(row: int) -> Rows:
    return np.array([row], dtype=np.intp)
