"""Work inside timeslots: it is placed into the room that is kept for it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from mooring.model.admission import NOTHING, Checked
from mooring.model.decisions import Decision, Outcome
from mooring.model.workloads import Workload
from mooring.scheduling.admission import Admission, Rejection
from mooring.scheduling.columns import Cluster

Decide = Callable[[Workload], Decision]
"""Places a workload now, and says why it found no room."""


def place_inside(
    cluster: Cluster, workloads: Sequence[Workload], now: datetime, decide: Decide, admission: Admission | None
) -> tuple[list[Decision], list[Rejection]]:
    """Decide on work inside timeslots, the most important first; it neither stops others nor is stopped by them."""
    decisions: list[Decision] = []
    refused: list[Rejection] = []
    for workload in sorted(workloads, key=lambda each: (-each.priority, each.created_at, each.id)):
        answer = _admitted(cluster, workload, now, admission)
        if isinstance(answer, Rejection):
            refused.append(answer)
            continue
        decision = _decide(cluster, answer, now, decide)
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


def _decide(cluster: Cluster, workload: Workload, now: datetime, decide: Decide) -> Decision:
    assert workload.booking is not None
    timeslots = cluster.timeslots
    with timeslots.lifted(workload.booking):
        decision = decide(timeslots.until_its_end(workload, cluster.timeline.now))
        for placement in decision.placements:
            timeslots.take(workload.booking, placement.node_id, workload.request)
    if decision.reason is not None and decision.outcome in (Outcome.WAITING, Outcome.PLACED):
        decision = decision._replace(reason=timeslots.full(workload) or decision.reason)
    return decision
