"""Amounts that tenants have booked and that they use, for the limits on bookings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import Timeslot, TimeslotKind
from mooring.model.lifecycle import OCCUPYING
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.tables import projects, resource_allocations, tasks, timeslots, users, workloads

_COLUMNS = {Scope.KEYPAIR: "access_key", Scope.USER: "user_id", Scope.PROJECT: "project_id", Scope.DOMAIN: "domain_id"}


class BookedAmounts(NamedTuple):
    """Fields of a timeslot that limits apply to."""

    id: UUID
    eligible_at: datetime
    starts_at: datetime
    ends_at: datetime
    amounts: Amounts
    """Total of all its tasks."""


def amounts_of(slot: Timeslot) -> BookedAmounts:
    return BookedAmounts(slot.id, slot.eligible_at, slot.starts_at, slot.ends_at, _times(slot.count, slot.request))


async def by_tenant(
    connection: AsyncConnection, tenant: Tenant, *, within: tuple[datetime, datetime] | None = None
) -> list[BookedAmounts]:
    """Return the tenant's timeslots that are not over, or those of them that hold capacity during a window.

    Maintenance is not charged to anyone.
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
    return [
        BookedAmounts(id, begins, starts, ends, _times(count, request))
        for id, begins, starts, ends, count, request in rows
    ]


async def number_of(connection: AsyncConnection, tenant: Tenant, *, besides: UUID | None = None) -> int:
    """Return the number of the tenant's timeslots that are not over, without `besides`."""
    own = timeslots.c
    query = select(func.count()).where(
        _is(own, tenant), own.ended_at.is_(None), own.kind != TimeslotKind.MAINTENANCE, own.id.is_distinct_from(besides)
    )
    return int((await connection.execute(query)).scalar_one())


async def running_at(connection: AsyncConnection, tenant: Tenant, moment: datetime) -> Amounts:
    """Return the amounts that the tenant's current tasks outside of timeslots may still hold at a moment.

    A task counts unless its deadline is before that.
    """
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


async def resolve_access(
    connection: AsyncConnection, domain_id: UUID, usernames: Sequence[str], project_names: Sequence[str]
) -> tuple[frozenset[UUID], frozenset[UUID]]:
    """Return the users and projects of a domain by name; raise NotFound if any is missing."""
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
