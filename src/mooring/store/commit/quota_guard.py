"""Quotas of tenants, checked while their counters are locked: no two pools or leaders exceed them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision
from mooring.model.lifecycle import OCCUPYING
from mooring.model.resources.slots import fits, slot_type
from mooring.model.tenancy.quotas import Scope, Tenant, Violation
from mooring.model.workloads.workload import Workload
from mooring.store.commit import tenant_usage
from mooring.store.commit.locked_workloads import Loaded, LoadedWorkload
from mooring.store.commit.tenant_usage import ALL_POOLS, Owner
from mooring.store.tenancy import quotas


@dataclass(slots=True)
class QuotaGuard:
    """The usage of tenants with limits, including the decisions of the batch so far."""

    _loaded: Loaded
    _limits: Mapping[Tenant, quotas.Limits] = field(default_factory=dict)
    _counters: dict[tuple[Tenant, str], tuple[int, int]] = field(default_factory=dict)
    _present: set[UUID] = field(default_factory=set)
    """Workloads that already count as sessions."""

    @classmethod
    async def read(
        cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded, now: datetime
    ) -> QuotaGuard:
        """Lock the counters, then read the limits, so that none is outdated. Nodes are locked before."""
        counters = await tenant_usage.lock(connection, _charged(decisions, loaded))
        tenants = tenants_charged(loaded.workloads[decision.workload.id] for decision in decisions)
        limits = await quotas.limits_of(connection, tenants, now)
        if not any_limits(limits):
            return cls(loaded)
        guard = cls(loaded, limits)
        guard._present = {task.workload_id for task in loaded.tasks.values() if task.status in OCCUPYING}
        guard._counters = {
            (Tenant(Scope(scope), id), slot): amounts
            for (scope, id, pool, slot), amounts in counters.items()
            if pool == ALL_POOLS
        }
        return guard

    def conflict(self, decision: Decision) -> str | None:
        """Return the quota that the decision would exceed, if any."""
        for tenant, limits, slot, request in self._asked(decision):
            limit = limits.amounts.get(slot)
            reserved, used = self._counters.get((tenant, slot), (0, 0))
            if limit is not None and request and not fits(limit, 0, reserved, used, request):
                return _message(Violation(tenant, limits.name, slot, reserved + used, request, limit))
        return None

    def take(self, decision: Decision) -> None:
        """Add the usage of a decision that will be committed."""
        for tenant, _, slot, request in self._asked(decision):
            reserved, used = self._counters.get((tenant, slot), (0, 0))
            self._counters[tenant, slot] = (reserved + request, used)
        self._present.add(decision.workload.id)

    def _asked(self, decision: Decision) -> Iterator[tuple[Tenant, quotas.Limits, str, int]]:
        """Yield what the decision adds to each tenant with limits."""
        if not self._limits:
            return
        workload = self._loaded.workloads[decision.workload.id]
        asked = _requested_amounts(workload, decision)
        if workload.id in self._present:
            asked.pop(tenant_usage.sessions_slot(workload))
        for tenant in tenant_usage.tenants_of(tenant_usage.owner_of(workload)):
            limits = self._limits.get(tenant)
            if limits is not None:
                for slot, request in asked.items():
                    yield tenant, limits, slot, request


def any_limits(found: Mapping[Tenant, quotas.Limits]) -> bool:
    return any(limits.amounts for limits in found.values())


def tenants_charged(workloads: Iterable[LoadedWorkload | Workload]) -> frozenset[Tenant]:
    return frozenset(tenant for owner in tenant_usage.owners_of(workloads) for tenant in tenant_usage.tenants_of(owner))


def _requested_amounts(workload: LoadedWorkload, decision: Decision) -> dict[str, int]:
    number = len(decision.placements)
    slots = {} if workload.exempt else decision.workload.request
    return {slot: number * amount for slot, amount in slots.items()} | {tenant_usage.sessions_slot(workload): 1}


def _charged(decisions: Sequence[Decision], loaded: Loaded) -> set[tuple[Owner, str]]:
    """Return the owners and slots whose counters the commit may change, those of victims included."""
    charged: set[tuple[Owner, str]] = set()
    for decision in decisions:
        workload = loaded.workloads[decision.workload.id]
        owner = tenant_usage.owner_of(workload)
        charged |= {(owner, slot) for slot in _requested_amounts(workload, decision)}
        for victim in decision.victims:
            task, theirs = loaded.tasks.get(victim.task_id), loaded.workloads.get(victim.workload_id)
            if task is not None and theirs is not None:
                owner = tenant_usage.owner_of(theirs)
                charged |= {(owner, slot) for slot in (*task.request, tenant_usage.sessions_slot(theirs))}
    return charged


def _message(violation: Violation) -> str:
    scope, id = violation.tenant
    who = f"{scope.value} {violation.name}" if violation.name == id else f"{scope.value} {violation.name} ({id})"
    written = slot_type(violation.slot).format
    return (
        f"quota of {who}: {violation.slot} limit {written(violation.limit)}, in use {written(violation.used)},"
        f" requested {written(violation.requested)}"
    )
