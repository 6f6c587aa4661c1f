"""Which nodes to ask for, so that all that waits for room finds some: at the least cost, and of what can be had."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from mooring.model.reasons import Reason
from mooring.model.templates import ScaleUp, ScalingRules, Stock
from mooring.model.workloads import Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.growth import Growth, waiting_tasks
from mooring.scheduling.ordering.bands import turn
from mooring.scheduling.profiles import Profile
from mooring.scheduling.rounds import BLOCKED

_ATTEMPTS = 12
"""At leaving out gangs for which limits leave too few nodes."""


def lacks_nodes(reason: Reason) -> bool:
    """Whether more nodes could cure a reason: there is too little room. Quotas, times and gates are no such reasons."""
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
    """The nodes to ask for in a pool beyond those on their way. The cluster is not changed.

    `waiting` are workloads of the pool that lack nodes (`lacks_nodes`), `profile` is the pool's, and `asked_at` is when
    nodes were asked for last.
    """
    rules = ScalingRules() if rules is None else rules
    if asked_at is not None and now < asked_at + timedelta(seconds=rules.cooldown_seconds):
        return ScaleUp(not_before=asked_at + timedelta(seconds=rules.cooldown_seconds))
    wanted = sorted(filter(waiting_tasks, waiting), key=lambda workload: (-workload.priority, turn(workload)))
    bands = [wanted]
    left_out: set[UUID] = set()
    for _ in range(_ATTEMPTS):
        growth = Growth(cluster, profile, stocks, rules, compiled)
        for band in bands:
            growth.serve([workload for workload in band if workload.id not in left_out])
        if growth.limited and len(bands) == 1 and wanted[0].priority != wanted[-1].priority:
            # Not everybody can be served: those of the highest priority come first.
            bands = [list(band) for _, band in groupby(wanted, key=lambda workload: workload.priority)]
            continue
        torn = [workload.id for workload in wanted if growth.torn(workload)]
        if not torn:
            break
        left_out.update(torn[len(torn) // 2 :])
    return growth.answer(wanted)
