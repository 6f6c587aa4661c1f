"""The loop that counts what was used."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, update

from mooring.clock import now
from mooring.controllers.upkeep.accounting import AccountingLoop
from mooring.model.errors import LeadershipLost
from mooring.store.accounting import usage
from mooring.store.tables import resource_allocations, usage_buckets
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


async def total(harness: Harness) -> int:
    rows = await harness.rows(select(func.sum(usage_buckets.c.seconds)).where(usage_buckets.c.slot_name == "cpu"))
    return int(rows[0][0] or 0)


async def seconds_of_use(harness: Harness, seconds: int) -> None:
    """A task that has been running for this long."""
    await harness.node("n1")
    await harness.run(await harness.submit("job"))
    since = now() - usage.DAY * seconds / 86_400
    await harness.database.write(lambda c: c.execute(update(resource_allocations).values(used_at=since)))


async def test_however_often_it_looks_no_second_is_counted_twice(harness: Harness):
    await seconds_of_use(harness, 3 * 86_400)
    loop = AccountingLoop(harness.fenced)
    while await loop.once():
        pass
    for _ in range(3):
        await loop.once()
    assert 3 * 86_400 <= await total(harness) < 3 * 86_400 + 60


@on_sqlite
async def test_a_deposed_leader_writes_nothing(harness: Harness):
    await seconds_of_use(harness, 3600)
    await harness.start_term("another")
    with pytest.raises(LeadershipLost):
        await AccountingLoop(harness.fenced).once()
    assert await total(harness) == 0
