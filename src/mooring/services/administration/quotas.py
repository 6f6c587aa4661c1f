"""Quotas: views for users, changes by administrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.clock import now
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import (
    Action,
    may,
    not_there,
    require,
)
from mooring.model.tenancy.quotas import Scope
from mooring.model.tenancy.tenants import Principal
from mooring.store.commit.tenant_usage import ALL_POOLS
from mooring.store.core.engine import Connection, Database
from mooring.store.tenancy import admin_actions, keypairs, quotas
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.policies import earlier
from mooring.store.tenancy.quotas import State
from mooring.store.views import quotas as views
from mooring.wire.tenancy.quotas import (
    GuaranteeLine,
    QuotaChange,
    QuotaLine,
    QuotaView,
)

_NOUN = "quota"


class QuotaAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def own(self, principal: Principal) -> QuotaView:
        """Return all quotas that limit the principal's work."""
        async with self._database.read() as connection:
            return _shown(await views.view(connection, views.levels_of(principal), now()))

    async def of(self, principal: Principal, scope: Scope, ref: str) -> QuotaView:
        async with self._database.read() as connection:
            found = await _find(connection, principal, scope, ref)
            return _shown(await views.view(connection, [found.tenant], now()))

    async def change(self, principal: Principal, scope: Scope, ref: str, asked: QuotaChange) -> QuotaView:
        change = _parsed(asked)

        async def work(connection: Connection) -> QuotaView:
            found = await _changeable(connection, principal, scope, ref)
            before, after = await quotas.set_quota(connection, found, change, now())
            await _bind_made_keypairs(connection, principal, found)
            return await _recorded(connection, principal, found, "change", before, after)

        return await self._database.write(work)

    async def revert(self, principal: Principal, scope: Scope, ref: str, version: int | None) -> QuotaView:
        """Restore the quota of a version, by default the one before the last change."""

        async def work(connection: Connection) -> QuotaView:
            found = await _changeable(connection, principal, scope, ref)
            present = await admin_actions.latest_version(connection, _NOUN, _object(found))
            wanted = earlier(version, present, f"the quota of {_object(found)}")
            state = await admin_actions.state_at(connection, _NOUN, _object(found), wanted)
            if state is None:
                raise not_there(f"record of version {wanted} of the quota of {_object(found)}")
            before, after = await quotas.restore(connection, found, dict(state), now())
            await _bind_made_keypairs(connection, principal, found)
            return await _recorded(connection, principal, found, "revert", before, after)

        return await self._database.write(work)


async def _find(connection: Connection, principal: Principal, scope: Scope, ref: str) -> quotas.Found:
    """Return a tenant whose quota the principal may see; others do not exist for it."""
    return await quotas.find(connection, scope, ref, seen=lambda target: may(principal, Action.SEE_QUOTA, target))


async def _changeable(connection: Connection, principal: Principal, scope: Scope, ref: str) -> quotas.Found:
    found = await _find(connection, principal, scope, ref)
    require(principal, Action.CHANGE_QUOTA, found.target)
    return found


async def _bind_made_keypairs(connection: Connection, principal: Principal, found: quotas.Found) -> None:
    """Apply the quota to derived keypairs too, so that a keypair cannot evade it through those it created before."""
    if found.tenant.scope is Scope.KEYPAIR:
        access_key, actor = found.tenant.id, Actor.of(principal)
        await keypairs.end_unlimited_descendants(connection, access_key, actor=actor, now=now())


async def _recorded(
    connection: Connection, principal: Principal, found: quotas.Found, action: str, before: State, after: State
) -> QuotaView:
    """Return the present quota. Every change leaves a row; versions count the changes of one tenant's quota."""
    if after != before:
        version = await admin_actions.latest_version(connection, _NOUN, _object(found)) + 1
        await admin_actions.record(
            connection,
            Actor.of(principal),
            action,
            _NOUN,
            _object(found),
            now=now(),
            before=before,
            after=after,
            version=version,
        )
    return _shown(await views.view(connection, [found.tenant], now()))


def _object(found: quotas.Found) -> str:
    return f"{found.tenant.scope} {found.name}"


def _parsed(asked: QuotaChange) -> quotas.QuotaChange:
    # Times of the first and the last year may have no counterpart in UTC.
    if asked.until is not None and (asked.until.tzinfo is None or not 1 < asked.until.year < 9999):
        message = "`until` needs a year before 9999 and a time zone, such as 2030-01-31T12:00:00Z"
        raise InvalidInput(message, code="invalid-quota")
    return quotas.QuotaChange(
        limits=_amounts(asked.limits),
        until=asked.until,
        guaranteed=_amounts(asked.guaranteed),
        pool=asked.pool or ALL_POOLS,
    )


def _amounts(written: Mapping[str, Any]) -> dict[str, int | None]:
    return {slot: None if value is None else slot_type(slot).parse(value) for slot, value in written.items()}


def _shown(view: views.View) -> QuotaView:
    return QuotaView(
        quotas=[_line(line) for line in view.lines],
        guarantees=[
            GuaranteeLine(
                pool=share.pool,
                slot=share.slot,
                guaranteed=_written(share.slot, share.guaranteed),
                in_use=_written(share.slot, share.in_use),
                borrowed=_written(share.slot, share.borrowed),
            )
            for share in view.guarantees
        ],
    )


def _line(line: views.Line) -> QuotaLine:
    def shown(amount: int | None) -> str | None:
        return None if amount is None else _written(line.slot, amount)

    return QuotaLine(
        scope=line.tenant.scope.value,
        tenant=line.tenant.id,
        name=line.name,
        slot=line.slot,
        limit=shown(line.limit),
        until=line.until,
        reserved=_written(line.slot, line.reserved),
        used=_written(line.slot, line.used),
        borrowed=shown(line.borrowed),
        guaranteed=shown(line.guaranteed),
        pending=_written(line.slot, line.pending),
        left=shown(line.left),
    )


def _written(slot: str, amount: int) -> str:
    return slot_type(slot).format(amount)
