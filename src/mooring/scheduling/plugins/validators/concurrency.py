"""Limit on the running workloads of a tenant; private ones are counted separately."""

from __future__ import annotations

from mooring.model.policy.pools import Moment
from mooring.model.tenancy.quotas import Violation
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.plugins.validators.quota_check import LimitExceeded, who


class ConcurrencyLimitExceeded(LimitExceeded):
    code = "too-many-sessions"


class Concurrency:
    name = "concurrency"
    moments = frozenset({Moment.SCHEDULING})

    def check(self, workload: Workload, context: AdmissionContext) -> None:
        violations = context.usage.session_violations(workload)
        if violations:
            kind = "private sessions" if workload.private else "sessions"
            message = "; ".join(_sentence(violation, kind) for violation in violations)
            raise ConcurrencyLimitExceeded(message, violations, workload, context)


def _sentence(violation: Violation, kind: str) -> str:
    return f"{who(violation)} cannot run more than {violation.limit} {kind} at the same time; {violation.used} run"
