"""What is due of timeslots by time, how they are used, and the work that outlived them."""

from datetime import timedelta

from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.terms import Terms
from mooring.model.timeslots import TimeslotKind, TimeslotStatus
from mooring.model.workloads import Kind
from mooring.store import agenda, timeslots
from mooring.store.agenda import Outlived
from mooring.store.timeslots import Move
from tests.store.harbour import Harbour
from tests.store.test_timeslots import START, insert, slot

S = TimeslotStatus
LEAD = timedelta(minutes=35)


async def test_timeslots_are_due_from_their_lead_on_until_they_are_over(harbour: Harbour):
    first = slot(harbour, "first", status=S.CONFIRMED)
    later = slot(harbour, "later", starts_at=START + LEAD, ends_at=START + 2 * LEAD)
    over = slot(harbour, "over")
    await insert(harbour, first, later, over)
    await harbour.database.write(lambda c: timeslots.move(c, [Move(first, S.ACTIVE), Move(over, S.CANCELLED)], START))
    async with harbour.database.read() as connection:
        assert await agenda.due(connection, START - LEAD - timedelta(microseconds=1)) == ([], START - LEAD)
        found, next_lead = await agenda.due(connection, START - LEAD)
    assert [each.slot.name for each in found] == ["first"]
    assert next_lead == START


async def test_users_are_told_of_the_end_once(harbour: Harbour):
    ending = slot(harbour, "ending", status=S.ACTIVE)
    await insert(harbour, ending)
    for _ in range(2):
        await harbour.database.write(lambda c: agenda.tell_of_end(c, [ending], START, None))
    assert [event.kind for event in await harbour.feed(ending.id)] == ["ACTIVE", agenda.ENDS_SOON]
    async with harbour.database.read() as connection:
        ((_, noticed),), _ = await agenda.due(connection, START)
    assert noticed


async def test_how_a_timeslot_is_used_and_what_outlives_it(harbour: Harbour):
    lab = slot(harbour, "lab", kind=TimeslotKind.LAB, status=S.ACTIVE)
    unused = slot(harbour, "unused", status=S.ACTIVE)
    await insert(harbour, lab, unused)
    await harbour.node("n1")
    running = await harbour.submit("running", kind=Kind.SESSION, terms=Terms(booking=lab.id))
    (task,) = await harbour.run(await harbour.set(running, timeslot_id=None))
    await harbour.set(running, timeslot_id=lab.id)
    waiting = await harbour.submit("waiting", kind=Kind.SESSION, terms=Terms(booking=lab.id))
    async with harbour.database.read() as connection:
        assert await agenda.use_of(connection, [lab.id, unused.id]) == {lab.id: agenda.Use(2, 0, True, True, None)}
        assert await agenda.outlived(connection) == []
    why = Reason("timeslot-missed", "it was missed", "timeslots", "never")
    await harbour.database.write(lambda c: timeslots.move(c, [Move(lab, S.EXPIRED, why)], START))
    async with harbour.database.read() as connection:
        found = await agenda.outlived(connection)
    assert found == [Outlived(running, S.EXPIRED, why, True), Outlived(waiting, S.EXPIRED, why, False)]
    await harbour.move(task, TaskStatus.SUCCEEDED)
    async with harbour.database.read() as connection:
        use = (await agenda.use_of(connection, [lab.id]))[lab.id]
    assert (use.living, use.ended, use.placed, use.present) == (1, 1, True, False)
    assert use.left_at == (await harbour.task(task.id)).freed_at
