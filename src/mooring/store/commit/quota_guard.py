"""The limits of tenants, checked under the locks of their counters: no two pools or leaders overrun them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision
from mooring.model.lifecycle import OCCUPYING
from mooring.model.quotas import Scope, Tenant, Violation
from mooring.model.slots import fits, slot_type
from mooring.model.workloads import Workload
from mooring.store import charges, quotas
from mooring.store.charges import ALL_POOLS, Owner
from mooring.store.loading import Loaded, LoadedWorkload


@dataclass(slots=True)
class QuotaGuard:
    """What limited tenants are charged with now, and with the decisions of the batch so far."""

    _loaded: Loaded
    _limits: Mapping[Tenant, quotas.Limits] = field(default_factory=dict)
    _counters: dict[tuple[Tenant, str], tuple[int, int]] = field(default_factory=dict)
    _present: set[UUID] = field(default_factory=set)
    """Workloads that count as sessions already."""

    @classmethod
    async def read(
        cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded, now: datetime
    ) -> QuotaGuard:
        """The nodes of the decisions are locked before. Limits are read under the locks, so that none is outdated."""
        counters = await charges.lock(connection, _charged(decisions, loaded))
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
        """What limit the decision would exceed, if any."""
        for tenant, limits, slot, request in self._asked(decision):
            limit = limits.amounts.get(slot)
            reserved, used = self._counters.get((tenant, slot), (0, 0))
            if limit is not None and request and not fits(limit, 0, reserved, used, request):
                return _told(Violation(tenant, limits.name, slot, reserved + used, request, limit))
        return None

    def take(self, decision: Decision) -> None:
        """Count in a decision that will be committed."""
        for tenant, _, slot, request in self._asked(decision):
            reserved, used = self._counters.get((tenant, slot), (0, 0))
            self._counters[tenant, slot] = (reserved + request, used)
        self._present.add(decision.workload.id)

    def _asked(self, decision: Decision) -> Iterator[tuple[Tenant, quotas.Limits, str, int]]:
        """What the decision adds to each limited tenant."""
        if not self._limits:
            return
        workload = self._loaded.workloads[decision.workload.id]
        asked = _asked_by(workload, decision)
        if workload.id in self._present:
            asked.pop(charges.sessions_slot(workload))
        for tenant in charges.tenants_of(charges.owner_of(workload)):
            limits = self._limits.get(tenant)
            if limits is not None:
                for slot, request in asked.items():
                    yield tenant, limits, slot, request


def any_limits(found: Mapping[Tenant, quotas.Limits]) -> bool:
    return any(limits.amounts for limits in found.values())


def tenants_charged(workloads: Iterable[LoadedWorkload | Workload]) -> frozenset[Tenant]:
    return frozenset(tenant for owner in charges.owners_of(workloads) for tenant in charges.tenants_of(owner))


def _asked_by(workload: LoadedWorkload, decision: Decision) -> dict[str, int]:
    number = len(decision.placements)
    slots = {} if workload.exempt else decision.workload.request
    return {slot: number * amount for slot, amount in slots.items()} | {charges.sessions_slot(workload): 1}


def _charged(decisions: Sequence[Decision], loaded: Loaded) -> set[tuple[Owner, str]]:
    """Whose counters of which slots the commit of the decisions may move, those of their victims included."""
    charged: set[tuple[Owner, str]] = set()
    for decision in decisions:
        workload = loaded.workloads[decision.workload.id]
        owner = charges.owner_of(workload)
        charged |= {(owner, slot) for slot in _asked_by(workload, decision)}
        for victim in decision.victims:
            task, theirs = loaded.tasks.get(victim.task_id), loaded.workloads.get(victim.workload_id)
            if task is not None and theirs is not None:
                owner = charges.owner_of(theirs)
                charged |= {(owner, slot) for slot in (*task.request, charges.sessions_slot(theirs))}
    return charged


def _told(violation: Violation) -> str:
    scope, id = violation.tenant
    who = f"{scope.value} {violation.name}" if violation.name == id else f"{scope.value} {violation.name} ({id})"
    written = slot_type(violation.slot).format
    return (
        f"quota of {who}: {violation.slot} limit {written(violation.limit)}, in use {written(violation.used)},"
        f" requested {written(violation.requested)}"
    )
