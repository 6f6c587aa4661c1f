"""So many workloads of a tenant have something on a node at the same time; private ones are counted apart."""

from __future__ import annotations

from mooring.model.pools import Moment
from mooring.model.quotas import Violation
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext
from mooring.scheduling.admission.quota import LimitExceeded, who


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
