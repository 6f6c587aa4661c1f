"""Take-over at scale: 5,000 nodes, 100,000 running tasks, PostgreSQL, two schedulers, one of them a warm standby.

Measured from the end of the leader (killed or stopped) to the first placement that its successor commits, while work
keeps arriving: with election through etcd, and with a row in the database.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil
from sqlalchemy import func, select

from benchmarks import population
from mooring.api.auth.passwords import Passwords
from mooring.client import AsyncClient
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.scheduling.compiled import compilation
from mooring.server import interpreter
from mooring.store import tables
from mooring.store.control import leadership
from mooring.store.core import schema
from mooring.store.core.engine import Database
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import running_etcd, running_postgres
from tests.system.servers import PASSWORD, Server

NODES = 5000
TASKS = 100_000
LOADED_AT_ONCE = 10_000
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=1GB", "max_wal_size=4GB")
SHORT_SECONDS, DEFAULT_SECONDS = 5, 15
ROUNDS = {SHORT_SECONDS: 5, DEFAULT_SECONDS: 3}
WATCHED_SECONDS = 10.0
FOLLOWED = 1000
"""Tasks that arrive while the standby is measured."""
_PAUSE_SECONDS = 0.05
_POLL_SECONDS = 0.005
_MAX_SECONDS = 120.0
_LEADS = "mooring_leading 1.0"
_WARM = "mooring_view_warm 1.0"


@dataclass(frozen=True, slots=True)
class Setting:
    """The coordination backend, and the lease time of a silent leader."""

    kind: str
    ttl_seconds: int
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Round:
    seconds: float
    """From the end of the leader to the first bind of the other."""
    elected_seconds: float
    """Seconds of these after the successor was elected."""

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.elected_seconds:.2f} s after the election)"


def run() -> dict[str, float]:
    interpreter.tune()
    # The servers share what is compiled here: compiling beside them would take a core.
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    with (
        running_postgres(DURABLE) as postgres,
        running_etcd() as etcd,
        TemporaryDirectory(prefix="mooring-bench-") as folder,
    ):
        url = postgres.url(postgres.create_database())
        started = time.perf_counter()
        asyncio.run(_load(url))
        figures = {"load_seconds": time.perf_counter() - started}
        through_etcd = {"ETCD_HOST": "127.0.0.1", "ETCD_PORT": str(etcd.port)}
        for setting in (
            Setting("etcd", DEFAULT_SECONDS, through_etcd),
            Setting("etcd", SHORT_SECONDS, through_etcd),
            Setting("database", SHORT_SECONDS, {}),
        ):
            print(f"  {setting.kind}, {setting.ttl_seconds} s …", file=sys.stderr, flush=True)
            figures |= asyncio.run(_measure(url, Path(folder), setting))
    return figures


async def _load(url: str) -> None:
    database = Database(url, statement_timeout_seconds=600)
    try:
        await schema.upgrade(database.engine)
        principal, pool, term = await population.seed(database, password_hash=await Passwords().hash(PASSWORD))
        placed_on = await population.add_nodes(database, pool.id, NODES)
        for _ in range(TASKS // LOADED_AT_ONCE):
            await population.submit(database, principal, pool.id, LOADED_AT_ONCE, population.REQUEST)
            decisions = await population.decide(database, placed_on)
            await population.bind(database, decisions, term, pool)
            await population.move(database, decisions, TaskStatus.RUNNING)
        await population.check(database)
    finally:
        await database.close()


async def _measure(url: str, folder: Path, setting: Setting) -> dict[str, float]:
    environment = {
        "MOORING_ADMIN_PASSWORD": PASSWORD,
        "MOORING_SIGNING_KEY": "one key that both of the servers share",
        "LEADER_LEASE_TTL": str(setting.ttl_seconds),
        **setting.environment,
    }
    flags = ("--no-agent", "--demo", "--log-level", "warning", "--database", url)
    pair = [
        Server(folder / f"{setting.kind}-{setting.ttl_seconds}-{name}", flags, environment) for name in ("one", "two")
    ]
    prefix = f"{setting.kind}_ttl_{setting.ttl_seconds}"
    figures: dict[str, float] = {}
    database = Database(url, statement_timeout_seconds=600)
    with ExitStack() as stack:
        for server in pair:
            server.start()
            stack.callback(_end, server)
        figures |= await _standby(pair, prefix)
        for how, name, bound in (
            (signal.SIGKILL, "killed", setting.ttl_seconds + 2.0),
            (signal.SIGTERM, "stopped", 1.0),
        ):
            rounds = [await _take_over(database, pair, how) for _ in range(ROUNDS[setting.ttl_seconds])]
            print(f"    {name}: {', '.join(map(str, rounds))}", file=sys.stderr, flush=True)
            figures |= {
                f"{prefix}_{name}_p50_seconds": median(each.seconds for each in rounds),
                f"{prefix}_{name}_max_seconds": max(each.seconds for each in rounds),
                f"{prefix}_{name}_bound_seconds": bound,
                f"{prefix}_{name}_election_to_bind_p50_seconds": median(each.elected_seconds for each in rounds),
            }
        await population.check(database)
    await database.close()
    return figures


async def _standby(pair: Sequence[Server], prefix: str) -> dict[str, float]:
    """The cost of a standby: until it is warm, while idle, and while it follows events."""
    started = time.perf_counter()
    leader, standby = await _settled(pair)
    warm_seconds = time.perf_counter() - started
    begun = standby.cpu_seconds()
    await asyncio.sleep(WATCHED_SECONDS)
    watched = standby.cpu_seconds()
    async with AsyncClient(leader.url) as client:
        await client.login("admin", PASSWORD)
        await client.submit_batch([_request()] * FOLLOWED)
        await asyncio.sleep(WATCHED_SECONDS)
    return {
        f"{prefix}_standby_warm_after_ready_seconds": warm_seconds,
        f"{prefix}_standby_idle_cpu_percent": 100 * (watched - begun) / WATCHED_SECONDS,
        f"{prefix}_standby_cpu_seconds_for_1000_tasks": (standby.cpu_seconds() - watched) * 1000 / FOLLOWED,
        f"{prefix}_standby_resident_mib": psutil.Process(standby.pid).memory_info().rss / 2**20,
    }


async def _take_over(database: Database, pair: Sequence[Server], how: signal.Signals) -> Round:
    """End the leader of the pair, wait until the other has bound a task, and start the ended one again."""
    leader, standby = await _settled(pair)
    async with database.read() as connection:
        term = await leadership.current_term(connection)
        position = (await connection.execute(select(func.max(tables.events.c.revision)))).scalar_one()
    async with _work_comes_in(standby):
        assert leader.process is not None
        leader.process.send_signal(how)
        ended = time.perf_counter()
        await _first_bind(database, term, position, ended + _MAX_SECONDS)
        seconds, bound_at = time.perf_counter() - ended, now()
    async with database.read() as connection:
        taken_at = (await connection.execute(select(tables.leadership.c.taken_at))).scalar_one()
    leader.process.wait(_MAX_SECONDS)
    leader.start()
    return Round(seconds, (bound_at - taken_at).total_seconds())


@asynccontextmanager
async def _work_comes_in(server: Server) -> AsyncIterator[None]:
    """Submit small workloads one after the other to the next leader."""
    async with AsyncClient(server.url) as client:
        await client.login("admin", PASSWORD)
        # A server that is asked for the first time has much to prepare, and this one is in use.
        await client.submit(_request())

        async def submit() -> None:
            while True:
                await asyncio.sleep(_PAUSE_SECONDS)
                await client.submit(_request())

        submitting = asyncio.create_task(submit())
        try:
            yield
        finally:
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)


def _request() -> WorkloadRequest:
    container = {"command": ["sleep", "60"], "resources": {"cpu": "100m", "memory": "64Mi"}}
    return WorkloadRequest.model_validate({"containers": [container]})


async def _first_bind(database: Database, term: int, position: int, deadline: float) -> None:
    placed = select(func.count()).where(
        tables.events.c.revision > position, tables.events.c.kind == TaskStatus.SCHEDULED, tables.events.c.term > term
    )
    while time.perf_counter() < deadline:
        async with database.read() as connection:
            if (await connection.execute(placed)).scalar_one():
                return
        await asyncio.sleep(_POLL_SECONDS)
    raise RuntimeError(f"nobody took over within {_MAX_SECONDS:g} seconds")


async def _settled(pair: Sequence[Server]) -> tuple[Server, Server]:
    """Return the leader and the standby, once the standby is warm."""
    deadline = time.perf_counter() + _MAX_SECONDS
    while time.perf_counter() < deadline:
        for leader, standby in (pair, pair[::-1]):
            waiting = standby.metrics()
            if _LEADS in leader.metrics() and _LEADS not in waiting and _WARM in waiting:
                return leader, standby
        await asyncio.sleep(_PAUSE_SECONDS)
    raise RuntimeError(f"nobody leads with a warm standby after {_MAX_SECONDS:g} seconds")


def _end(server: Server) -> None:
    if server.alive:
        server.stop()
