"""The comparison and the message that all quota validators share."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.model.names import shown
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.admission import AdmissionError, Awaits
from mooring.model.tenancy.quotas import Scope, Violation
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission.context import AdmissionContext, at_once


class LimitExceeded(AdmissionError):
    """One or more limits of a workload's tenants are exceeded."""

    code = "limit-exceeded"

    def __init__(self, message: str, violations: Sequence[Violation], workload: Workload, context: AdmissionContext):
        super().__init__(
            message,
            cure="change" if any(violation.hopeless for violation in violations) else "release",
            violations=violations,
            awaits=Awaits(tenants=frozenset(violation.tenant for violation in violations)),
            details=context.usage.names_of(workload),
        )


class PendingLimitExceeded(LimitExceeded):
    """A limit on pending work is exceeded. Equal workloads may differ in that: the work ahead of them differs."""


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
    """Raise `error` if the tenant at this level would exceed a limit: used + requested > limit, slot by slot."""
    usage = context.usage
    if not usage.is_limited(workload, scope):
        return
    violations = usage.amount_violations(workload, at_once(workload), scope)
    if violations:
        raise error(describe(violations), violations, workload, context)


def describe(violations: Sequence[Violation]) -> str:
    """Return the violations as text. Violations of equal limits by the request alone are listed once."""
    hopeless: dict[tuple[str, int, int], list[str]] = {}
    for violation in violations:
        if violation.hopeless:
            hopeless.setdefault((violation.slot, violation.requested, violation.limit), []).append(who(violation))
    sentences = [
        f"needs {slot_type(slot).format(requested)} {slot}, limit {slot_type(slot).format(limit)} ({', '.join(names)})"
        for (slot, requested, limit), names in hopeless.items()
    ]
    return "; ".join([*sentences, *(_sentence(violation) for violation in violations if not violation.hopeless)])


def _sentence(violation: Violation) -> str:
    amount = slot_type(violation.slot).format
    return (
        f"{who(violation)} may use {amount(violation.limit)} {violation.slot}; {amount(violation.used)} are in use "
        f"and this asks for {amount(violation.requested)} ({amount(violation.excess)} too many)"
    )


def who(violation: Violation) -> str:
    return f"{violation.tenant.scope.value} '{shown(violation.name)}'"
