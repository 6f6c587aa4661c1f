"""Limits of policies and quotas on new timeslots: lead, length, number, and amounts at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from mooring.model.calendar.durations import format_duration
from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts, slot_type
from mooring.model.tenancy.admission import AdmissionError
from mooring.model.tenancy.policies import Policy
from mooring.model.tenancy.quotas import Scope, Tenant, Violation
from mooring.scheduling.plugins.validators.quota_check import who
from mooring.services.submission.context_loader import policy_for
from mooring.store.core.engine import Connection
from mooring.store.reservations import booked_amounts
from mooring.store.reservations.booked_amounts import BookedAmounts, amounts_of
from mooring.store.tenancy import quotas

_HOUR_SECONDS = 3600


async def check_limits(
    connection: Connection, new: Sequence[Timeslot], now: datetime, *, besides: UUID | None = None
) -> None:
    """Raise if one of these timeslots of one booker exceeds a limit; `besides` are those that they replace."""
    booker = new[0]
    user = Tenant(Scope.USER, str(booker.user_id))
    await quotas.lock(connection, user)
    policy = await policy_for(connection, booker.access_key)
    if policy.max_bookings:
        check_number(policy.max_bookings, await booked_amounts.number_of(connection, user, besides=besides), len(new))
    live = await booked_amounts.by_tenant(connection, user) if policy.max_booking_slot_hours else []
    check_policy(policy, _without(live, besides), new, now)
    begin, end = min(slot.eligible_at for slot in new), max(slot.ends_at for slot in new)
    found = await quotas.limits_of(connection, _tenants(booker), now)
    # In a fixed order, so that transactions cannot deadlock.
    for tenant in _tenants(booker):
        limits = found.get(tenant)
        if limits is not None and limits.amounts:
            await quotas.lock(connection, tenant)
            theirs = await booked_amounts.by_tenant(connection, tenant, within=(begin, end))
            running = await booked_amounts.running_at(connection, tenant, begin)
            check_quota(tenant, limits.name, limits.amounts, running, _without(theirs, besides), new)


def check_number(limit: int, live: int, requested: int) -> None:
    """Raise if a user with `live` unfinished timeslots requests too many."""
    if live + requested > limit:
        raise InvalidInput(
            f"your policy allows {limit:,} bookings at a time; you have {live:,} and request {requested:,}",
            code="too-many-bookings",
            details={"limit": limit, "live": live, "requested": requested},
        )


def check_policy(policy: Policy, live: Sequence[BookedAmounts], new: Sequence[Timeslot], now: datetime) -> None:
    """Raise if new timeslots break a rule on windows or slot hours of their booker's policy.

    `live`: the booker's unfinished timeslots.
    """
    for slot in new:
        _check_window(policy, slot, now)
    for name, limit in policy.max_booking_slot_hours.items():
        reserved, asked = _slot_seconds(live, name), _slot_seconds(map(amounts_of, new), name)
        if asked and reserved + asked > limit * _HOUR_SECONDS:
            write = slot_type(name).format
            raise InvalidInput(
                f"your policy allows {write(limit)} {name} hours in bookings; you have "
                f"{write(reserved // _HOUR_SECONDS)} and request {write(asked // _HOUR_SECONDS)}",
                code="too-many-slot-hours",
                details={
                    "slot": name,
                    "limit": limit,
                    "live": reserved / _HOUR_SECONDS,
                    "requested": asked / _HOUR_SECONDS,
                },
            )


def check_quota(
    tenant: Tenant,
    name: str,
    limits: Amounts,
    running: Amounts,
    live: Sequence[BookedAmounts],
    new: Sequence[Timeslot],
) -> None:
    """Raise if a tenant would exceed its quota at some moment, with everything it has booked and runs."""
    for slot_name, limit in limits.items():
        found = _first_excess(slot_name, limit - running.get(slot_name, 0), live, new)
        if found is not None:
            slot, booked_then = found
            asked = slot.request[slot_name] * slot.count
            used = running.get(slot_name, 0) + booked_then - asked
            violation = Violation(tenant, name, slot_name, used, asked, limit)
            raise AdmissionError(
                _message(violation, slot), code=f"{tenant.scope}-quota-exceeded", violations=[violation]
            )


def _first_excess(
    name: str, most: int, live: Sequence[BookedAmounts], new: Sequence[Timeslot]
) -> tuple[Timeslot, int] | None:
    """Return the first new timeslot in which more than `most` of a slot is reserved at some moment, and that amount."""
    asking = {slot.id: slot for slot in new if slot.request.get(name)}
    every = [*live, *map(amounts_of, asking.values())]
    # Ends before starts: the windows are half-open.
    edges = sorted(edge for slot in every for edge in ((slot.eligible_at, 1, slot.id), (slot.ends_at, 0, slot.id)))
    reserved = {slot.id: slot.amounts.get(name, 0) for slot in every}
    total, present = 0, dict[UUID, Timeslot]()
    for _, begins, id in edges:
        if begins:
            total += reserved[id]
            present |= {id: asking[id]} if id in asking else {}
        else:
            total -= reserved[id]
            present.pop(id, None)
        if present and total > most:
            return next(iter(present.values())), total
    return None


def _without(slots: Sequence[BookedAmounts], besides: UUID | None) -> list[BookedAmounts]:
    return [slot for slot in slots if slot.id != besides]


def _tenants(slot: Timeslot) -> list[Tenant]:
    return [
        Tenant(Scope.KEYPAIR, slot.access_key),
        Tenant(Scope.USER, str(slot.user_id)),
        Tenant(Scope.PROJECT, str(slot.project_id)),
        Tenant(Scope.DOMAIN, str(slot.domain_id)),
    ]


def _check_window(policy: Policy, slot: Timeslot, now: datetime) -> None:
    ahead = policy.booking_horizon_seconds or 0
    if ahead and (slot.starts_at - now).total_seconds() > ahead:
        raise InvalidInput(
            f"your policy allows bookings up to {format_duration(ahead)} ahead, "
            f"and it begins at {slot.starts_at:%Y-%m-%d %H:%M} UTC",
            code="beyond-horizon",
            details={"limit_seconds": ahead, "start": slot.starts_at.isoformat()},
        )
    longest = policy.max_booking_seconds or 0
    length = int((slot.ends_at - slot.starts_at).total_seconds())
    if longest and length > longest:
        raise InvalidInput(
            f"your policy allows bookings of up to {format_duration(longest)}; this one has {format_duration(length)}",
            code="booking-too-long",
            details={"limit_seconds": longest, "requested_seconds": length},
        )


def _slot_seconds(slots: Iterable[BookedAmounts], name: str) -> int:
    """Return the total of a slot's amounts times seconds."""
    return sum(slot.amounts.get(name, 0) * int((slot.ends_at - slot.starts_at).total_seconds()) for slot in slots)


def _message(violation: Violation, slot: Timeslot) -> str:
    amount = slot_type(violation.slot).format
    return (
        f"{who(violation)} may use {amount(violation.limit)} {violation.slot}; within the booking from "
        f"{slot.starts_at:%Y-%m-%d %H:%M} UTC {amount(violation.used)} are booked or in use and this requests "
        f"{amount(violation.requested)} ({amount(violation.excess)} too many)"
    )
