"""What tenants have booked and what they run, as far as limits over time ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import not_there
from mooring.model.lifecycle import OCCUPYING
from mooring.model.quotas import Scope, Tenant
from mooring.model.slots import Amounts
from mooring.model.timeslots import Timeslot, TimeslotKind
from mooring.store.tables import projects, resource_allocations, tasks, timeslots, users, workloads

_COLUMNS = {Scope.KEYPAIR: "access_key", Scope.USER: "user_id", Scope.PROJECT: "project_id", Scope.DOMAIN: "domain_id"}


class Kept(NamedTuple):
    """As much of a timeslot as limits ask for."""

    id: UUID
    eligible_at: datetime
    starts_at: datetime
    ends_at: datetime
    amounts: Amounts
    """Of all its tasks together."""


def kept_by(slot: Timeslot) -> Kept:
    return Kept(slot.id, slot.eligible_at, slot.starts_at, slot.ends_at, _times(slot.count, slot.request))


async def by_tenant(
    connection: AsyncConnection, tenant: Tenant, *, within: tuple[datetime, datetime] | None = None
) -> list[Kept]:
    """Its timeslots that are not over, or those of them that keep room at some moment of a window.

    What operators take is charged to nobody.
    """
    own = timeslots.c
    query = (
        select(own.id, own.eligible_at, own.starts_at, own.ends_at, own.count, own.requested_slots)
        .where(_is(own, tenant), own.ended_at.is_(None), own.kind != TimeslotKind.MAINTENANCE)
        .order_by(own.id)
    )
    if within is not None:
        query = query.where(own.eligible_at < within[1], own.ends_at > within[0])
    rows = await connection.execute(query)
    return [Kept(id, begins, starts, ends, _times(count, request)) for id, begins, starts, ends, count, request in rows]


async def running_at(connection: AsyncConnection, tenant: Tenant, moment: datetime) -> Amounts:
    """What its work of now, outside of timeslots, may still have then: all that does not end before by its limit."""
    ledger = resource_allocations.c
    rows = await connection.execute(
        select(ledger.slot_name, func.sum(ledger.requested))
        .join(tasks, tasks.c.id == ledger.task_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            _is(workloads.c, tenant),
            workloads.c.ended_at.is_(None),
            workloads.c.timeslot_id.is_(None),
            workloads.c.private.is_(False),
            tasks.c.status.in_(list(OCCUPYING)),
            ledger.freed_at.is_(None),
            or_(tasks.c.deadline_at.is_(None), tasks.c.deadline_at > moment),
        )
        .group_by(ledger.slot_name)
    )
    return {slot: int(amount) for slot, amount in rows}


async def guests(
    connection: AsyncConnection, domain_id: UUID, usernames: Sequence[str], project_names: Sequence[str]
) -> tuple[frozenset[UUID], frozenset[UUID]]:
    """The users and projects of a domain by their names, all of which must be there."""
    return (
        await _named(connection, users, domain_id, usernames, "user"),
        await _named(connection, projects, domain_id, project_names, "project"),
    )


async def _named(
    connection: AsyncConnection, table: Any, domain_id: UUID, names: Iterable[str], what: str
) -> frozenset[UUID]:
    wanted = set(names)
    if not wanted:
        return frozenset()
    rows = await connection.execute(
        select(table.c.name, table.c.id).where(table.c.domain_id == domain_id, table.c.name.in_(wanted))
    )
    found = {row.name: row.id for row in rows}
    for missing in sorted(wanted - found.keys()):
        raise not_there(f"{what} {missing!r} in your domain")
    return frozenset(found.values())


def _is(columns: Any, tenant: Tenant) -> ColumnElement[bool]:
    id = tenant.id if tenant.scope is Scope.KEYPAIR else UUID(tenant.id)
    condition: ColumnElement[bool] = columns[_COLUMNS[tenant.scope]] == id
    return condition


def _times(count: int, request: Amounts) -> Amounts:
    return {slot: count * amount for slot, amount in request.items()}
