"""Node selection for the tasks of one workload: best node first, each placement counted before the next is selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mooring.model.resources.devices import DeviceShare
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.plan_conflicts import closed_to, may_conflict
from mooring.scheduling.cluster.arrays import (
    Amount,
    Mask,
    Rows,
    Scores,
)
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.gangs import domains_by_fit, tasks_that_fit
from mooring.scheduling.plugins.evaluation import DESIGNATED, INFEASIBLE, Evaluation
from mooring.scheduling.plugins.protocols import Candidates, ask_selector

_NODES_TRIED = 64
"""Maximum nodes tried for a single-node workload whose tasks may exclude each other."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected rows, one per task, with their scores; `feasible_nodes` is counted for the first task."""

    rows: list[int]
    scores: list[int]
    feasible_nodes: int
    ports: list[tuple[int, ...]]
    """The ports of the node's range assigned to each task."""
    devices: list[tuple[DeviceShare, ...]]
    """The devices of the node assigned to each task."""
    own: Amount
    """The number of the workload's tasks on each row, those selected here included."""


def select(evaluation: Evaluation, trial: Trial, workload: Workload, count: int, *, least: int) -> Selection:
    """Select nodes for `count` tasks and assume the placements; return fewer if there is no capacity for all.

    `least`: the gang size. If the slots lack capacity for that many, no node is tried; a selection known to be smaller
    is not assumed. The trial must be new.
    """
    own = own_tasks(workload, evaluation.cluster)
    if workload.single_node:
        return _on_one_node(evaluation, trial, workload, count, own)
    one_each = workload.max_per_node == 1
    if least > 1 or workload.pack:
        per_row = tasks_that_fit(evaluation, own, workload.max_per_node)
        if per_row.sum() < least:
            return Selection([], [], _feasible(evaluation, workload, own), [], [], own)
        # Nodes without capacity for a second task take one each. Tasks placed before still count for the spread, and
        # the capacity of a timeslot is shared by all of its nodes.
        one_each |= not workload.spread and workload.booking is None and int(per_row.max(initial=0)) <= 1
        for domain in domains_by_fit(evaluation.cluster, workload.pack, per_row, own, count):
            selection = _anywhere(evaluation, trial, workload, count, own.copy(), count, domain, one_each=one_each)
            if len(selection.rows) == count:
                return selection
            trial.revert()
            evaluation.refresh()
    return _anywhere(evaluation, trial, workload, count, own, least, one_each=one_each)


def _anywhere(
    evaluation: Evaluation,
    trial: Trial,
    workload: Workload,
    count: int,
    own: Amount,
    least: int,
    among: Mask | None = None,
    *,
    one_each: bool,
) -> Selection:
    """Select among all rows, or those in `among`. `one_each`: a node takes one task at most."""
    # No placement then changes the rank of a node that may still be selected.
    plain = evaluation.profile.selector is None and not evaluation.shape.constraints.ports_wanted
    if one_each and evaluation.node_local and plain:
        return _at_once(evaluation, trial, workload, count, own, least, among)
    return _one_by_one(evaluation, trial, workload, count, own, among)


def _at_once(
    evaluation: Evaluation,
    trial: Trial,
    workload: Workload,
    count: int,
    own: Amount,
    least: int,
    among: Mask | None,
) -> Selection:
    keys = open_keys(evaluation, workload, own)
    feasible_nodes = int(np.count_nonzero(keys != INFEASIBLE))
    if among is not None:
        keys = np.where(among, keys, INFEASIBLE)
    taken = min(feasible_nodes if among is None else int(np.count_nonzero(keys != INFEASIBLE)), count)
    best: Rows = np.argpartition(keys, -taken)[-taken:] if taken else np.empty(0, dtype=np.intp)
    best = best[np.argsort(-keys[best])]
    rows = best.tolist()
    scores = evaluation.scores_of(best).tolist()
    devices = [evaluation.devices_on(row) for row in rows]
    if taken and taken >= least:
        trial.assume(best, evaluation.demand, evaluation.shape.constraints, devices)
        own[best] += 1
    return Selection(rows, scores, feasible_nodes, [()] * len(rows), devices, own)


def _one_by_one(
    evaluation: Evaluation, trial: Trial, workload: Workload, count: int, own: Amount, among: Mask | None
) -> Selection:
    rows: list[int] = []
    scores: list[int] = []
    ports: list[tuple[int, ...]] = []
    devices: list[tuple[DeviceShare, ...]] = []
    keys = open_keys(evaluation, workload, own)
    feasible_nodes = int(np.count_nonzero(keys != INFEASIBLE))
    for number in range(count if feasible_nodes else 0):
        if number:
            evaluation.refresh()
            keys = open_keys(evaluation, workload, own)
        if among is not None:
            keys = np.where(among, keys, INFEASIBLE)
        if workload.spread:
            keys = _fewest_own_tasks(keys, own, evaluation.tiers)
        row = _choice(evaluation, workload, keys, own)
        if row is None:
            break
        rows.append(row)
        scores.append(evaluation.score_of(row))
        given = _assume(evaluation, trial, row, own)
        ports.append(given.ports)
        devices.append(given.devices)
    return Selection(rows, scores, feasible_nodes, ports, devices, own)


class _Given(NamedTuple):
    """The resources of a node assigned to one task: ports of the node's range, and devices."""

    ports: tuple[int, ...]
    devices: tuple[DeviceShare, ...]


def _assume(evaluation: Evaluation, trial: Trial, row: int, own: Amount) -> _Given:
    """Count a task on a row and return the resources assigned to it alone."""
    constraints = evaluation.shape.constraints
    resolved = evaluation.cluster.with_ports(row, constraints)
    devices = evaluation.devices_on(row)
    trial.assume(np.array([row], dtype=np.intp), evaluation.demand, resolved, (devices,))
    own[row] += 1
    return _Given(tuple(port.port for port in resolved.host_ports[len(constraints.host_ports) :]), devices)


def _on_one_node(evaluation: Evaluation, trial: Trial, workload: Workload, count: int, own: Amount) -> Selection:
    """Select the best node that takes all tasks. The evaluation covers all of them together.

    Constraints between the tasks show only once they are assumed, so several nodes are tried.
    """
    keys = open_keys(evaluation, workload, own).copy()
    feasible_nodes = int(np.count_nonzero(keys != INFEASIBLE))
    each = Evaluation(shape_of(workload, evaluation.cluster), evaluation.cluster, evaluation.profile)
    for _ in range(_NODES_TRIED):
        row = _choice(evaluation, workload, keys, own)
        if row is None:
            break
        score = evaluation.score_of(row)
        given = _all_on(each, trial, row, count, own)
        if len(given) == count:
            ports, devices = [one.ports for one in given], [one.devices for one in given]
            return Selection([row] * count, [score] * count, feasible_nodes, ports, devices, own)
        own[row] -= len(given)
        trial.revert()
        evaluation.refresh()
        keys[row] = INFEASIBLE
    return Selection([], [], feasible_nodes, [], [], own)


def _all_on(each: Evaluation, trial: Trial, row: int, count: int, own: Amount) -> list[_Given]:
    """Count tasks on a row until they exclude each other, and return the resources assigned to each."""
    constraints = each.shape.constraints
    excludes_its_own = (
        bool(constraints.anti_affinity) or any(spread.hard for spread in constraints.spread) or each.wants_devices
    )
    given: list[_Given] = []
    for _ in range(count):
        if excludes_its_own and given:
            each.refresh()
            if each.keys[row] == INFEASIBLE:
                break
        given.append(_assume(each, trial, row, own))
    return given


def _choice(evaluation: Evaluation, workload: Workload, keys: Scores, own: Amount) -> int | None:
    """Return the best row by key, or the row that the profile's selector chooses within the best tier."""
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


def first_choices(
    evaluation: Evaluation, workload: Workload, own: Amount, number: int, among: Mask | None = None
) -> list[int]:
    """Return the row that the first task would get, followed by those it would get without the rows before.

    Rows in `among` come first.
    """
    rows: list[int] = []
    for mask in (among, None) if among is not None else (None,):
        left = open_keys(evaluation, workload, own, mask).copy()
        left[rows] = INFEASIBLE
        while len(rows) < number:
            spread = workload.spread and not workload.single_node
            keys = _fewest_own_tasks(left, own, evaluation.tiers) if spread else left
            row = _choice(evaluation, workload, keys, own)
            if row is None:
                break
            rows.append(row)
            left[row] = INFEASIBLE
    return rows


def own_tasks(workload: Workload, cluster: Cluster) -> Amount:
    """Return the number of the workload's tasks on each row from earlier passes."""
    own = np.zeros(cluster.capacity, dtype=np.int64)
    for node_id, count in workload.occupied.items():
        row = cluster.row_of(node_id)
        if row is not None:
            own[row] = count
    return own


def open_keys(evaluation: Evaluation, workload: Workload, own: Amount, among: Mask | None = None) -> Scores:
    """Return the keys of the open rows; INFEASIBLE for all others."""
    rows = _open_rows(evaluation, workload, own)
    if rows is evaluation.feasible:
        keys = evaluation.keys
    elif np.count_nonzero(rows):
        keys = np.where(rows, evaluation.keys, INFEASIBLE)
    else:
        # No score is needed.
        keys = np.full(len(rows), INFEASIBLE, dtype=np.int64)
    return keys if among is None else np.where(among, keys, INFEASIBLE)


def _open_rows(evaluation: Evaluation, workload: Workload, own: Amount) -> Mask:
    """Return the feasible rows except those that the workload's own tasks exclude: its limit per node, a single node.

    Rows are also excluded if it would overlap promises to others before it ends, or leave the capacity of its timeslot.
    """
    rows = _rows_without_conflicts(evaluation, workload)
    if workload.booking is not None:
        placed = own - own_tasks(workload, evaluation.cluster)
        rows = rows & evaluation.cluster.timeslots.fits(workload.booking, evaluation.demand, placed)
    if workload.max_per_node is not None:
        rows = rows & (own + evaluation.shape.tasks <= workload.max_per_node)
    if workload.single_node and workload.occupied:
        rows = rows & (own > 0) & (len(workload.occupied) == 1)
    return rows


def _rows_without_conflicts(evaluation: Evaluation, workload: Workload) -> Mask:
    """Return the feasible rows on which the workload would not overlap promises to others before it ends."""
    cluster, timeline, feasible = evaluation.cluster, evaluation.cluster.timeline, evaluation.feasible
    if not timeline.booked:
        return feasible
    booked = timeline.booked_rows
    booked = booked[feasible[booked]]
    if not len(booked):
        return feasible
    closed = timeline.closed_to(workload, booked, evaluation.demand)
    if may_conflict(cluster, evaluation.shape.constraints):
        excluded = closed_to(cluster, evaluation.shape.constraints, workload.gap_seconds)
        closed = np.concatenate((closed, excluded))
    if not len(closed):
        return feasible
    rows = feasible.copy()
    rows[closed] = False
    return rows


def _feasible(evaluation: Evaluation, workload: Workload, own: Amount) -> int:
    return int(np.count_nonzero(_open_rows(evaluation, workload, own)))


def _fewest_own_tasks(keys: Scores, own: Amount, tiers: Scores) -> Scores:
    """Restrict the keys to rows with the fewest own tasks; designated nodes outrank that, past failures do not."""
    feasible = keys != INFEASIBLE
    if not feasible.any():
        return keys
    designated = tiers // DESIGNATED
    feasible &= designated == designated[feasible].max()
    return np.where(feasible & (own == own[feasible].min()), keys, INFEASIBLE)
