"""Usage: what tenants use of which slots, and what they may. The same comparison as for nodes, at once in memory.

A pass charges what it admits, so that the next workload of the same tenants sees it; what then finds no place is
refunded. Private workloads, and those inside timeslots, are charged for nothing but their number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from mooring.model.quotas import PRIVATE_SESSIONS, SESSIONS, Scope, Tenant, Violation
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload

_COUNTED = frozenset({SESSIONS, PRIVATE_SESSIONS})


class _Used(dict[str, int]):
    """What a tenant uses by slot, as it is at any time."""

    moves = 0
    """How often that changed."""


class _Limit(NamedTuple):
    tenant: Tenant
    slot: str
    limit: int
    used: _Used


@dataclass(frozen=True, slots=True)
class _Account:
    """What there is to look at for the workloads of one keypair, user, project and domain."""

    tenants: tuple[Tenant, ...]
    used: tuple[_Used, ...]
    amounts: dict[Scope, list[_Limit]]
    """Of the levels that have limits."""
    sessions: list[_Limit]
    private_sessions: list[_Limit]
    in_pools: tuple[dict[str, dict[str, int]], ...]
    """Of the user and of the project."""


class Usage:
    """Tenants × slots: used, limits, names. A tenant or slot that was never told has no limit and uses nothing."""

    def __init__(self) -> None:
        self._limits: dict[Tenant, dict[str, int]] = {}
        self._used: dict[Tenant, _Used] = defaultdict(_Used)
        self.booked: Mapping[Tenant, Amounts] = {}
        """What is counted beside that for timeslots in force."""
        self._names: dict[Tenant, str] = {}
        self._in_pools: dict[UUID, dict[str, dict[str, int]]] = {}
        self._accounts: dict[tuple[str, UUID, UUID, UUID], _Account] = {}
        # Several validators ask about the same workload in a row.
        self._last: tuple[Workload, _Account] | None = None

    def tell(
        self, tenant: Tenant, *, used: Amounts | None = None, limits: Amounts | None = None, name: str | None = None
    ) -> bool:
        """What is known of a tenant now, in place of what was; what is not given stays.

        True if that may let in who was kept out: it uses less of something, or has other limits.
        """
        eased = False
        if used is not None:
            own = self._used[tenant]
            own.moves += 1
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

    def tell_booked(self, booked: Mapping[Tenant, Amounts]) -> set[Tenant]:
        """What is charged for timeslots, in place of what was; who is charged with less of something comes back."""
        eased: set[Tenant] = set()
        before, self.booked = self.booked, booked
        for tenant in {*before, *booked}:
            was, is_now = before.get(tenant, {}), booked.get(tenant, {})
            if was != is_now:
                own = self._used[tenant]
                own.moves += 1
                used = _sum(own, _sum(is_now, was, -1))
                own.clear()
                own.update({slot: amount for slot, amount in used.items() if amount})
                if any(is_now.get(slot, 0) < amount for slot, amount in was.items()):
                    eased.add(tenant)
        return eased

    def tell_in_pools(self, tenant_id: UUID, used: Mapping[str, Amounts]) -> None:
        """What a user or a project uses of each pool now."""
        own = self._in_pools.setdefault(tenant_id, {})
        own.clear()
        own.update({pool: dict(amounts) for pool, amounts in used.items()})

    def name_of(self, tenant: Tenant) -> str:
        return self._names.get(tenant, tenant.id)

    def names_of(self, workload: Workload) -> dict[str, str]:
        """What people call the tenants of a workload, by their levels."""
        return {tenant.scope.value: self.name_of(tenant) for tenant in self._account(workload).tenants}

    def used_by(self, tenant: Tenant) -> Amounts:
        return self._used.get(tenant, {})

    def limits_of(self, tenant: Tenant) -> Amounts:
        return self._limits.get(tenant, {})

    def used_in(self, pool: str, tenant_id: UUID) -> Amounts:
        """What a user or a project uses of one pool."""
        return self._in_pools.get(tenant_id, {}).get(pool, {})

    def moves_of(self, workload: Workload) -> tuple[int, ...]:
        """The same as before if nothing moved since in what its tenants use."""
        return tuple([used.moves for used in self._account(workload).used])

    def charge(self, workload: Workload, tasks: int | None = None) -> None:
        """Count so many tasks of it (None: all); it is a session more unless some of its tasks have a node already."""
        number = len(workload.tasks) if tasks is None else tasks
        if number > 0:
            self._move(workload, number, 0 if workload.occupied else 1)

    def refund(self, workload: Workload, tasks: int | None = None) -> None:
        """Take back so many of the tasks that were charged with it; with the last one the session, if it was one."""
        number = len(workload.tasks) if tasks is None else tasks
        if number > 0:
            self._move(workload, -number, 0 if workload.occupied or number < len(workload.tasks) else -1)

    def violations(self, workload: Workload, tasks: int) -> list[Violation]:
        """Every limit that so many tasks of it would exceed, of all its tenants."""
        found = self.session_violations(workload)
        for scope in Scope:
            found += self.amount_violations(workload, tasks, scope)
        return found

    def session_violations(self, workload: Workload) -> list[Violation]:
        """The limits of sessions, or of private ones, that it would exceed; what runs already is none more."""
        account = self._account(workload)
        limits = account.private_sessions if workload.private else account.sessions
        if not limits or workload.occupied:
            return []
        return [self._violation(each, 1) for each in limits if each.used.get(each.slot, 0) + 1 > each.limit]

    def amount_violations(self, workload: Workload, tasks: int, scope: Scope) -> list[Violation]:
        """The limits of its tenant at one level that so many tasks of it would exceed; exempt ones exceed none."""
        found: list[Violation] = []
        if not self.is_limited(workload, scope):
            return found
        for each in self._account(workload).amounts[scope]:
            requested = workload.request.get(each.slot, 0) * tasks
            if each.used.get(each.slot, 0) + requested > each.limit:
                found.append(self._violation(each, requested))
        return found

    def is_limited(self, workload: Workload, scope: Scope) -> bool:
        """Whether there is any limit at one level to what it uses."""
        return scope in self._account(workload).amounts and not workload.exempt

    def tasks_within(self, workload: Workload) -> int:
        """How many of its tasks may have a node before a limit is exceeded."""
        if self.session_violations(workload):
            return 0
        within = len(workload.tasks)
        if workload.exempt:
            return within
        for limits in self._account(workload).amounts.values():
            for each in limits:
                left = each.limit - each.used.get(each.slot, 0)
                asked = workload.request.get(each.slot, 0)
                if left < 0:
                    return 0
                if asked:
                    within = min(within, left // asked)
        return within

    def _move(self, workload: Workload, tasks: int, sessions: int) -> None:
        account = self._account(workload)
        counter = PRIVATE_SESSIONS if workload.private else SESSIONS
        for used in account.used:
            used.moves += 1
            if sessions:
                used[counter] = used.get(counter, 0) + sessions
        if workload.exempt:
            return
        in_pool = [pools.setdefault(workload.pool, {}) for pools in account.in_pools]
        for slot, amount in workload.request.items():
            moved = amount * tasks
            for counters in (*in_pool, *account.used):
                counters[slot] = counters.get(slot, 0) + moved

    def _violation(self, exceeded: _Limit, requested: int) -> Violation:
        tenant, slot, limit, used = exceeded
        return Violation(tenant, self.name_of(tenant), slot, used.get(slot, 0), requested, limit)

    def _account(self, workload: Workload) -> _Account:
        if self._last is not None and self._last[0] is workload:
            return self._last[1]
        key = (workload.access_key, workload.user_id, workload.project_id, workload.domain_id)
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
            [each for each in limits if each.slot == SESSIONS],
            [each for each in limits if each.slot == PRIVATE_SESSIONS],
            tuple(self._in_pools.setdefault(id, {}) for id in {workload.user_id, workload.project_id}),
        )


def tenants_of(workload: Workload) -> tuple[Tenant, ...]:
    """Who pays for a workload, innermost first."""
    return (
        Tenant(Scope.KEYPAIR, workload.access_key),
        Tenant(Scope.USER, str(workload.user_id)),
        Tenant(Scope.PROJECT, str(workload.project_id)),
        Tenant(Scope.DOMAIN, str(workload.domain_id)),
    )


def _sum(these: Amounts, those: Amounts, sign: int = 1) -> dict[str, int]:
    return {slot: these.get(slot, 0) + sign * those.get(slot, 0) for slot in {**these, **those}}
