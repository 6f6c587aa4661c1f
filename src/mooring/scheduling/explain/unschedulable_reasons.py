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
from mooring.scheduling.arrays import Amount, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.device_requests import DeviceRequest, device_requests
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.gangs import room, shape_on_node
from mooring.scheduling.profiles import Profile
from mooring.scheduling.selection import own_tasks
from mooring.scheduling.survey import Survey, Surveys, summary, with_own_rules
from mooring.scheduling.trial import Trial

_REASONS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Shortage:
    """A workload that found `rows` for `count` tasks; where `least` were wanted or none, fewer were undone.

    Without rows none was tried: either no node may take a task, or there is no room for `least`.
    """

    rows: Sequence[int]
    count: int
    least: int = 0

    @property
    def undone(self) -> bool:
        return len(self.rows) < self.least


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
        shape = shape_on_node(workload, self._cluster, shortage.count)
        limit = workload.longest_seconds if self._cluster.timeline.booked else None
        alike = (shape, shortage.count, shortage.least, workload.max_per_node, limit, workload.booking)
        nowhere = not shortage.rows and not workload.occupied
        known = self._known.get(alike) if nowhere else None
        if known is not None:
            return known
        # Not refreshed: what the filters say is asked for here, and the scores of nodes that are short do not matter.
        reason = self._of(Evaluation(shape, self._cluster, self._profile), workload, shortage)
        # What it counted for a moment is undone, so that what was learned before still holds.
        self._revision = self._cluster.changes.revision
        if nowhere:
            self._known[alike] = reason
        return reason

    def _of(self, evaluation: Evaluation, workload: Workload, shortage: Shortage) -> Reason:
        cluster = self._cluster
        own = own_tasks(workload, cluster)
        trial = Trial(cluster)
        found = len(shortage.rows)
        try:
            if shortage.undone and not found and not workload.single_node:
                found = self._fill(evaluation, trial, workload, shortage, own)
            elif not (shortage.undone and workload.max_per_node == 1 and evaluation.node_local):
                for row in shortage.rows:
                    own[row] += 1
                    if shortage.undone:
                        resolved = cluster.with_ports(row, workload.constraints)
                        devices = (evaluation.devices_on(row),)
                        trial.assume(np.array([row], dtype=np.intp), evaluation.demand, resolved, devices)
            return self._reason(evaluation, workload, shortage, own, found)
        finally:
            trial.revert()

    def _fill(self, evaluation: Evaluation, trial: Trial, workload: Workload, shortage: Shortage, own: Amount) -> int:
        """Count as many tasks as the slots have room for, if these are too few; returns their number."""
        evaluation.refresh()
        left = room(evaluation, own, workload.max_per_node)
        found = int(left.sum())
        if found >= shortage.least:
            return 0
        if workload.max_per_node != 1:
            while (rows := np.flatnonzero(left)).size:
                trial.assume(rows, evaluation.demand)
                own[rows] += 1
                left[rows] -= 1
        return found

    def _reason(
        self, evaluation: Evaluation, workload: Workload, shortage: Shortage, own: Amount, found: int
    ) -> Reason:
        survey = with_own_rules(self._surveys.of(evaluation), evaluation, workload, own)
        ranked = survey.ranked
        count, least = shortage.count, shortage.least
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
        if workload.single_node and count > 1:
            details["single_node"] = True
            message = f"all {count:,} tasks go to one node; {message}"
        elif shortage.undone and workload.max_per_node == 1:
            code = "insufficient-nodes"
            message = f"Insufficient nodes: need {least}, found {found}"
            found = 0
        elif len(survey.feasible):
            # Others of the pass made room for it after its turn, by being what it wants to be near.
            code, by = "room-since", "pass"
            message = f"{message}; there is room since others of the same pass were placed"
        if found and shortage.undone:
            together = "which start together" if least == count else f"of which {least:,} start together"
            # Where none was tried, what tasks ask of each other was not looked at.
            most = "" if shortage.rows or evaluation.node_local else "at most "
            message = f"room for {most}{found:,} of {count:,} tasks, {together}; for the next, {message}"
        elif found:
            message = f"{found:,} of {count:,} tasks placed; for the next, {message}"
        return Reason(code, message, by, _cure(evaluation, workload, survey, count), details)


def backing_off(workload: Workload, later: Iterable[Task], needed: int) -> Reason:
    """Why tasks are not placed yet although they wait: an error came before, and its delay has not passed.

    So many of these are `needed` before anything can go on.
    """
    times: list[datetime] = sorted(task.not_before for task in later if task.not_before is not None)
    until = times[max(needed, 1) - 1]
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
    cluster, demand, at_once = evaluation.cluster, evaluation.demand, evaluation.shape.tasks
    wanted = demand.amounts[:, 0] > 0
    most = cluster.allocatable[demand.slots[wanted], rows] // demand.amounts[wanted]
    most_tasks = np.minimum(most.min(axis=0, initial=INT64_MAX // at_once) * at_once, cluster.max_tasks[rows])
    for request in device_requests(evaluation.shape, cluster):
        most_tasks = np.minimum(most_tasks, _room_on_devices(request, rows, count))
    if workload.max_per_node is not None:
        most_tasks = np.minimum(most_tasks, workload.max_per_node)
    return int((most_tasks - own_tasks(workload, cluster)[rows]).clip(0, count).sum())


def _room_on_devices(request: DeviceRequest, rows: Rows, count: int) -> Amount:
    """How many tasks the devices of each row could take, up to `count`, had they no others; alike rows are one."""
    column = request.column
    kinds = np.concatenate((column.capacity[rows], column.memory[rows], column.model[rows]), axis=1)
    _, firsts, numbers = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    of_kind = np.array([request.tasks_when_empty(int(rows[first]), count) for first in firsts], dtype=np.int64)
    return np.where(column.divided(rows), of_kind[numbers.reshape(-1)] if len(rows) else 0, count)
