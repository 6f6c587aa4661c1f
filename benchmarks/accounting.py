"""Accounting on PostgreSQL: occupancy with a million live ledger rows, and fair share over 10,000 users.

Each query prints its plan, and a loop in Python over the rows computes the answer again and must agree.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import event, select, text

from mooring.clock import now
from mooring.mirror.fair_share import factors
from mooring.model.policy.pools import FairShare
from mooring.model.tenancy.fair_share import factor, normalised, shares_of_days
from mooring.store.accounting import occupancy, usage
from mooring.store.core import schema
from mooring.store.core.engine import Connection, Database
from mooring.store.tables import usage_buckets
from tests.servers import running_postgres

SIZES = {
    "DOMAINS": 20,
    "PROJECTS": 200,
    "USERS": 10_000,
    "POOLS": 4,
    "NODES": 5000,
    "WORKLOADS": 41_667,
    "TASKS": 8,
    "DAYS": 28,
}
SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB", "work_mem=64MB")
POOL = "pool-0"
TIMES = 5

R = TypeVar("R")


def run() -> dict[str, float]:
    with running_postgres(SETTINGS) as server:
        return asyncio.run(_measure(server.url(server.create_database())))


async def _measure(url: str) -> dict[str, float]:
    database = Database(url, statement_timeout_seconds=600)
    try:
        await schema.upgrade(database.engine)
        started = time.perf_counter()
        await _load(database)
        loaded = time.perf_counter() - started
        async with database.snapshot() as connection:
            figures = {"load_seconds": loaded}
            for part in (_occupancy, _usage, _fair_share):
                figures |= await part(database, connection)
            return figures
    finally:
        await database.close()


async def _load(database: Database) -> None:
    script = Template(Path(__file__).with_suffix(".sql").read_text()).substitute(SIZES)
    async with database.engine.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        await raw.execute(script, timeout=600)


async def _occupancy(database: Database, connection: Connection) -> dict[str, float]:
    with _plan(database, connection, "occupancy over five axes") as explain:
        found, seconds = await _fastest(lambda: occupancy.occupancy(connection))
        await explain("resource_allocations")
    started = time.perf_counter()
    rows = await connection.execute(
        text(
            "SELECT w.access_key, w.user_id, w.project_id, w.domain_id, p.name, t.node_id, a.slot_name,"
            " CASE WHEN a.used_at IS NULL THEN a.requested ELSE a.used END FROM resource_allocations a"
            " JOIN tasks t ON t.id = a.task_id JOIN workloads w ON w.id = t.workload_id"
            " JOIN pools p ON p.id = w.pool_id WHERE a.freed_at IS NULL"
        )
    )
    looped = occupancy.Occupancy()
    number = 0
    for access_key, user_id, project_id, domain_id, pool, node_id, slot, amount in rows:
        number += 1
        for axis, id in (
            (looped.keypairs, access_key),
            (looped.users, user_id),
            (looped.projects, project_id),
            (looped.domains, domain_id),
            (looped.nodes.setdefault(pool, {}), node_id),
        ):
            slots = axis.setdefault(id, {})
            slots[slot] = slots.get(slot, 0) + amount
    looped_seconds = time.perf_counter() - started
    _same(found, looped)
    return {
        "occupancy_ledger_rows_read": number,
        "occupancy_five_axes_ms": seconds * 1000,
        "occupancy_python_loop_ms": looped_seconds * 1000,
    }


async def _usage(database: Database, connection: Connection) -> dict[str, float]:
    """The leader's periodic count: today's usage of everything that runs."""
    moment = now()
    days = [usage.day_of(moment)]
    with _plan(database, connection, "usage of today") as explain:
        found, seconds = await _fastest(lambda: usage.count(connection, days, moment))
        await explain()
    return {"usage_buckets_of_today": len(found), "usage_of_today_ms": seconds * 1000}


async def _fair_share(database: Database, connection: Connection) -> dict[str, float]:
    rules = FairShare()
    moment = now()
    with _plan(database, connection, "decayed use") as explain:
        found, seconds = await _fastest(lambda: factors(connection, POOL, rules, moment))
        await explain("usage_buckets")
    started = time.perf_counter()
    shares = shares_of_days(usage.day_of(moment), rules)
    used: dict[tuple[UUID, UUID], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    number = 0
    for row in await connection.execute(select(usage_buckets).where(usage_buckets.c.pool == POOL)):
        number += 1
        used[row.project_id, row.user_id][row.slot_name] += row.amount * row.seconds * shares.get(row.starts_at, 0.0)
    capacity = await usage.capacity(connection, POOL)
    expected = {tenant: factor(normalised(sums, capacity, rules)) for tenant, sums in used.items()}
    looped = time.perf_counter() - started
    _same({k: round(v, 9) for k, v in found.users.items()}, {k: round(v, 9) for k, v in expected.items()})
    return {
        "fair_share_users": len(found.users),
        "fair_share_bucket_rows_read": number,
        "fair_share_ms": seconds * 1000,
        "fair_share_python_loop_ms": looped * 1000,
    }


async def _fastest(work: Callable[[], Awaitable[R]]) -> tuple[R, float]:
    best = float("inf")
    for _ in range(TIMES):
        started = time.perf_counter()
        found = await work()
        best = min(best, time.perf_counter() - started)
    return found, best


@contextmanager
def _plan(database: Database, connection: Connection, title: str) -> Iterator[Callable[..., Awaitable[None]]]:
    """Records the executed statements, and prints the plan of the last one that names a table."""
    seen: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    async def explain(table: str = "") -> None:
        statement, parameters = next(one for one in reversed(seen) if table in one[0])
        plan = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}", parameters)
        lines = "\n".join(f"  {row[0]}" for row in plan)
        print(f"\n{title}\n{lines}", file=sys.stderr)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield explain
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise RuntimeError("the database and the loop over the rows do not agree")
