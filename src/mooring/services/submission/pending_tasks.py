"""Limits on pending tasks by tenant, which bound the database and the leader's memory."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from mooring.clock import now
from mooring.model.names import shown
from mooring.model.tenancy.admission import AdmissionError, Awaits
from mooring.model.tenancy.policies import Policy, max_pending_tasks
from mooring.model.tenancy.quotas import Scope, Tenant, Violation
from mooring.store.core.engine import Connection
from mooring.store.tenancy import pending_counts, policies, quotas
from mooring.store.tenancy.policies import Policies
from mooring.store.workloads.new_workloads import NewWorkload

PENDING_TASKS = "pending-tasks"
_FRESH_SECONDS = 5.0
_MAX_TENANTS = 10_000


class Owner(Protocol):
    """The tenants of a workload; principals and workloads have these attributes."""

    @property
    def access_key(self) -> str: ...
    @property
    def user_id(self) -> UUID: ...
    @property
    def project_id(self) -> UUID: ...
    @property
    def domain_id(self) -> UUID: ...


class TooManyPendingTasks(AdmissionError):
    code = "too-many-pending-tasks"


@dataclass(slots=True)
class _Count:
    tasks: int
    at: float


class PendingTasks:
    """The counts of one server.

    Counting 100,000 tasks takes a while, so a count is cached for seconds, and tasks that this server accepts are
    added to it: between two counts it is too low by at most the tasks that the other servers accept. No submission is
    refused by an old count: a tenant that seems to exceed a limit is counted again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: OrderedDict[Tenant, _Count] = OrderedDict()

    async def open(self, connection: Connection, new: Sequence[NewWorkload], carried: Mapping[str, Policies]) -> Tally:
        """Return the tally for the workloads of one transaction; `carried`: the policies of their keypairs."""
        wanted: Counter[Tenant] = Counter()
        limits: dict[Tenant, int] = {}
        for each in new:
            own = carried.get(each.principal.access_key)
            for tenant, limit in _limits(each.principal, own.by_scope if own else {}).items():
                limits[tenant] = limit
                wanted[tenant] += each.replicas
        return Tally(limits, await self._counted(connection, limits, wanted))

    async def check(self, connection: Connection, owner: Owner, tasks: int) -> None:
        """Raise unless the owner may have this many more pending tasks."""
        own = await policies.policy_of(connection, owner.access_key)
        limits = _limits(owner, own.by_scope)
        tally = Tally(limits, await self._counted(connection, limits, dict.fromkeys(limits, tasks)))
        if (refused := await tally.refuses(connection, owner, tasks)) is not None:
            raise refused

    def accepted(self, new: Iterable[NewWorkload]) -> None:
        """Add committed workloads to the counts."""
        for each in new:
            for tenant in _tenants(each.principal):
                if (count := self._counts.get(tenant)) is not None:
                    count.tasks += each.replicas

    async def _counted(
        self, connection: Connection, limits: Mapping[Tenant, int], wanted: Mapping[Tenant, int]
    ) -> dict[Tenant, int]:
        at = self._clock()
        found: dict[Tenant, int] = {}
        for tenant, limit in limits.items():
            known = self._counts.get(tenant)
            if known is None or at - known.at > _FRESH_SECONDS or known.tasks + wanted[tenant] > limit:
                known = self._counts[tenant] = _Count(await pending_counts.pending_tasks(connection, tenant), at)
            self._counts.move_to_end(tenant)
            found[tenant] = known.tasks
        while len(self._counts) > _MAX_TENANTS:
            self._counts.popitem(last=False)
        return found


class Tally:
    """The pending tasks of the tenants of one transaction, with those that it accepts."""

    def __init__(self, limits: Mapping[Tenant, int], pending: dict[Tenant, int]) -> None:
        self._limits = limits
        self._pending = pending

    async def refuses(self, connection: Connection, owner: Owner, tasks: int) -> TooManyPendingTasks | None:
        """Return the error if this many more tasks exceed a limit; else count them."""
        tenants = [tenant for tenant in _tenants(owner) if tenant in self._limits]
        exceeded = [tenant for tenant in tenants if self._pending[tenant] + tasks > self._limits[tenant]]
        if exceeded:
            return await self._refusal(connection, exceeded, tasks)
        for tenant in tenants:
            self._pending[tenant] += tasks
        return None

    async def _refusal(self, connection: Connection, exceeded: Sequence[Tenant], tasks: int) -> TooManyPendingTasks:
        known = await quotas.limits_of(connection, exceeded, now())
        names = {tenant: known[tenant].name if tenant in known else tenant.id for tenant in exceeded}
        violations = [
            Violation(tenant, names[tenant], PENDING_TASKS, self._pending[tenant], tasks, self._limits[tenant])
            for tenant in exceeded
        ]
        who = "; ".join(
            f"{each.tenant.scope.value} '{shown(each.name)}' has {each.used:,} pending tasks, and {each.limit:,} are"
            " allowed"
            for each in violations
        )
        return TooManyPendingTasks(
            f"{who}; this submission adds {tasks:,}: submit it when some have started, cancel some, or have"
            " max_pending_tasks raised by a policy",
            violations=violations,
            awaits=Awaits(tenants=frozenset(exceeded)),
        )


def _tenants(owner: Owner) -> tuple[Tenant, ...]:
    return (
        Tenant(Scope.KEYPAIR, owner.access_key),
        Tenant(Scope.USER, str(owner.user_id)),
        Tenant(Scope.PROJECT, str(owner.project_id)),
        Tenant(Scope.DOMAIN, str(owner.domain_id)),
    )


def _limits(owner: Owner, carried: Mapping[Scope, Policy]) -> dict[Tenant, int]:
    found = {tenant: max_pending_tasks(tenant.scope, carried.get(tenant.scope)) for tenant in _tenants(owner)}
    return {tenant: limit for tenant, limit in found.items() if limit is not None}
