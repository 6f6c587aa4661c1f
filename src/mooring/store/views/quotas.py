"""Quotas as people see them: level by level what the limit is, what is in use, what is borrowed and what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.quotas import Scope, Tenant
from mooring.model.tenants import Principal
from mooring.store import quotas
from mooring.store.charges import ALL_POOLS
from mooring.store.quotas import Amount
from mooring.store.tables import tenant_resources


@dataclass(frozen=True, slots=True)
class Line:
    """One slot of one tenant, over all pools together."""

    tenant: Tenant
    name: str
    slot: str
    limit: int | None
    until: datetime | None
    """When a limit that stands in place of another is over."""
    reserved: int
    used: int
    borrowed: int | None

    @property
    def left(self) -> int | None:
        return None if self.limit is None else max(0, self.limit - self.reserved - self.used)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One slot of a project in a pool whose projects lend each other what they have for sure."""

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
    """All whose limits hold for the principal's work, the innermost first."""
    return [
        Tenant(Scope.KEYPAIR, principal.access_key),
        Tenant(Scope.USER, str(principal.user_id)),
        Tenant(Scope.PROJECT, str(principal.project_id)),
        Tenant(Scope.DOMAIN, str(principal.domain_id)),
    ]


async def view(connection: AsyncConnection, tenants: Sequence[Tenant], now: datetime) -> View:
    """The limits of these tenants and what they use; slots that are neither limited nor in use are left out."""
    limits = await quotas.limits_of(connection, tenants, now)
    usage = await quotas.usage(connection, tenants)
    guarantees = {
        tenant: await _guarantees(connection, tenant, usage) for tenant in tenants if tenant.scope is Scope.PROJECT
    }
    lines: list[Line] = []
    for tenant in tenants:
        if tenant not in limits:
            continue
        amounts, used = limits[tenant].amounts, usage.get((tenant, ALL_POOLS), {})
        overrides = await _overrides(connection, tenant, now)
        for slot in sorted({*amounts, *used}):
            reserved, in_use = used.get(slot, Amount())
            shares = [share for share in guarantees.get(tenant, ()) if share.slot == slot]
            borrowed = sum(share.borrowed for share in shares) if shares else None
            name, limit, until = limits[tenant].name, amounts.get(slot), overrides.get(slot)
            lines.append(Line(tenant, name, slot, limit, until, reserved, in_use, borrowed))
    return View(lines, [share for shares in guarantees.values() for share in shares])


async def _guarantees(connection: AsyncConnection, project: Tenant, usage: quotas.Usage) -> list[Guarantee]:
    """Where no project has a guarantee of a slot there is nothing to lend, and nothing is borrowed."""
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
