"""Timeslots as people ask for them: booked once or again and again, changed, cancelled; and nodes for maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from mooring.clock import now
from mooring.intake.batch import hash_of
from mooring.intake.booking_limits import check_limits
from mooring.intake.circumstances import Circumstances, Surroundings
from mooring.intake.placing import constraints_of
from mooring.intake.repetition import recalled
from mooring.intake.terms import seconds_of
from mooring.intake.translation import choose_pool
from mooring.intake.windows import kept_seconds, window_of
from mooring.model.access import Action, Target, not_there, require_seen
from mooring.model.constraints import check_constraints
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.names import shown
from mooring.model.reasons import Reason
from mooring.model.recurrence import occurrences
from mooring.model.slots import Amounts, parse_amounts
from mooring.model.tenants import Principal
from mooring.model.timeslots import OVER, Timeslot, TimeslotKind, TimeslotStatus
from mooring.store import actions, booked, nodes, submissions, timeslots
from mooring.store.actions import Actor
from mooring.store.engine import Connection, Database, is_taken
from mooring.store.ids import new_id
from mooring.store.submissions import Answered, Key
from mooring.store.timeslots import Move, Series
from mooring.wire.timeslots import MaintenanceRequest, TimeslotChange, TimeslotRequest, TimeslotsAccepted

_LARGEST = 2**63 - 1
_CHANGEABLE = (TimeslotStatus.CONFIRMED, TimeslotStatus.AT_RISK)


class Bookings:
    """What is asked for is written as a request; the leader says yes or no to it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._surroundings = Surroundings(database)

    async def book(
        self, principal: Principal, request: TimeslotRequest, *, key: str | None = None
    ) -> TimeslotsAccepted:
        """With a key the same request again gets the same answer and books nothing more."""
        circumstances = await self._surroundings.of_booking(principal, request.project, request.resources)
        digest = hash_of(request.model_dump(mode="json", exclude_unset=True))

        async def work(connection: Connection) -> TimeslotsAccepted:
            at = now()
            named = Key(principal.user_id, key) if key else None
            known = await submissions.answered(connection, [named]) if named else {}
            if named in known:
                return TimeslotsAccepted.model_validate(recalled(known[named], digest))
            slots, series = translated(request, circumstances, at)
            guests = await booked.guests(connection, principal.domain_id, request.users, request.projects)
            new = [replace(slot, users=guests[0], projects=guests[1]) for slot in slots]
            await check_limits(connection, new, at)
            await timeslots.insert(connection, new, at, series, actor=str(principal.user_id))
            accepted = _accepted(new, series)
            if named is not None:
                answer = Answered(digest, accepted.model_dump(mode="json"))
                await submissions.remember(connection, [(named, answer)], at)
            return accepted

        try:
            return await self._database.write(work)
        except Exception as error:
            if not is_taken(error):
                raise
            # The same request came twice at once: the other one has the answer by now.
            return await self._database.write(work)

    async def change(self, principal: Principal, timeslot_id: UUID, asked: TimeslotChange) -> UUID:
        """What is shorter is so at once. Anything else is a request of its own that replaces the old one when it is
        confirmed: until then, and if it is refused, the old promise holds. The id of what to look at."""

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
            if slot.status not in _CHANGEABLE:
                raise Conflict(
                    f"timeslot {slot.name!r} is {slot.status}: of one that has begun only the end can be changed, to an"
                    " earlier one, and of one that is not decided yet nothing",
                    code="timeslot-not-changeable",
                )
            new = replace(wanted, id=new_id(), status=TimeslotStatus.REQUESTED, places={}, version=1, replaces=slot.id)
            await _give_up(connection, principal, await timeslots.changes_of(connection, slot.id), at)
            await check_limits(connection, [new], at, besides=slot.id)
            await timeslots.insert(connection, [new], at, actor=str(principal.user_id))
            await _record(connection, principal, slot, "change", at)
            return new.id

        return await self._database.write(work)

    async def cancel(self, principal: Principal, timeslot_id: UUID, *, series: bool = False) -> list[UUID]:
        """One, or with `series` all of its series that are not over yet; which were cancelled."""

        async def work(connection: Connection) -> list[UUID]:
            at = now()
            slot = await _found(connection, principal, timeslot_id)
            meant = await timeslots.series_of(connection, slot.id) if series else []
            those = [each for each in meant or [slot] if each.status not in OVER]
            if not those:
                raise Conflict(f"timeslot {slot.name!r} is {slot.status}", code="timeslot-over")
            if slot.series_id is None or not series:
                those += await timeslots.changes_of(connection, slot.id)
            await _record(connection, principal, slot, "cancel-series" if series else "cancel", at)
            return await _give_up(connection, principal, those, at)

        return await self._database.write(work)

    async def maintain(self, principal: Principal, request: MaintenanceRequest) -> list[UUID]:
        """Take whole nodes for a window, at once: what was promised there is moved elsewhere. One timeslot per pool."""

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
                    places=dict.fromkeys(taken, 1),
                )
                for pool, taken in by_pool.items()
            ]
            await timeslots.insert(connection, windows, at, actor=str(principal.user_id))
            for window in windows:
                after = request.model_dump(mode="json", exclude_unset=True)
                await actions.record(
                    connection, Actor.of(principal), "create", "maintenance", window.name, now=at, after=after
                )
            return [window.id for window in windows]

        return await self._database.write(work)


def translated(
    request: TimeslotRequest, circumstances: Circumstances, at: datetime
) -> tuple[list[Timeslot], Series | None]:
    """The timeslots that a request means, without its guests; several where it has a rule."""
    principal = circumstances.principal
    start, end = window_of(request, at)
    starts, series = [start], None
    if request.rule is not None:
        series = Series(new_id(), request.rule, request.timezone)
        starts = occurrences(request.rule, request.timezone, start)
    pool = choose_pool(request.pool, None, circumstances.pools, circumstances.may_use)
    name = request.name or f"booking-{new_id().hex[-8:]}"
    constraints = constraints_of(request.placement, name=name, labels={}, project=str(principal.project_id), images=())
    check_constraints(constraints)
    amounts = parse_amounts(request.resources)
    check_amounts(amounts, request.count, pool.name, circumstances.served.get(pool.id))
    first = Timeslot(
        id=new_id(),
        name=name,
        kind=TimeslotKind.BOOKING,
        pool=pool.name,
        status=TimeslotStatus.REQUESTED,
        starts_at=start,
        ends_at=end,
        lead_seconds=kept_seconds(request.lead, pool.policy.bookings.lead_seconds),
        grace_seconds=kept_seconds(request.grace, pool.policy.bookings.grace_seconds),
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


def check_amounts(request: Amounts, count: int, pool: str, served: frozenset[str] | None) -> None:
    """Raise for amounts that nobody can promise; `served`: by the nodes of the pool, None where it has none yet."""
    if not any(request.values()):
        raise InvalidInput("a timeslot of nothing keeps nothing: say how much", code="nothing-to-book")
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


async def _found(connection: Connection, principal: Principal, timeslot_id: UUID) -> Timeslot:
    """A timeslot that the principal may change."""
    what = f"timeslot {timeslot_id}"
    slot = next(iter(await timeslots.load(connection, [timeslot_id])), None)
    if slot is None:
        raise not_there(what)
    of = Target(slot.domain_id, slot.project_id, slot.user_id)
    maintenance = slot.kind is TimeslotKind.MAINTENANCE
    require_seen(principal, Action.MAINTAIN if maintenance else Action.CHANGE_BOOKING, of, what)
    return slot


def _changed(slot: Timeslot, asked: TimeslotChange, at: datetime) -> Timeslot:
    """The timeslot as it is to be."""
    if slot.status in OVER:
        raise Conflict(f"timeslot {slot.name!r} is {slot.status}", code="timeslot-over")
    if slot.kind is not TimeslotKind.BOOKING and (asked.resources is not None or asked.count is not None):
        raise InvalidInput(
            f"the room of a {slot.kind} follows from what it is for; only its window can be changed",
            code="timeslot-not-changeable",
        )
    start, end = window_of(asked, at, before=slot)
    request = slot.request if asked.resources is None else parse_amounts(asked.resources)
    count = slot.count if asked.count is None else asked.count
    if slot.kind is TimeslotKind.BOOKING:
        check_amounts(request, count, slot.pool, None)
    return replace(slot, starts_at=start, ends_at=end, request=request, count=count)


async def _give_up(connection: Connection, principal: Principal, slots: Sequence[Timeslot], at: datetime) -> list[UUID]:
    reason = Reason("cancelled", f"Cancelled by {shown(principal.username)}", "user", "never")
    moves = [Move(slot, TimeslotStatus.CANCELLED, reason) for slot in slots]
    gone = {slot.id for slot in await timeslots.move(connection, moves, at, actor=str(principal.user_id))}
    if len(gone) < len(moves):
        raise Conflict("some of them changed at this moment; look again", code="timeslot-changed")
    return [slot.id for slot in slots]


async def _record(connection: Connection, principal: Principal, slot: Timeslot, action: str, at: datetime) -> None:
    """What is done to the bookings of others is an administrative change."""
    if slot.user_id != principal.user_id or slot.kind is TimeslotKind.MAINTENANCE:
        noun = "maintenance" if slot.kind is TimeslotKind.MAINTENANCE else "timeslot"
        before = {"status": slot.status.value, "start": slot.starts_at.isoformat(), "end": slot.ends_at.isoformat()}
        object = f"{slot.name} ({slot.id})"
        await actions.record(connection, Actor.of(principal), action, noun, object, now=at, before=before)


def _accepted(new: Sequence[Timeslot], series: Series | None) -> TimeslotsAccepted:
    number = f"{len(new)} timeslots" if series else "A timeslot"
    return TimeslotsAccepted(
        ids=[slot.id for slot in new],
        name=new[0].name,
        pool=new[0].pool,
        series=None if series is None else series.id,
        message=f"{number} of pool {new[0].pool!r} asked for; the answer comes soon.",
    )
