"""The loop that counts what was used."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select, update

from mooring.clock import now
from mooring.controllers.accounting import AccountingLoop
from mooring.model.errors import LeadershipLost
from mooring.store import usage
from mooring.store.tables import resource_allocations, usage_buckets
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour


async def total(harbour: Harbour) -> int:
    rows = await harbour.rows(select(func.sum(usage_buckets.c.seconds)).where(usage_buckets.c.slot_name == "cpu"))
    return int(rows[0][0] or 0)


async def seconds_of_use(harbour: Harbour, seconds: int) -> None:
    """A task that has been running for so long."""
    await harbour.node("n1")
    await harbour.run(await harbour.submit("job"))
    since = now() - usage.DAY * seconds / 86_400
    await harbour.database.write(lambda c: c.execute(update(resource_allocations).values(used_at=since)))


async def test_however_often_it_looks_no_second_is_counted_twice(harbour: Harbour):
    await seconds_of_use(harbour, 3 * 86_400)
    loop = AccountingLoop(harbour.database, harbour.office)
    while await loop.once():
        pass
    for _ in range(3):
        await loop.once()
    assert 3 * 86_400 <= await total(harbour) < 3 * 86_400 + 60


@on_sqlite
async def test_a_deposed_leader_writes_nothing(harbour: Harbour):
    await seconds_of_use(harbour, 3600)
    await harbour.take_office("another")
    with pytest.raises(LeadershipLost):
        await AccountingLoop(harbour.database, harbour.office).once()
    assert await total(harbour) == 0
