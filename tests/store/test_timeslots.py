"""Timeslots in the store: requested, moved along their edges, with places, and what is occupied in them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.model.constraints import Constraints
from mooring.model.reasons import Reason
from mooring.model.terms import Terms
from mooring.model.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.store import timeslots, workloads
from mooring.store.ids import new_id
from mooring.store.tables import events, status_history, timeslot_series
from mooring.store.timeslots import Move, Series
from tests.store.databases import on_sqlite
from tests.store.harbour import LONG_AGO, Harbour

S = TimeslotStatus
START = LONG_AGO + timedelta(days=400)
HOUR = timedelta(hours=1)
ELSEWHERE = UUID(int=8)


def slot(harbour: Harbour, name: str = "lecture", **more: Any) -> Timeslot:
    values: dict[str, Any] = {
        "id": new_id(),
        "name": name,
        "kind": TimeslotKind.BOOKING,
        "pool": "default",
        "status": S.REQUESTED,
        "starts_at": START,
        "ends_at": START + HOUR,
        "request": {"cpu": 2000, "memory": 1 << 30},
        "count": 3,
        "user_id": harbour.principal.user_id,
        "project_id": harbour.principal.project_id,
        "domain_id": harbour.principal.domain_id,
    }
    return Timeslot(**(values | more))


async def insert(harbour: Harbour, *slots: Timeslot, series: Series | None = None) -> None:
    await harbour.database.write(lambda c: timeslots.insert(c, slots, LONG_AGO, series))


async def move(harbour: Harbour, *changes: Move) -> list[Timeslot]:
    return await harbour.database.write(lambda c: timeslots.move(c, changes, now(), actor="test", term=7))


async def load(harbour: Harbour, *ids: UUID) -> list[Timeslot]:
    async with harbour.database.read() as connection:
        return await timeslots.load(connection, ids or None)


async def told(harbour: Harbour, slot_id: UUID) -> list[tuple[str, int]]:
    rows = await harbour.rows(select(events).where(events.c.object_id == slot_id).order_by(events.c.revision))
    return [(row.kind, row.version) for row in rows]


async def test_what_is_written_is_read_again(harbour: Harbour):
    full = slot(
        harbour,
        lead_seconds=60,
        grace_seconds=30,
        constraints=Constraints(node_selector=(("disk", "ssd"),)),
        architecture="x86_64",
        region="north",
        users=frozenset({UUID(int=1), UUID(int=2)}),
        projects=frozenset({UUID(int=3)}),
        release_after_seconds=600,
        access_key="AK1",
        purpose="a lecture",
    )
    window = slot(harbour, "window", kind=TimeslotKind.MAINTENANCE, status=S.CONFIRMED, places={ELSEWHERE: 1})
    await insert(harbour, full, window)
    assert await load(harbour) == [full, window]
    assert await load(harbour, window.id) == [window]
    assert await told(harbour, full.id) == [("REQUESTED", 1)]
    assert await told(harbour, window.id) == [("CONFIRMED", 1)]


async def test_a_series_is_kept_with_its_rule(harbour: Harbour):
    series = Series(new_id(), "FREQ=WEEKLY;COUNT=2", "Europe/Berlin")
    first, second = (slot(harbour, series_id=series.id) for _ in range(2))
    await insert(harbour, first, second, slot(harbour, "alone"), series=series)
    async with harbour.database.read() as connection:
        assert await timeslots.series_of(connection, second.id) == [first, second]
    [row] = await harbour.rows(select(timeslot_series))
    assert (row.id, row.rule, row.timezone) == (series.id, series.rule, series.timezone)


async def test_a_move_sets_places_and_reason_and_leaves_history_and_an_event(harbour: Harbour):
    requested = slot(harbour)
    await insert(harbour, requested)
    [confirmed] = await move(harbour, Move(requested, S.CONFIRMED, places={ELSEWHERE: 3}))
    assert confirmed == replace(requested, status=S.CONFIRMED, places={ELSEWHERE: 3}, version=2)
    assert await load(harbour) == [confirmed]
    lost = Reason("node-lost", "node n1 is lost", "leader")
    [risky] = await move(harbour, Move(confirmed, S.AT_RISK, lost))
    assert risky.places == {ELSEWHERE: 3}
    assert await told(harbour, risky.id) == [("REQUESTED", 1), ("CONFIRMED", 2), ("AT_RISK", 3)]
    rows = await harbour.rows(select(status_history).where(status_history.c.object_id == risky.id))
    assert [(row.old_status, row.new_status, row.actor, row.reason, row.term) for row in rows] == [
        ("none", "REQUESTED", "timeslots", None, None),
        ("REQUESTED", "CONFIRMED", "test", None, 7),
        ("CONFIRMED", "AT_RISK", "test", "node n1 is lost", 7),
    ]


async def test_a_timeslot_that_has_changed_meanwhile_is_left_alone(harbour: Harbour):
    first, second = slot(harbour, "first"), slot(harbour, "second")
    await insert(harbour, first, second)
    await move(harbour, Move(first, S.CANCELLED))
    moved = await move(
        harbour, Move(first, S.CONFIRMED, places={ELSEWHERE: 3}), Move(second, S.CONFIRMED, places={ELSEWHERE: 3})
    )
    assert [after.id for after in moved] == [second.id]
    [found] = await load(harbour, first.id)
    assert (found.status, found.places) == (S.CANCELLED, {})


@on_sqlite
async def test_only_legal_edges_are_taken(harbour: Harbour):
    requested = slot(harbour)
    await insert(harbour, requested)
    with pytest.raises(ValueError, match="REQUESTED never becomes ENDED"):
        await move(harbour, Move(requested, S.ENDED))
    with pytest.raises(ValueError, match="REQUESTED never becomes REQUESTED"):
        await move(harbour, Move(requested, S.REQUESTED))


async def test_other_places_need_no_other_status(harbour: Harbour):
    confirmed = slot(harbour, status=S.CONFIRMED, places={ELSEWHERE: 3})
    await insert(harbour, confirmed)
    [moved] = await move(harbour, Move(confirmed, S.CONFIRMED, places={UUID(int=9): 1, ELSEWHERE: 2}))
    assert await load(harbour) == [moved]
    assert moved.places == {UUID(int=9): 1, ELSEWHERE: 2}
    assert await told(harbour, moved.id) == [("CONFIRMED", 1), ("moved", 2)]


async def test_one_that_is_over_is_loaded_by_id_only(harbour: Harbour):
    active = slot(harbour, status=S.ACTIVE)
    await insert(harbour, active)
    [ended] = await move(harbour, Move(active, S.ENDED))
    assert await load(harbour) == []
    assert await load(harbour, active.id) == [ended]


async def test_a_confirmed_change_takes_the_place_of_the_old_one_with_its_work(harbour: Harbour):
    old = slot(harbour, status=S.CONFIRMED, places={ELSEWHERE: 3})
    new = slot(harbour, starts_at=START + HOUR, ends_at=START + 2 * HOUR, replaces=old.id)
    await insert(harbour, old, new)
    guest = await harbour.submit("guest", terms=Terms(booking=old.id))
    moved = await move(harbour, Move(new, S.CONFIRMED, places={ELSEWHERE: 3}))
    assert [(after.id, after.status) for after in moved] == [(new.id, S.CONFIRMED), (old.id, S.CANCELLED)]
    async with harbour.database.read() as connection:
        [waits] = await workloads.waiting(connection, [guest])
    assert waits.booking == new.id
    assert await told(harbour, old.id) == [("CONFIRMED", 1), ("CANCELLED", 2)]


async def test_what_work_in_a_timeslot_occupies_is_summed_by_node(harbour: Harbour):
    node_id = await harbour.node("n1")
    booked, empty = slot(harbour), slot(harbour, "empty")
    await insert(harbour, booked, empty)
    await harbour.submit("outside")
    inside = await harbour.submit("inside", replicas=2, cpu=2)
    await harbour.run(inside)
    await harbour.set(inside, timeslot_id=booked.id)

    async def occupied() -> dict[UUID, dict[UUID, Any]]:
        async with harbour.database.read() as connection:
            return await timeslots.occupied(connection, [booked.id, empty.id])

    assert await occupied() == {booked.id: {node_id: {"cpu": 4000, "memory": 2 << 30}}}
    await harbour.stop(inside, force=True)
    assert await occupied() == {}, "what is lost is of no use to its timeslot, although its node is still charged"


async def test_an_earlier_end_is_written_once(harbour: Harbour):
    active = slot(harbour, status=S.ACTIVE)
    await insert(harbour, active)
    sooner = START + HOUR / 2
    shorter = await harbour.database.write(lambda c: timeslots.shorten(c, active, sooner, now()))
    assert await load(harbour) == [shorter]
    assert (shorter.ends_at, shorter.version) == (sooner, 2)
    with pytest.raises(Exception, match="has changed meanwhile"):
        await harbour.database.write(lambda c: timeslots.shorten(c, active, sooner, now()))
