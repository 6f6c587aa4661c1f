"""Tenant usage: the used amounts and the limits of tenants by slot, compared in memory like the capacity of nodes.

A pass charges the workloads that it admits, so that the next workload of the same tenants sees the charge; tasks that
then find no node are refunded. For private workloads and those in timeslots only their number is charged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import (
    PRIVATE_SESSIONS,
    SESSIONS,
    Scope,
    Tenant,
    Violation,
)
from mooring.model.workloads.workload import Workload

_COUNTED = frozenset({SESSIONS, PRIVATE_SESSIONS})


class _Used(dict[str, int]):
    """The current usage of a tenant by slot."""

    revision = 0
    """The number of changes so far."""


class _Limit(NamedTuple):
    tenant: Tenant
    slot: str
    limit: int
    used: _Used


@dataclass(frozen=True, slots=True)
class _Account:
    """The usage and limits that apply to workloads of one keypair, user, project and domain."""

    tenants: tuple[Tenant, ...]
    used: tuple[_Used, ...]
    amounts: dict[Scope, list[_Limit]]
    """The limits by level; levels without limits are absent."""
    all_amounts: tuple[_Limit, ...]
    """The same limits of all levels."""
    sessions: list[_Limit]
    private_sessions: list[_Limit]
    in_pools: tuple[dict[str, dict[str, int]], ...]
    """The usage by pool of the user and of the project."""


class Usage:
    """Usage, limits and names of tenants. An unknown tenant or slot has no limit and no usage."""

    def __init__(self) -> None:
        self._limits: dict[Tenant, dict[str, int]] = {}
        self._used: dict[Tenant, _Used] = defaultdict(_Used)
        self.booked: Mapping[Tenant, Amounts] = {}
        """The part of the usage that is charged for timeslots in force."""
        self._names: dict[Tenant, str] = {}
        self._in_pools: dict[UUID, dict[str, dict[str, int]]] = {}
        self._accounts: dict[tuple[str, int, int, int], _Account] = {}
        """By keypair, user, project and domain, as numbers: the hash of a UUID is computed in Python."""
        # Several validators query the same workload in a row.
        self._last: tuple[Workload, _Account] | None = None

    def update(
        self, tenant: Tenant, *, used: Amounts | None = None, limits: Amounts | None = None, name: str | None = None
    ) -> bool:
        """Replace the usage, the limits or the name of a tenant; omitted values stay.

        Return whether workloads rejected before may now be admitted: some usage is lower, or the limits changed.
        """
        eased = False
        if used is not None:
            own = self._used[tenant]
            own.revision += 1
            if tenant in self.booked:
                used = _sum(used, self.booked[tenant])
            eased = any(used.get(slot, 0) < amount for slot, amount in own.items())
            own.clear()
            own.update(used)
        if limits is not None and limits != self._limits.get(tenant, {}):
            eased = True
            self._limits[tenant] = dict(limits)
            self._accounts.clear()
            self._last = None
        if name is not None:
            self._names[tenant] = name
        return eased

    def set_booked(self, booked: Mapping[Tenant, Amounts]) -> set[Tenant]:
        """Replace the charges for timeslots, and return the tenants of which some charge is lower."""
        eased: set[Tenant] = set()
        before, self.booked = self.booked, booked
        for tenant in {*before, *booked}:
            was, is_now = before.get(tenant, {}), booked.get(tenant, {})
            if was != is_now:
                own = self._used[tenant]
                own.revision += 1
                used = _sum(own, _sum(is_now, was, -1))
                own.clear()
                own.update({slot: amount for slot, amount in used.items() if amount})
                if any(is_now.get(slot, 0) < amount for slot, amount in was.items()):
                    eased.add(tenant)
        return eased

    def set_used_in_pools(self, tenant_id: UUID, used: Mapping[str, Amounts]) -> None:
        """Replace the usage of a user or a project by pool."""
        own = self._in_pools.setdefault(tenant_id, {})
        own.clear()
        own.update({pool: dict(amounts) for pool, amounts in used.items()})

    def name_of(self, tenant: Tenant) -> str:
        return self._names.get(tenant, tenant.id)

    def names_of(self, workload: Workload) -> dict[str, str]:
        """Return the display names of a workload's tenants by level."""
        return {tenant.scope.value: self.name_of(tenant) for tenant in self._account(workload).tenants}

    def used_by(self, tenant: Tenant) -> Amounts:
        return self._used.get(tenant, {})

    def limits_of(self, tenant: Tenant) -> Amounts:
        return self._limits.get(tenant, {})

    def used_in(self, pool: str, tenant_id: UUID) -> Amounts:
        """Return the usage of a user or a project in one pool."""
        return self._in_pools.get(tenant_id, {}).get(pool, {})

    def revisions_of(self, workload: Workload) -> tuple[int, ...]:
        """Return a version of the usage of its tenants, which stays equal as long as none of it changes."""
        return tuple([used.revision for used in self._account(workload).used])

    def charge(self, workload: Workload, tasks: int | None = None) -> None:
        """Charge `tasks` of the workload (None: all), and one session unless some of its tasks already have a node."""
        number = len(workload.tasks) if tasks is None else tasks
        if number > 0:
            self._move(workload, number, 0 if workload.occupied else 1)

    def refund(self, workload: Workload, tasks: int | None = None) -> None:
        """Refund `tasks` of the charged ones (None: all); if all are refunded, the session too if it was charged."""
        number = len(workload.tasks) if tasks is None else tasks
        if number > 0:
            self._move(workload, -number, 0 if workload.occupied or number < len(workload.tasks) else -1)

    def violations(self, workload: Workload, tasks: int) -> list[Violation]:
        """Return every limit of its tenants that `tasks` of the workload would exceed."""
        found = self.session_violations(workload)
        for scope in Scope:
            found += self.amount_violations(workload, tasks, scope)
        return found

    def session_violations(self, workload: Workload) -> list[Violation]:
        """Return the limits on (private) sessions that the workload would exceed; one that runs already adds none."""
        account = self._account(workload)
        limits = account.private_sessions if workload.private else account.sessions
        if not limits or workload.occupied:
            return []
        return [self._violation(each, 1) for each in limits if each.used.get(each.slot, 0) + 1 > each.limit]

    def amount_violations(self, workload: Workload, tasks: int, scope: Scope) -> list[Violation]:
        """Return the limits of its tenant at one level that `tasks` would exceed; exempt workloads exceed none."""
        found: list[Violation] = []
        if not self.is_limited(workload, scope):
            return found
        for each in self._account(workload).amounts[scope]:
            requested = workload.request.get(each.slot, 0) * tasks
            if each.used.get(each.slot, 0) + requested > each.limit:
                found.append(self._violation(each, requested))
        return found

    def is_limited(self, workload: Workload, scope: Scope) -> bool:
        """Return whether any limit at one level applies to the amounts of the workload."""
        return scope in self._account(workload).amounts and not workload.exempt

    def tasks_within(self, workload: Workload) -> int:
        """Return how many of its tasks may be placed within all limits."""
        account = self._account(workload)
        if not workload.occupied:
            for _, slot, limit, used in account.private_sessions if workload.private else account.sessions:
                if used.get(slot, 0) >= limit:
                    return 0
        within, request = len(workload.tasks), workload.request
        if workload.exempt:
            return within
        for _, slot, limit, used in account.all_amounts:
            left = limit - used.get(slot, 0)
            if left < 0:
                return 0
            asked = request.get(slot, 0)
            if asked and left < asked * within:
                within = left // asked
        return within

    def _move(self, workload: Workload, tasks: int, sessions: int) -> None:
        account = self._account(workload)
        counter = PRIVATE_SESSIONS if workload.private else SESSIONS
        for used in account.used:
            used.revision += 1
            if sessions:
                used[counter] = used.get(counter, 0) + sessions
        if workload.exempt:
            return
        moved = [(slot, amount * tasks) for slot, amount in workload.request.items()]
        for counters in (*[pools.setdefault(workload.pool, {}) for pools in account.in_pools], *account.used):
            for slot, amount in moved:
                counters[slot] = counters.get(slot, 0) + amount

    def _violation(self, exceeded: _Limit, requested: int) -> Violation:
        tenant, slot, limit, used = exceeded
        return Violation(tenant, self.name_of(tenant), slot, used.get(slot, 0), requested, limit)

    def _account(self, workload: Workload) -> _Account:
        if self._last is not None and self._last[0] is workload:
            return self._last[1]
        key = (workload.access_key, workload.user_id.int, workload.project_id.int, workload.domain_id.int)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = self._opened(workload)
        self._last = workload, account
        return account

    def _opened(self, workload: Workload) -> _Account:
        tenants = tenants_of(workload)
        limits = [
            _Limit(tenant, slot, limit, self._used[tenant])
            for tenant in tenants
            for slot, limit in sorted(self._limits.get(tenant, {}).items())
        ]
        amounts: dict[Scope, list[_Limit]] = {}
        for each in limits:
            if each.slot not in _COUNTED:
                amounts.setdefault(each.tenant.scope, []).append(each)
        return _Account(
            tenants,
            tuple(self._used[tenant] for tenant in tenants),
            amounts,
            tuple(each for own in amounts.values() for each in own),
            [each for each in limits if each.slot == SESSIONS],
            [each for each in limits if each.slot == PRIVATE_SESSIONS],
            tuple(self._in_pools.setdefault(id, {}) for id in {workload.user_id, workload.project_id}),
        )


def tenants_of(workload: Workload) -> tuple[Tenant, ...]:
    """Return the tenants charged for a workload, innermost first."""
    return (
        Tenant(Scope.KEYPAIR, workload.access_key),
        Tenant(Scope.USER, str(workload.user_id)),
        Tenant(Scope.PROJECT, str(workload.project_id)),
        Tenant(Scope.DOMAIN, str(workload.domain_id)),
    )


def _sum(these: Amounts, those: Amounts, sign: int = 1) -> dict[str, int]:
    return {slot: these.get(slot, 0) + sign * those.get(slot, 0) for slot in {**these, **those}}
