"""Which nodes for the tasks of one workload: the best first, each placement counted before the next is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.model.devices import DeviceShare
from mooring.model.workloads import Workload
from mooring.scheduling.columns import Amount, Cluster, Rows, Scores
from mooring.scheduling.evaluation import DESIGNATED, INFEASIBLE, Evaluation
from mooring.scheduling.plugins import Candidates, ask_selector
from mooring.scheduling.trial import Trial


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen rows, one per task, with their scores; `feasible_nodes` could have taken the first task."""

    rows: list[int]
    scores: list[int]
    feasible_nodes: int
    ports: list[tuple[int, ...]]
    """The ports of the node's range that each task was given."""
    devices: list[tuple[DeviceShare, ...]]
    """The devices of the node that each task was given."""
    own: Amount
    """How many tasks of the workload each row has, those chosen here included."""


def select(evaluation: Evaluation, trial: Trial, workload: Workload, count: int, *, together: bool) -> Selection:
    """Choose nodes for `count` tasks and assume them; fewer come back where there is no room for all.

    `together`: all or none are wanted, so a choice that is known to be short is not assumed at all.
    """
    own = own_tasks(workload, evaluation.cluster)
    # Where each node takes one task at most, no placement changes the rank of a node that may still be chosen.
    plain = evaluation.profile.selector is None and not evaluation.shape.constraints.ports_wanted
    if workload.max_per_node == 1 and evaluation.node_local and plain:
        return _at_once(evaluation, trial, workload, count, own, together=together)
    return _one_by_one(evaluation, trial, workload, count, own)


def _at_once(
    evaluation: Evaluation, trial: Trial, workload: Workload, count: int, own: Amount, *, together: bool
) -> Selection:
    keys = _within_limit(evaluation.keys, own, workload.max_per_node)
    found = int(np.count_nonzero(keys != INFEASIBLE))
    taken = min(found, count)
    best: Rows = np.argpartition(keys, -taken)[-taken:] if taken else np.empty(0, dtype=np.intp)
    best = best[np.argsort(-keys[best])]
    rows = best.tolist()
    scores = [evaluation.score_of(row) for row in rows]
    devices = [evaluation.devices_on(row) for row in rows]
    if taken == count or (taken and not together):
        trial.assume(best, evaluation.demand, evaluation.shape.constraints, devices)
        own[best] += 1
    return Selection(rows, scores, found, [()] * len(rows), devices, own)


def _one_by_one(evaluation: Evaluation, trial: Trial, workload: Workload, count: int, own: Amount) -> Selection:
    rows: list[int] = []
    scores: list[int] = []
    ports: list[tuple[int, ...]] = []
    devices: list[tuple[DeviceShare, ...]] = []
    feasible_nodes = 0
    constraints = evaluation.shape.constraints
    for _ in range(count):
        evaluation.refresh()
        keys = _within_limit(evaluation.keys, own, workload.max_per_node)
        if not rows:
            feasible_nodes = int(np.count_nonzero(keys != INFEASIBLE))
        if workload.spread:
            keys = _fewest_own_tasks(keys, own, evaluation.tiers)
        row = _choice(evaluation, workload, keys, own)
        if row is None:
            break
        resolved = evaluation.cluster.with_ports(row, constraints)
        rows.append(row)
        scores.append(evaluation.score_of(row))
        ports.append(tuple(port.port for port in resolved.host_ports[len(constraints.host_ports) :]))
        devices.append(evaluation.devices_on(row))
        trial.assume(np.array([row], dtype=np.intp), evaluation.demand, resolved, devices[-1:])
        own[row] += 1
    return Selection(rows, scores, feasible_nodes, ports, devices, own)


def _choice(evaluation: Evaluation, workload: Workload, keys: Scores, own: Amount) -> int | None:
    """The best row by key, or what the profile's selector chooses among those of the best tier."""
    best = int(keys.argmax())
    if keys[best] == INFEASIBLE:
        return None
    selector = evaluation.profile.selector
    if selector is None:
        return best
    rows = np.flatnonzero((keys != INFEASIBLE) & (evaluation.tiers == evaluation.tiers[best]))
    rows = rows[np.argsort(-keys[rows])]
    scores = evaluation.scores_of(rows)
    candidates = Candidates(workload, evaluation.shape, evaluation.cluster, rows, scores, own)
    return int(rows[ask_selector(selector, candidates)])


def first_choices(evaluation: Evaluation, workload: Workload, own: Amount, number: int) -> list[int]:
    """The row that the first task would get, and those it would get were the rows before not there."""
    rows: list[int] = []
    left = _within_limit(evaluation.keys, own, workload.max_per_node).copy()
    while len(rows) < number:
        keys = _fewest_own_tasks(left, own, evaluation.tiers) if workload.spread else left
        row = _choice(evaluation, workload, keys, own)
        if row is None:
            break
        rows.append(row)
        left[row] = INFEASIBLE
    return rows


def own_tasks(workload: Workload, cluster: Cluster) -> Amount:
    """How many tasks of the workload each row has from earlier passes."""
    own = np.zeros(cluster.capacity, dtype=np.int64)
    for node_id, count in workload.occupied.items():
        row = cluster.row_of(node_id)
        if row is not None:
            own[row] = count
    return own


def _within_limit(keys: Scores, own: Amount, max_per_node: int | None) -> Scores:
    return keys if max_per_node is None else np.where(own < max_per_node, keys, INFEASIBLE)


def _fewest_own_tasks(keys: Scores, own: Amount, tiers: Scores) -> Scores:
    """Only the rows with the fewest tasks of the workload; designated nodes come before that, failed ones after it."""
    feasible = keys != INFEASIBLE
    if not feasible.any():
        return keys
    designated = tiers // DESIGNATED
    feasible &= designated == designated[feasible].max()
    return np.where(feasible & (own == own[feasible].min()), keys, INFEASIBLE)
