"""What an agent is told: first how often to speak and how to look after its health, then its tasks; all again when
it changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, update

from mooring.api import hub as hub_module
from mooring.api.agent_session import AgentSession
from mooring.api.hub import AgentHub
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.model.heartbeats import Pace
from mooring.model.pools import HealthProgram, PoolPolicy
from mooring.store import pools
from mooring.store.tables import nodes as node_rows
from mooring.wire import agent as wire
from mooring.wire.agent import Desired, Facts, FromServer, Heartbeat, Hello, Welcome
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

FACTS = Facts(
    hostname="n1", architecture="x86_64", capacity={"cpu": 8000}, runtimes=["process"], boot_id="b", agent_version="1"
)


class Connected:
    """An agent's end of the stream."""

    def __init__(self, harbour: Harbour, node_id: UUID) -> None:
        self.told: asyncio.Queue[FromServer] = asyncio.Queue()
        self.session = AgentSession(node_id, "n1", harbour.pool.id, "", self.told.put)

    async def hears(self) -> FromServer:
        return await asyncio.wait_for(self.told.get(), timeout=30)


@asynccontextmanager
async def connected(
    harbour: Harbour, *, protocol: int = wire.PROTOCOL, pace: Pace | None = None
) -> AsyncIterator[Connected]:
    signal = Signal()
    harbour.database.on_commit.append(signal.send)
    hub = AgentHub(harbour.database, signal, pace)
    agent = Connected(harbour, await harbour.node("n1"))
    await hub.enter(agent.session, Hello(protocol=protocol, facts=FACTS))
    loops = [asyncio.create_task(loop) for loop in (hub.follow(), hub.keep_informed(agent.session))]
    try:
        yield agent
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


@on_sqlite
async def test_an_agent_is_welcomed_before_it_gets_orders(harbour: Harbour):
    async with connected(harbour) as agent:
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        assert (welcome.protocol, welcome.heartbeat_seconds, welcome.health) == (wire.PROTOCOL, 5.0, None)
        assert isinstance(await agent.hears(), Desired)


@on_sqlite
async def test_an_agent_of_the_version_before_gets_orders_alone(harbour: Harbour):
    async with connected(harbour, protocol=wire.OLDEST_PROTOCOL) as agent:
        assert isinstance(await agent.hears(), Desired)


@on_sqlite
async def test_the_pause_between_heartbeats_grows_with_the_cluster(harbour: Harbour):
    for number in range(2, 9):
        await harbour.node(f"n{number}")
    await harbour.node("pretended", simulated=True)
    async with connected(harbour, pace=Pace(least_seconds=1, most_per_second=2)) as agent:
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        assert welcome.heartbeat_seconds == 4.0


@on_sqlite
async def test_a_new_health_program_of_its_pool_is_told_at_once(harbour: Harbour):
    async with connected(harbour) as agent:
        assert isinstance(await agent.hears(), Welcome)
        assert isinstance(await agent.hears(), Desired)
        policy = PoolPolicy("locality", health=HealthProgram(("check", "--all"), interval_seconds=30))
        await harbour.database.write(lambda c: pools.set_policy(c, "default", policy, now()))
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        expected = wire.HealthProgram(command=["check", "--all"], interval_seconds=30, timeout_seconds=10)
        assert welcome.health == expected


async def test_no_heartbeat_spoils_those_that_are_written_with_it(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub_module, "_BEAT_SECONDS", 0.01)
    hub, problems = AgentHub(harbour.database, Signal()), {"n1": "no\x00 \x1b[31mdisk\n", "n2": "no disk"}
    written = asyncio.Event()
    for name, problem in problems.items():
        agent = Connected(harbour, await harbour.node(name))
        hub.beat(agent.session, Heartbeat(cpu_percent=1, memory_percent=2, disk_percent=3, problem=problem))
    await harbour.database.write(lambda c: c.execute(update(node_rows).values(credential_hash="")))
    harbour.database.on_commit.append(written.set)
    writing = asyncio.create_task(hub.write_heartbeats())
    await asyncio.wait_for(written.wait(), timeout=30)
    writing.cancel()
    assert [row.reason for row in await harbour.rows(select(node_rows).order_by(node_rows.c.name))] == [
        "no [31mdisk",
        "no disk",
    ]


@on_sqlite
async def test_when_all_agents_come_at_once_a_few_at_a_time_come_in(harbour: Harbour, monkeypatch: pytest.MonkeyPatch):
    hub = AgentHub(harbour.database, Signal())
    inside, most = 0, 0

    async def write(_: object) -> list[UUID]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return []

    monkeypatch.setattr(harbour.database, "write", write)
    agents = [Connected(harbour, uuid4()) for _ in range(200)]
    await asyncio.gather(*(hub.enter(agent.session, Hello(protocol=wire.PROTOCOL, facts=FACTS)) for agent in agents))
    assert most == 8
    assert all(agent.session.changed.is_set() for agent in agents)
