"""What all workloads of a user use together stays within the user's limits."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Scope
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.quota import UserQuotaExceeded, check_quota


class UserResourceLimit:
    name = "user_resource_limit"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        check_quota(workload, context, Scope.USER, UserQuotaExceeded)
