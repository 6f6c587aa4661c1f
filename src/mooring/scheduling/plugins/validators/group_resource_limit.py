"""Resource limits of the project (Backend.AI: group): used + requested <= limit."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.plugins.validators.quota_check import ProjectQuotaExceeded, check_quota


class GroupResourceLimit:
    name = "group_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.PROJECT, ProjectQuotaExceeded)
