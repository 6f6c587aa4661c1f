"""The input of validators, loaded completely before the first of them runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from mooring.model.policy.pools import Moment
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.policies import NO_POLICY, Policy
from mooring.model.tenancy.quotas import Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.gang_size import gang_size
from mooring.scheduling.tenant_usage import Usage


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending workloads of a keypair that have no task on a node, without exempt workloads."""

    workloads: int = 0
    slots: Amounts = field(default_factory=dict)

    def plus(self, workload: Workload) -> Pending:
        tasks = len(workload.tasks)
        slots = dict(self.slots)
        for slot, amount in workload.request.items():
            slots[slot] = slots.get(slot, 0) + amount * tasks
        return Pending(self.workloads + 1, slots)

    def is_less_than(self, other: Pending) -> bool:
        """Return whether it is less in number, or in some slot."""
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
    """The policy of each keypair, by access key."""
    pending: Mapping[str, Pending] = field(default_factory=dict)
    """The pending workloads by access key, for keypairs with a pending limit."""
    ahead: Mapping[UUID, Pending] = field(default_factory=dict)
    """In a pass, by workload: the workloads of its keypair that are queued ahead of it, if the keypair limits them."""

    inactive: Mapping[Tenant, str] = field(default_factory=dict)
    """The names of deactivated users, projects and domains, whose workloads do not start."""

    def policy_of(self, workload: Workload) -> Policy:
        return self.policies.get(workload.access_key, NO_POLICY)

    def pending_ahead(self, workload: Workload) -> Pending:
        """Return the workloads of its keypair that are queued ahead of it.

        At submission all of them are ahead. In a pass only those ahead in the queue count: if each workload counted all
        others, the workloads above a lowered limit would block each other indefinitely.
        """
        ahead = self.ahead.get(workload.id)
        return self.pending.get(workload.access_key, NOTHING_PENDING) if ahead is None else ahead


def pending_in_order(
    waiting: Iterable[Workload], limited: Callable[[str], bool]
) -> tuple[dict[str, Pending], dict[UUID, Pending]]:
    """Return the pending workloads of `limited` keypairs: all by access key, and those ahead of each workload.

    All pools share one order, whatever their sequencers: the highest priority first, then the oldest.
    """
    pending = [workload for workload in waiting if is_pending(workload) and limited(workload.access_key)]
    pending.sort(key=lambda workload: (-workload.priority, workload.created_at, workload.id))
    by_key: dict[str, Pending] = {}
    ahead: dict[UUID, Pending] = {}
    for workload in pending:
        before = ahead[workload.id] = by_key.get(workload.access_key, NOTHING_PENDING)
        by_key[workload.access_key] = before.plus(workload)
    return by_key, ahead


def is_pending(workload: Workload) -> bool:
    """Return whether a queued workload counts against the pending limits."""
    return not workload.occupied and not workload.exempt


def within_parallel(workload: Workload) -> int:
    """Return the number of its pending tasks that its own `parallel` limit allows to start now."""
    if workload.parallel is None:
        return len(workload.tasks)
    return min(len(workload.tasks), workload.parallel - sum(workload.occupied.values()))


def at_once(workload: Workload) -> int:
    """Return the number of its tasks that must be admitted for any of them to start."""
    return max(1, min(gang_size(workload), within_parallel(workload)))
