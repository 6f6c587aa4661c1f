"""What admission knows of tenants: limits, use, names and policies of those whose work waits, following the feed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mooring.model.events import Event
from mooring.model.policies import NO_POLICY, Policy
from mooring.model.pools import Moment, PoolPolicy
from mooring.model.quotas import Scope, Tenant
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.admission import Admission, AdmissionContext, Pending, Validator
from mooring.scheduling.admission.context import NOTHING_PENDING, is_pending
from mooring.scheduling.admission.pending_session_count_limit import PendingSessionCountLimit
from mooring.scheduling.admission.pending_session_resource_limit import PendingSessionResourceLimit
from mooring.scheduling.usage import Usage, tenants_of
from mooring.store import events, policies, quotas
from mooring.store.charges import ALL_POOLS
from mooring.store.engine import Connection

_PENDING_VALIDATORS = frozenset({PendingSessionCountLimit.name, PendingSessionResourceLimit.name})


class Tenancy:
    """Tenants are read when the first of their work comes to wait, and again whenever the feed tells of them."""

    def __init__(self) -> None:
        self.usage = Usage()
        self._policies: dict[str, Policy] = {}
        self._told_by: dict[UUID, set[Tenant]] = defaultdict(set)
        """By the id in events who is meant; a user's keypairs are told of with it."""
        self._owners: set[tuple[str, UUID, UUID, UUID]] = set()
        self._known: set[Tenant] = set()
        self._eased: set[Tenant] = set()
        self._pending: dict[str, Pending] = {}
        self.limits_until: datetime | None = None
        """When an override ends, by its time alone: until then limits are as they were read."""

    def eased(self) -> set[Tenant]:
        """Who uses less than before, or has other limits, since this was asked last."""
        eased, self._eased = self._eased, set()
        return eased

    def note_pending(self, waiting: Collection[Workload], pools: Mapping[str, PoolPolicy]) -> None:
        """Of whom less waits than before, where passes ask for that: it leaves the queue without a word of tenants."""
        before, self._pending = self._pending, _pending_for(waiting, pools)
        for key, pending in before.items():
            if self._pending.get(key, NOTHING_PENDING).is_less_than(pending):
                self._eased.add(Tenant(Scope.KEYPAIR, key))

    def charge_bookers(self, charged: Mapping[Tenant, Amounts]) -> None:
        """What tenants are charged with for timeslots in force, besides what their work uses."""
        self._eased |= self.usage.tell_booked(charged)

    async def load(self, connection: Connection, waiting: Iterable[Workload], now: datetime) -> None:
        """Read everybody whose work waits, for the first time."""
        self.limits_until = await quotas.next_end(connection, now)
        await self.meet(connection, waiting, now)

    async def meet(self, connection: Connection, waiting: Iterable[Workload], now: datetime) -> None:
        """Read who is not known yet of those whose work waits."""
        new: set[Tenant] = set()
        for workload in waiting:
            owner = (workload.access_key, workload.user_id, workload.project_id, workload.domain_id)
            if owner not in self._owners:
                self._owners.add(owner)
                keypair, user, project, domain = tenants_of(workload)
                new.update({keypair, user, project, domain} - self._known)
                self._told_by[workload.user_id] |= {keypair, user}
                self._told_by[workload.project_id].add(project)
                self._told_by[workload.domain_id].add(domain)
        if new:
            self._known |= new
            await self._read(connection, new, now)

    async def follow(self, connection: Connection, news: Iterable[Event], now: datetime) -> None:
        """Take in what was committed about tenants: their use, or who may what."""
        told = [event for event in news if event.noun == "tenant"]
        over = self.limits_until is not None and self.limits_until <= now
        if over or any(event.kind != events.USAGE for event in told):
            self.limits_until = await quotas.next_end(connection, now)
            await self._read(connection, self._known, now)
        else:
            moved = {tenant for event in told for tenant in self._told_by.get(event.object_id, ())}
            self._eased |= await tell_used(self.usage, connection, moved)

    async def read_again(self, connection: Connection, workloads: Iterable[Workload]) -> None:
        """What was charged for these did not come true."""
        tenants = {tenant for workload in workloads for tenant in tenants_of(workload)}
        self._eased |= await tell_used(self.usage, connection, tenants)

    async def agrees(self, connection: Connection) -> bool:
        """Whether what the known tenants use is what the store says."""
        fresh = Usage()
        fresh.tell_booked(self.usage.booked)
        await tell_used(fresh, connection, self._known)
        return all(fresh.used_by(tenant) == self.usage.used_by(tenant) for tenant in self._known)

    def admission(
        self,
        waiting: Collection[Workload],
        pools: Mapping[str, PoolPolicy],
        validators: Sequence[Validator],
        now: datetime,
    ) -> Admission:
        """For a pass over some or all of what waits; `pools` are their policies by name."""
        pending = _pending_for(waiting, pools)
        context = AdmissionContext(now, self.usage, Moment.SCHEDULING, self._policies, pending)
        return Admission(context, validators, pools)

    async def _read(self, connection: Connection, tenants: Collection[Tenant], now: datetime) -> None:
        self._eased |= await tell_tenants(self.usage, connection, tenants, now)
        keys = {tenant.id for tenant in tenants if tenant.scope is Scope.KEYPAIR}
        found = await policies.policies_of(connection, keys)
        rules = {key: found[key].innermost if key in found else NO_POLICY for key in keys}
        self._eased |= {Tenant(Scope.KEYPAIR, key) for key in keys if rules[key] != self._policies.get(key, NO_POLICY)}
        self._policies |= rules


async def tell_tenants(usage: Usage, connection: Connection, tenants: Collection[Tenant], now: datetime) -> set[Tenant]:
    """Tell all that counts of these tenants; who uses less than before or has other limits comes back."""
    found = await quotas.limits_of(connection, tenants, now)
    eased = {
        tenant
        for tenant in tenants
        if usage.tell(
            tenant,
            limits=found[tenant].amounts if tenant in found else {},
            name=found[tenant].name if tenant in found else None,
        )
    }
    return eased | await tell_used(usage, connection, tenants)


async def tell_used(usage: Usage, connection: Connection, tenants: Collection[Tenant]) -> set[Tenant]:
    """Tell what these tenants use; who uses less of something than before comes back."""
    by_pool: dict[Tenant, dict[str, dict[str, int]]] = {tenant: {} for tenant in tenants}
    for (tenant, pool), slots in (await quotas.usage(connection, tenants)).items():
        by_pool[tenant][pool] = {slot: amount.reserved + amount.used for slot, amount in slots.items()}
    eased: set[Tenant] = set()
    for tenant, used in by_pool.items():
        if usage.tell(tenant, used=used.pop(ALL_POOLS, {})):
            eased.add(tenant)
        if tenant.scope in (Scope.USER, Scope.PROJECT):
            usage.tell_in_pools(UUID(tenant.id), used)
    return eased


def _pending_for(waiting: Iterable[Workload], pools: Mapping[str, PoolPolicy]) -> dict[str, Pending]:
    """What waits by access key; nothing where no pool asks for it in passes."""
    found: dict[str, Pending] = {}
    if not any(_asks_for_pending(policy) for policy in pools.values()):
        return found
    for workload in waiting:
        if is_pending(workload):
            found[workload.access_key] = found.get(workload.access_key, NOTHING_PENDING).plus(workload)
    return found


def _asks_for_pending(policy: PoolPolicy) -> bool:
    return any(name in _PENDING_VALIDATORS and Moment.SCHEDULING in moments for name, moments in policy.validators)
