"""What all workloads of a keypair use together stays within the keypair's limits."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.quota import KeypairQuotaExceeded, check_quota


class KeypairResourceLimit:
    name = "keypair_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.KEYPAIR, KeypairQuotaExceeded)
