"""Limits at the commit: over all pools together, in every mode, whoever comes at the same time."""

import asyncio
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
from mooring.model.pools import Binding
from mooring.model.preemption import Preemption
from mooring.model.quotas import Scope
from mooring.store import pools, quotas
from mooring.store.engine import Database
from mooring.store.ids import new_id
from mooring.store.quotas import QuotaChange
from mooring.store.tables import domains, keypairs, policies, projects, tenant_resources, users
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour, decision_on
from tests.store.test_charges import make_private

T = TaskStatus
ROUNDS = [20, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]


async def limit(harbour: Harbour, scope: Scope = Scope.PROJECT, **limits: int | None) -> None:
    """For the one who submits here, in base units."""
    who = harbour.principal
    ref = {
        Scope.KEYPAIR: who.access_key,
        Scope.USER: str(who.user_id),
        Scope.PROJECT: str(who.project_id),
        Scope.DOMAIN: str(who.domain_id),
    }[scope]

    async def work(connection: Any) -> None:
        found = await quotas.find(connection, scope, ref)
        await quotas.set_quota(connection, found, QuotaChange(limits=limits), now())

    await harbour.database.write(work)


async def wishes(harbour: Harbour, node_id: UUID, *names: str, **more: Any) -> list[Decision]:
    ids = [await harbour.submit(name, **more) for name in names]
    return [await decision_on(harbour, id, [node_id] * more.get("replicas", 1)) for id in ids]


@pytest.mark.parametrize(("scope", "mode"), list(zip(Scope, [*Binding, Binding.OPTIMISTIC], strict=True)))
async def test_what_exceeds_a_limit_conflicts_and_the_others_are_bound(harbour: Harbour, scope: Scope, mode: Binding):
    node_id = await harbour.node("n1")
    await limit(harbour, scope, cpu=2500)
    decisions = await wishes(harbour, node_id, "a", "b", "c")
    result = await harbour.commit(*decisions, mode=mode)
    assert result.bound == decisions[:2]
    [(refused, why)] = result.conflicts
    assert refused == decisions[2]
    assert why.startswith(f"quota of {scope} ")
    assert why.endswith("cpu limit 2.5, in use 2, requested 1")
    assert (await harbour.commit(decisions[2], mode=mode)).bound == []


async def test_a_refusal_names_the_tenant_by_name_and_id(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, Scope.PROJECT, memory=1 << 30)
    [wish] = await wishes(harbour, node_id, "a", memory="1536Mi")
    [(_, why)] = (await harbour.commit(wish)).conflicts
    id = harbour.principal.project_id
    assert why == f"quota of project default ({id}): memory limit 1Gi, in use 0, requested 1536Mi"


async def test_a_workload_counts_with_all_its_tasks_and_up_to_the_limit(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, cpu=3000)
    [four] = await wishes(harbour, node_id, "four", replicas=4)
    assert (await harbour.commit(four)).bound == []
    [three] = await wishes(harbour, node_id, "three", replicas=3)
    assert (await harbour.commit(three)).bound == [three]


async def test_what_has_ended_makes_room_and_what_was_lowered_stops_nothing(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, cpu=1000)
    first, second = await wishes(harbour, node_id, "first", "second")
    await harbour.commit(first)
    [task] = await harbour.tasks(first.workload.id)
    await harbour.move(task, T.RUNNING)
    await limit(harbour, cpu=0)
    assert (await harbour.task(task.id)).status == T.RUNNING
    await limit(harbour, cpu=1000)
    assert (await harbour.commit(second)).bound == []
    await harbour.move(task, T.SUCCEEDED)
    assert (await harbour.commit(second)).bound == [second]


@on_sqlite
async def test_none_of_a_slot_may_be_asked_for_above_the_limit(harbour: Harbour):
    node_id = await harbour.node("n1", slots={"gpu": 1})
    await limit(harbour, gpu=0)
    [none] = await wishes(harbour, node_id, "none", slots={"gpu": 0})
    assert (await harbour.commit(none)).bound == [none]


async def test_sessions_are_counted_by_workload(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, Scope.USER, sessions=1)
    first, second = await wishes(harbour, node_id, "first", "second", replicas=2)
    half = Decision(first.workload, first.outcome, first.placements[:1])
    assert (await harbour.commit(half)).bound == [half]
    rest = await decision_on(harbour, first.workload.id, [node_id])
    result = await harbour.commit(rest, second)
    assert result.bound == [rest]
    assert "sessions limit 1, in use 1, requested 1" in result.conflicts[0][1]


async def test_private_work_is_exempt_and_has_a_cap_of_its_own(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, Scope.USER, cpu=0, sessions=0, **{"private-sessions": 1})
    decisions = await wishes(harbour, node_id, "first", "second")
    for decision in decisions:
        await make_private(harbour, decision.workload.id)
    result = await harbour.commit(*decisions)
    assert result.bound == decisions[:1]
    assert "private-sessions limit 1" in result.conflicts[0][1]


async def test_a_preemptor_cannot_count_on_what_its_victim_still_has(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=1)
    await limit(harbour, cpu=1000)
    [victim] = await harbour.run(await harbour.submit("victim"))
    preemptor = await harbour.submit("preemptor", priority=20)
    wish = await decision_on(harbour, preemptor, [node_id], victims=[victim])
    assert "quota of" in (await harbour.commit(wish, preemption=Preemption())).conflicts[0][1]
    await limit(harbour, cpu=2000)
    assert (await harbour.commit(wish, preemption=Preemption())).bound == [wish]


@on_sqlite
@pytest.mark.parametrize("table", [keypairs, users, projects, domains])
async def test_a_policy_limits_those_who_carry_it(harbour: Harbour, table: Any):
    node_id = await harbour.node("n1", slots={"gpu": 4})
    policy_id = new_id()

    async def carry(connection: Any) -> None:
        rules = {"limits": {"cpu": "1", "memory": "64Gi"}, "unspecified": "limited", "max_sessions": 5}
        await connection.execute(insert(policies).values(id=policy_id, name="p", rules=rules, created_at=now()))
        await connection.execute(update(table).values(policy_id=policy_id))

    await harbour.database.write(carry)
    first, second = await wishes(harbour, node_id, "first", "second")
    result = await harbour.commit(first, second)
    assert result.bound == [first]
    assert "cpu limit 1, in use 1" in result.conflicts[0][1]
    [unnamed] = await wishes(harbour, node_id, "gpu", cpu=0, slots={"gpu": 1})
    assert "gpu limit 0" in (await harbour.commit(unnamed)).conflicts[0][1]


async def test_an_override_holds_until_its_time_is_over(harbour: Harbour):
    node_id = await harbour.node("n1")
    await limit(harbour, Scope.USER, cpu=0)
    later = now() + timedelta(hours=1)

    async def override(connection: Any) -> None:
        found = await quotas.find(connection, Scope.USER, harbour.principal.username)
        await quotas.set_quota(connection, found, QuotaChange(limits={"cpu": 1000}, until=later), now())

    await harbour.database.write(override)
    first, second = await wishes(harbour, node_id, "first", "second")
    assert (await harbour.commit(first)).bound == [first]
    [task] = await harbour.tasks(first.workload.id)
    await harbour.move(task, T.RUNNING, T.SUCCEEDED)
    assert (await harbour.commit(second, at=later)).bound == []


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_binders_of_four_pools_never_exceed_one_quota_together(
    harbour: Harbour, migrated_url: str, rounds: int, retried: list[Exception]
):
    """Each takes what it can of one project's 5 cores and 6 sessions, and gives some of it back."""
    await limit(harbour, Scope.PROJECT, cpu=5000, sessions=6)
    databases = [Database(migrated_url) for _ in range(4)]
    watched: list[tuple[int, int]] = []
    try:
        ports = [await _port(harbour, database, number) for number, database in enumerate(databases)]
        runs = (_attack(*port, random.Random(seed), rounds // 4, watched) for seed, port in enumerate(ports))
        bound = await asyncio.gather(*runs)
    finally:
        for database in databases:
            await database.close()
    assert max(cpu for cpu, _ in watched) == 5000
    assert max(sessions for _, sessions in watched) <= 6
    assert min(bound) > 0
    assert retried == []
    assert await harbour.findings() == []


async def _port(harbour: Harbour, database: Database, number: int) -> tuple[Harbour, UUID]:
    """A pool of its own with more room than the quota allows."""
    pool = await database.write(
        lambda c: pools.ensure(c, f"pool{number}", runtimes=["process"], simulated=False, now=now())
    )
    port = Harbour(database, harbour.principal, pool, harbour.office)
    return port, await port.node(f"n{number}", cpu=16)


async def _attack(
    port: Harbour, node_id: UUID, draw: random.Random, rounds: int, watched: list[tuple[int, int]]
) -> int:
    mode = draw.choice(list(Binding)[:2])
    placed: list[UUID] = []
    bound = 0
    for number in range(rounds):
        cpu = draw.choice(["500m", "1", "2"])
        names = [f"{port.pool.name}-{number}-{part}" for part in range(draw.choice([1, 3]))]
        result = await port.commit(*await wishes(port, node_id, *names, cpu=cpu), mode=mode)
        watched.append(await _used(port))
        placed += [decision.workload.id for decision in result.bound]
        bound += len(result.bound)
        await _end(port, [placed.pop(draw.randrange(len(placed))) for _ in range(draw.randint(0, len(placed)))])
    await _end(port, placed)
    return bound


async def _end(port: Harbour, ids: Sequence[UUID]) -> None:
    for id in ids:
        for task in await port.tasks(id):
            await port.move(task, T.RUNNING, T.SUCCEEDED)


async def _used(port: Harbour) -> tuple[int, int]:
    """What the project is charged with by the ledger's own counters: (cpu, sessions)."""
    row = tenant_resources.c
    rows = await port.rows(
        select(row.slot_name, row.reserved + row.used).where(row.scope == Scope.PROJECT, row.pool == "")
    )
    found: dict[str, int] = {row.slot_name: row[1] for row in rows}
    return found.get("cpu", 0), found.get("sessions", 0)
