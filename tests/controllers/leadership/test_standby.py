"""A standby has a warm view of the cluster, and proves that it is right before it binds anything."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.store.tables import node_resources, tenant_resources
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite


class CountingMirror(Mirror):
    loads = 0

    async def load(self) -> None:
        self.loads += 1
        await super().load()


class Standby:
    def __init__(self, harness: Harness) -> None:
        self.mirror = CountingMirror(harness.database)
        self.loop = SchedulingLoop(self.mirror, Binder(harness.database), harness.leadership)


@pytest.fixture
async def standby(harness: Harness) -> AsyncIterator[Standby]:
    made = Standby(harness)
    await made.loop.stand_by()
    yield made
    made.loop.close()


@pytest.fixture
async def leader(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    await loop.start()
    yield loop
    loop.close()


async def test_a_standby_that_followed_takes_over_without_reading_everything_again(harness: Harness, standby: Standby):
    await harness.node("n1", cpu=4)
    running = await harness.submit("running", cpu="1")
    await harness.place()
    await harness.run(running)
    await standby.loop.stand_by()
    waiting = await harness.submit("waiting", cpu="2")
    await standby.loop.take_over()
    assert standby.mirror.loads == 1
    await standby.loop.once()
    assert await harness.statuses(waiting) == ["SCHEDULED"]
    assert await harness.findings() == []


async def test_a_new_leader_knows_the_stored_reasons_of_pending_work(
    harness: Harness, standby: Standby, leader: SchedulingLoop
):
    """Reasons and planned starts are written without an event: a standby has not heard of the last ones."""
    await harness.node("n1", cpu=4)
    running = await harness.submit("running", cpu="4", schedule=ScheduleOptions(time_limit_seconds=60))
    await leader.once()
    await harness.run(running)
    waiting = await harness.submit("waiting", cpu="4")
    await standby.loop.stand_by()
    await leader.once()
    assert standby.mirror.queue[waiting].waiting_reason is None
    await standby.loop.take_over()
    received, stored = standby.mirror.queue[waiting], await harness.workload(waiting)
    assert (received.waiting_reason, received.planned_start) == (stored.reason["message"], stored.planned_start_at)
    assert received.planned_start is not None
    assert standby.mirror.loads == 1


@pytest.mark.parametrize("table", [node_resources, tenant_resources], ids=["a node", "a tenant"])
async def test_a_mirror_whose_sums_differ_from_the_store_is_loaded_again(harness: Harness, standby: Standby, table):
    await harness.node("n1", cpu=4)
    await harness.submit("first", cpu="1")
    await harness.place()
    await harness.submit("waiting", cpu="1")
    await standby.loop.stand_by()
    # As if a commit had written no event.
    await harness.database.write(lambda c: c.execute(update(table).values(used=table.c.used + 1)))
    await standby.loop.take_over()
    assert standby.mirror.loads == 2


async def test_a_deposed_leader_reloads_from_the_store(harness: Harness, standby: Standby):
    standby.loop.lose()
    await standby.loop.stand_by()
    assert standby.mirror.loads == 2
