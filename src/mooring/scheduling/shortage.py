"""Why a workload found fewer nodes than tasks: what turned the nodes down, what they lack, and what would cure it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from mooring.model.quantity import INT64_MAX
from mooring.model.reasons import Cure, Reason
from mooring.model.workloads import Task, Workload
from mooring.scheduling.columns import Amount, Cluster, Rows
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.profiles import Profile
from mooring.scheduling.selection import own_tasks
from mooring.scheduling.shapes import shape_of
from mooring.scheduling.survey import Survey, Surveys, summary, with_own_limit
from mooring.scheduling.trial import Trial

_REASONS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Shortage:
    """A workload that found `rows` for `count` tasks; `together`: all or none were wanted, so these were undone."""

    rows: Sequence[int]
    count: int
    together: bool


class Shortages:
    """Makes reasons of shortages when a pass is through, so that no explanation holds up the decisions behind it."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._surveys = Surveys()
        self._known: dict[tuple[object, ...], Reason] = {}
        """Of workloads that found nothing and are nowhere yet: those that are alike have one reason."""
        self._revision = -1

    def reason(self, workload: Workload, shortage: Shortage) -> Reason:
        """Why there are no more nodes. What was undone of tasks that start together counts for this."""
        if self._revision != self._cluster.changes.revision or len(self._known) >= _REASONS_KEPT:
            self._known = {}
            self._revision = self._cluster.changes.revision
        shape = shape_of(workload, self._cluster)
        alike = (shape, shortage.count, shortage.together, workload.max_per_node)
        nowhere = not shortage.rows and not workload.occupied
        known = self._known.get(alike) if nowhere else None
        if known is not None:
            return known
        # Not refreshed: what the filters say is asked for here, and the scores of nodes that are short do not matter.
        reason = self._of(Evaluation(shape, self._cluster, self._profile), workload, shortage)
        if nowhere:
            self._known[alike] = reason
        return reason

    def _of(self, evaluation: Evaluation, workload: Workload, shortage: Shortage) -> Reason:
        cluster = self._cluster
        own = own_tasks(workload, cluster)
        trial = Trial(cluster)
        try:
            if not (shortage.together and workload.max_per_node == 1 and evaluation.node_local):
                for row in shortage.rows:
                    own[row] += 1
                    if shortage.together:
                        resolved = cluster.with_ports(row, workload.constraints)
                        trial.assume(np.array([row], dtype=np.intp), evaluation.demand, resolved)
            return self._reason(evaluation, workload, shortage, own)
        finally:
            trial.revert()

    def _reason(self, evaluation: Evaluation, workload: Workload, shortage: Shortage, own: Amount) -> Reason:
        survey = with_own_limit(self._surveys.of(evaluation), workload, own)
        ranked = survey.ranked
        found, count = len(shortage.rows), shortage.count
        details: dict[str, Any] = {}
        for rejected in ranked:
            details.update(rejected.why.details)
        details["nodes"] = survey.nodes
        details["rejected"] = {rejected.by: len(rejected.rows) for rejected in ranked}
        details["tasks"] = {"need": count, "found": found}
        details["waits_for"] = {
            cure: [rejected.by for rejected in ranked if rejected.why.cure == cure]
            for cure in sorted({rejected.why.cure for rejected in ranked})
        }
        code, by = (ranked[0].why.code, ranked[0].by) if ranked else ("no-nodes", "pool")
        message = summary(survey, workload.pool)
        if shortage.together and workload.max_per_node == 1:
            code = "insufficient-nodes"
            message = f"Insufficient nodes: need {count}, found {found}"
            found = 0
        elif len(survey.feasible):
            # Others of the pass made room for it after its turn, by being what it wants to be near.
            code, by = "room-since", "pass"
            message = f"{message}; there is room since others of the same pass were placed"
        if found and shortage.together:
            message = f"room for {found:,} of {count:,} tasks, which start together; for the next, {message}"
        elif found:
            message = f"{found:,} of {count:,} tasks placed; for the next, {message}"
        return Reason(code, message, by, _cure(evaluation, workload, survey, count), details)


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


def behind_gates(workload: Workload) -> Reason:
    """Why work is not tried at all."""
    names = ", ".join(workload.gates)
    return Reason("gated", f"it waits until this is settled: {names}", "gates", details={"gates": list(workload.gates)})


def _cure(evaluation: Evaluation, workload: Workload, survey: Survey, count: int) -> Cure:
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
