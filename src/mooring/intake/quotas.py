"""What people do with quotas: see them, and as administrators change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mooring.clock import now
from mooring.model.access import Action, require_seen
from mooring.model.errors import InvalidInput
from mooring.model.quotas import Scope
from mooring.model.slots import slot_type
from mooring.model.tenants import Principal
from mooring.store import actions, quotas
from mooring.store.actions import Actor
from mooring.store.charges import ALL_POOLS
from mooring.store.engine import Connection, Database
from mooring.store.views import quotas as views
from mooring.wire.quotas import GuaranteeLine, QuotaChange, QuotaLine, QuotaView


class QuotaAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def own(self, principal: Principal) -> QuotaView:
        """All that limits the principal's work."""
        async with self._database.read() as connection:
            return _shown(await views.view(connection, views.levels_of(principal), now()))

    async def of(self, principal: Principal, scope: Scope, ref: str) -> QuotaView:
        async with self._database.read() as connection:
            found = await quotas.find(connection, scope, ref)
            require_seen(principal, Action.SEE_QUOTA, found.target, f"{scope} {ref[:63]!r}")
            return _shown(await views.view(connection, [found.tenant], now()))

    async def change(self, principal: Principal, scope: Scope, ref: str, asked: QuotaChange) -> QuotaView:
        change = _parsed(asked)

        async def work(connection: Connection) -> QuotaView:
            found = await quotas.find(connection, scope, ref)
            require_seen(principal, Action.CHANGE_QUOTA, found.target, f"{scope} {ref[:63]!r}")
            before, after = await quotas.set_quota(connection, found, change, now())
            if after != before:
                await actions.record(
                    connection,
                    Actor.of(principal),
                    "change",
                    "quota",
                    f"{scope} {found.name}",
                    now=now(),
                    before=before,
                    after=after,
                )
            return _shown(await views.view(connection, [found.tenant], now()))

        return await self._database.write(work)


def _parsed(asked: QuotaChange) -> quotas.QuotaChange:
    if asked.until is not None and asked.until.tzinfo is None:
        raise InvalidInput("`until` needs a time zone, such as 2030-01-31T12:00:00Z", code="invalid-quota")
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
        left=shown(line.left),
    )


def _written(slot: str, amount: int) -> str:
    return slot_type(slot).format(amount)
