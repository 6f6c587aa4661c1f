"""Placement of workloads into their reservations: on the capacity reserved for them, and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from mooring.model.decisions import Decision, Outcome
from mooring.model.tenancy.admission import NOTHING, Checked
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.placer import Placer


def place_in_reservations(
    placer: Placer, cluster: Cluster, workloads: Sequence[Workload], now: datetime, admission: Admission | None
) -> tuple[list[Decision], list[Rejection]]:
    """Decide on workloads with a reservation, by priority. They neither block others nor are blocked by them."""
    if not workloads:
        return [], []
    with _without_plans(cluster, {workload.pool for workload in workloads}):
        return _place(placer, cluster, workloads, now, admission)


@contextmanager
def _without_plans(cluster: Cluster, pools: Collection[str]) -> Iterator[None]:
    """Suspend planned starts: reserved capacity was promised first, and a start can be planned again."""
    suspended = cluster.timeline.suspend_plans(cluster.timeline.planned_owners(pools))
    rows = {each.promise.row for each in suspended}
    cluster.plans.renew(rows)
    try:
        yield
    finally:
        cluster.timeline.resume_plans(suspended)
        cluster.plans.renew(rows)


def _place(
    placer: Placer, cluster: Cluster, workloads: Sequence[Workload], now: datetime, admission: Admission | None
) -> tuple[list[Decision], list[Rejection]]:
    decisions: list[Decision] = []
    refused: list[Rejection] = []
    for workload in sorted(workloads, key=lambda each: (-each.priority, each.created_at, each.id)):
        answer = _admitted(cluster, workload, now, admission)
        if isinstance(answer, Rejection):
            refused.append(answer)
            continue
        decision = _place_one(placer, cluster, answer, now)
        checked = None
        if admission is not None:
            admission.refund(answer, len(answer.tasks) - len(decision.placements))
            checked = admission.passed(answer)
        if decision.outcome is Outcome.WAITING and decision.reason is not None:
            refused.append(Rejection(workload, decision.reason, checked or Checked(now, ()), NOTHING))
        else:
            decisions.append(decision._replace(workload=workload, checked=checked))
    return decisions, refused


def _admitted(cluster: Cluster, workload: Workload, now: datetime, admission: Admission | None) -> Workload | Rejection:
    early = cluster.timeslots.why_not_yet(workload, cluster.timeline.now)
    if early is not None:
        reason, awaits = early
        return Rejection(workload, reason, Checked(now, (), (reason,)), awaits)
    return workload if admission is None else admission.admit(workload)


def _place_one(placer: Placer, cluster: Cluster, workload: Workload, now: datetime) -> Decision:
    assert workload.booking is not None
    timeslots = cluster.timeslots
    with timeslots.lifted(workload.booking):
        decision = placer.place_one_explained(timeslots.until_its_end(workload, cluster.timeline.now), now)
        for placement in decision.placements:
            timeslots.take(workload.booking, placement.node_id, workload.request)
    if decision.reason is not None and decision.outcome in (Outcome.WAITING, Outcome.PLACED):
        decision = decision._replace(reason=timeslots.full(workload) or decision.reason)
    return decision
