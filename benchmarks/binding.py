"""Durable binding: decisions into committed placements, then RUNNING, then their end, on PostgreSQL and SQLite.

5,000 nodes, tasks of 5 slots, 10,000 decisions of one task each, which the binder commits 1,000 in a transaction, with
ledger, counters, history, events and fsync; nodes are drawn at random, as a scheduler that evens out the load chooses
them. The audit must find nothing.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import population
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.server import interpreter
from mooring.store.core import schema
from mooring.store.core.engine import Database
from tests.servers import running_postgres

NODES = 5000
TASKS = 10_000
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB")


def run() -> dict[str, float]:
    interpreter.tune()
    figures: dict[str, float] = {}
    for name, database in (("postgresql", _postgresql), ("sqlite", _sqlite)):
        for mode in (Binding.OPTIMISTIC, Binding.PESSIMISTIC):
            with database() as url:
                measured = asyncio.run(_measure(url, mode))
            figures |= {f"{name}_{mode}_{figure}": value for figure, value in measured.items()}
    return figures


@contextmanager
def _postgresql() -> Iterator[str]:
    with running_postgres(DURABLE) as server:
        yield server.url(server.create_database())


@contextmanager
def _sqlite() -> Iterator[str]:
    with TemporaryDirectory(prefix="mooring-bench-") as folder:
        yield f"sqlite+aiosqlite:///{Path(folder) / 'mooring.db'}"


async def _measure(url: str, mode: Binding) -> dict[str, float]:
    database = Database(url)
    try:
        await schema.upgrade(database.engine)
        principal, pool, term = await population.seed(database, mode)
        placed_on = await population.add_nodes(database, pool.id, NODES)
        submitted = await _timed(population.submit(database, principal, pool.id, TASKS, population.REQUEST))
        decisions = await population.decide(database, placed_on)
        bound = await _timed(population.bind(database, decisions, term, pool))
        running = await _timed(population.move(database, decisions, TaskStatus.RUNNING))
        ended = await _timed(population.move(database, decisions, TaskStatus.SUCCEEDED))
        await population.check(database)
    finally:
        await database.close()
    return {
        "submitted_per_second": TASKS / submitted,
        "placements_per_second": TASKS / bound,
        "running_per_second": TASKS / running,
        "ended_per_second": TASKS / ended,
    }


async def _timed(work: Awaitable[object]) -> float:
    # What the benchmark keeps is not what the collector should look through.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    await work
    return time.perf_counter() - started
