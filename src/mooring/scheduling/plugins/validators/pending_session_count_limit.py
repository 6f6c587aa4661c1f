"""Limit on the pending workloads of a keypair, up to and including this one; private ones are not counted."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.quotas import Scope, Tenant, Violation
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext, is_pending
from mooring.scheduling.plugins.validators.quota_check import PendingLimitExceeded, who

PENDING = "pending"


class PendingCountExceeded(PendingLimitExceeded):
    code = "too-many-pending"


class PendingSessionCountLimit:
    name = "pending_session_count_limit"
    moments = frozenset({Moment.ENQUEUE})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        limit = context.policy_of(workload).max_pending
        if limit is None or limit <= 0 or not is_pending(workload):
            return
        pending = context.pending_ahead(workload).workloads
        if pending + 1 > limit:
            keypair = Tenant(Scope.KEYPAIR, workload.access_key)
            violation = Violation(keypair, context.usage.name_of(keypair), PENDING, pending, 1, limit)
            message = f"{who(violation)} cannot have more than {limit} workloads waiting; {pending} wait already"
            raise PendingCountExceeded(message, [violation], workload, context)
