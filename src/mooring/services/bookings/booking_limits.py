"""What policies and quotas say to new timeslots: how far ahead, how long, how many, and how much at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from mooring.intake.circumstances import policy_for
from mooring.model.admission import AdmissionError
from mooring.model.durations import format_duration
from mooring.model.errors import InvalidInput
from mooring.model.policies import Policy
from mooring.model.quotas import Scope, Tenant, Violation
from mooring.model.slots import Amounts, slot_type
from mooring.model.timeslots import Timeslot
from mooring.scheduling.admission.quota import who
from mooring.store import booked, quotas
from mooring.store.booked import Kept, kept_by
from mooring.store.engine import Connection

_HOUR_SECONDS = 3600


async def check_limits(
    connection: Connection, new: Sequence[Timeslot], now: datetime, *, besides: UUID | None = None
) -> None:
    """Raise where one of these timeslots of one booker is not allowed. `besides`: what they replace does not count."""
    booker = new[0]
    user = Tenant(Scope.USER, str(booker.user_id))
    await quotas.lock(connection, user)
    policy = await policy_for(connection, booker.access_key)
    live: list[Kept] = []
    if policy.max_bookings or policy.max_booking_slot_hours:
        live = await booked.by_tenant(connection, user)
    check_policy(policy, _without(live, besides), new, now)
    begin, end = min(slot.eligible_at for slot in new), max(slot.ends_at for slot in new)
    found = await quotas.limits_of(connection, _tenants(booker), now)
    # In this order, so that nobody waits for one who waits for it.
    for tenant in _tenants(booker):
        limits = found.get(tenant)
        if limits is not None and limits.amounts:
            await quotas.lock(connection, tenant)
            theirs = await booked.by_tenant(connection, tenant, within=(begin, end))
            running = await booked.running_at(connection, tenant, begin)
            check_quota(tenant, limits.name, limits.amounts, running, _without(theirs, besides), new)


def check_policy(policy: Policy, live: Sequence[Kept], new: Sequence[Timeslot], now: datetime) -> None:
    """Raise where new timeslots break a rule of their booker's policy; `live` are those that it has."""
    for slot in new:
        _check_window(policy, slot, now)
    most = policy.max_bookings or 0
    if most and len(live) + len(new) > most:
        raise InvalidInput(
            f"your policy allows {most:,} timeslots at a time; you have {len(live):,} and ask for {len(new):,}",
            code="too-many-bookings",
            details={"limit": most, "live": len(live), "requested": len(new)},
        )
    for name, limit in policy.max_booking_slot_hours.items():
        kept, asked = _slot_seconds(live, name), _slot_seconds(map(kept_by, new), name)
        if asked and kept + asked > limit * _HOUR_SECONDS:
            write = slot_type(name).format
            raise InvalidInput(
                f"your policy allows {write(limit)} {name} hours in timeslots; you have "
                f"{write(kept // _HOUR_SECONDS)} and ask for {write(asked // _HOUR_SECONDS)}",
                code="too-many-slot-hours",
                details={
                    "slot": name,
                    "limit": limit,
                    "live": kept / _HOUR_SECONDS,
                    "requested": asked / _HOUR_SECONDS,
                },
            )


def check_quota(
    tenant: Tenant,
    name: str,
    limits: Amounts,
    running: Amounts,
    live: Sequence[Kept],
    new: Sequence[Timeslot],
) -> None:
    """Raise where a tenant would have more at some moment than it may, with all that it has booked and runs."""
    for slot_name, limit in limits.items():
        found = _first_excess(slot_name, limit - running.get(slot_name, 0), live, new)
        if found is not None:
            slot, booked_then = found
            asked = slot.request[slot_name] * slot.count
            used = running.get(slot_name, 0) + booked_then - asked
            violation = Violation(tenant, name, slot_name, used, asked, limit)
            raise AdmissionError(_told(violation, slot), code=f"{tenant.scope}-quota-exceeded", violations=[violation])


def _first_excess(name: str, most: int, live: Sequence[Kept], new: Sequence[Timeslot]) -> tuple[Timeslot, int] | None:
    """The first new timeslot within which more than `most` of a slot is kept at some moment, and how much that is."""
    asking = {slot.id: slot for slot in new if slot.request.get(name)}
    every = [*live, *map(kept_by, asking.values())]
    # Ends before beginnings: the windows are half-open.
    turns = sorted(turn for slot in every for turn in ((slot.eligible_at, 1, slot.id), (slot.ends_at, 0, slot.id)))
    kept = {slot.id: slot.amounts.get(name, 0) for slot in every}
    total, present = 0, dict[UUID, Timeslot]()
    for _, begins, id in turns:
        if begins:
            total += kept[id]
            present |= {id: asking[id]} if id in asking else {}
        else:
            total -= kept[id]
            present.pop(id, None)
        if present and total > most:
            return next(iter(present.values())), total
    return None


def _without(slots: Sequence[Kept], besides: UUID | None) -> list[Kept]:
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
            f"your policy allows to book {format_duration(ahead)} ahead, "
            f"and it begins at {slot.starts_at:%Y-%m-%d %H:%M} UTC",
            code="beyond-horizon",
            details={"limit_seconds": ahead, "start": slot.starts_at.isoformat()},
        )
    longest = policy.max_booking_seconds or 0
    length = int((slot.ends_at - slot.starts_at).total_seconds())
    if longest and length > longest:
        raise InvalidInput(
            f"your policy allows timeslots of {format_duration(longest)}, and this is one of {format_duration(length)}",
            code="booking-too-long",
            details={"limit_seconds": longest, "requested_seconds": length},
        )


def _slot_seconds(slots: Iterable[Kept], name: str) -> int:
    """Amounts of a slot times seconds, of all of them."""
    return sum(slot.amounts.get(name, 0) * int((slot.ends_at - slot.starts_at).total_seconds()) for slot in slots)


def _told(violation: Violation, slot: Timeslot) -> str:
    amount = slot_type(violation.slot).format
    return (
        f"{who(violation)} may use {amount(violation.limit)} {violation.slot}; within the timeslot from "
        f"{slot.starts_at:%Y-%m-%d %H:%M} UTC {amount(violation.used)} are booked or in use and this asks for "
        f"{amount(violation.requested)} ({amount(violation.excess)} too many)"
    )
