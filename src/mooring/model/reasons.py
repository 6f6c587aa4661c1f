"""Reasons as data: the rejecting component, a stable code, the amounts, and whether waiting can cure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Cure = Literal["release", "change", "never"]
"""The remedy of a rejection: released capacity, a change of nodes or settings, or none."""

WORKLOAD_ENDS = "workload-ends"
"""The code for tasks that end because another task of their workload did: it explains them, not the workload."""


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    message: str
    by: str = ""
    cure: Cure = "change"
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "by": self.by,
            "cure": self.cure,
            "details": dict(self.details),
        }
