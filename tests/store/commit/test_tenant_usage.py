"""Usage of tenants: charged from the hold to the end of a task, and never twice."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import update

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.model.reasons import Reason
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.commit import holds
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Database
from mooring.store.tables import workloads
from mooring.store.tenancy import quotas
from tests.store.databases import on_postgresql
from tests.store.harness import Harness, decision_on

T = TaskStatus
NOTHING: dict[str, tuple[int, int]] = {}


def tenants(harness: Harness) -> list[Tenant]:
    who = harness.principal
    return [
        Tenant(Scope.KEYPAIR, who.access_key),
        Tenant(Scope.USER, str(who.user_id)),
        Tenant(Scope.PROJECT, str(who.project_id)),
        Tenant(Scope.DOMAIN, str(who.domain_id)),
    ]


async def charged(harness: Harness) -> dict[str, tuple[int, int]]:
    """Return (reserved, used) by slot; all tenants of the only user have the same usage in one pool."""
    keypair, user, project, domain = tenants(harness)
    async with harness.database.read() as connection:
        found = await quotas.usage(connection, tenants(harness))
    everybody = [(keypair, ""), (user, ""), (user, "default"), (project, ""), (project, "default"), (domain, "")]
    assert set(found) <= set(everybody)
    [same] = {tuple(sorted(found.get(who, {}).items())) for who in everybody}
    return {slot: (amount.reserved, amount.used) for slot, amount in same}


def sums(reserved: int = 0, used: int = 0, sessions: int = 1) -> dict[str, tuple[int, int]]:
    """Return the amounts of this many tasks of 1 core and 1Gi."""
    return {
        "cpu": (1000 * reserved, 1000 * used),
        "memory": (reserved << 30, used << 30),
        "sessions": (0, sessions),
    }


async def make_private(harness: Harness, workload_id: UUID) -> None:
    private = update(workloads).where(workloads.c.id == workload_id).values(private=True)
    await harness.database.write(lambda c: c.execute(private))


async def test_a_task_is_charged_as_reserved_then_as_used_until_it_has_ended(harness: Harness):
    await harness.node("n1")
    workload_id = await harness.submit("web", replicas=2)
    assert await charged(harness) == NOTHING
    await harness.place()
    assert await charged(harness) == sums(reserved=2)
    first, second = await harness.tasks(workload_id)
    await harness.move(first, T.RUNNING)
    assert await charged(harness) == sums(reserved=1, used=1)
    await harness.move(first, T.TERMINATING)
    await harness.move(second, T.TERMINATING)
    assert await charged(harness) == sums(reserved=1, used=1)
    await harness.move(first, T.CANCELLED)
    assert await charged(harness) == sums(reserved=1)
    await harness.move(second, T.CANCELLED)
    await harness.move(second, T.CANCELLED)
    assert await charged(harness) == NOTHING


async def test_several_changes_in_one_transaction_are_charged_as_one(harness: Harness):
    await harness.node("n1")
    ended, running = await harness.submit("ended"), await harness.submit("running")
    await harness.place()
    [first], [second] = await harness.tasks(ended), await harness.tasks(running)
    await harness.apply(Change(first.id, T.RUNNING), Change(second.id, T.RUNNING), Change(first.id, T.SUCCEEDED))
    assert await charged(harness) == sums(used=1)


async def test_a_lost_task_is_charged_to_its_node_alone(harness: Harness):
    node_id = await harness.node("n1")
    [task] = await harness.run(await harness.submit("w"))
    await harness.move(task, T.LOST, freed=False)
    assert await charged(harness) == NOTHING
    assert await harness.counters(node_id) == (0, 0, 1000)
    await harness.free_lost(task.id)
    assert await charged(harness) == NOTHING
    assert await harness.counters(node_id) == (0, 0, 0)


async def test_a_hold_counts_as_reserved_and_is_counted_once(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    assert await charged(harness) == sums(reserved=1)
    await harness.database.write(lambda c: holds.admit(c, workload_id, actor="test", now=now()))
    assert await charged(harness) == sums(reserved=1)


async def test_releasing_a_hold_frees_the_quota_of_the_tenant(harness: Harness):
    node_id = await harness.node("n1")
    workload_id = await harness.submit("w")
    await harness.commit(await decision_on(harness, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harness.database.write(
        lambda c: holds.release(c, workload_id, Reason("expired", "too late"), actor="test", now=now())
    )
    assert await charged(harness) == NOTHING


async def test_a_private_workload_counts_as_a_session_but_its_slots_are_not_charged(harness: Harness):
    await harness.node("n1")
    workload_id = await harness.submit("secret", replicas=2)
    await make_private(harness, workload_id)
    await harness.run(workload_id)
    assert await charged(harness) == {"private-sessions": (0, 1)}


async def test_a_service_counts_as_one_session_while_a_replica_has_a_node(harness: Harness):
    await harness.node("n1")
    workload_id = await harness.submit("web", replicas=2)
    first, _ = await harness.run(workload_id)
    await harness.move(first, T.FAILED)
    assert await charged(harness) == sums(used=1)
    await harness.replace_ended()
    await harness.place()
    assert (await charged(harness))["sessions"] == (0, 1)
    await harness.stop(workload_id)
    for task in await harness.tasks(workload_id, current=False):
        await harness.move(task, T.CANCELLED)
    assert await charged(harness) == NOTHING


async def test_mirrors_get_usage_events_of_tenants_and_readers_of_the_feed_do_not(harness: Harness):
    await harness.node("n1")
    await harness.submit("w")
    await harness.place()
    who = harness.principal
    for id in (who.user_id, who.project_id, who.domain_id):
        assert [(e.noun, e.kind) for e in await harness.feed(id)] == [("tenant", "usage")]


@on_postgresql
@pytest.mark.parametrize("mode", [Binding.OPTIMISTIC, Binding.PESSIMISTIC])
async def test_concurrent_starts_and_ends_on_many_nodes_lock_in_one_order(
    harness: Harness, migrated_url: str, mode: Binding, retried: list[Exception]
):
    """Nothing is retried, since no two transactions wait for each other."""
    nodes = [await harness.node(f"n{number}", cpu=100) for number in range(4)]
    ids = [await harness.submit(f"w{number}", slots={} if number % 2 else {"gpu": 0}) for number in range(24)]
    decisions = [await decision_on(harness, id, [nodes[number % 4]]) for number, id in enumerate(ids)]
    databases = [Database(migrated_url) for _ in range(4)]

    async def live(number: int) -> None:
        one = Harness(databases[number], harness.principal, harness.pool, harness.leadership)
        for id, decision in list(zip(ids, decisions, strict=True))[number::4]:
            await one.commit(decision, mode=mode)
            [task] = await one.tasks(id)
            await one.move(task, T.RUNNING, T.SUCCEEDED)

    try:
        await asyncio.gather(*(live(number) for number in range(4)))
    finally:
        for database in databases:
            await database.close()
    assert retried == []
    assert await charged(harness) == NOTHING
