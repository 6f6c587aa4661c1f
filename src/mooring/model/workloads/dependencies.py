"""Dependencies of a workload on the ends of others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from mooring.model.lifecycle import WorkloadStatus, is_workload_end


class Condition(StrEnum):
    AFTER_OK = "after-ok"
    AFTER_ANY = "after-any"
    AFTER_FAIL = "after-fail"


class OnDependencyFailure(StrEnum):
    """The policy for a workload whose dependency cannot be met."""

    CANCEL = "cancel"
    WAIT = "wait"


class Fate(StrEnum):
    MET = "met"
    OPEN = "open"
    BROKEN = "broken"
    """It can no longer be met."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another workload and its status when it was read."""

    workload_id: UUID
    name: str
    condition: Condition
    status: WorkloadStatus

    @property
    def fate(self) -> Fate:
        if not is_workload_end(self.status):
            return Fate.OPEN
        succeeded = self.status is WorkloadStatus.SUCCEEDED
        met = self.condition is Condition.AFTER_ANY or succeeded == (self.condition is Condition.AFTER_OK)
        return Fate.MET if met else Fate.BROKEN
