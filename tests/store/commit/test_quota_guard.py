"""Quotas at the commit: over all pools, in every binding mode, under concurrency."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update

from mooring.clock import now
from mooring.model.decisions import Decision
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.policy.preemption import Preemption
from mooring.model.tenancy.quotas import Scope
from mooring.store.core.engine import Database
from mooring.store.core.ids import new_id
from mooring.store.nodes import pools
from mooring.store.tables import domains, keypairs, policies, projects, tenant_resources, users
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from tests.store.commit.test_tenant_usage import make_private
from tests.store.databases import on_sqlite
from tests.store.harness import Harness, decision_on

T = TaskStatus
ROUNDS = [20, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]


async def limit(harness: Harness, scope: Scope = Scope.PROJECT, **limits: int | None) -> None:
    """Set a limit for the tenant of the harness, in base units."""
    who = harness.principal
    ref = {
        Scope.KEYPAIR: who.access_key,
        Scope.USER: str(who.user_id),
        Scope.PROJECT: str(who.project_id),
        Scope.DOMAIN: str(who.domain_id),
    }[scope]

    async def work(connection: Any) -> None:
        found = await quotas.find(connection, scope, ref)
        await quotas.set_quota(connection, found, QuotaChange(limits=limits), now())

    await harness.database.write(work)


async def wishes(harness: Harness, node_id: UUID, *names: str, **more: Any) -> list[Decision]:
    ids = [await harness.submit(name, **more) for name in names]
    return [await decision_on(harness, id, [node_id] * more.get("replicas", 1)) for id in ids]


@pytest.mark.parametrize(("scope", "mode"), list(zip(Scope, [*Binding, Binding.OPTIMISTIC], strict=True)))
async def test_a_decision_above_a_limit_conflicts_and_the_others_are_bound(
    harness: Harness, scope: Scope, mode: Binding
):
    node_id = await harness.node("n1")
    await limit(harness, scope, cpu=2500)
    decisions = await wishes(harness, node_id, "a", "b", "c")
    result = await harness.commit(*decisions, mode=mode)
    assert result.bound == decisions[:2]
    [(refused, why)] = result.conflicts
    assert refused == decisions[2]
    assert why.startswith(f"quota of {scope} ")
    assert why.endswith("cpu limit 2.5, in use 2, requested 1")
    assert (await harness.commit(decisions[2], mode=mode)).bound == []


async def test_a_quota_conflict_names_the_tenant_and_its_id(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, Scope.PROJECT, memory=1 << 30)
    [wish] = await wishes(harness, node_id, "a", memory="1536Mi")
    [(_, why)] = (await harness.commit(wish)).conflicts
    id = harness.principal.project_id
    assert why == f"quota of project default ({id}): memory limit 1Gi, in use 0, requested 1536Mi"


async def test_all_tasks_of_a_workload_count_and_the_limit_itself_is_allowed(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, cpu=3000)
    [four] = await wishes(harness, node_id, "four", replicas=4)
    assert (await harness.commit(four)).bound == []
    [three] = await wishes(harness, node_id, "three", replicas=3)
    assert (await harness.commit(three)).bound == [three]


async def test_ended_tasks_free_quota_and_a_lowered_limit_stops_no_running_task(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, cpu=1000)
    first, second = await wishes(harness, node_id, "first", "second")
    await harness.commit(first)
    [task] = await harness.tasks(first.workload.id)
    await harness.move(task, T.RUNNING)
    await limit(harness, cpu=0)
    assert (await harness.task(task.id)).status == T.RUNNING
    await limit(harness, cpu=1000)
    assert (await harness.commit(second)).bound == []
    await harness.move(task, T.SUCCEEDED)
    assert (await harness.commit(second)).bound == [second]


@on_sqlite
async def test_a_request_of_zero_is_allowed_above_the_limit(harness: Harness):
    node_id = await harness.node("n1", slots={"gpu": 1})
    await limit(harness, gpu=0)
    [none] = await wishes(harness, node_id, "none", slots={"gpu": 0})
    assert (await harness.commit(none)).bound == [none]


async def test_sessions_are_counted_by_workload(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, Scope.USER, sessions=1)
    first, second = await wishes(harness, node_id, "first", "second", replicas=2)
    half = Decision(first.workload, first.outcome, first.placements[:1])
    assert (await harness.commit(half)).bound == [half]
    rest = await decision_on(harness, first.workload.id, [node_id])
    result = await harness.commit(rest, second)
    assert result.bound == [rest]
    assert "sessions limit 1, in use 1, requested 1" in result.conflicts[0][1]


async def test_private_workloads_are_exempt_from_slots_and_have_their_own_session_limit(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, Scope.USER, cpu=0, sessions=0, **{"private-sessions": 1})
    decisions = await wishes(harness, node_id, "first", "second")
    for decision in decisions:
        await make_private(harness, decision.workload.id)
    result = await harness.commit(*decisions)
    assert result.bound == decisions[:1]
    assert "private-sessions limit 1" in result.conflicts[0][1]


async def test_a_preemptor_cannot_count_on_the_quota_of_its_victim(harness: Harness):
    node_id = await harness.node("n1", cpu=1)
    await limit(harness, cpu=1000)
    [victim] = await harness.run(await harness.submit("victim"))
    preemptor = await harness.submit("preemptor", priority=20)
    wish = await decision_on(harness, preemptor, [node_id], victims=[victim])
    assert "quota of" in (await harness.commit(wish, preemption=Preemption())).conflicts[0][1]
    await limit(harness, cpu=2000)
    assert (await harness.commit(wish, preemption=Preemption())).bound == [wish]


@on_sqlite
@pytest.mark.parametrize("table", [keypairs, users, projects, domains])
async def test_a_policy_limits_the_tenants_that_have_it(harness: Harness, table: Any):
    node_id = await harness.node("n1", slots={"gpu": 4})
    policy_id = new_id()

    async def carry(connection: Any) -> None:
        rules = {"limits": {"cpu": "1", "memory": "64Gi"}, "unspecified": "limited", "max_sessions": 5}
        await connection.execute(insert(policies).values(id=policy_id, name="p", rules=rules, created_at=now()))
        await connection.execute(update(table).values(policy_id=policy_id))

    await harness.database.write(carry)
    first, second = await wishes(harness, node_id, "first", "second")
    result = await harness.commit(first, second)
    assert result.bound == [first]
    assert "cpu limit 1, in use 1" in result.conflicts[0][1]
    [unnamed] = await wishes(harness, node_id, "gpu", cpu=0, slots={"gpu": 1})
    assert "gpu limit 0" in (await harness.commit(unnamed)).conflicts[0][1]


async def test_an_override_applies_until_it_expires(harness: Harness):
    node_id = await harness.node("n1")
    await limit(harness, Scope.USER, cpu=0)
    later = now() + timedelta(hours=1)

    async def override(connection: Any) -> None:
        found = await quotas.find(connection, Scope.USER, harness.principal.username)
        await quotas.set_quota(connection, found, QuotaChange(limits={"cpu": 1000}, until=later), now())

    await harness.database.write(override)
    first, second = await wishes(harness, node_id, "first", "second")
    assert (await harness.commit(first)).bound == [first]
    [task] = await harness.tasks(first.workload.id)
    await harness.move(task, T.RUNNING, T.SUCCEEDED)
    assert (await harness.commit(second, at=later)).bound == []


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_concurrent_binders_of_four_pools_never_exceed_one_quota(
    harness: Harness, migrated_url: str, rounds: int, retried: list[Exception]
):
    """Each binder takes what it can of one project's 5 cores and 6 sessions, and frees some of it."""
    await limit(harness, Scope.PROJECT, cpu=5000, sessions=6)
    databases = [Database(migrated_url) for _ in range(4)]
    watched: list[tuple[int, int]] = []
    try:
        ports = [await _port(harness, database, number) for number, database in enumerate(databases)]
        runs = (_attack(*port, random.Random(seed), rounds // 4, watched) for seed, port in enumerate(ports))
        bound = await asyncio.gather(*runs)
    finally:
        for database in databases:
            await database.close()
    assert max(cpu for cpu, _ in watched) == 5000
    assert max(sessions for _, sessions in watched) <= 6
    assert min(bound) > 0
    assert retried == []
    assert await harness.findings() == []


async def _port(harness: Harness, database: Database, number: int) -> tuple[Harness, UUID]:
    """A separate pool with more capacity than the quota allows."""
    pool = await database.write(
        lambda c: pools.ensure(c, f"pool{number}", runtimes=["process"], simulated=False, now=now())
    )
    port = Harness(database, harness.principal, pool, harness.leadership)
    return port, await port.node(f"n{number}", cpu=16)


async def _attack(
    port: Harness, node_id: UUID, draw: random.Random, rounds: int, watched: list[tuple[int, int]]
) -> int:
    mode = draw.choice(list(Binding)[:2])
    placed: list[UUID] = []
    bound = 0
    for number in itertools.count():
        # The others may hold the whole quota in every round. They give all of it back at their end.
        if number >= rounds and bound:
            break
        cpu = draw.choice(["500m", "1", "2"])
        names = [f"{port.pool.name}-{number}-{part}" for part in range(draw.choice([1, 3]))]
        result = await port.commit(*await wishes(port, node_id, *names, cpu=cpu), mode=mode)
        watched.append(await _used(port))
        placed += [decision.workload.id for decision in result.bound]
        bound += len(result.bound)
        await _end(port, [placed.pop(draw.randrange(len(placed))) for _ in range(draw.randint(0, len(placed)))])
    await _end(port, placed)
    return bound


async def _end(port: Harness, ids: Sequence[UUID]) -> None:
    for id in ids:
        for task in await port.tasks(id):
            await port.move(task, T.RUNNING, T.SUCCEEDED)


async def _used(port: Harness) -> tuple[int, int]:
    """Return the usage of the project by its counters: (cpu, sessions)."""
    row = tenant_resources.c
    rows = await port.rows(
        select(row.slot_name, row.reserved + row.used).where(row.scope == Scope.PROJECT, row.pool == "")
    )
    found: dict[str, int] = {row.slot_name: row[1] for row in rows}
    return found.get("cpu", 0), found.get("sessions", 0)
