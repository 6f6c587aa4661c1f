"""A survey of a pool for one shape: which nodes may take a task of it, and which filter turned the others down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Amount, Mask, Rows
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.plugins import Rejection, ask_filter, ask_why
from mooring.scheduling.selection import own_tasks
from mooring.scheduling.shapes import Shape

_SURVEYS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows with the first filter that turned them down."""

    by: str
    rows: Rows
    why: Rejection


@dataclass(frozen=True, slots=True)
class Survey:
    """All nodes of a pool, sorted by what is said about them."""

    nodes: int
    feasible: Rows
    rejected: tuple[Rejected, ...]

    @property
    def ranked(self) -> list[Rejected]:
        """What turned down the most nodes comes first."""
        return sorted(self.rejected, key=lambda rejected: -len(rejected.rows))


class Surveys:
    """What was learned of a shape serves all workloads of that shape until the columns change."""

    def __init__(self) -> None:
        self._known: dict[Shape, tuple[int, Survey]] = {}

    def of(self, evaluation: Evaluation) -> Survey:
        revision = evaluation.cluster.changes.revision
        known = self._known.get(evaluation.shape)
        if known is not None and known[0] == revision:
            return known[1]
        survey = look(evaluation)
        if len(self._known) >= _SURVEYS_KEPT:
            self._known.clear()
        self._known[evaluation.shape] = (revision, survey)
        return survey


def look(evaluation: Evaluation, among: Sequence[int] | None = None) -> Survey:
    """Ask every filter about the nodes that those before it let pass. The evaluation need not be refreshed."""
    shape, cluster = evaluation.shape, evaluation.cluster
    members = passing = cluster.rows_of_pool(shape.pool)
    if among is not None:
        members = passing = members[np.isin(members, among)]
    rejected: list[Rejected] = []
    for plugin in evaluation.active.filters:
        if not len(passing):
            break
        mask = ask_filter(plugin, shape, cluster, passing)
        refused = passing[~mask]
        if len(refused):
            rejected.append(Rejected(plugin.name, refused, ask_why(plugin, shape, cluster, refused)))
        passing = passing[mask]
    return Survey(len(members), passing, tuple(rejected))


def with_own_rules(survey: Survey, evaluation: Evaluation, workload: Workload, own: Amount) -> Survey:
    """The survey with what the workload is bound to beyond its shape as further filters, the last."""
    survey = _inside_timeslot(survey, evaluation, workload, own)
    return _with_time(_with_own_limit(survey, workload, own), evaluation, workload)


def _inside_timeslot(survey: Survey, evaluation: Evaluation, workload: Workload, own: Amount) -> Survey:
    """Of a workload that runs inside a timeslot, the nodes of that alone, with what is left of it there."""
    if workload.booking is None:
        return survey
    cluster = evaluation.cluster
    places = [row for row in map(cluster.row_of, cluster.timeslots.left(workload.booking)) if row is not None]
    survey = look(evaluation, places)
    placed = own - own_tasks(workload, cluster)
    full = ~cluster.timeslots.fits(workload.booking, evaluation.demand, placed)[survey.feasible]
    count = int(full.sum())
    words = f"{count:,} {'has' if count == 1 else 'have'} too little left of its timeslot"
    return _without(survey, full, "timeslot", Rejection("timeslot-full", words, "release"))


def _with_own_limit(survey: Survey, workload: Workload, own: Amount) -> Survey:
    """The survey with what the workload's own tasks rule out as further filters, the last."""
    limit, at_once = workload.max_per_node, len(workload.tasks) if workload.single_node else 1
    if limit is not None:
        full = own[survey.feasible] + at_once > limit
        count = int(full.sum())
        verb = "has" if count == 1 else "have"
        words = f"{count:,} {verb} {limit} of its tasks, the most allowed on one node"
        if at_once > 1:
            words = f"{count:,} may not have {at_once} more of its tasks (at most {limit} on one node)"
        survey = _without(survey, full, "max_per_node", Rejection("max-per-node", words, "release"))
    if workload.single_node and workload.occupied:
        away = (own[survey.feasible] == 0) | (len(workload.occupied) > 1)
        words = f"{int(away.sum()):,} away from the node that its other tasks are on"
        survey = _without(survey, away, "single_node", Rejection("single-node", words, "release"))
    return survey


def _with_time(survey: Survey, evaluation: Evaluation, workload: Workload) -> Survey:
    """The survey with what is promised to others before the workload would end as a further filter, the last."""
    timeline = evaluation.cluster.timeline
    if not timeline.booked:
        return survey
    conflicts = timeline.conflicts(survey.feasible, evaluation.demand, workload.longest_seconds)
    refused = np.isin(survey.feasible, conflicts)
    count = int(refused.sum())
    verb = "is" if count == 1 else "are"
    end = "at some time, and it has no time limit" if workload.time_limit_seconds is None else "before it would end"
    return _without(
        survey, refused, "timeline", Rejection("booked", f"{count:,} {verb} promised to others {end}", "release")
    )


def _without(survey: Survey, refused: Mask, by: str, why: Rejection) -> Survey:
    if not refused.any():
        return survey
    rejected = Rejected(by, survey.feasible[refused], why)
    return Survey(survey.nodes, survey.feasible[~refused], (*survey.rejected, rejected))


def summary(survey: Survey, pool: str) -> str:
    """The survey in one line: `0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    if survey.nodes == 0:
        return f"pool {pool!r} has no nodes"
    nodes = "1 node" if survey.nodes == 1 else f"{survey.nodes:,} nodes"
    words = ", ".join(rejected.why.words for rejected in survey.ranked)
    return f"{len(survey.feasible):,} of {nodes}: {words}" if words else f"{len(survey.feasible):,} of {nodes}"
