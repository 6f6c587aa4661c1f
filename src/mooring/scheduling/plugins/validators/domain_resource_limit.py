"""Resource limits of the domain: used + requested <= limit."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.plugins.validators.quota_check import DomainQuotaExceeded, check_quota


class DomainResourceLimit:
    name = "domain_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.DOMAIN, DomainQuotaExceeded)
