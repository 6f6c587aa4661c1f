"""Scale-up: the cheapest set of available nodes to request, so that all unschedulable workloads fit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from mooring.model.nodes.node_templates import ScaleUp, ScalingRules, Stock
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Workload
from mooring.scheduling.autoscaling.scale_up import ScaleUpTrial, waiting_tasks
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.ordering.bands import arrival_key
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.scheduling_pass import BLOCKED

_ATTEMPTS = 12
"""Maximum attempts at leaving out gangs for which the limits allow too few nodes."""


def lacks_nodes(reason: Reason) -> bool:
    """Return whether more nodes could cure a reason: insufficient capacity, but not a quota, a start time or a gate."""
    return reason.cure != "never" and (reason.code == BLOCKED or "rejected" in reason.details)


def scale_up(
    cluster: Cluster,
    profile: Profile,
    waiting: Sequence[Workload],
    stocks: Sequence[Stock],
    *,
    now: datetime,
    rules: ScalingRules | None = None,
    asked_at: datetime | None = None,
    compiled: bool | None = None,
) -> ScaleUp:
    """Return the nodes to request in a pool beyond those already requested. The cluster stays unchanged.

    `waiting`: the workloads of the pool that lack nodes (`lacks_nodes`); `profile`: the pool's profile; `asked_at`: the
    time of the last request.
    """
    rules = ScalingRules() if rules is None else rules
    if asked_at is not None and now < asked_at + timedelta(seconds=rules.cooldown_seconds):
        return ScaleUp(not_before=asked_at + timedelta(seconds=rules.cooldown_seconds))
    wanted = sorted(filter(waiting_tasks, waiting), key=lambda workload: (-workload.priority, arrival_key(workload)))
    bands = [wanted]
    left_out: set[UUID] = set()
    for _ in range(_ATTEMPTS):
        trial = ScaleUpTrial(cluster, profile, stocks, rules, compiled)
        for band in bands:
            trial.serve([workload for workload in band if workload.id not in left_out])
        if trial.limited and len(bands) == 1 and wanted[0].priority != wanted[-1].priority:
            # The limits do not allow nodes for all workloads: serve the highest priority first.
            bands = [list(band) for _, band in groupby(wanted, key=lambda workload: workload.priority)]
            continue
        torn = [workload.id for workload in wanted if trial.torn(workload)]
        if not torn:
            break
        left_out.update(torn[len(torn) // 2 :])
    return trial.answer(wanted)
