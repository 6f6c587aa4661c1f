"""A workload with a start time does not start before it, whatever its type."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.admission import AdmissionError, Awaits
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext


class NotDueYet(AdmissionError):
    code = "not-due-yet"


class ReservedBatchSession:
    name = "reserved_batch_session"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        due = workload.starts_at
        if due is not None and due > context.now:
            raise NotDueYet(
                f"it is before its start time, {due.isoformat(timespec='seconds')}",
                cure="change",
                awaits=Awaits(until=due),
                details={"starts_at": due.isoformat()},
            )
