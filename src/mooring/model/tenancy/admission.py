"""Admission as data: what stands in a workload's way, what would wake it, and how its last look came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.model.errors import MooringError
from mooring.model.quotas import Tenant, Violation
from mooring.model.reasons import Cure, Reason


@dataclass(frozen=True, slots=True)
class Awaits:
    """After which change another look is worth it: less use or other limits of tenants, a time, ends of workloads."""

    tenants: frozenset[Tenant] = frozenset()
    until: datetime | None = None
    workloads: frozenset[UUID] = frozenset()


NOTHING = Awaits()


def all_of(parts: Iterable[Awaits]) -> Awaits:
    """All of it has to happen, so the latest time."""
    every = list(parts)
    return Awaits(
        frozenset(tenant for each in every for tenant in each.tenants),
        max((each.until for each in every if each.until is not None), default=None),
        frozenset(workload for each in every for workload in each.workloads),
    )


class AdmissionError(MooringError):
    """Why a workload may not run now, or not be handed in at all."""

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
        told = {"violations": [violation.as_dict() for violation in violations]} if violations else {}
        super().__init__(message, code=code, details={**told, **(details or {})})
        self.cure = cure
        self.violations = tuple(violations)
        self.awaits = awaits

    def reason(self, by: str) -> Reason:
        return Reason(self.code, self.message, by, self.cure, self.details)


@dataclass(frozen=True, slots=True)
class Checked:
    """A look at a workload: when, the validators that it passed, and why others said no."""

    at: datetime
    passed: tuple[str, ...]
    failed: tuple[Reason, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "passed": list(self.passed),
            "failed": [reason.as_dict() for reason in self.failed],
        }
