"""Unschedulable reasons: the filters that reject nodes for a workload, the missing amounts, and the cure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from mooring.model.reasons import Cure, Reason
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.workloads.workload import Task, Workload
from mooring.scheduling.cluster.arrays import Amount, Rows
from mooring.scheduling.cluster.device_requests import DeviceRequest, device_requests
from mooring.scheduling.cluster.trial import Trial
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.explain.filter_report import (
    FilterReport,
    FilterReports,
    summary,
    with_own_rules,
)
from mooring.scheduling.gangs import shape_on_node, tasks_that_fit
from mooring.scheduling.node_selection import own_tasks
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.profiles import Profile

_MAX_CACHED_REASONS = 4096


@dataclass(frozen=True, slots=True)
class UnplacedTasks:
    """The result of a workload of `count` tasks that found `rows`; fewer than `least` rows were undone.

    Without rows no placement was tried: no node is feasible, or the capacity is insufficient for `least` tasks.
    """

    rows: Sequence[int]
    count: int
    least: int = 0
    unplanned: Reason | None = None
    """The reason why it has no planned start, if its pool plans starts."""

    @property
    def undone(self) -> bool:
        return len(self.rows) < self.least


class UnschedulableReasons:
    """Finds the reasons of unplaced tasks after a pass, so that explanations do not delay later decisions."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._reports = FilterReports()
        self._known: dict[tuple[object, ...], Reason] = {}
        """The reasons of workloads without any placement, old or new; equivalent workloads share one reason."""
        self._revision = -1

    def reason(self, workload: Workload, unplaced: UnplacedTasks) -> Reason:
        """Return the reason why no more tasks were placed; its details say why no start is planned, if none is."""
        reason, unplanned = self._of_nodes(workload, unplaced), unplaced.unplanned
        if unplanned is None:
            return reason
        details = {**reason.details, "plan": {"code": unplanned.code, "message": unplanned.message}}
        return replace(reason, details=details)

    def _of_nodes(self, workload: Workload, unplaced: UnplacedTasks) -> Reason:
        """Return the reason why no more tasks were placed. Undone placements of a gang count as placed for it."""
        if self._revision != self._cluster.changes.revision or len(self._known) >= _MAX_CACHED_REASONS:
            self._known = {}
            self._revision = self._cluster.changes.revision
        shape = shape_on_node(workload, self._cluster, unplaced.count)
        timeline = self._cluster.timeline
        seconds = workload.longest_seconds, workload.gap_seconds
        limit = (*seconds, timeline.notice(workload)) if timeline.booked else None
        key = (shape, unplaced.count, unplaced.least, workload.max_per_node, limit, workload.booking)
        nowhere = not unplaced.rows and not workload.occupied
        known = self._known.get(key) if nowhere else None
        if known is not None:
            return known
        # Not refreshed: the report runs the filters itself, and the scores of infeasible nodes do not matter.
        reason = self._of(Evaluation(shape, self._cluster, self._profile), workload, unplaced)
        # The trial is reverted, so the reasons found before are still valid at the new revision.
        self._revision = self._cluster.changes.revision
        if nowhere:
            self._known[key] = reason
        return reason

    def _of(self, evaluation: Evaluation, workload: Workload, unplaced: UnplacedTasks) -> Reason:
        cluster = self._cluster
        own = own_tasks(workload, cluster)
        trial = Trial(cluster)
        found = len(unplaced.rows)
        try:
            if unplaced.undone and not found and not workload.single_node:
                found = self._fill(evaluation, trial, workload, unplaced, own)
            elif not (unplaced.undone and workload.max_per_node == 1 and evaluation.node_local):
                for row in unplaced.rows:
                    own[row] += 1
                    if unplaced.undone:
                        resolved = cluster.with_ports(row, workload.constraints)
                        devices = (evaluation.devices_on(row),)
                        trial.assume(np.array([row], dtype=np.intp), evaluation.demand, resolved, devices)
            return self._reason(evaluation, workload, unplaced, own, found)
        finally:
            trial.revert()

    def _fill(
        self, evaluation: Evaluation, trial: Trial, workload: Workload, unplaced: UnplacedTasks, own: Amount
    ) -> int:
        """Assume as many tasks as the slots can hold, if fewer than `least`. Return their number, or else 0."""
        evaluation.refresh()
        left = tasks_that_fit(evaluation, own, workload.max_per_node)
        found = int(left.sum())
        if found >= unplaced.least:
            return 0
        if workload.max_per_node != 1:
            while (rows := np.flatnonzero(left)).size:
                trial.assume(rows, evaluation.demand)
                own[rows] += 1
                left[rows] -= 1
        return found

    def _reason(
        self, evaluation: Evaluation, workload: Workload, unplaced: UnplacedTasks, own: Amount, found: int
    ) -> Reason:
        report = with_own_rules(self._reports.of(evaluation), evaluation, workload, own)
        ranked = report.ranked
        count, least = unplaced.count, unplaced.least
        details: dict[str, Any] = {}
        for rejected in ranked:
            details.update(rejected.why.details)
        details["nodes"] = report.nodes
        details["rejected"] = {rejected.by: len(rejected.rows) for rejected in ranked}
        details["tasks"] = {"need": count, "found": found}
        details["waits_for"] = {
            cure: [rejected.by for rejected in ranked if rejected.why.cure == cure]
            for cure in sorted({rejected.why.cure for rejected in ranked})
        }
        code, by = (ranked[0].why.code, ranked[0].by) if ranked else ("no-nodes", "pool")
        message = summary(report, workload.pool)
        if workload.single_node and count > 1:
            details["single_node"] = True
            message = f"all {count:,} tasks go to one node; {message}"
        elif unplaced.undone and workload.max_per_node == 1:
            code = "insufficient-nodes"
            message = f"Insufficient nodes: need {least}, found {found}"
            found = 0
        elif len(report.feasible):
            # A later placement of the pass made nodes feasible, by satisfying the workload's affinity.
            code, by = "room-since", "pass"
            message = f"{message}; there is capacity since others of the same pass were placed"
        if found and unplaced.undone:
            gang_text = "which start together" if least == count else f"of which {least:,} start together"
            # Without a trial, constraints between its tasks were not checked, so the number is an upper bound.
            most = "" if unplaced.rows or evaluation.node_local else "at most "
            message = f"capacity for {most}{found:,} of {count:,} tasks, {gang_text}; for the next, {message}"
        elif found:
            message = f"{found:,} of {count:,} tasks placed; for the next, {message}"
        return Reason(code, message, by, _cure(evaluation, workload, report, count), details)


def backing_off(workload: Workload, later: Iterable[Task], needed: int) -> Reason:
    """Return the reason why pending tasks are not tried yet: they back off after an error.

    The workload can continue once `needed` of the `later` tasks have finished their delay.
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
    """Return the reason why a gated workload is not tried."""
    names = ", ".join(workload.gates)
    return Reason(
        "gated", f"it waits until this is resolved: {names}", "gates", details={"gates": list(workload.gates)}
    )


def _cure(evaluation: Evaluation, workload: Workload, report: FilterReport, count: int) -> Cure:
    """Return `release` if all tasks would fit once other tasks left the nodes; otherwise the nodes must change."""
    curable = [rejected.rows for rejected in report.rejected if rejected.why.cure == "release"]
    rows = np.concatenate((report.feasible, *curable))
    if _fitting_without_others(evaluation, workload, rows, count) >= count:
        return "release"
    never = bool(report.rejected) and all(rejected.why.cure == "never" for rejected in report.rejected)
    return "never" if never else "change"


def _fitting_without_others(evaluation: Evaluation, workload: Workload, rows: Rows, count: int) -> int:
    """Return how many more of its tasks these nodes could hold, up to `count` each, without tasks of others."""
    cluster, demand, at_once = evaluation.cluster, evaluation.demand, evaluation.shape.tasks
    wanted = demand.amounts[:, 0] > 0
    most = cluster.allocatable[demand.slots[wanted], rows] // demand.amounts[wanted]
    most_tasks = np.minimum(most.min(axis=0, initial=INT64_MAX // at_once) * at_once, cluster.max_tasks[rows])
    for request in device_requests(evaluation.shape, cluster):
        most_tasks = np.minimum(most_tasks, _fitting_on_devices(request, rows, count))
    if workload.max_per_node is not None:
        most_tasks = np.minimum(most_tasks, workload.max_per_node)
    return int((most_tasks - own_tasks(workload, cluster)[rows]).clip(0, count).sum())


def _fitting_on_devices(request: DeviceRequest, rows: Rows, count: int) -> Amount:
    """Return how many tasks the empty devices of each row could hold, up to `count`; equal rows are computed once."""
    column = request.column
    kinds = np.concatenate((column.capacity[rows], column.memory[rows], column.model[rows]), axis=1)
    _, firsts, numbers = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    of_kind = np.array([request.tasks_when_empty(int(rows[first]), count) for first in firsts], dtype=np.int64)
    return np.where(column.divided(rows), of_kind[numbers.reshape(-1)] if len(rows) else 0, count)
