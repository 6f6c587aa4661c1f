"""Limit on the amounts that pending workloads of a keypair request, up to this one; private ones are not counted."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.resources.slots import describe_amounts
from mooring.model.tenancy.quotas import Scope, Tenant, Violation
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext, is_pending
from mooring.scheduling.plugins.validators.quota_check import PendingLimitExceeded, who


class PendingResourcesExceeded(PendingLimitExceeded):
    code = "too-much-pending"


class PendingSessionResourceLimit:
    name = "pending_session_resource_limit"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        limits = context.policy_of(workload).max_pending_slots
        if not limits or not is_pending(workload):
            return
        pending = context.pending_ahead(workload).slots
        keypair = Tenant(Scope.KEYPAIR, workload.access_key)
        violations = [
            Violation(keypair, context.usage.name_of(keypair), slot, pending.get(slot, 0), requested, limit)
            for slot, limit in limits.items()
            if pending.get(slot, 0) + (requested := workload.request.get(slot, 0) * len(workload.tasks)) > limit
        ]
        if violations:
            exceeded = describe_amounts({each.slot: each.limit for each in violations})
            total = describe_amounts({each.slot: each.used + each.requested for each in violations})
            message = f"{total} would wait, which exceeds the pending limit of {who(violations[0])}, {exceeded}"
            raise PendingResourcesExceeded(message, violations, workload, context)
