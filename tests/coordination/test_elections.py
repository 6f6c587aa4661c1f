"""The ways to choose a leader keep the same promises."""

import asyncio
import os
import signal as signals
from collections.abc import AsyncIterator, Callable, Iterator
from typing import cast
from uuid import uuid4

import aiohttp
import pytest
from sqlalchemy.exc import DBAPIError

from mooring.coordination import election
from mooring.coordination.election import RENEWALS, SAFE_PART, Alone, Claim, Election, Lease
from mooring.coordination.etcd import signals as etcd_signals
from mooring.coordination.etcd.client import Compacted, EtcdClient, EtcdError, endpoints
from mooring.coordination.etcd.election import EtcdElection
from mooring.coordination.etcd.signals import Announcer
from mooring.coordination.leadership import Leadership
from mooring.coordination.lease import LeaseElection
from mooring.coordination.signals import Signal
from mooring.model.errors import LeadershipLost
from mooring.store.control import leadership
from mooring.store.core.engine import Database
from tests.servers import running_etcd
from tests.store.databases import empty

# Short where a test waits for its end, otherwise long enough that no pause of the machine looks like an end.
TTL = 3.0
RENEWED_TTL = 5.0
LONG = 60.0

Candidates = Callable[[str, float], Election]


@pytest.fixture
def emptied_url(shared_postgres_url: str) -> Iterator[str]:
    yield shared_postgres_url
    empty(shared_postgres_url)


@pytest.fixture
async def postgresql(emptied_url: str) -> AsyncIterator[Database]:
    database = Database(emptied_url)
    yield database
    await database.close()


@pytest.fixture
async def etcd(etcd_endpoint: str) -> AsyncIterator[EtcdClient]:
    client = EtcdClient([_address(etcd_endpoint)])
    yield client
    await client.close()


@pytest.fixture(params=["database", "etcd"])
def candidate(request: pytest.FixtureRequest, postgresql: Database, etcd: EtcdClient) -> Candidates:
    """Makes candidates for one and the same lease."""
    if request.param == "database":
        return lambda name, ttl: LeaseElection(postgresql, name, ttl)
    key = f"/test/{uuid4()}".encode()
    return lambda name, ttl: EtcdElection(etcd, name, ttl, key=key)


async def test_campaigning_renewing_and_resigning_send_no_signal(postgresql: Database):
    notified = Signal()
    postgresql.on_commit.append(notified.send)
    lease = await LeaseElection(postgresql, "first", TTL).campaign()
    first_deadline = lease._deadline
    renewed = asyncio.create_task(lease.until_lost())
    async with asyncio.timeout(LONG):
        while lease._deadline == first_deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    renewed.cancel()
    await lease.resign()
    assert notified.count == 0


async def test_one_leads_and_the_next_follows_at_once_when_it_resigns(candidate: Candidates):
    first = await candidate("first", LONG).campaign()
    waiting = asyncio.create_task(candidate("second", LONG).campaign())
    await asyncio.sleep(0.3)
    assert first.safe
    assert not waiting.done()
    await first.resign()
    assert not first.safe
    second = await asyncio.wait_for(waiting, LONG / 2)
    assert second.safe
    await second.resign()


@pytest.mark.slow
async def test_a_leader_that_renews_stays_and_a_silent_one_stops_before_its_successor_starts(
    candidate: Candidates,
):
    first = await candidate("first", RENEWED_TTL).campaign()
    waiting = asyncio.create_task(candidate("second", RENEWED_TTL).campaign())
    keeping = asyncio.create_task(first.until_lost())
    await asyncio.sleep(RENEWED_TTL * 1.2)
    assert first.safe
    assert not waiting.done()
    keeping.cancel()
    second = await asyncio.wait_for(waiting, LONG)
    assert not first.safe
    assert second.safe
    # Who was replaced notices it when it renews, and not by luck.
    await asyncio.wait_for(first.until_lost(), LONG)
    await second.resign()


@pytest.mark.slow
async def test_a_former_leaders_resignation_leaves_its_successor_alone(candidate: Candidates):
    first = await candidate("first", TTL).campaign()
    second = await asyncio.wait_for(candidate("second", LONG).campaign(), LONG)
    await first.resign()
    keeping = asyncio.create_task(second.until_lost())
    await asyncio.sleep(TTL / 2)
    assert second.safe
    keeping.cancel()
    await second.resign()


async def test_a_single_server_leads_without_waiting():
    lease = await Alone().campaign()
    assert lease.safe
    await lease.resign()
    assert not lease.safe


async def test_a_lease_that_cannot_be_renewed_expires_by_the_local_clock(monkeypatch: pytest.MonkeyPatch):
    clock = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    async def renew() -> bool:
        raise ConnectionError("nobody answers")

    async def release(_reason: str) -> None:
        raise ConnectionError("nobody answers")

    monkeypatch.setattr(election, "monotonic", lambda: clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    lease = Lease(Claim("test"), ttl=LONG, renew=renew, release=release)
    await lease.until_lost()
    assert clock == pytest.approx(LONG * SAFE_PART)
    assert not lease.safe
    await lease.resign()


async def test_a_leader_that_cannot_reach_the_database_loses_its_lease(monkeypatch: pytest.MonkeyPatch):
    clock = 0.0
    reached = 2

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds

    async def renew() -> bool:
        return True

    async def release(_reason: str) -> None:
        return None

    async def needed() -> None:
        nonlocal reached
        reached -= 1
        if reached < 0:
            raise ConnectionError("nobody answers")

    monkeypatch.setattr(election, "monotonic", lambda: clock)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    lease = Lease(Claim("test"), ttl=LONG, renew=renew, release=release)
    await lease.until_lost(needed)
    assert clock == pytest.approx(LONG * 2 / RENEWALS + LONG * SAFE_PART)
    assert not lease.safe


async def test_every_kind_of_coordination_continues_with_a_higher_term(postgresql: Database, etcd: EtcdClient):
    candidate = Leadership(postgresql, "me")
    key = f"/test/{uuid4()}".encode()
    kinds: list[Election] = [
        LeaseElection(postgresql, "me", LONG),
        EtcdElection(etcd, "me", LONG, key=key),
        LeaseElection(postgresql, "me", LONG),
    ]
    terms = []
    for kind in kinds:
        lease = await kind.campaign()
        terms.append(await candidate.begin_term(lease.claim))
        await lease.resign()
    # A new etcd has no earlier data.
    with running_etcd() as another:
        client = EtcdClient([_address(another.endpoint)])
        lease = await EtcdElection(client, "me", LONG, key=key).campaign()
        terms.append(await candidate.begin_term(lease.claim))
        await lease.resign()
        await client.close()
    assert terms == sorted(set(terms))
    with pytest.raises(LeadershipLost):
        await postgresql.write(lambda c: leadership.check_term(c, terms[0]))


async def test_a_leader_that_froze_in_the_middle_of_a_commit_is_ended_by_its_successor(emptied_url: str):
    frozen, living = Database(emptied_url, name="frozen"), Database(emptied_url, name="living")
    candidate = Leadership(frozen, "frozen")
    term = await candidate.begin_term()

    async def commit() -> None:
        async with frozen.engine.begin() as connection:
            await leadership.check_term(connection, term)
            # Its term is locked, and it does not continue.
            assert await asyncio.wait_for(Leadership(living, "living").begin_term(), LONG) > term
            await leadership.check_term(connection, term)

    with pytest.raises(DBAPIError):
        await commit()
    with pytest.raises(LeadershipLost):
        await frozen.write(lambda c: leadership.check_term(c, term))
    await frozen.close()
    await living.close()


@pytest.mark.slow
async def test_etcd_frozen_ends_a_leadership_by_ones_own_clock():
    with running_etcd() as server:
        client = EtcdClient([_address(server.endpoint)], timeout=1.0)
        lease = await EtcdElection(client, "me", TTL).campaign()
        os.kill(server.process.pid, signals.SIGSTOP)
        try:
            await asyncio.wait_for(lease.until_lost(), LONG)
            assert not lease.safe
        finally:
            os.kill(server.process.pid, signals.SIGCONT)
        await client.close()


async def test_a_watch_delivers_all_changes_since_a_revision_or_reports_a_gap(etcd: EtcdClient, etcd_endpoint: str):
    key = f"/test/{uuid4()}".encode()
    first = (await etcd.put(key, b"1")).header.revision
    for value in (b"2", b"3"):
        last = (await etcd.put(key, value)).header.revision
    seen: list[bytes] = []
    async for answer in etcd.watch(key, since=first):
        seen += [event.kv.value for event in answer.events]
        if len(seen) == 3:
            break
    assert seen == [b"1", b"2", b"3"]
    await _compact(etcd_endpoint, last)
    with pytest.raises(Compacted):
        async for _ in etcd.watch(key, since=first):
            pass


async def test_signals_pass_through_etcd_and_many_commits_make_few_announcements(etcd: EtcdClient):
    key = f"/test/{uuid4()}".encode()
    signal = Signal()
    listening = asyncio.create_task(etcd_signals.listen(etcd, signal, key=key))
    announcer = Announcer(etcd, "me", key=key)
    running = asyncio.create_task(announcer.run())
    seen = await signal.wait(LONG)
    for _ in range(100):
        announcer.announce()
    assert await signal.wait(LONG, seen) > seen
    await asyncio.sleep(0.2)
    assert (await etcd.get(key)).kvs[0].version < 10
    listening.cancel()
    running.cancel()


async def test_announcement_that_failed_is_made_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(etcd_signals, "_AGAIN_SECONDS", 0.01)
    tries, announced = [EtcdError("away"), EtcdError("away"), None], asyncio.Event()

    class Etcd:
        async def put(self, key: bytes, value: bytes) -> None:
            if (problem := tries.pop(0)) is not None:
                raise problem
            announced.set()

    announcer = Announcer(cast(EtcdClient, Etcd()), "me")
    running = asyncio.create_task(announcer.run())
    announcer.announce()
    async with asyncio.timeout(LONG):
        await announced.wait()
    running.cancel()


async def test_an_etcd_that_does_not_answer_is_an_error_in_time():
    client = EtcdClient(["127.0.0.1:1"], timeout=0.5)
    with pytest.raises(EtcdError):
        await client.get(b"/mooring")
    await client.close()


def test_hosts_are_read_as_people_write_them():
    assert endpoints("etcd", 2379) == ["etcd:2379"]
    assert endpoints("127.0.0.1, 127.0.0.1:2380", 2379) == ["127.0.0.1:2379", "127.0.0.1:2380"]


async def _compact(endpoint: str, revision: int) -> None:
    """Forget the history before a revision, as an operator does; Mooring itself never asks for it."""
    async with aiohttp.ClientSession(endpoint, raise_for_status=True) as session:
        await session.post("/v3/kv/compaction", json={"revision": str(revision), "physical": True})


def _address(endpoint: str) -> str:
    return endpoint.removeprefix("http://")
