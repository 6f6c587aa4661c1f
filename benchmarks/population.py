"""A busy cluster through Mooring's own writes: submitted, bound and RUNNING work that the audit accepts."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.resources.slots import Amounts, parse_amounts
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.containers import Container, TaskTemplate
from mooring.model.workloads.workload import Kind, OnInsufficient
from mooring.store.audit import ledger_rules
from mooring.store.commit import transitions
from mooring.store.commit.status_changes import Change
from mooring.store.control import leadership
from mooring.store.core import batch_sql
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from mooring.store.nodes import pools, slot_types
from mooring.store.tables import node_resources, nodes
from mooring.store.tenancy import tenants, users
from mooring.store.workloads import new_workloads, pending

BATCH = 1000
CAPACITY = parse_amounts({"cpu": 128, "memory": "512Gi", "storage": "4Ti", "hugepages-2Mi": "64Gi", "links": 1000})
REQUEST = parse_amounts({"cpu": "500m", "memory": "1Gi", "storage": "10Gi", "hugepages-2Mi": "2Mi", "links": 1})

R = TypeVar("R")


async def seed(
    database: Database, mode: Binding = Binding.OPTIMISTIC, password_hash: str = "hash"
) -> tuple[Principal, pools.Pool, int]:
    """The first admin, a pool of simulated nodes that binds this way, and a term to bind under."""

    async def work(connection: Connection) -> tuple[Principal, pools.Pool, int]:
        await slot_types.ensure_built_in(connection)
        await tenants.bootstrap(connection, password_hash=password_hash, now=now())
        pool = await pools.ensure(connection, "default", runtimes=["process"], simulated=True, now=now())
        admin = await users.find(connection, tenants.FIRST_ADMIN)
        account = await tenants.account(connection, admin.id)
        assert account is not None
        pool = replace(pool, policy=replace(pool.policy, binding=mode))
        return account.principal, pool, await leadership.start_term(connection, "benchmark", now())

    return await database.write(work)


async def add_nodes(
    database: Database, pool_id: UUID, number: int, capacity: Amounts = CAPACITY
) -> list[tuple[UUID, str]]:
    """Simulated nodes, written at once: adding them one by one would take longer than the benchmark."""
    return await database.write(partial(_add_nodes, pool_id, number, capacity))


async def _add_nodes(pool_id: UUID, number: int, capacity: Amounts, connection: Connection) -> list[tuple[UUID, str]]:
    made = [(new_id(), f"node-{index}") for index in range(number)]
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
        for slot, amount in capacity.items()
    ]
    writes = batch_sql.Writes.on(connection)
    batch_sql.insert(writes, nodes, [{"id": id, "name": name} | facts for id, name in made])
    batch_sql.insert(writes, node_resources, counters)
    await writes.execute(connection)
    return made


async def submit(database: Database, principal: Principal, pool_id: UUID, number: int, request: Amounts) -> None:
    """Workloads with one task each."""
    template = TaskTemplate((Container(command=("sleep", "60"), slots=request),))
    new = [
        new_workloads.NewWorkload(
            id=new_id(),
            name=f"job-{new_id().hex}",
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
        for _ in range(number)
    ]
    await in_batches(new, lambda part: database.write(lambda c: new_workloads.submit(c, part, now())))


async def decide(database: Database, placed_on: Sequence[tuple[UUID, str]]) -> list[Decision]:
    """Return a random placement for each waiting workload."""
    draw = random.Random(7)
    async with database.read() as connection:
        waiting = await pending.waiting(connection)
    decisions = []
    for workload in waiting:
        node_id, name = draw.choice(placed_on)
        placement = Placement(workload.tasks[0].id, node_id, name, 1, 500_000)
        decisions.append(Decision(workload, Outcome.PLACED, (placement,), feasible_nodes=len(placed_on)))
    return decisions


async def bind(database: Database, decisions: Sequence[Decision], term: int, pool: pools.Pool) -> None:
    result = await Binder(database).bind(decisions, term, pools={pool.name: pool})
    if len(result.bound) != len(decisions):
        raise RuntimeError(f"{len(result.conflicts)} decisions conflicted and {len(result.dropped)} were dropped")


async def move(database: Database, decisions: Sequence[Decision], status: TaskStatus) -> None:
    """Bring the tasks that were placed to this status, as agents report it."""
    ids = [placement.task_id for decision in decisions for placement in decision.placements]
    await in_batches(ids, lambda part: _move(database, part, status))


async def _move(database: Database, task_ids: Sequence[UUID], status: TaskStatus) -> None:
    changes = [Change(task_id, status) for task_id in task_ids]
    await database.write(lambda c: transitions.apply(c, changes, actor="agent:node", now=now()))


async def check(database: Database) -> None:
    async with database.snapshot() as connection:
        findings = (await ledger_rules.audit(connection)).findings
    if findings:
        raise RuntimeError(f"the audit found {len(findings)}, such as {findings[0]}")


async def in_batches(values: Sequence[R], work: Callable[[Sequence[R]], Awaitable[object]]) -> None:
    for start in range(0, len(values), BATCH):
        await work(values[start : start + BATCH])
