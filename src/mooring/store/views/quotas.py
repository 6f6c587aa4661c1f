"""Quotas for display: limits, usage, borrowed amounts and remaining amounts at each tenant level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Principal
from mooring.store.commit.tenant_usage import ALL_POOLS
from mooring.store.tables import tenant_resources
from mooring.store.tenancy import pending_counts, quotas
from mooring.store.tenancy.quotas import Amount


@dataclass(frozen=True, slots=True)
class Line:
    """One slot of one tenant, across all pools."""

    tenant: Tenant
    name: str
    slot: str
    limit: int | None
    until: datetime | None
    """The end of the override that sets the limit; None without an override."""
    reserved: int
    used: int
    borrowed: int | None
    guaranteed: int | None
    """Of a project: the sum of its guarantees in all pools."""
    pending: int
    """Requested by work that waits."""

    @property
    def left(self) -> int | None:
        return None if self.limit is None else max(0, self.limit - self.reserved - self.used)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One slot of a project in a pool whose projects lend each other unused guarantees."""

    pool: str
    slot: str
    guaranteed: int
    in_use: int

    @property
    def borrowed(self) -> int:
        return max(0, self.in_use - self.guaranteed)


@dataclass(frozen=True, slots=True)
class View:
    lines: list[Line]
    guarantees: list[Guarantee]


def levels_of(principal: Principal) -> list[Tenant]:
    """Return the tenants whose limits apply to the principal's work, innermost first."""
    return [
        Tenant(Scope.KEYPAIR, principal.access_key),
        Tenant(Scope.USER, str(principal.user_id)),
        Tenant(Scope.PROJECT, str(principal.project_id)),
        Tenant(Scope.DOMAIN, str(principal.domain_id)),
    ]


async def view(connection: AsyncConnection, tenants: Sequence[Tenant], now: datetime) -> View:
    """Return the limits and usage of the tenants, without slots that are neither limited nor in use."""
    limits = await quotas.limits_of(connection, tenants, now)
    usage = await quotas.usage(connection, tenants)
    waiting = await pending_counts.pending_amounts(connection, tenants)
    guarantees = {
        tenant: await _guarantees(connection, tenant, usage) for tenant in tenants if tenant.scope is Scope.PROJECT
    }
    lines: list[Line] = []
    for tenant in tenants:
        if tenant not in limits:
            continue
        amounts, used = limits[tenant].amounts, usage.get((tenant, ALL_POOLS), {})
        overrides = await _overrides(connection, tenant, now)
        pending = waiting[tenant]
        for slot in sorted({*amounts, *used, *(slot for slot, amount in pending.items() if amount)}):
            reserved, in_use = used.get(slot, Amount())
            shares = [share for share in guarantees.get(tenant, ()) if share.slot == slot]
            borrowed = sum(share.borrowed for share in shares) if shares else None
            name, limit, until = limits[tenant].name, amounts.get(slot), overrides.get(slot)
            guaranteed = sum(share.guaranteed for share in shares) if shares else None
            waits = pending.get(slot, 0)
            lines.append(Line(tenant, name, slot, limit, until, reserved, in_use, borrowed, guaranteed, waits))
    return View(lines, [share for shares in guarantees.values() for share in shares])


async def _guarantees(connection: AsyncConnection, project: Tenant, usage: quotas.Usage) -> list[Guarantee]:
    """Return the guarantees and usage of a project in each pool.

    Slots that no project of the pool has a guarantee of are left out: nobody lends them, so nothing is borrowed.
    """
    found: list[Guarantee] = []
    for pool, projects in sorted((await quotas.guarantees(connection)).items()):
        own: Mapping[str, int] = projects.get(project.id, {})
        used = usage.get((project, pool), {})
        for slot in sorted({slot for slots in projects.values() for slot in slots}):
            share = Guarantee(pool, slot, own.get(slot, 0), sum(used.get(slot, Amount())))
            if share.guaranteed or share.in_use:
                found.append(share)
    return found


async def _overrides(connection: AsyncConnection, tenant: Tenant, now: datetime) -> dict[str, datetime]:
    row = tenant_resources.c
    rows = await connection.execute(
        select(row.slot_name, row.override_until).where(
            row.scope == tenant.scope, row.tenant_id == tenant.id, row.pool == ALL_POOLS, row.override_until > now
        )
    )
    return {row.slot_name: row.override_until for row in rows}
