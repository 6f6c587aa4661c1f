"""Terms of leadership: they only grow, and an old one cannot write."""

import asyncio

import pytest
from sqlalchemy import func, select

from mooring.clock import now
from mooring.model.errors import LeadershipLost
from mooring.store import leadership, pools, slot_types
from mooring.store.engine import Connection, Database
from mooring.store.tables import pools as pools_table
from tests.store.databases import on_postgresql
from tests.store.harbour import Harbour, someone_waits_for_a_lock


async def test_a_term_only_grows(database: Database):
    terms = [
        await database.write(lambda c, holder=holder: leadership.take_office(c, holder, now()))  # type: ignore[misc]
        for holder in ("a", "b", "a")
    ]
    assert terms == [1, 2, 3]
    async with database.read() as connection:
        assert await leadership.current_term(connection) == 3


async def test_nobody_leads_an_empty_database(database: Database):
    async with database.read() as connection:
        assert await leadership.current_term(connection) == 0
    with pytest.raises(LeadershipLost, match="nobody"):
        await database.write(lambda c: leadership.check_term(c, 1))


async def test_schedulers_that_start_at_once_get_terms_of_their_own(database: Database, migrated_url: str):
    others = [Database(migrated_url) for _ in range(4)]
    terms = await asyncio.gather(
        *(other.write(lambda c: leadership.take_office(c, "x", now())) for other in (database, *others))
    )
    for other in others:
        await other.close()
    assert sorted(terms) == [1, 2, 3, 4, 5]


async def test_servers_that_start_at_once_make_pools_and_slots_once(database: Database, migrated_url: str):
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


async def test_a_deposed_scheduler_writes_nothing(harbour: Harbour):
    await harbour.node("n1")
    workload_id = await harbour.submit("web")
    decisions = await harbour.propose()
    await harbour.take_office("newer")
    with pytest.raises(LeadershipLost, match="term 2 is held by newer"):
        await harbour.bind(decisions)
    assert await harbour.statuses(workload_id) == ["PENDING"]
    assert (await harbour.workload(workload_id)).version == 1
    assert await harbour.findings() == []


@on_postgresql
async def test_a_new_term_waits_for_the_transactions_of_the_old_one(harbour: Harbour):
    checked, release = asyncio.Event(), asyncio.Event()

    async def old_leader(connection: Connection) -> None:
        await leadership.check_term(connection, harbour.office.term)
        checked.set()
        await release.wait()
        await pools.ensure(connection, "late", runtimes=[], simulated=False, now=now())

    writing = asyncio.create_task(harbour.database.write(old_leader))
    await checked.wait()
    taking = asyncio.create_task(harbour.take_office("newer"))
    while not await someone_waits_for_a_lock(harbour.database):
        assert not taking.done()
    release.set()
    await writing
    assert await taking == 2
