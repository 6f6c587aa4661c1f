"""Why a workload waits or fails: which filter turned how many nodes down, what they lack, and what would cure it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from mooring.model.quantity import INT64_MAX
from mooring.model.reasons import Cure, Reason
from mooring.model.workloads import Task, Workload
from mooring.scheduling.columns import Amount, Rows
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.plugins import Rejection, ask_filter, ask_why
from mooring.scheduling.selection import Selection, own_tasks
from mooring.scheduling.shapes import Shape

_SURVEYS_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Rejected:
    """Rows with the first filter that turned them down."""

    by: str
    rows: Rows
    why: Rejection


@dataclass(frozen=True, slots=True)
class _Survey:
    """All nodes of a pool, sorted by what is said about them."""

    nodes: int
    feasible: Rows
    rejected: tuple[_Rejected, ...]


class Explanations:
    """Makes reasons. What it learns of a shape serves all workloads of that shape until the columns change."""

    def __init__(self) -> None:
        self._surveys: dict[Shape, tuple[int, _Survey]] = {}

    def of_shortage(
        self, evaluation: Evaluation, workload: Workload, selection: Selection, count: int, *, together: bool
    ) -> Reason:
        """Why `selection` has fewer than `count` nodes. `together`: all or none were wanted."""
        survey = _with_own_limit(self._survey(evaluation), workload, selection.own)
        ranked = sorted(survey.rejected, key=lambda rejected: -len(rejected.rows))
        found = len(selection.rows)
        details: dict[str, Any] = {}
        for rejected in ranked:
            details.update(rejected.why.details)
        details["nodes"] = survey.nodes
        details["rejected"] = {rejected.by: len(rejected.rows) for rejected in ranked}
        details["tasks"] = {"need": count, "found": found}
        code, by = (ranked[0].why.code, ranked[0].by) if ranked else ("no-nodes", "pool")
        message = _message(workload, survey, ranked, found, count, together=together)
        if together and workload.max_per_node == 1:
            code = "insufficient-nodes"
            message = f"Insufficient nodes: need {count}, found {found}"
        return Reason(code, message, by, _cure(evaluation, workload, survey, count), details)

    def _survey(self, evaluation: Evaluation) -> _Survey:
        evaluation.refresh()
        known = self._surveys.get(evaluation.shape)
        if known is not None and known[0] == evaluation.revision:
            return known[1]
        survey = _look(evaluation)
        if len(self._surveys) >= _SURVEYS_KEPT:
            self._surveys.clear()
        self._surveys[evaluation.shape] = (evaluation.revision, survey)
        return survey


def backing_off(workload: Workload, later: Iterable[Task], *, together: bool) -> Reason:
    """Why tasks are not placed yet although they wait: an error came before, and its delay has not passed."""
    times: list[datetime] = [task.not_before for task in later if task.not_before is not None]
    until = max(times) if together else min(times)
    return Reason(
        code="backing-off",
        message=f"{len(times)} of {len(workload.tasks)} tasks back off until {until.isoformat(timespec='seconds')}",
        by="backoff",
        cure="change",
        details={"not_before": until.isoformat(), "tasks": len(times)},
    )


def _look(evaluation: Evaluation) -> _Survey:
    shape, cluster = evaluation.shape, evaluation.cluster
    members = passing = cluster.rows_of_pool(shape.pool)
    rejected: list[_Rejected] = []
    for plugin in evaluation.active.filters:
        if not len(passing):
            break
        mask = ask_filter(plugin, shape, cluster, passing)
        refused = passing[~mask]
        if len(refused):
            rejected.append(_Rejected(plugin.name, refused, ask_why(plugin, shape, cluster, refused)))
        passing = passing[mask]
    return _Survey(len(members), passing, tuple(rejected))


def _with_own_limit(survey: _Survey, workload: Workload, own: Amount) -> _Survey:
    """The survey with the workload's own limit per node as one more filter, the last."""
    limit = workload.max_per_node
    if limit is None:
        return survey
    full = own[survey.feasible] >= limit
    if not full.any():
        return survey
    rows = survey.feasible[full]
    verb = "has" if len(rows) == 1 else "have"
    why = Rejection("max-per-node", f"{len(rows)} {verb} {limit} of its tasks, the most allowed on one node", "release")
    return _Survey(survey.nodes, survey.feasible[~full], (*survey.rejected, _Rejected("max_per_node", rows, why)))


def _message(
    workload: Workload, survey: _Survey, ranked: list[_Rejected], found: int, count: int, *, together: bool
) -> str:
    if survey.nodes == 0:
        return f"pool {workload.pool!r} has no nodes"
    nodes = "1 node fits" if survey.nodes == 1 else f"{survey.nodes} nodes fit"
    message = f"{len(survey.feasible)} of {nodes}: {', '.join(rejected.why.words for rejected in ranked)}"
    if not found:
        return message
    if together:
        return f"room for {found} of {count} tasks, which start together; for the next, {message}"
    return f"{found} of {count} tasks placed; for the next, {message}"


def _cure(evaluation: Evaluation, workload: Workload, survey: _Survey, count: int) -> Cure:
    """`release` if all tasks would find room once others had left the nodes; if not, other nodes are needed."""
    curable = [rejected.rows for rejected in survey.rejected if rejected.why.cure == "release"]
    rows = np.concatenate((survey.feasible, *curable))
    if _room_without_others(evaluation, workload, rows, count) >= count:
        return "release"
    never = bool(survey.rejected) and all(rejected.why.cure == "never" for rejected in survey.rejected)
    return "never" if never else "change"


def _room_without_others(evaluation: Evaluation, workload: Workload, rows: Rows, count: int) -> int:
    """How many more tasks of the workload these nodes could take, up to `count` on each, had they none but its own."""
    cluster, demand = evaluation.cluster, evaluation.demand
    wanted = demand.amounts[:, 0] > 0
    most = cluster.allocatable[demand.slots[wanted], rows] // demand.amounts[wanted]
    room = np.minimum(most.min(axis=0, initial=INT64_MAX), cluster.max_tasks[rows])
    if workload.max_per_node is not None:
        room = np.minimum(room, workload.max_per_node)
    return int((room - own_tasks(workload, cluster)[rows]).clip(0, count).sum())
