"""Node selection in a pool of few nodes, by plain numbers: array operations have a fixed cost that exceeds the work.

It answers for one task to which at most one node is open. All else is left to `node_selection`, the definition.
"""

from __future__ import annotations

from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.plan_conflicts import may_conflict
from mooring.scheduling.plugins.evaluation import Evaluation

NO_ROW = -1


def only_open_row(evaluation: Evaluation, workload: Workload) -> int | None:
    """Return the only row that is open to a task of the workload, or NO_ROW; None if arrays are needed to tell.

    The evaluation need not be refreshed.
    """
    fitting = evaluation.few_that_fit()
    if not fitting:
        return fitting if fitting is None else NO_ROW
    if workload.booking is not None or workload.max_per_node is not None or workload.single_node or workload.pack:
        return None
    if evaluation.wants_devices or evaluation.shape.constraints.ports_wanted or not evaluation.node_local:
        return None
    if evaluation.profile.selector is not None:
        return None
    cluster = evaluation.cluster
    timeline = cluster.timeline
    if timeline.booked:
        if may_conflict(cluster, evaluation.shape.constraints):
            return None
        demand = evaluation.demand
        closed = [timeline.is_closed_to(workload, row, demand) for row in fitting]
        if None in closed:
            return None
        fitting = [row for row, is_closed in zip(fitting, closed, strict=True) if not is_closed]
    if not fitting:
        return NO_ROW
    return fitting[0] if len(fitting) == 1 else None
