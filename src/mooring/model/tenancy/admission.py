"""Admission as data: the error that refuses a workload, the changes that requeue it, and the last check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.model.errors import MooringError
from mooring.model.reasons import Cure, Reason
from mooring.model.tenancy.quotas import Tenant, Violation


@dataclass(frozen=True, slots=True)
class Awaits:
    """The changes after which a new check is useful: usage or limits of tenants, a time, ends of workloads."""

    tenants: frozenset[Tenant] = frozenset()
    until: datetime | None = None
    workloads: frozenset[UUID] = frozenset()


NOTHING = Awaits()


def all_of(parts: Iterable[Awaits]) -> Awaits:
    """Return the union; all of it has to happen, so the latest time counts."""
    every = list(parts)
    return Awaits(
        frozenset(tenant for each in every for tenant in each.tenants),
        max((each.until for each in every if each.until is not None), default=None),
        frozenset(workload for each in every for workload in each.workloads),
    )


class AdmissionError(MooringError):
    """The error that refuses a workload for now, or its submission."""

    code = "admission-refused"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        cure: Cure = "release",
        violations: Sequence[Violation] = (),
        awaits: Awaits = NOTHING,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        found = {"violations": [violation.as_dict() for violation in violations]} if violations else {}
        super().__init__(message, code=code, details={**found, **(details or {})})
        self.cure = cure
        self.violations = tuple(violations)
        self.awaits = awaits

    def reason(self, by: str) -> Reason:
        return Reason(self.code, self.message, by, self.cure, self.details)


@dataclass(frozen=True, slots=True)
class Checked:
    """One admission check of a workload: its time, the validators that passed, and the failures of others."""

    at: datetime
    passed: tuple[str, ...]
    failed: tuple[Reason, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "passed": list(self.passed),
            "failed": [reason.as_dict() for reason in self.failed],
        }
