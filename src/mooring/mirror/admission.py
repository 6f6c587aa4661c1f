"""Tenants for admission: limits, usage, names and policies of the tenants with pending work, updated from the feed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mooring.model.events import Event
from mooring.model.policy.pools import Moment, PoolPolicy
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.policies import NO_POLICY, Policy
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission, AdmissionContext, Pending, Validator
from mooring.scheduling.admission.context import NOTHING_PENDING, pending_in_order
from mooring.scheduling.plugins.validators.pending_session_count_limit import PendingSessionCountLimit
from mooring.scheduling.plugins.validators.pending_session_resource_limit import PendingSessionResourceLimit
from mooring.scheduling.tenant_usage import Usage, tenants_of
from mooring.store.commit.tenant_usage import ALL_POOLS
from mooring.store.control import events
from mooring.store.core.engine import Connection
from mooring.store.tenancy import policies, quotas
from mooring.store.tenancy import tenants as tenants_store

_PENDING_VALIDATORS = frozenset({PendingSessionCountLimit.name, PendingSessionResourceLimit.name})


class Tenancy:
    """Tenants are read when their first workload becomes pending, and again when an event names them."""

    def __init__(self) -> None:
        self.usage = Usage()
        self._policies: dict[str, Policy] = {}
        self._inactive: dict[Tenant, str] = {}
        self._tenants_of_event: dict[UUID, set[Tenant]] = defaultdict(set)
        """The tenants that an event concerns, by the id in the event; a user's event concerns its keypairs too."""
        self._owners: set[tuple[str, UUID, UUID, UUID]] = set()
        self._known: set[Tenant] = set()
        self._eased: set[Tenant] = set()
        self._pending: dict[str, Pending] = {}
        self.limits_until: datetime | None = None
        """The next end of a limit override. No event announces it; until then the limits are current."""

    def eased(self) -> set[Tenant]:
        """Return the tenants with less usage or changed limits since the last call."""
        eased, self._eased = self._eased, set()
        return eased

    def rules(self) -> tuple[dict[str, Policy], dict[Tenant, str]]:
        """Return the policies of the known keypairs by access key, and the names of deactivated tenants."""
        return dict(self._policies), dict(self._inactive)

    def note_pending(self, waiting: Collection[Workload], pools: Mapping[str, PoolPolicy]) -> None:
        """Note the keypairs with less pending work than before, if a pool limits it: no event reports that."""
        before, (self._pending, _) = self._pending, self._pending_for(waiting, pools)
        for key, pending in before.items():
            if self._pending.get(key, NOTHING_PENDING).is_less_than(pending):
                self._eased.add(Tenant(Scope.KEYPAIR, key))

    def charge_bookers(self, charged: Mapping[Tenant, Amounts]) -> None:
        """Set the amounts charged to tenants for active timeslots, in addition to the usage of their work."""
        self._eased |= self.usage.set_booked(charged)

    async def load(self, connection: Connection, waiting: Iterable[Workload], now: datetime) -> None:
        """Read all tenants with pending work for the first time."""
        self.limits_until = await quotas.next_end(connection, now)
        await self.read_new_tenants(connection, waiting, now)

    async def read_new_tenants(self, connection: Connection, waiting: Iterable[Workload], now: datetime) -> None:
        """Read the tenants of pending workloads that are not known yet."""
        new: set[Tenant] = set()
        for workload in waiting:
            owner = (workload.access_key, workload.user_id, workload.project_id, workload.domain_id)
            if owner not in self._owners:
                self._owners.add(owner)
                keypair, user, project, domain = tenants_of(workload)
                new.update({keypair, user, project, domain} - self._known)
                self._tenants_of_event[workload.user_id] |= {keypair, user}
                self._tenants_of_event[workload.project_id].add(project)
                self._tenants_of_event[workload.domain_id].add(domain)
        if new:
            self._known |= new
            await self._read(connection, new, now)

    async def follow(self, connection: Connection, news: Iterable[Event], now: datetime) -> None:
        """Apply committed changes of tenants: their usage, limits, policies or status."""
        changed = [event for event in news if event.noun == "tenant"]
        over = self.limits_until is not None and self.limits_until <= now
        if over or any(event.kind != events.USAGE for event in changed):
            self.limits_until = await quotas.next_end(connection, now)
            await self._read(connection, self._known, now)
        else:
            moved = {tenant for event in changed for tenant in self._tenants_of_event.get(event.object_id, ())}
            self._eased |= await read_usage(self.usage, connection, moved)

    async def read_again(self, connection: Connection, workloads: Iterable[Workload]) -> None:
        """Read the usage of these workloads' tenants again, because assumed placements were not committed."""
        tenants = {tenant for workload in workloads for tenant in tenants_of(workload)}
        self._eased |= await read_usage(self.usage, connection, tenants)

    async def agrees(self, connection: Connection) -> bool:
        """Return whether the usage of the known tenants equals that in the store."""
        fresh = Usage()
        fresh.set_booked(self.usage.booked)
        await read_usage(fresh, connection, self._known)
        return all(fresh.used_by(tenant) == self.usage.used_by(tenant) for tenant in self._known)

    def admission(
        self,
        waiting: Collection[Workload],
        pools: Mapping[str, PoolPolicy],
        validators: Sequence[Validator],
        now: datetime,
    ) -> Admission:
        """Return the admission for a pass over some or all pending workloads. `pools`: policies by pool name."""
        pending, ahead = self._pending_for(waiting, pools)
        context = AdmissionContext(
            now, self.usage, Moment.SCHEDULING, self._policies, pending, ahead, dict(self._inactive)
        )
        return Admission(context, validators, pools)

    def _pending_for(
        self, waiting: Collection[Workload], pools: Mapping[str, PoolPolicy]
    ) -> tuple[dict[str, Pending], dict[UUID, Pending]]:
        """Return the pending work of keypairs that limit it; nothing if no pool checks that limit in passes."""
        if not any(_asks_for_pending(policy) for policy in pools.values()):
            return {}, {}
        return pending_in_order(waiting, lambda key: self._policies.get(key, NO_POLICY).limits_pending)

    async def _read(self, connection: Connection, tenants: Collection[Tenant], now: datetime) -> None:
        self._eased |= await read_tenants(self.usage, connection, tenants, now)
        keys = {tenant.id for tenant in tenants if tenant.scope is Scope.KEYPAIR}
        found = await policies.policies_of(connection, keys)
        rules = {key: found[key].effective if key in found else NO_POLICY for key in keys}
        self._eased |= {Tenant(Scope.KEYPAIR, key) for key in keys if rules[key] != self._policies.get(key, NO_POLICY)}
        self._policies |= rules
        inactive = await tenants_store.inactive(connection, tenants)
        self._eased |= {tenant for tenant in tenants if tenant in self._inactive and tenant not in inactive}
        self._inactive = {tenant: name for tenant, name in self._inactive.items() if tenant not in tenants} | inactive


async def read_tenants(usage: Usage, connection: Connection, tenants: Collection[Tenant], now: datetime) -> set[Tenant]:
    """Update limits and usage of these tenants. Return those with less usage or changed limits."""
    found = await quotas.limits_of(connection, tenants, now)
    eased = {
        tenant
        for tenant in tenants
        if usage.update(
            tenant,
            limits=found[tenant].amounts if tenant in found else {},
            name=found[tenant].name if tenant in found else None,
        )
    }
    return eased | await read_usage(usage, connection, tenants)


async def read_usage(usage: Usage, connection: Connection, tenants: Collection[Tenant]) -> set[Tenant]:
    """Update the usage of these tenants. Return those that use less of some slot than before."""
    by_pool: dict[Tenant, dict[str, dict[str, int]]] = {tenant: {} for tenant in tenants}
    for (tenant, pool), slots in (await quotas.usage(connection, tenants)).items():
        by_pool[tenant][pool] = {slot: amount.reserved + amount.used for slot, amount in slots.items()}
    eased: set[Tenant] = set()
    for tenant, used in by_pool.items():
        if usage.update(tenant, used=used.pop(ALL_POOLS, {})):
            eased.add(tenant)
        if tenant.scope in (Scope.USER, Scope.PROJECT):
            usage.set_used_in_pools(UUID(tenant.id), used)
    return eased


def _asks_for_pending(policy: PoolPolicy) -> bool:
    return any(name in _PENDING_VALIDATORS and Moment.SCHEDULING in moments for name, moments in policy.validators)
