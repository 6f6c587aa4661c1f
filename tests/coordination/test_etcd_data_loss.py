"""An etcd that was wiped, restored from an older snapshot or compacted still elects a leader and passes signals."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TypeVar

import aiohttp
import pytest
from structlog.testing import capture_logs

from mooring.coordination.election import Election, Lease
from mooring.coordination.etcd import signals as etcd_signals
from mooring.coordination.etcd.client import EtcdClient, EtcdError, Rewound
from mooring.coordination.etcd.election import EtcdElection
from mooring.coordination.etcd.guarded import GuardedElection
from mooring.coordination.etcd.signals import Announcer
from mooring.coordination.lease import LeaseRow
from mooring.coordination.signals import Signal
from mooring.store.control import leadership
from mooring.store.core.engine import Database
from tests.servers import EtcdHost, etcd_host
from tests.store.databases import empty

TTL = 3.0
PATIENT = 120.0
"""Seconds; reached by a candidate that waits without an end alone."""
MANY = 200
"""Writes that put etcd's revision out of reach of a new one."""

T = TypeVar("T")
Lose = Callable[[EtcdHost], None]


@pytest.fixture
def etcd() -> Iterator[EtcdHost]:
    with etcd_host() as host:
        yield host


@pytest.fixture
def emptied_url(shared_postgres_url: str) -> Iterator[str]:
    yield shared_postgres_url
    empty(shared_postgres_url)


@pytest.fixture
async def database(emptied_url: str) -> AsyncIterator[Database]:
    database = Database(emptied_url)
    yield database
    await database.close()


def _wiped(host: EtcdHost) -> None:
    host.stop()
    host.wipe()
    host.start()


def _restored(host: EtcdHost) -> None:
    host.stop()
    host.restore()
    host.start()


async def _advance(host: EtcdHost) -> None:
    """Save the data, then write so much that the saved revision is far behind."""
    await asyncio.to_thread(host.stop)
    await asyncio.to_thread(host.save)
    await asyncio.to_thread(host.start)
    async with _client(host) as client:
        for _ in range(MANY):
            await client.put(b"/test/filler", b"")


@asynccontextmanager
async def _client(host: EtcdHost) -> AsyncIterator[EtcdClient]:
    client = EtcdClient([host.address])
    try:
        yield client
    finally:
        await client.close()


async def _watched(host: EtcdHost) -> None:
    """Return once a key is watched."""
    async with aiohttp.ClientSession(f"http://{host.address}") as session, asyncio.timeout(PATIENT):
        while True:
            async with session.get("/metrics") as answer:
                if re.search(r"^etcd_debugging_mvcc_watcher_total [1-9]", await answer.text(), re.MULTILINE):
                    return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _stored(lease: Lease) -> AsyncIterator[None]:
    keeping = asyncio.create_task(lease.until_lost())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


losses = pytest.mark.parametrize("lose", [_wiped, _restored])


@pytest.mark.slow
@losses
async def test_a_standby_is_elected_when_the_leader_dies_after_etcd_lost_its_data(etcd: EtcdHost, lose: Lose):
    await _advance(etcd)
    async with _client(etcd) as first, _client(etcd) as second:
        leader = await EtcdElection(first, "leader", TTL).campaign()
        waiting = asyncio.create_task(EtcdElection(second, "standby", TTL).campaign())
        await _watched(etcd)
        await asyncio.to_thread(lose, etcd)
        # The leader notices that its key is gone, and leads again before the standby finds the key free, or after.
        await asyncio.wait_for(leader.until_lost(), PATIENT)
        again = asyncio.create_task(EtcdElection(first, "leader", TTL).campaign())
        done, _ = await asyncio.wait({again, waiting}, timeout=PATIENT, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        (elected,) = done
        # Nobody renews it: its holder died.
        successor = waiting if elected is again else again
        assert (await asyncio.wait_for(successor, PATIENT)).safe
        for task in (again, waiting):
            await task.result().resign()


@pytest.mark.slow
@losses
async def test_signals_pass_again_after_etcd_lost_its_data(etcd: EtcdHost, lose: Lose):
    await _advance(etcd)
    async with _client(etcd) as one, _client(etcd) as another:
        signal = Signal()
        announcer = Announcer(another, "another")
        announcing = asyncio.create_task(announcer.run())
        listening = asyncio.create_task(etcd_signals.listen(one, signal))
        await _watched(etcd)
        await asyncio.to_thread(lose, etcd)
        seen = signal.count
        async with asyncio.timeout(PATIENT):
            for _ in range(3):
                while signal.count == seen:
                    announcer.announce()
                    await signal.wait(2.0, seen)
                seen = signal.count
        for task in (announcing, listening):
            task.cancel()


async def test_a_watch_from_a_revision_that_etcd_has_not_reached_is_refused(etcd: EtcdHost):
    async with _client(etcd) as client:
        revision = (await client.put(b"/test", b"1")).header.revision
        with pytest.raises(Rewound):
            async with aclosing(client.watch(b"/test", since=revision + MANY)) as watch:
                await asyncio.wait_for(anext(watch), PATIENT)


async def test_a_key_is_read_again_by_a_timer_when_its_watch_is_silent(etcd: EtcdHost, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mooring.coordination.etcd.client._RELIST_SECONDS", 0.2)
    async with _client(etcd) as client, _client(etcd) as another:
        really = client.watch
        # As a watch that resumed beyond the end of history: no event, no error, no end.
        monkeypatch.setattr(client, "watch", lambda key, since: really(b"/test/other", since=since))
        async with aclosing(client.observe(b"/test")) as values, asyncio.timeout(PATIENT):
            assert await anext(values) is None
            await another.put(b"/test", b"1")
            found = await anext(values)
            assert found is not None
            assert found.value == b"1"


async def test_a_leader_gives_up_when_its_key_is_gone_although_its_lease_lives(etcd: EtcdHost):
    async with _client(etcd) as client:
        lease = await EtcdElection(client, "leader", TTL).campaign()
        await client.delete(b"/mooring/leader")
        await asyncio.wait_for(lease.until_lost(), PATIENT)
        assert not lease.safe
        assert "its record was deleted" in lease.problem


@pytest.mark.slow
async def test_data_loss_is_logged_once(etcd: EtcdHost):
    await _advance(etcd)
    async with _client(etcd) as client:
        await client.get(b"/test")
        await asyncio.to_thread(_restored, etcd)
        with capture_logs() as logged:
            async with asyncio.timeout(PATIENT):
                while True:
                    try:
                        await client.get(b"/test")
                        break
                    except EtcdError:
                        await asyncio.sleep(0.05)
            for _ in range(3):
                await client.get(b"/test")
    assert sum("etcd lost data, or was restored" in entry["event"] for entry in logged) == 1


def _guarded(database: Database, client: EtcdClient, name: str, fallback_seconds: float | None = None) -> Election:
    lease = LeaseRow(database, name, TTL)
    return GuardedElection(EtcdElection(client, name, TTL), lease, fallback_seconds=fallback_seconds)


async def test_two_candidates_that_etcd_chose_never_lead_at_the_same_time(etcd: EtcdHost, database: Database):
    async with _client(etcd) as first, _client(etcd) as second:
        leader = await _guarded(database, first, "leader").campaign()
        waiting = asyncio.create_task(_guarded(database, second, "standby").campaign())
        # As after a wipe: the key is free, and its former owner does not know yet.
        await first.delete(b"/mooring/leader")
        await _until(lambda: _owner(first))
        assert not (leader.safe and waiting.done())
        await asyncio.wait_for(leader.until_lost(), PATIENT)
        assert not leader.safe
        await leader.resign("gone")
        lease = await asyncio.wait_for(waiting, PATIENT)
        assert lease.safe
        assert not leader.safe
        await lease.resign()


@pytest.mark.slow
async def test_etcd_away_for_long_enough_leaves_the_election_to_the_database_and_takes_it_back(
    etcd: EtcdHost, database: Database
):
    async with _client(etcd) as first, _client(etcd) as second:
        await asyncio.to_thread(etcd.stop)
        with_fallback = [_guarded(database, client, name, 0.5) for client, name in ((first, "one"), (second, "two"))]
        without = asyncio.create_task(_guarded(database, second, "three").campaign())
        campaigns = [asyncio.create_task(each.campaign()) for each in with_fallback]
        done, _ = await asyncio.wait(campaigns, timeout=PATIENT, return_when=asyncio.FIRST_COMPLETED)
        (elected,) = done
        lease = elected.result()
        assert lease.claim.kind == "database"
        async with _stored(lease):
            await asyncio.to_thread(etcd.start)
            # Either server may get the key first: the leader stays, or resigns and then the other leads. Never both.
            (other,) = (each for each in campaigns if each is not elected)
            await _until(lambda: _owner(first))
            for election in with_fallback:
                await _until(partial(_reaches_etcd, election))
            assert not (lease.safe and (other.done() or without.done()))
        await lease.resign("over")
        done, _ = await asyncio.wait({other, without}, timeout=PATIENT, return_when=asyncio.FIRST_COMPLETED)
        assert [each.result().claim.kind for each in done] == ["etcd"]
        for campaign in {other, without} - done:
            campaign.cancel()
            await asyncio.gather(campaign, return_exceptions=True)
        for campaign in done:
            await campaign.result().resign()


async def _reaches_etcd(election: Election) -> bool:
    return election.outage is None


async def _until(condition: Callable[[], Awaitable[T | None]]) -> T:
    """The first answer that is true."""
    async with asyncio.timeout(PATIENT):
        while not (answer := await condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return answer


async def _owner(client: EtcdClient) -> bytes | None:
    """The candidate that etcd chose, once it answers."""
    try:
        found = (await client.get(b"/mooring/leader")).kvs
    except EtcdError:
        return None
    return found[0].value if found else None


@pytest.mark.slow
async def test_the_database_records_when_and_why_leadership_was_lost(etcd: EtcdHost, database: Database):
    async def vacancy() -> leadership.Vacancy | None:
        async with database.read() as connection:
            return await leadership.vacancy(connection)

    found = await vacancy()
    assert found is not None
    assert (found.since, found.reason) == (None, "no server has led yet")
    async with _client(etcd) as client:
        lease = await _guarded(database, client, "one").campaign()
        assert await vacancy() is None
        await lease.resign("one: etcd does not answer")
        found = await vacancy()
        assert found is not None
        assert found.since is not None
        assert found.reason == "one: etcd does not answer"
        lease = await _guarded(database, client, "two").campaign()
        found = await _until(vacancy)
        assert found.reason == "two stopped renewing its lease"
