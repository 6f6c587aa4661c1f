"""Bookings that users change or cancel while the leader changes them too."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mooring.clock import now
from mooring.model.calendar.timeslots import Timeslot, TimeslotStatus
from mooring.services.bookings.bookings import Bookings
from mooring.store.core.engine import Connection
from mooring.store.reservations import timeslots
from mooring.store.reservations.timeslots import Series, TimeslotUpdate
from mooring.wire.workloads.timeslots import TimeslotChange
from tests.store.databases import on_postgresql
from tests.store.harness import Harness, someone_waits_for_a_lock
from tests.store.reservations.test_timeslots import insert, load, slot

S = TimeslotStatus


async def while_it_is_confirmed(harness: Harness, booked: Timeslot, act: Callable[[], Awaitable[object]]) -> None:
    """Begin the user's act when the leader has confirmed the booking and not committed yet."""
    action: asyncio.Task[object] | None = None

    async def confirm(connection: Connection) -> None:
        nonlocal action
        assert await timeslots.apply_updates(connection, [TimeslotUpdate(booked, S.CONFIRMED)], now(), term=1)
        action = asyncio.ensure_future(act())
        while not await someone_waits_for_a_lock(harness.database):
            assert not action.done()

    await harness.database.write(confirm)
    assert action is not None
    await action


@on_postgresql
@pytest.mark.parametrize("whole_series", [False, True])
async def test_cancelling_waits_for_a_change_of_status_and_is_not_refused(harness: Harness, whole_series: bool):
    booked = slot(harness, series_id=None)
    series = None
    if whole_series:
        series = Series(booked.id, "FREQ=DAILY;COUNT=1", "UTC")
        booked = slot(harness, series_id=series.id)
    await insert(harness, booked, series=series)
    bookings = Bookings(harness.database)
    await while_it_is_confirmed(
        harness, booked, lambda: bookings.cancel(harness.principal, booked.id, series=whole_series)
    )
    [after] = await load(harness, booked.id)
    assert after.status is S.CANCELLED


@on_postgresql
async def test_shortening_waits_for_a_change_of_status_and_is_not_refused(harness: Harness):
    start = now().replace(microsecond=0)
    booked = slot(harness, starts_at=start.replace(year=start.year + 1), ends_at=start.replace(year=start.year + 2))
    await insert(harness, booked)
    end = booked.ends_at.replace(year=booked.ends_at.year - 1, hour=0) + (booked.ends_at - booked.starts_at) / 2
    bookings = Bookings(harness.database)
    asked = TimeslotChange(end=end)
    await while_it_is_confirmed(harness, booked, lambda: bookings.change(harness.principal, booked.id, asked))
    [after] = await load(harness, booked.id)
    assert (after.status, after.ends_at) == (S.CONFIRMED, end)
