"""What all workloads of a project (a group, to the origins) use together stays within the project's limits."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.quota import ProjectQuotaExceeded, check_quota


class GroupResourceLimit:
    name = "group_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.PROJECT, ProjectQuotaExceeded)
