"""A standby has a warm view of the cluster, and proves that it is right before it binds anything."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from mooring.binding.binder import Binder
from mooring.controllers.scheduling import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.terms import Terms
from mooring.store.tables import node_resources, tenant_resources
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite


class CountingMirror(Mirror):
    loads = 0

    async def load(self) -> None:
        self.loads += 1
        await super().load()


class Standby:
    def __init__(self, harbour: Harbour) -> None:
        self.mirror = CountingMirror(harbour.database)
        self.loop = SchedulingLoop(self.mirror, Binder(harbour.database), harbour.office)


@pytest.fixture
async def standby(harbour: Harbour) -> AsyncIterator[Standby]:
    made = Standby(harbour)
    await made.loop.stand_by()
    yield made
    made.loop.close()


@pytest.fixture
async def leader(harbour: Harbour) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    await loop.start()
    yield loop
    loop.close()


async def test_a_standby_that_followed_takes_over_without_reading_everything_again(harbour: Harbour, standby: Standby):
    await harbour.node("n1", cpu=4)
    running = await harbour.submit("running", cpu="1")
    await harbour.place()
    await harbour.run(running)
    await standby.loop.stand_by()
    waiting = await harbour.submit("waiting", cpu="2")
    await standby.loop.take_over()
    assert standby.mirror.loads == 1
    await standby.loop.once()
    assert await harbour.statuses(waiting) == ["SCHEDULED"]
    assert await harbour.findings() == []


async def test_who_takes_over_knows_what_was_told_to_those_who_wait(
    harbour: Harbour, standby: Standby, leader: SchedulingLoop
):
    """Reasons and planned starts are written without an event: a standby has not heard of the last ones."""
    await harbour.node("n1", cpu=4)
    running = await harbour.submit("running", cpu="4", terms=Terms(time_limit_seconds=60))
    await leader.once()
    await harbour.run(running)
    waiting = await harbour.submit("waiting", cpu="4")
    await standby.loop.stand_by()
    await leader.once()
    assert standby.mirror.queue[waiting].waiting_reason is None
    await standby.loop.take_over()
    told, stored = standby.mirror.queue[waiting], await harbour.workload(waiting)
    assert (told.waiting_reason, told.planned_start) == (stored.reason["message"], stored.planned_start_at)
    assert told.planned_start is not None
    assert standby.mirror.loads == 1


@pytest.mark.parametrize("table", [node_resources, tenant_resources], ids=["a node", "a tenant"])
async def test_a_view_with_other_sums_than_the_store_is_read_anew(harbour: Harbour, standby: Standby, table):
    await harbour.node("n1", cpu=4)
    await harbour.submit("first", cpu="1")
    await harbour.place()
    await harbour.submit("waiting", cpu="1")
    await standby.loop.stand_by()
    # As if something had been committed that no event told of.
    await harbour.database.write(lambda c: c.execute(update(table).values(used=table.c.used + 1)))
    await standby.loop.take_over()
    assert standby.mirror.loads == 2


async def test_who_lost_the_seat_begins_from_the_store(harbour: Harbour, standby: Standby):
    standby.loop.lose()
    await standby.loop.stand_by()
    assert standby.mirror.loads == 2
