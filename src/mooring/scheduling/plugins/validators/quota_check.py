"""What the validators of quotas share: the comparison, and what a person is told."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.model.admission import AdmissionError, Awaits
from mooring.model.names import shown
from mooring.model.quotas import Scope, Violation
from mooring.model.slots import slot_type
from mooring.model.workloads import Workload
from mooring.scheduling.admission.context import AdmissionContext, at_once


class LimitExceeded(AdmissionError):
    """One or more limits of a workload's tenants."""

    code = "limit-exceeded"

    def __init__(self, message: str, violations: Sequence[Violation], workload: Workload, context: AdmissionContext):
        super().__init__(
            message,
            violations=violations,
            awaits=Awaits(tenants=frozenset(violation.tenant for violation in violations)),
            details=context.usage.names_of(workload),
        )


class QuotaExceeded(LimitExceeded):
    code = "quota-exceeded"


class KeypairQuotaExceeded(QuotaExceeded):
    code = "keypair-quota-exceeded"


class UserQuotaExceeded(QuotaExceeded):
    code = "user-quota-exceeded"


class ProjectQuotaExceeded(QuotaExceeded):
    code = "project-quota-exceeded"


class DomainQuotaExceeded(QuotaExceeded):
    code = "domain-quota-exceeded"


def check_quota(workload: Workload, context: AdmissionContext, scope: Scope, error: type[QuotaExceeded]) -> None:
    """Raise `error` if the tenant at this level would use more than it may: used + requested > limit, slot by slot."""
    usage = context.usage
    if not usage.is_limited(workload, scope):
        return
    violations = usage.amount_violations(workload, at_once(workload), scope)
    if violations:
        raise error(describe(violations), violations, workload, context)


def describe(violations: Sequence[Violation]) -> str:
    return "; ".join(map(_sentence, violations))


def _sentence(violation: Violation) -> str:
    amount = slot_type(violation.slot).format
    return (
        f"{who(violation)} may use {amount(violation.limit)} {violation.slot}; {amount(violation.used)} are in use "
        f"and this asks for {amount(violation.requested)} ({amount(violation.excess)} too many)"
    )


def who(violation: Violation) -> str:
    return f"{violation.tenant.scope.value} '{shown(violation.name)}'"
