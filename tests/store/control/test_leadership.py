"""Leader terms: they only grow, and a leader with an old term cannot write."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, func, select

from mooring.clock import now
from mooring.model.errors import LeadershipLost
from mooring.store.control import leadership
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import pools, slot_types
from mooring.store.tables import leadership as leadership_table
from mooring.store.tables import pools as pools_table
from tests.store.databases import on_postgresql
from tests.store.harness import Harness, someone_waits_for_a_lock


async def test_a_term_grows_even_if_the_clock_goes_back(database: Database):
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    second = int(noon.timestamp())
    clock = (noon, noon, noon - timedelta(days=1), noon + timedelta(hours=1))
    terms = [
        await database.write(lambda c, at=at: leadership.start_term(c, "a", at))  # type: ignore[misc]
        for at in clock
    ]
    assert terms == [second, second + 1, second + 2, second + 3600]
    async with database.read() as connection:
        assert await leadership.current_term(connection) == terms[-1]


async def test_a_term_is_never_issued_twice_even_after_a_restore(database: Database):
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    first = await database.write(lambda c: leadership.start_term(c, "a", noon))
    await database.write(lambda c: c.execute(delete(leadership_table)))
    with pytest.raises(LeadershipLost, match="there is no leader"):
        await database.write(lambda c: leadership.fence(c, first))
    second = await database.write(lambda c: leadership.start_term(c, "b", noon + timedelta(minutes=1)))
    assert second > first


async def test_terms_grow_after_a_leader_is_deposed_even_if_the_clock_was_set_back(database: Database):
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    first = await database.write(lambda c: leadership.start_term(c, "a", noon))
    await database.write(leadership.depose)
    async with database.read() as connection:
        assert await leadership.latest(connection) is None
    with pytest.raises(LeadershipLost, match="there is no leader"):
        await database.write(lambda c: leadership.fence(c, first))
    second = await database.write(lambda c: leadership.start_term(c, "b", noon - timedelta(hours=1)))
    assert second > first


async def test_an_empty_database_has_no_leader(database: Database):
    async with database.read() as connection:
        assert await leadership.current_term(connection) == 0
    with pytest.raises(LeadershipLost, match="there is no leader"):
        await database.write(lambda c: leadership.fence(c, 1))


async def test_schedulers_that_start_at_the_same_time_get_different_terms(database: Database, migrated_url: str):
    others = [Database(migrated_url) for _ in range(4)]
    terms = await asyncio.gather(
        *(other.write(lambda c: leadership.start_term(c, "x", now())) for other in (database, *others))
    )
    for other in others:
        await other.close()
    assert len(set(terms)) == 5


async def test_servers_that_start_at_the_same_time_create_pools_and_slot_types_once(
    database: Database, migrated_url: str
):
    async def seed(connection: Connection) -> pools.Pool:
        await slot_types.ensure_built_in(connection)
        return await pools.ensure(connection, "default", runtimes=["process"], simulated=False, now=now())

    others = [Database(migrated_url) for _ in range(4)]
    made = await asyncio.gather(*(other.write(seed) for other in (database, *others)))
    for other in others:
        await other.close()
    assert len({pool.id for pool in made}) == 1
    async with database.read() as connection:
        assert (await connection.execute(select(func.count()).select_from(pools_table))).scalar_one() == 1


async def test_a_deposed_scheduler_writes_nothing(harness: Harness):
    await harness.node("n1")
    workload_id = await harness.submit("web")
    decisions = await harness.propose()
    newer = await harness.start_term("newer")
    with pytest.raises(LeadershipLost, match=f"term {newer} is held by newer"):
        await harness.bind(decisions)
    assert await harness.statuses(workload_id) == ["PENDING"]
    assert (await harness.workload(workload_id)).version == 1
    assert await harness.findings() == []


@on_postgresql
async def test_a_new_term_waits_for_the_transactions_of_the_old_one(harness: Harness):
    checked, release = asyncio.Event(), asyncio.Event()

    async def old_leader(connection: Connection) -> None:
        await leadership.check_term(connection, harness.leadership.term)
        checked.set()
        await release.wait()
        await pools.ensure(connection, "late", runtimes=[], simulated=False, now=now())

    writing = asyncio.create_task(harness.database.write(old_leader))
    await checked.wait()
    taking = asyncio.create_task(harness.start_term("newer"))
    while not await someone_waits_for_a_lock(harness.database):
        assert not taking.done()
    release.set()
    await writing
    assert await taking > harness.leadership.term
