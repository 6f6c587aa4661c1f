"""Timeslots in the store: requested, moved along their edges, with places, and what is occupied in them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.store.core.ids import new_id
from mooring.store.reservations import timeslots
from mooring.store.reservations.timeslots import Series, TimeslotUpdate
from mooring.store.tables import events, status_history, timeslot_series
from mooring.store.workloads import pending
from tests.store.databases import on_sqlite
from tests.store.harness import LONG_AGO, Harness

S = TimeslotStatus
START = LONG_AGO + timedelta(days=400)
HOUR = timedelta(hours=1)
ELSEWHERE = UUID(int=8)


def slot(harness: Harness, name: str = "lecture", **more: Any) -> Timeslot:
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
        "user_id": harness.principal.user_id,
        "project_id": harness.principal.project_id,
        "domain_id": harness.principal.domain_id,
    }
    return Timeslot(**(values | more))


async def insert(harness: Harness, *slots: Timeslot, series: Series | None = None) -> None:
    await harness.database.write(lambda c: timeslots.insert(c, slots, LONG_AGO, series))


async def move(harness: Harness, *changes: TimeslotUpdate) -> list[Timeslot]:
    return await harness.database.write(lambda c: timeslots.apply_updates(c, changes, now(), actor="test", term=7))


async def load(harness: Harness, *ids: UUID) -> list[Timeslot]:
    async with harness.database.read() as connection:
        return await timeslots.load(connection, ids or None)


async def received(harness: Harness, slot_id: UUID) -> list[tuple[str, int]]:
    rows = await harness.rows(select(events).where(events.c.object_id == slot_id).order_by(events.c.revision))
    return [(row.kind, row.version) for row in rows]


async def test_a_stored_timeslot_is_read_back(harness: Harness):
    full = slot(
        harness,
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
    window = slot(harness, "window", kind=TimeslotKind.MAINTENANCE, status=S.CONFIRMED, placements={ELSEWHERE: 1})
    await insert(harness, full, window)
    assert await load(harness) == [full, window]
    assert await load(harness, window.id) == [window]
    assert await received(harness, full.id) == [("REQUESTED", 1)]
    assert await received(harness, window.id) == [("CONFIRMED", 1)]


async def test_a_series_is_stored_with_its_rule(harness: Harness):
    series = Series(new_id(), "FREQ=WEEKLY;COUNT=2", "Europe/Berlin")
    first, second = (slot(harness, series_id=series.id) for _ in range(2))
    await insert(harness, first, second, slot(harness, "alone"), series=series)
    async with harness.database.read() as connection:
        assert await timeslots.series_of(connection, second.id) == [first, second]
    [row] = await harness.rows(select(timeslot_series))
    assert (row.id, row.rule, row.timezone) == (series.id, series.rule, series.timezone)


async def test_a_relocation_sets_placements_and_reason_and_writes_history_and_an_event(harness: Harness):
    requested = slot(harness)
    await insert(harness, requested)
    [confirmed] = await move(harness, TimeslotUpdate(requested, S.CONFIRMED, placements={ELSEWHERE: 3}))
    assert confirmed == replace(requested, status=S.CONFIRMED, placements={ELSEWHERE: 3}, version=2)
    assert await load(harness) == [confirmed]
    lost = Reason("node-lost", "node n1 is lost", "leader")
    [risky] = await move(harness, TimeslotUpdate(confirmed, S.AT_RISK, lost))
    assert risky.placements == {ELSEWHERE: 3}
    assert await received(harness, risky.id) == [("REQUESTED", 1), ("CONFIRMED", 2), ("AT_RISK", 3)]
    rows = await harness.rows(select(status_history).where(status_history.c.object_id == risky.id))
    assert [(row.old_status, row.new_status, row.actor, row.reason, row.term) for row in rows] == [
        ("none", "REQUESTED", "timeslots", None, None),
        ("REQUESTED", "CONFIRMED", "test", None, 7),
        ("CONFIRMED", "AT_RISK", "test", "node n1 is lost", 7),
    ]


async def test_a_timeslot_that_changed_concurrently_is_not_updated(harness: Harness):
    first, second = slot(harness, "first"), slot(harness, "second")
    await insert(harness, first, second)
    await move(harness, TimeslotUpdate(first, S.CANCELLED))
    moved = await move(
        harness,
        TimeslotUpdate(first, S.CONFIRMED, placements={ELSEWHERE: 3}),
        TimeslotUpdate(second, S.CONFIRMED, placements={ELSEWHERE: 3}),
    )
    assert [after.id for after in moved] == [second.id]
    [found] = await load(harness, first.id)
    assert (found.status, found.placements) == (S.CANCELLED, {})


@on_sqlite
async def test_only_legal_edges_are_taken(harness: Harness):
    requested = slot(harness)
    await insert(harness, requested)
    with pytest.raises(ValueError, match="REQUESTED cannot become ENDED"):
        await move(harness, TimeslotUpdate(requested, S.ENDED))
    with pytest.raises(ValueError, match="REQUESTED cannot become REQUESTED"):
        await move(harness, TimeslotUpdate(requested, S.REQUESTED))


async def test_new_placements_need_no_new_status(harness: Harness):
    confirmed = slot(harness, status=S.CONFIRMED, placements={ELSEWHERE: 3})
    await insert(harness, confirmed)
    [moved] = await move(harness, TimeslotUpdate(confirmed, S.CONFIRMED, placements={UUID(int=9): 1, ELSEWHERE: 2}))
    assert await load(harness) == [moved]
    assert moved.placements == {UUID(int=9): 1, ELSEWHERE: 2}
    assert await received(harness, moved.id) == [("CONFIRMED", 1), ("moved", 2)]


async def test_an_ended_timeslot_is_loaded_by_id_only(harness: Harness):
    active = slot(harness, status=S.ACTIVE)
    await insert(harness, active)
    [ended] = await move(harness, TimeslotUpdate(active, S.ENDED))
    assert await load(harness) == []
    assert await load(harness, active.id) == [ended]


async def test_a_confirmed_change_replaces_the_old_booking_and_takes_over_its_work(harness: Harness):
    old = slot(harness, status=S.CONFIRMED, placements={ELSEWHERE: 3})
    new = slot(harness, starts_at=START + HOUR, ends_at=START + 2 * HOUR, replaces=old.id)
    await insert(harness, old, new)
    guest = await harness.submit("guest", schedule=ScheduleOptions(booking=old.id))
    moved = await move(harness, TimeslotUpdate(new, S.CONFIRMED, placements={ELSEWHERE: 3}))
    assert [(after.id, after.status) for after in moved] == [(new.id, S.CONFIRMED), (old.id, S.CANCELLED)]
    async with harness.database.read() as connection:
        [waits] = await pending.waiting(connection, [guest])
    assert waits.booking == new.id
    assert await received(harness, old.id) == [("CONFIRMED", 1), ("CANCELLED", 2)]


async def test_amounts_occupied_in_a_timeslot_are_summed_by_node(harness: Harness):
    node_id = await harness.node("n1")
    booked, empty = slot(harness), slot(harness, "empty")
    await insert(harness, booked, empty)
    await harness.submit("outside")
    inside = await harness.submit("inside", replicas=2, cpu=2)
    await harness.run(inside)
    await harness.set(inside, timeslot_id=booked.id)

    async def occupied() -> dict[UUID, dict[UUID, Any]]:
        async with harness.database.read() as connection:
            return await timeslots.occupied(connection, [booked.id, empty.id])

    assert await occupied() == {booked.id: {node_id: {"cpu": 4000, "memory": 2 << 30}}}
    await harness.stop(inside, force=True)
    assert await occupied() == {}, "what is lost is of no use to its timeslot, although its node is still charged"


async def test_an_earlier_end_is_written_once(harness: Harness):
    active = slot(harness, status=S.ACTIVE)
    await insert(harness, active)
    sooner = START + HOUR / 2
    shorter = await harness.database.write(lambda c: timeslots.shorten(c, active, sooner, now()))
    assert await load(harness) == [shorter]
    assert (shorter.ends_at, shorter.version) == (sooner, 2)
    with pytest.raises(Exception, match="has changed in the meantime"):
        await harness.database.write(lambda c: timeslots.shorten(c, active, sooner, now()))
