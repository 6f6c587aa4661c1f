"""The whole service on this machine: batches over HTTP, placed, bound and RUNNING on simulated nodes, per database.

Then single submissions: over 8 and over 64 connections, each of which submits the next when the last is accepted; and,
once the server is idle, 100 per second, whatever the answers. PostgreSQL has its own fsync on, as in production. On
PostgreSQL the singles over 64 connections are also submitted to a server with `--role api` beside the leader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import func, select

from mooring.client import AsyncClient
from mooring.scheduling.compiled import compilation
from mooring.store.core.engine import Database
from mooring.store.tables import tasks, workloads
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import running_postgres
from tests.system.servers import PASSWORD, Server, running_server

NODES = 1000
TASKS = 10_000
SINGLES = 1_000
MANY_SINGLES = 2_000
BATCH = 1_000
BATCH_CONNECTIONS = 2
SINGLE_CONNECTIONS = 8
MANY_CONNECTIONS = 64
STEADY_PER_SECOND = 100.0
STEADY_SECONDS = 10
_MAX_SECONDS = 300.0
_BUSY_SECONDS = 0.1
"""Processor time within a second; an idle server takes a tenth of that."""
_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")


@dataclass(frozen=True, slots=True)
class Figures:
    accepted_per_second: float
    running_per_second: float
    waits_ms: Sequence[float]
    """From the commit of the submission to that of the bind, by task."""

    def named(self, prefix: str) -> dict[str, float]:
        return {
            f"{prefix}_accepted_per_second": self.accepted_per_second,
            f"{prefix}_running_per_second": self.running_per_second,
            f"{prefix}_accept_to_bound_p50_ms": _percentile(self.waits_ms, 0.50),
            f"{prefix}_accept_to_bound_p99_ms": _percentile(self.waits_ms, 0.99),
        }


def run() -> dict[str, float]:
    # The servers share what is compiled here: compiling beside them would take a core.
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    figures: dict[str, float] = {}
    for kind in ("sqlite", "postgresql"):
        with _serving(kind) as (server, url):
            _let_settle(server)
            started = server.cpu_seconds()
            batches = asyncio.run(_measure(server, url, "batch", TASKS, BATCH, BATCH_CONNECTIONS))
            cpu_seconds = server.cpu_seconds() - started
            singles = asyncio.run(_measure(server, url, "single", SINGLES, 1, SINGLE_CONNECTIONS))
            many = asyncio.run(_measure(server, url, "many", MANY_SINGLES, 1, MANY_CONNECTIONS))
            _let_settle(server)
            steady = asyncio.run(_steady(server, url))
        figures |= batches.named(f"{kind}_batch") | {f"{kind}_batch_server_cpu_seconds": cpu_seconds}
        figures |= singles.named(f"{kind}_single") | many.named(f"{kind}_single_{MANY_CONNECTIONS}_connections")
        figures |= steady.named(f"{kind}_single_steady")
    with _serving_beside_leader() as (server, url):
        _let_settle(server)
        many = asyncio.run(_measure(server, url, "many", MANY_SINGLES, 1, MANY_CONNECTIONS))
    return figures | many.named(f"postgresql_api_server_single_{MANY_CONNECTIONS}_connections")


def _let_settle(server: Server) -> None:
    """Wait for what a server loads after it has begun to answer: `benchmarks startup` measures that."""
    used, before = _BUSY_SECONDS, server.cpu_seconds()
    while used >= _BUSY_SECONDS:
        time.sleep(1.0)
        used, before = server.cpu_seconds() - before, server.cpu_seconds()


@contextmanager
def _serving(kind: str) -> Iterator[tuple[Server, str]]:
    """A server on a fresh database, and the database's address."""
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        data = Path(folder) / "data"
        flags = ["--simulate", str(NODES), "--no-agent", "--log-level", "warning"]
        with running_postgres(_DURABLE) if kind == "postgresql" else nullcontext() as postgres:
            if postgres is None:
                url = f"sqlite+aiosqlite:///{data / 'mooring.db'}"
            else:
                url = postgres.url(postgres.create_database())
                flags += ["--database", url, "--demo"]
            with running_server(data, *flags) as server:
                yield server, url


@contextmanager
def _serving_beside_leader() -> Iterator[tuple[Server, str]]:
    """An API server on a fresh PostgreSQL database, beside the leader, to which nobody submits."""
    environment = {"MOORING_SIGNING_KEY": "one key that both of the servers share"}
    with TemporaryDirectory(prefix="mooring-bench-") as folder, running_postgres(_DURABLE) as postgres:
        url = postgres.url(postgres.create_database())
        shared = ("--no-agent", "--log-level", "warning", "--database", url)
        leading = ("--simulate", str(NODES), "--demo", *shared)
        with (
            running_server(Path(folder) / "leader", *leading, environment=environment) as leader,
            running_server(Path(folder) / "api", "--role", "api", *shared, environment=environment) as server,
        ):
            _let_settle(leader)
            yield server, url


async def _measure(server: Server, url: str, prefix: str, number: int, size: int, connections: int) -> Figures:
    database = Database(url)
    batches = [[_request(f"{prefix}-{start + index}") for index in range(size)] for start in range(0, number, size)]
    try:
        async with AsyncClient(server.url) as client:
            await client.login("admin", PASSWORD)
            started = time.perf_counter()
            await _submit(client, batches, connections)
            accepted = time.perf_counter()
            await _all_run(database, prefix, number, accepted + _MAX_SECONDS)
            running = time.perf_counter()
        return Figures(number / (accepted - started), number / (running - started), await _waits(database, prefix))
    finally:
        await database.close()


async def _steady(server: Server, url: str) -> Figures:
    """Submit at a fixed rate, so that a slow answer delays no later submission."""
    database, number = Database(url), int(STEADY_PER_SECOND * STEADY_SECONDS)
    try:
        async with AsyncClient(server.url) as client, asyncio.TaskGroup() as submissions:
            await client.login("admin", PASSWORD)
            started = time.perf_counter()
            for index in range(number):
                await asyncio.sleep(started + index / STEADY_PER_SECOND - time.perf_counter())
                submissions.create_task(client.submit(_request(f"steady-{index}")))
        accepted = time.perf_counter()
        await _all_run(database, "steady", number, accepted + _MAX_SECONDS)
        running = time.perf_counter()
        return Figures(number / (accepted - started), number / (running - started), await _waits(database, "steady"))
    finally:
        await database.close()


async def _submit(client: AsyncClient, batches: Sequence[Sequence[WorkloadRequest]], connections: int) -> None:
    left = iter(batches)

    async def work() -> None:
        for requests in left:
            if len(requests) == 1:
                await client.submit(requests[0])
            else:
                answer = await client.submit_batch(requests)
                assert answer.refused == 0, answer.workloads[0]

    await asyncio.gather(*(work() for _ in range(connections)))


def _request(name: str) -> WorkloadRequest:
    return WorkloadRequest.model_validate(
        {
            "name": name,
            "containers": [
                {"image": "nginx:latest", "resources": {"cpu": "100m", "memory": "128Mi", "storage": "1Gi"}}
            ],
        }
    )


async def _all_run(database: Database, prefix: str, number: int, deadline: float) -> None:
    """Wait until all run, by the database: a request to the server would cost it time."""
    query = (
        select(func.count())
        .select_from(workloads)
        .where(workloads.c.name.startswith(f"{prefix}-"), workloads.c.status == "RUNNING")
    )
    while time.perf_counter() < deadline:
        async with database.read() as connection:
            if (await connection.execute(query)).scalar_one() == number:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"not every task ran within {_MAX_SECONDS:g} seconds")


async def _waits(database: Database, prefix: str) -> list[float]:
    query = (
        select(workloads.c.created_at, tasks.c.scheduled_at)
        .join(tasks, tasks.c.workload_id == workloads.c.id)
        .where(workloads.c.name.startswith(f"{prefix}-"))
    )
    async with database.read() as connection:
        return [(bound - created).total_seconds() * 1000 for created, bound in await connection.execute(query)]


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
