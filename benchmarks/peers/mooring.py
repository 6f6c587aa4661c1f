"""Mooring: tasks over its HTTP API until they are bound, on simulated nodes, and processes until they end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import msgspec
from sqlalchemy import ColumnElement, select

from benchmarks.peers import figures, work
from benchmarks.peers.figures import Span
from mooring.scheduling.compiled import compilation
from mooring.store.core.engine import Database
from mooring.store.tables import tasks, workloads
from tests.servers import running_postgres
from tests.system.servers import Server, running_server

_DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on")
_SIMULATED = ("--simulate", str(work.NODES), "--no-agent")


def measure(kind: str) -> dict[str, float]:
    """Measure Mooring on `sqlite` or `postgresql`. Processes are measured on SQLite, as on one machine."""
    # The servers share what is compiled here: compiling beside them would take a core.
    if not compilation.wait():
        raise RuntimeError(f"the kernels cannot be compiled here: {compilation.failure()}")
    with _serving(kind, *_SIMULATED) as (server, url):
        result = asyncio.run(_bound(server, url, kind))
    if kind == "sqlite":
        with _serving(kind) as (server, url):
            result["sqlite_processes_per_second"] = asyncio.run(_ended(server, url))
    return result


@contextmanager
def _serving(kind: str, *flags: str) -> Iterator[tuple[Server, str]]:
    """A server on a fresh database, and the database's address."""
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        data = Path(folder) / "data"
        with running_postgres(_DURABLE) if kind == "postgresql" else nullcontext() as postgres:
            if postgres is None:
                url = f"sqlite+aiosqlite:///{data / 'mooring.db'}"
            else:
                url = postgres.url(postgres.create_database())
                flags = (*flags, "--database", url, "--demo")
            with running_server(data, "--log-level", "warning", *flags) as server:
                yield server, url


async def _bound(server: Server, url: str, kind: str) -> dict[str, float]:
    database = Database(url)
    try:
        async with _session(server) as session:

            async def submit(name: str) -> None:
                await _submit(session, _task(name))

            await submit("warm-up")
            await _times(database, tasks.c.scheduled_at, "warm-up", 1)
            sent = await work.submit_singly(submit, work.single_names())
            singles = await _times(database, tasks.c.scheduled_at, "single-", work.TASKS)
            began = time.time()
            await _submit(session, _task("array") | {"array": f"0-{work.TASKS - 1}"})
            array = await _times(database, tasks.c.scheduled_at, "array", work.TASKS)
    finally:
        await database.close()
    result = figures.singly(kind, [Span(sent[name], at) for name, at in singles])
    return result | {f"{kind}_array_per_second": figures.per_second([Span(began, at) for _, at in array])}


async def _ended(server: Server, url: str) -> float:
    database = Database(url)
    process = {"name": "main", "command": ["true"], "resources": {"cpu": "10m", "memory": "16Mi"}}
    try:
        async with _session(server) as session:
            began = time.time()
            await _submit(session, {"name": "processes", "array": f"0-{work.TASKS - 1}", "containers": [process]})
            ended = await _times(database, tasks.c.ended_at, "processes", work.TASKS)
    finally:
        await database.close()
    return figures.per_second([Span(began, at) for _, at in ended])


def _session(server: Server) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        server.url, headers=server.credential("admin"), connector=aiohttp.TCPConnector(limit=0)
    )


async def _submit(session: aiohttp.ClientSession, workload: dict[str, Any]) -> None:
    body, headers = msgspec.json.encode(workload), {"Content-Type": "application/json"}
    async with session.post("/api/workloads", data=body, headers=headers) as answer:
        if answer.status != 202:
            raise RuntimeError(f"a submission got {answer.status}: {(await answer.text())[:500]}")
        await answer.read()


async def _times(
    database: Database, column: ColumnElement[datetime], prefix: str, number: int
) -> Sequence[tuple[str, float]]:
    """Wait until this time is set for so many tasks of workloads of this name, and return it with the name."""
    query = (
        select(workloads.c.name, column)
        .join(tasks, tasks.c.workload_id == workloads.c.id)
        .where(workloads.c.name.startswith(prefix), column.is_not(None))
    )
    found: list[tuple[str, float]] = []

    async def enough() -> bool:
        async with database.read() as connection:
            found[:] = [(name, at.timestamp()) for name, at in await connection.execute(query)]
        return len(found) >= number

    await work.until(enough, f"{column.key} of {number} tasks")
    return found


def _task(name: str) -> dict[str, Any]:
    resources = {"cpu": work.CPU, "memory": f"{work.MEMORY_MIB}Mi"}
    return {"name": name, "containers": [{"image": "nginx:latest", "resources": resources}]}
