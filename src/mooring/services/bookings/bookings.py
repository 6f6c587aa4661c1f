"""Timeslots: bookings, once or recurring, their changes and cancellation; maintenance windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from mooring.clock import now
from mooring.concurrency.workers import off_loop
from mooring.model.calendar.recurrence import occurrences
from mooring.model.calendar.timeslots import (
    OVER,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.names import shown
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts, parse_amounts
from mooring.model.tenancy.access import (
    Action,
    Target,
    not_there,
    require_visible,
)
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import check_constraints
from mooring.services.bookings.booking_limits import check_limits
from mooring.services.bookings.windows import duration_or_default, window_of
from mooring.services.idempotency import recalled
from mooring.services.submission.batch import hash_of
from mooring.services.submission.context_loader import ContextLoader
from mooring.services.submission.placement_constraints import constraints_of
from mooring.services.submission.pool_choice import choose_pool
from mooring.services.submission.schedule_options import seconds_of
from mooring.services.submission.submission_context import SubmissionContext
from mooring.store.core.engine import Connection, Database, is_unique_violation
from mooring.store.core.ids import new_id
from mooring.store.nodes import nodes
from mooring.store.reservations import booked_amounts, timeslots
from mooring.store.reservations.timeslots import Series, TimeslotUpdate
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.workloads import idempotency
from mooring.store.workloads.idempotency import Answered, Key
from mooring.wire.workloads.timeslots import (
    MaintenanceRequest,
    TimeslotChange,
    TimeslotRequest,
    TimeslotsAccepted,
)

_LARGEST = 2**63 - 1
_MAX_SERIES_BYTES = 1024 * 1024
_CHANGEABLE = (TimeslotStatus.CONFIRMED, TimeslotStatus.AT_RISK)


class Bookings:
    """Writes timeslots as requested; the leader confirms or declines them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._context_loader = ContextLoader(database)

    async def book(
        self, principal: Principal, request: TimeslotRequest, *, key: str | None = None
    ) -> TimeslotsAccepted:
        """Book timeslots. A request repeated with the same key gets the same answer and books nothing more."""
        context = await self._context_loader.load_for_booking(principal, request.project, request.resources)
        digest = hash_of(request.model_dump(mode="json", exclude_unset=True))

        async def work(connection: Connection) -> TimeslotsAccepted:
            at = now()
            named = Key(principal.user_id, key) if key else None
            known = await idempotency.answered(connection, [named]) if named else {}
            if named in known:
                return TimeslotsAccepted.model_validate(recalled(known[named], digest))
            # Expanding a rule may examine every day of ten years and create 500 timeslots: not on the event loop.
            slots, series = await off_loop(translated, request, context, at)
            access = await booked_amounts.resolve_access(
                connection, principal.domain_id, request.users, request.projects
            )
            new = [replace(slot, users=access[0], projects=access[1]) for slot in slots]
            await check_limits(connection, new, at)
            await timeslots.insert(connection, new, at, series, actor=str(principal.user_id))
            accepted = _accepted(new, series)
            if named is not None:
                answer = Answered(digest, accepted.model_dump(mode="json"))
                await idempotency.remember(connection, [(named, answer)], at)
            return accepted

        try:
            return await self._database.write(work)
        except Exception as error:
            if not is_unique_violation(error):
                raise
            # The same request was sent twice at once: the other one has been answered by now.
            return await self._database.write(work)

    async def change(self, principal: Principal, timeslot_id: UUID, asked: TimeslotChange) -> UUID:
        """Change a timeslot; return the id of the one to follow. A shorter one takes effect at once.

        Any other change is a new request, which replaces the old timeslot once it is confirmed. Until then, and if it
        is declined, the old one holds.
        """

        async def work(connection: Connection) -> UUID:
            at = now()
            slot = await _found(connection, principal, timeslot_id)
            wanted = _changed(slot, asked, at)
            if wanted == slot:
                return slot.id
            if wanted == replace(slot, ends_at=wanted.ends_at) and wanted.ends_at < slot.ends_at:
                await timeslots.shorten(connection, slot, wanted.ends_at, at)
                await _record(connection, principal, slot, "shorten", at)
                return slot.id
            extended = slot.status is TimeslotStatus.ACTIVE and wanted == replace(slot, ends_at=wanted.ends_at)
            if slot.status not in _CHANGEABLE and not extended:
                raise Conflict(
                    f"booking {slot.name!r} is {slot.status}: only the end can change once it has begun, and"
                    " nothing can change before it is decided",
                    code="timeslot-not-changeable",
                )
            new = replace(
                wanted,
                id=new_id(),
                status=TimeslotStatus.REQUESTED,
                placements={},
                version=1,
                replaces=slot.id,
                calendar_uid=slot.uid,
            )
            await _cancel(connection, principal, await timeslots.changes_of(connection, slot.id), at)
            await check_limits(connection, [new], at, besides=slot.id)
            await timeslots.insert(connection, [new], at, actor=str(principal.user_id))
            await _record(connection, principal, slot, "change", at)
            return new.id

        return await self._database.write(work)

    async def cancel(self, principal: Principal, timeslot_id: UUID, *, series: bool = False) -> list[UUID]:
        """Cancel a timeslot, or with `series` all of its series that are not over; return the cancelled ones."""

        async def work(connection: Connection) -> list[UUID]:
            at = now()
            slot = await _found(connection, principal, timeslot_id, series=series)
            selected = await timeslots.series_of(connection, slot.id) if series else []
            those = [each for each in selected or [slot] if each.status not in OVER]
            if not those:
                raise Conflict(f"booking {slot.name!r} is {slot.status}", code="timeslot-over")
            if slot.series_id is None or not series:
                those += await timeslots.changes_of(connection, slot.id)
            await _record(connection, principal, slot, "cancel-series" if series else "cancel", at)
            return await _cancel(connection, principal, those, at)

        return await self._database.write(work)

    async def maintain(self, principal: Principal, request: MaintenanceRequest) -> list[UUID]:
        """Reserve whole nodes for a window at once; reservations there are moved elsewhere. One timeslot per pool."""

        async def work(connection: Connection) -> list[UUID]:
            at = now()
            start, end = window_of(request, at)
            by_pool = await nodes.ids_by_pool(connection, request.nodes)
            windows = [
                Timeslot(
                    id=(id := new_id()),
                    name=f"maintenance-{id.hex[-8:]}",
                    kind=TimeslotKind.MAINTENANCE,
                    pool=pool,
                    status=TimeslotStatus.CONFIRMED,
                    starts_at=start,
                    ends_at=end,
                    lead_seconds=0,
                    grace_seconds=0,
                    count=len(taken),
                    user_id=principal.user_id,
                    project_id=principal.project_id,
                    domain_id=principal.domain_id,
                    access_key=principal.access_key,
                    purpose=request.reason,
                    placements=dict.fromkeys(taken, 1),
                )
                for pool, taken in by_pool.items()
            ]
            await timeslots.insert(connection, windows, at, actor=str(principal.user_id))
            for window in windows:
                after = request.model_dump(mode="json", exclude_unset=True)
                await admin_actions.record(
                    connection, Actor.of(principal), "create", "maintenance", window.name, now=at, after=after
                )
            return [window.id for window in windows]

        return await self._database.write(work)


def translated(
    request: TimeslotRequest, context: SubmissionContext, at: datetime
) -> tuple[list[Timeslot], Series | None]:
    """Return the timeslots of a request, without its guests; several if it has a recurrence rule."""
    principal = context.principal
    start, end = window_of(request, at)
    starts, series = [start], None
    if request.rule is not None:
        series = Series(new_id(), request.rule, request.timezone)
        starts = occurrences(request.rule, request.timezone, start, exceptions=request.exceptions)
        check_series_size(len(starts), request)
    elif request.exceptions:
        raise InvalidInput("exceptions need a rule: they are dates that a series leaves out", code="invalid-rule")
    pool = choose_pool(request.pool, None, context.pools, context.may_use, context.offered)
    name = request.name or f"booking-{new_id().hex[-8:]}"
    constraints = constraints_of(request.placement, name=name, labels={}, project=str(principal.project_id), images=())
    check_constraints(constraints)
    amounts = parse_amounts(request.resources)
    check_amounts(amounts, request.count, pool.name, context.served.get(pool.id))
    first = Timeslot(
        id=new_id(),
        name=name,
        kind=TimeslotKind.BOOKING,
        pool=pool.name,
        status=TimeslotStatus.REQUESTED,
        starts_at=start,
        ends_at=end,
        lead_seconds=duration_or_default(request.lead, pool.policy.bookings.lead_seconds),
        grace_seconds=duration_or_default(request.grace, pool.policy.bookings.grace_seconds),
        request=amounts,
        count=request.count,
        constraints=constraints,
        architecture=request.architecture,
        region=request.region,
        user_id=principal.user_id,
        project_id=principal.project_id,
        domain_id=principal.domain_id,
        access_key=principal.access_key,
        purpose=request.purpose,
        series_id=None if series is None else series.id,
        release_after_seconds=None if request.release_after is None else seconds_of(request.release_after),
    )
    length = end - start
    return [replace(first, id=new_id(), starts_at=begin, ends_at=begin + length) for begin in starts], series


def check_series_size(occurrences: int, request: TimeslotRequest) -> None:
    """Raise for a series that would store much more than was sent: each occurrence has a copy of the placement."""
    size = 0 if request.placement is None else len(request.placement.model_dump_json(exclude_unset=True))
    if occurrences * size > _MAX_SERIES_BYTES:
        raise InvalidInput(
            f"{occurrences} occurrences with a placement of {size:,} bytes each are {occurrences * size:,} bytes, and"
            f" a series may have {_MAX_SERIES_BYTES:,}; shorten the placement or the series",
            code="series-too-large",
            details={"occurrences": occurrences, "placement_bytes": size, "limit_bytes": _MAX_SERIES_BYTES},
        )


def check_amounts(request: Amounts, count: int, pool: str, served: frozenset[str] | None) -> None:
    """Raise for invalid amounts; `served` are the slots of the pool's nodes, None if it has no nodes yet."""
    if not any(request.values()):
        raise InvalidInput("the booking requests no resources; give the amounts to reserve", code="nothing-to-book")
    for slot, amount in request.items():
        if amount * count > _LARGEST:
            raise InvalidInput(f"{slot}: {count} tasks of this size are too much", code="quantity-too-large")
    missing = sorted(slot for slot, amount in request.items() if amount and served is not None and slot not in served)
    if missing:
        raise InvalidInput(
            f"no node of pool {pool!r} has {', '.join(missing)}",
            code="slot-not-served",
            details={"pool": pool, "missing": missing},
        )


async def _found(connection: Connection, principal: Principal, timeslot_id: UUID, *, series: bool = False) -> Timeslot:
    """Return a timeslot that the principal may change, locked; with `series`, its whole series is locked."""
    what = f"booking {timeslot_id}"
    for slot in await timeslots.load(connection, [timeslot_id]):
        of = Target(slot.domain_id, slot.project_id, slot.user_id)
        maintenance = slot.kind is TimeslotKind.MAINTENANCE
        require_visible(principal, Action.MAINTAIN if maintenance else Action.CHANGE_BOOKING, of, what)
        await timeslots.lock(connection, timeslot_id, series=series)
    locked = await timeslots.load(connection, [timeslot_id])
    if not locked:
        raise not_there(what)
    return locked[0]


def _changed(slot: Timeslot, asked: TimeslotChange, at: datetime) -> Timeslot:
    """Return the changed timeslot."""
    if slot.status in OVER:
        raise Conflict(f"booking {slot.name!r} is {slot.status}", code="timeslot-over")
    if slot.kind is not TimeslotKind.BOOKING and (asked.resources is not None or asked.count is not None):
        raise InvalidInput(
            f"the resources of a {slot.kind} cannot be changed, only its window",
            code="timeslot-not-changeable",
        )
    start, end = window_of(asked, at, before=slot)
    request = slot.request if asked.resources is None else parse_amounts(asked.resources)
    count = slot.count if asked.count is None else asked.count
    if slot.kind is TimeslotKind.BOOKING:
        check_amounts(request, count, slot.pool, None)
    return replace(slot, starts_at=start, ends_at=end, request=request, count=count)


async def _cancel(connection: Connection, principal: Principal, slots: Sequence[Timeslot], at: datetime) -> list[UUID]:
    reason = Reason("cancelled", f"Cancelled by {shown(principal.username)}", "user", "never")
    updates = [TimeslotUpdate(slot, TimeslotStatus.CANCELLED, reason) for slot in slots]
    gone = {slot.id for slot in await timeslots.apply_updates(connection, updates, at, actor=str(principal.user_id))}
    if len(gone) < len(updates):
        raise Conflict("some of the bookings changed concurrently; try again", code="timeslot-changed")
    return [slot.id for slot in slots]


async def _record(connection: Connection, principal: Principal, slot: Timeslot, action: str, at: datetime) -> None:
    """Record a change to a booking of another user as an administrative action."""
    if slot.user_id != principal.user_id or slot.kind is TimeslotKind.MAINTENANCE:
        noun = "maintenance" if slot.kind is TimeslotKind.MAINTENANCE else "timeslot"
        before = {"status": slot.status.value, "start": slot.starts_at.isoformat(), "end": slot.ends_at.isoformat()}
        object = f"{slot.name} ({slot.id})"
        await admin_actions.record(connection, Actor.of(principal), action, noun, object, now=at, before=before)


def _accepted(new: Sequence[Timeslot], series: Series | None) -> TimeslotsAccepted:
    number = f"{len(new)} bookings" if series else "a booking"
    return TimeslotsAccepted(
        ids=[slot.id for slot in new],
        name=new[0].name,
        pool=new[0].pool,
        series=None if series is None else series.id,
        message=f"Requested {number} in pool {new[0].pool!r}; the request is confirmed or declined shortly.",
    )
