"""Durable binding: decisions into committed placements, then RUNNING, then their end, on PostgreSQL and SQLite.

5,000 nodes, tasks of 5 slots, 10,000 decisions of one task each, which the binder commits 1,000 in a transaction, with
ledger, counters, history, events and fsync; nodes are drawn at random, as a scheduler that evens out the load chooses
them. The audit must find nothing.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import UUID

from mooring import interpreter
from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.model.constraints import Constraints
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.pools import Binding
from mooring.model.slots import parse_amounts
from mooring.model.tenants import Principal
from mooring.model.workloads import Container, Kind, OnInsufficient, TaskTemplate
from mooring.store import (
    leadership,
    ledger,
    pools,
    schema,
    sets,
    slot_types,
    tenants,
    transitions,
    users,
    workloads,
)
from mooring.store.changes import Change
from mooring.store.engine import Connection, Database
from mooring.store.ids import new_id
from mooring.store.tables import node_resources, nodes
from tests.servers import running_postgres

NODES = 5000
TASKS = 10_000
BATCH = 1000
CAPACITY = parse_amounts({"cpu": 128, "memory": "512Gi", "storage": "4Ti", "hugepages-2Mi": "64Gi", "links": 1000})
REQUEST = parse_amounts({"cpu": "500m", "memory": "1Gi", "storage": "10Gi", "hugepages-2Mi": "2Mi", "links": 1})
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=512MB", "max_wal_size=4GB")

R = TypeVar("R")


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
        principal, pool, term = await _seed(database, mode)
        placed_on = await database.write(partial(_add_nodes, pool.id))
        submitted = await _timed(_submit(database, principal, pool.id))
        decisions = await _decide(database, placed_on)
        bound = await _timed(_bind(database, decisions, term, pool))
        ids = [placement.task_id for decision in decisions for placement in decision.placements]
        running = await _timed(_in_batches(ids, lambda part: _move(database, part, TaskStatus.RUNNING)))
        ended = await _timed(_in_batches(ids, lambda part: _move(database, part, TaskStatus.SUCCEEDED)))
        async with database.read() as connection:
            findings = (await ledger.audit(connection)).findings
        if findings:
            raise RuntimeError(f"the audit found {len(findings)}, such as {findings[0]}")
    finally:
        await database.close()
    return {
        "submitted_per_second": TASKS / submitted,
        "placements_per_second": TASKS / bound,
        "running_per_second": TASKS / running,
        "ended_per_second": TASKS / ended,
    }


async def _seed(database: Database, mode: Binding) -> tuple[Principal, pools.Pool, int]:
    async def work(connection: Connection) -> tuple[Principal, pools.Pool, int]:
        await slot_types.ensure_built_in(connection)
        await tenants.bootstrap(connection, password_hash="hash", now=now())
        pool = await pools.ensure(connection, "default", runtimes=["process"], simulated=True, now=now())
        admin = await users.find(connection, tenants.FIRST_ADMIN)
        standing = await tenants.standing(connection, admin.id)
        assert standing is not None
        pool = replace(pool, policy=replace(pool.policy, binding=mode))
        return standing.principal, pool, await leadership.take_office(connection, "benchmark", now())

    return await database.write(work)


async def _add_nodes(pool_id: UUID, connection: Connection) -> list[tuple[UUID, str]]:
    """Simulated nodes, written at once: adding them one by one would take longer than the benchmark."""
    made = [(new_id(), f"node-{number}") for number in range(NODES)]
    facts = {
        "pool_id": pool_id,
        "status": NodeStatus.READY,
        "schedulable": True,
        "simulated": True,
        "architecture": "x86_64",
        "runtimes": ["process"],
        "labels": {},
        "taints": [],
        "enforces": {},
        "created_at": now(),
    }
    counters = [
        {"node_id": id, "slot_name": slot, "capacity": amount, "allocatable": amount}
        for id, _ in made
        for slot, amount in CAPACITY.items()
    ]
    writes = sets.Writes.on(connection)
    sets.insert(writes, nodes, [{"id": id, "name": name} | facts for id, name in made])
    sets.insert(writes, node_resources, counters)
    await writes.make(connection)
    return made


async def _submit(database: Database, principal: Principal, pool_id: UUID) -> None:
    template = TaskTemplate((Container(command=("sleep", "60"), slots=REQUEST),))
    new = [
        workloads.NewWorkload(
            id=new_id(),
            name=f"job-{number}",
            kind=Kind.SESSION,
            type="batch",
            principal=principal,
            pool_id=pool_id,
            replicas=1,
            template=template,
            region=None,
            priority=10,
            labels={},
            constraints=Constraints(),
            gang=False,
            spread=True,
            max_per_node=None,
            on_insufficient=OnInsufficient.WAIT,
            task_ids=(new_id(),),
        )
        for number in range(TASKS)
    ]
    await _in_batches(new, lambda part: database.write(lambda c: workloads.submit(c, part, now())))


async def _decide(database: Database, placed_on: Sequence[tuple[UUID, str]]) -> list[Decision]:
    draw = random.Random(7)
    async with database.read() as connection:
        waiting = await workloads.waiting(connection)
    decisions = []
    for workload in waiting:
        node_id, name = draw.choice(placed_on)
        placement = Placement(workload.tasks[0].id, node_id, name, 1, 500_000)
        decisions.append(Decision(workload, Outcome.PLACED, (placement,), feasible_nodes=NODES))
    return decisions


async def _bind(database: Database, decisions: Sequence[Decision], term: int, pool: pools.Pool) -> None:
    result = await Binder(database).bind(decisions, term, pools={pool.name: pool})
    if len(result.bound) != len(decisions):
        raise RuntimeError(f"{len(result.conflicts)} decisions conflicted and {len(result.dropped)} were dropped")


async def _move(database: Database, task_ids: Sequence[UUID], status: TaskStatus) -> None:
    changes = [Change(task_id, status) for task_id in task_ids]
    await database.write(lambda c: transitions.apply(c, changes, actor="agent:node", now=now()))


async def _in_batches(values: Sequence[R], work: Callable[[Sequence[R]], Awaitable[object]]) -> None:
    for start in range(0, len(values), BATCH):
        await work(values[start : start + BATCH])


async def _timed(work: Awaitable[object]) -> float:
    # What the benchmark keeps is not what the collector should look through.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    await work
    return time.perf_counter() - started
