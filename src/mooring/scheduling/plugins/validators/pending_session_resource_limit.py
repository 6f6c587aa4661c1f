"""What the waiting workloads of a keypair ask for together stays within a limit; private ones are not counted."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope, Tenant, Violation
from mooring.model.slots import describe_amounts
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext, is_pending
from mooring.scheduling.admission.quota import LimitExceeded, who


class PendingResourcesExceeded(LimitExceeded):
    code = "too-much-pending"


class PendingSessionResourceLimit:
    name = "pending_session_resource_limit"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        limits = context.policy_of(workload).max_pending_slots
        if not limits or not is_pending(workload):
            return
        pending = context.pending_besides(workload).slots
        keypair = Tenant(Scope.KEYPAIR, workload.access_key)
        violations = [
            Violation(keypair, context.usage.name_of(keypair), slot, pending.get(slot, 0), requested, limit)
            for slot, limit in limits.items()
            if pending.get(slot, 0) + (requested := workload.request.get(slot, 0) * len(workload.tasks)) > limit
        ]
        if violations:
            exceeded = describe_amounts({each.slot: each.limit for each in violations})
            together = describe_amounts({each.slot: each.used + each.requested for each in violations})
            message = f"{together} would wait, which exceeds the pending limit of {who(violations[0])}, {exceeded}"
            raise PendingResourcesExceeded(message, violations, workload, context)
