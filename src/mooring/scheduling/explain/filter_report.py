"""A report on the nodes of a pool for one shape: the feasible nodes, and the filters that reject the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mooring.model.calendar.durations import format_duration
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.plan_conflicts import closed_to, may_conflict
from mooring.scheduling.cluster.arrays import Amount, Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.node_selection import own_tasks
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.filters.ready import NOT_READY
from mooring.scheduling.plugins.protocols import Rejection, ask_filter, ask_why

_MAX_CACHED_REPORTS = 256


@dataclass(frozen=True, slots=True)
class Rejected:
    """The rows that one filter is the first to reject."""

    by: str
    rows: Rows
    why: Rejection


@dataclass(frozen=True, slots=True)
class FilterReport:
    """The nodes of a pool: the feasible rows, and the others by the first filter that rejects them."""

    nodes: int
    feasible: Rows
    rejected: tuple[Rejected, ...]

    @property
    def ranked(self) -> list[Rejected]:
        """The rejections, those that matter most first; of equal ones, the filter that rejects the most nodes.

        Waiting cures a full node, and the owner can change a request. A node that is not ready is neither.
        """
        return sorted(self.rejected, key=lambda rejected: (_rank(rejected), -len(rejected.rows)))


def _rank(rejected: Rejected) -> int:
    if rejected.why.code == NOT_READY:
        return 2
    return 0 if rejected.why.cure == "release" else 1


class FilterReports:
    """A cache of reports by shape, valid until the columns change."""

    def __init__(self) -> None:
        self._known: dict[Shape, tuple[int, FilterReport]] = {}

    def of(self, evaluation: Evaluation) -> FilterReport:
        revision = evaluation.cluster.changes.revision
        known = self._known.get(evaluation.shape)
        if known is not None and known[0] == revision:
            return known[1]
        report = look(evaluation)
        if len(self._known) >= _MAX_CACHED_REPORTS:
            self._known.clear()
        self._known[evaluation.shape] = (revision, report)
        return report


def look(evaluation: Evaluation, among: Sequence[int] | None = None) -> FilterReport:
    """Run every filter on the nodes that passed those before it. The evaluation need not be refreshed."""
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
    return FilterReport(len(members), passing, tuple(rejected))


def with_own_rules(report: FilterReport, evaluation: Evaluation, workload: Workload, own: Amount) -> FilterReport:
    """Return the report with the workload's own constraints beyond its shape appended as filters."""
    report = _in_reservation(report, evaluation, workload, own)
    return _with_time(_with_own_limit(report, workload, own), evaluation, workload)


def _in_reservation(report: FilterReport, evaluation: Evaluation, workload: Workload, own: Amount) -> FilterReport:
    """Return a report on the nodes of the workload's timeslot alone, checked against the timeslot's free capacity."""
    if workload.booking is None:
        return report
    cluster = evaluation.cluster
    reserved_rows = [row for row in map(cluster.row_of, cluster.timeslots.left(workload.booking)) if row is not None]
    report = look(evaluation, reserved_rows)
    placed = own - own_tasks(workload, cluster)
    full = ~cluster.timeslots.fits(workload.booking, evaluation.demand, placed)[report.feasible]
    count = int(full.sum())
    words = f"{count:,} {'has' if count == 1 else 'have'} too little left of its booking"
    return _without(report, full, "timeslot", Rejection("timeslot-full", words, "release"))


def _with_own_limit(report: FilterReport, workload: Workload, own: Amount) -> FilterReport:
    """Return the report with the limits that follow from the workload's own tasks appended as filters."""
    limit, at_once = workload.max_per_node, len(workload.tasks) if workload.single_node else 1
    if limit is not None:
        full = own[report.feasible] + at_once > limit
        count = int(full.sum())
        verb = "has" if count == 1 else "have"
        words = f"{count:,} {verb} {limit} of its tasks, the most allowed on one node"
        if at_once > 1:
            words = f"{count:,} may not have {at_once} more of its tasks (at most {limit} on one node)"
        report = _without(report, full, "max_per_node", Rejection("max-per-node", words, "release"))
    if workload.single_node and workload.occupied:
        away = (own[report.feasible] == 0) | (len(workload.occupied) > 1)
        words = f"{int(away.sum()):,} away from the node that its other tasks are on"
        report = _without(report, away, "single_node", Rejection("single-node", words, "release"))
    return report


def _with_time(report: FilterReport, evaluation: Evaluation, workload: Workload) -> FilterReport:
    """Return the report with bookings of others before the workload would end appended as a filter."""
    timeline = evaluation.cluster.timeline
    if not timeline.booked:
        return report
    notice = timeline.notice(workload)
    conflicts = timeline.closed_to(workload, report.feasible, evaluation.demand)
    refused = np.isin(report.feasible, conflicts) | _withheld(report, evaluation, workload)
    count = int(refused.sum())
    verb = "is" if count == 1 else "are"
    end = "before it would end" if workload.predicted_seconds is None else "before its predicted end"
    if workload.time_limit_seconds is None:
        when = "at some time" if notice is None else f"within {format_duration(notice)}"
        end = f"{when}, and it has no time limit"
    return _without(
        report, refused, "timeline", Rejection("booked", f"{count:,} {verb} promised to others {end}", "release")
    )


def _withheld(report: FilterReport, evaluation: Evaluation, workload: Workload) -> Mask:
    """Return a mask of the nodes that the workload must leave to planned starts.

    It would take resources other than slots that they need there, or conflict with their constraints elsewhere.
    """
    shape, cluster = evaluation.shape, evaluation.cluster
    refused: Mask = np.zeros(len(report.feasible), dtype=np.bool_)
    with cluster.without_journal(), cluster.plans.in_force(), cluster.plans.lifted_for(workload):
        for plugin in evaluation.active.filters:
            if plugin.depends_on == "row":
                refused |= ~ask_filter(plugin, shape, cluster, report.feasible)
    if may_conflict(cluster, shape.constraints):
        refused |= np.isin(report.feasible, closed_to(cluster, shape.constraints, workload.gap_seconds))
    return refused


def _without(report: FilterReport, refused: Mask, by: str, why: Rejection) -> FilterReport:
    if not refused.any():
        return report
    rejected = Rejected(by, report.feasible[refused], why)
    return FilterReport(report.nodes, report.feasible[~refused], (*report.rejected, rejected))


def summary(report: FilterReport, pool: str) -> str:
    """Return the report in one line: `0 of 5,000 nodes: 3,100 lack 2 gpu (best has 1), 1,900 not ready`."""
    if report.nodes == 0:
        return f"pool {pool!r} has no nodes"
    nodes = "1 node" if report.nodes == 1 else f"{report.nodes:,} nodes"
    words = ", ".join(rejected.why.words for rejected in report.ranked)
    return f"{len(report.feasible):,} of {nodes}: {words}" if words else f"{len(report.feasible):,} of {nodes}"
