"""What all workloads of a domain use together stays within the domain's limits."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.quota import DomainQuotaExceeded, check_quota


class DomainResourceLimit:
    name = "domain_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.DOMAIN, DomainQuotaExceeded)
