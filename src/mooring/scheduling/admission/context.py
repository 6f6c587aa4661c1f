"""What validators read: everything is loaded before the first of them is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mooring.model.policies import NO_POLICY, Policy
from mooring.model.pools import Moment
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.together import least_together
from mooring.scheduling.usage import Usage


@dataclass(frozen=True, slots=True)
class Pending:
    """What waits of a keypair and has nothing on a node, exempt workloads excepted."""

    workloads: int = 0
    slots: Amounts = field(default_factory=dict)

    def plus(self, workload: Workload, times: int = 1) -> Pending:
        tasks = times * len(workload.tasks)
        slots = dict(self.slots)
        for slot, amount in workload.request.items():
            slots[slot] = slots.get(slot, 0) + amount * tasks
        return Pending(self.workloads + times, slots)

    def is_less_than(self, other: Pending) -> bool:
        """In number, or in some slot."""
        return self.workloads < other.workloads or any(
            self.slots.get(slot, 0) < amount for slot, amount in other.slots.items()
        )


NOTHING_PENDING = Pending()


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    now: datetime
    usage: Usage = field(default_factory=Usage)
    moment: Moment = Moment.SCHEDULING
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """By access key the policy that speaks for its workloads."""
    pending: Mapping[str, Pending] = field(default_factory=dict)
    """By access key, for those with a limit of it."""

    def policy_of(self, workload: Workload) -> Policy:
        return self.policies.get(workload.access_key, NO_POLICY)

    def pending_besides(self, workload: Workload) -> Pending:
        """What else of its keypair waits: a workload that waits already does not stand in its own way."""
        pending = self.pending.get(workload.access_key, NOTHING_PENDING)
        counted = self.moment is Moment.SCHEDULING and is_pending(workload)
        return pending.plus(workload, -1) if counted else pending


def is_pending(workload: Workload) -> bool:
    """Whether a waiting workload counts as pending."""
    return not workload.occupied and not workload.exempt


def within_parallel(workload: Workload) -> int:
    """How many of its waiting tasks may have a node now by its own wish."""
    if workload.parallel is None:
        return len(workload.tasks)
    return min(len(workload.tasks), workload.parallel - sum(workload.occupied.values()))


def at_once(workload: Workload) -> int:
    """How many of its tasks have to be allowed for any of them to start."""
    return max(1, min(least_together(workload), within_parallel(workload)))
