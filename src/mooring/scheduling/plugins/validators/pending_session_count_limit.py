"""So many workloads of a keypair wait at the same time; private ones are not counted."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope, Tenant, Violation
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext, is_pending
from mooring.scheduling.admission.quota import LimitExceeded, who

PENDING = "pending"


class PendingCountExceeded(LimitExceeded):
    code = "too-many-pending"


class PendingSessionCountLimit:
    name = "pending_session_count_limit"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        limit = context.policy_of(workload).max_pending
        if limit is None or limit <= 0 or not is_pending(workload):
            return
        pending = context.pending_besides(workload).workloads
        if pending + 1 > limit:
            keypair = Tenant(Scope.KEYPAIR, workload.access_key)
            violation = Violation(keypair, context.usage.name_of(keypair), PENDING, pending, 1, limit)
            message = f"{who(violation)} cannot have more than {limit} workloads waiting; {pending} wait already"
            raise PendingCountExceeded(message, [violation], workload, context)
