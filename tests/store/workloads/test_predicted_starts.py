"""A predicted start never moves silently, and is compared with the placement."""

from datetime import timedelta
from uuid import UUID

from mooring.api.routes.cluster.operations import _start_errors
from mooring.api.serializers import workload_view
from mooring.clock import now
from mooring.store.views import start_errors
from mooring.store.views import workloads as views
from mooring.store.workloads import pending
from mooring.store.workloads.pending import PlannedStart
from mooring.wire.workloads.workloads import StartView
from tests.store.harness import Harness

HOUR = timedelta(hours=1)


async def start(harness: Harness, workload_id: UUID) -> StartView:
    async with harness.database.read() as connection:
        row = await views.by_id(connection, workload_id)
    assert row is not None
    found = workload_view(row).start
    assert found is not None
    return found


async def test_a_start_that_is_replaced_by_a_later_one_keeps_the_first_and_counts_the_moves(harness: Harness):
    job = await harness.submit("job")
    first = now() + HOUR
    await harness.database.write(lambda c: pending.note_estimated(c, {job: first}))
    found = await start(harness, job)
    assert (found.estimated_at, found.first_at, found.moves) == (first, first, 0)
    # Earlier is no slip; a planned start later than the estimate is one.
    await harness.database.write(lambda c: pending.note_estimated(c, {job: first - HOUR / 2}))
    await harness.database.write(lambda c: pending.note_planned(c, {job: PlannedStart(first + HOUR, {"n1": 1})}, now()))
    found = await start(harness, job)
    assert (found.planned_at, found.first_at, found.moves) == (first + HOUR, first, 1)
    assert found.nodes == {"n1": 1}
    # A plan that is dropped and made again later has moved as well.
    await harness.database.write(lambda c: pending.note_planned(c, {job: None}, now()))
    found = await start(harness, job)
    assert (found.planned_at, found.nodes, found.moves) == (None, {}, 1)
    await harness.database.write(lambda c: pending.note_planned(c, {job: PlannedStart(first + 2 * HOUR, None)}, now()))
    assert (await start(harness, job)).moves == 2


async def test_work_that_exceeds_its_own_limit_has_no_predicted_start(harness: Harness):
    job = await harness.submit("job")
    await harness.database.write(lambda c: pending.note_planned(c, {job: PlannedStart(now() + HOUR, None)}, now()))
    violation = {"slot": "cpu", "requested": 5000, "limit": 4000}
    reason = {"code": "user-quota-exceeded", "cure": "change", "message": "", "details": {"violations": [violation]}}
    await harness.set(job, reason=reason, estimated_start_at=now() + HOUR)
    found = await start(harness, job)
    assert (found.planned_at, found.estimated_at, found.waits_for) == (None, None, "change")
    assert found.unless == "its cpu limit is raised, or it asks for less"


async def test_first_predictions_are_compared_with_the_placement(harness: Harness):
    await harness.node("n1")
    late, early, unpredicted = [await harness.submit(name) for name in ("late", "early", "unpredicted")]
    predicted = {late: now() - HOUR, early: now() + HOUR}
    await harness.database.write(lambda c: pending.note_estimated(c, predicted))
    await harness.place()
    async with harness.database.read() as connection:
        found = await start_errors.recent(connection, now())
    assert len(found) == 2
    assert (await harness.workload(unpredicted)).placed_at is not None
    errors = _start_errors(found)
    assert errors is not None
    assert (errors.workloads, errors.late, errors.moved) == (2, 1, 0)
    # An hour early and an hour late, but for the moments between the lines above.
    assert round(errors.median_seconds / 3600) == round(errors.p90_seconds / 3600) == 1
    assert _start_errors([]) is None
