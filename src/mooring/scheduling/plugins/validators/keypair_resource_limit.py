"""Resource limits of the keypair: used + requested <= limit."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.plugins.validators.quota_check import KeypairQuotaExceeded, check_quota


class KeypairResourceLimit:
    name = "keypair_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.KEYPAIR, KeypairQuotaExceeded)
