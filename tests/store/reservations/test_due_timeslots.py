"""Due timeslots, their use, and the workloads that outlive them."""

from datetime import timedelta

from mooring.model.calendar.timeslots import TimeslotKind, TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.reservations import due_timeslots, timeslots
from mooring.store.reservations.due_timeslots import OverdueWorkload
from mooring.store.reservations.timeslots import TimeslotUpdate
from tests.store.harness import Harness
from tests.store.reservations.test_timeslots import START, insert, slot

S = TimeslotStatus
LEAD = timedelta(minutes=35)


async def test_timeslots_are_due_from_their_lead_on_until_they_are_over(harness: Harness):
    first = slot(harness, "first", status=S.CONFIRMED)
    later = slot(harness, "later", starts_at=START + LEAD, ends_at=START + 2 * LEAD)
    over = slot(harness, "over")
    await insert(harness, first, later, over)
    await harness.database.write(
        lambda c: timeslots.apply_updates(
            c, [TimeslotUpdate(first, S.ACTIVE), TimeslotUpdate(over, S.CANCELLED)], START
        )
    )
    async with harness.database.read() as connection:
        assert await due_timeslots.due(connection, START - LEAD - timedelta(microseconds=1)) == ([], START - LEAD)
        found, next_lead = await due_timeslots.due(connection, START - LEAD)
    assert [each.slot.name for each in found] == ["first"]
    assert next_lead == START


async def test_users_are_warned_of_the_end_once(harness: Harness):
    ending = slot(harness, "ending", status=S.ACTIVE)
    await insert(harness, ending)
    for _ in range(2):
        await harness.database.write(lambda c: due_timeslots.announce_end(c, [ending], START, None))
    assert [event.kind for event in await harness.feed(ending.id)] == ["ACTIVE", due_timeslots.ENDS_SOON]
    async with harness.database.read() as connection:
        ((_, noticed),), _ = await due_timeslots.due(connection, START)
    assert noticed


async def test_usage_of_a_timeslot_and_the_rows_that_outlive_it(harness: Harness):
    lab = slot(harness, "lab", kind=TimeslotKind.LAB, status=S.ACTIVE)
    unused = slot(harness, "unused", status=S.ACTIVE)
    await insert(harness, lab, unused)
    await harness.node("n1")
    running = await harness.submit("running", kind=Kind.SESSION, schedule=ScheduleOptions(booking=lab.id))
    (task,) = await harness.run(await harness.set(running, timeslot_id=None))
    await harness.set(running, timeslot_id=lab.id)
    waiting = await harness.submit("waiting", kind=Kind.SESSION, schedule=ScheduleOptions(booking=lab.id))
    async with harness.database.read() as connection:
        assert await due_timeslots.use_of(connection, [lab.id, unused.id]) == {
            lab.id: due_timeslots.TimeslotUse(2, 0, True, True, None)
        }
        assert await due_timeslots.overdue_workloads(connection) == []
    why = Reason("timeslot-missed", "it was missed", "timeslots", "never")
    await harness.database.write(lambda c: timeslots.apply_updates(c, [TimeslotUpdate(lab, S.EXPIRED, why)], START))
    async with harness.database.read() as connection:
        found = await due_timeslots.overdue_workloads(connection)
    assert found == [OverdueWorkload(running, S.EXPIRED, why, True), OverdueWorkload(waiting, S.EXPIRED, why, False)]
    await harness.move(task, TaskStatus.SUCCEEDED)
    async with harness.database.read() as connection:
        use = (await due_timeslots.use_of(connection, [lab.id]))[lab.id]
    assert (use.living, use.ended, use.placed, use.present) == (1, 1, True, False)
    assert use.left_at == (await harness.task(task.id)).freed_at
