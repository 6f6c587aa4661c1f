"""What tenants are charged with: from the moment that a place is kept until the end, and never twice."""

import asyncio
from uuid import UUID

import pytest
from sqlalchemy import update

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.model.quotas import Scope, Tenant
from mooring.model.reasons import Reason
from mooring.store import holds, quotas
from mooring.store.changes import Change
from mooring.store.engine import Database
from mooring.store.tables import workloads
from tests.store.databases import on_postgresql
from tests.store.harbour import Harbour, decision_on

T = TaskStatus
NOTHING: dict[str, tuple[int, int]] = {}


def tenants(harbour: Harbour) -> list[Tenant]:
    who = harbour.principal
    return [
        Tenant(Scope.KEYPAIR, who.access_key),
        Tenant(Scope.USER, str(who.user_id)),
        Tenant(Scope.PROJECT, str(who.project_id)),
        Tenant(Scope.DOMAIN, str(who.domain_id)),
    ]


async def charged(harbour: Harbour) -> dict[str, tuple[int, int]]:
    """(reserved, used) by slot, which is the same for all that are charged with the one user's work in one pool."""
    keypair, user, project, domain = tenants(harbour)
    async with harbour.database.read() as connection:
        found = await quotas.usage(connection, tenants(harbour))
    everybody = [(keypair, ""), (user, ""), (user, "default"), (project, ""), (project, "default"), (domain, "")]
    assert set(found) <= set(everybody)
    [same] = {tuple(sorted(found.get(who, {}).items())) for who in everybody}
    return {slot: (amount.reserved, amount.used) for slot, amount in same}


def sums(reserved: int = 0, used: int = 0, sessions: int = 1) -> dict[str, tuple[int, int]]:
    """Of so many tasks of a core and 1Gi."""
    return {
        "cpu": (1000 * reserved, 1000 * used),
        "memory": (reserved << 30, used << 30),
        "sessions": (0, sessions),
    }


async def make_private(harbour: Harbour, workload_id: UUID) -> None:
    private = update(workloads).where(workloads.c.id == workload_id).values(private=True)
    await harbour.database.write(lambda c: c.execute(private))


async def test_a_task_is_charged_as_reserved_then_as_used_until_it_has_ended(harbour: Harbour):
    await harbour.node("n1")
    workload_id = await harbour.submit("web", replicas=2)
    assert await charged(harbour) == NOTHING
    await harbour.place()
    assert await charged(harbour) == sums(reserved=2)
    first, second = await harbour.tasks(workload_id)
    await harbour.move(first, T.RUNNING)
    assert await charged(harbour) == sums(reserved=1, used=1)
    await harbour.move(first, T.TERMINATING)
    await harbour.move(second, T.TERMINATING)
    assert await charged(harbour) == sums(reserved=1, used=1)
    await harbour.move(first, T.CANCELLED)
    assert await charged(harbour) == sums(reserved=1)
    await harbour.move(second, T.CANCELLED)
    await harbour.move(second, T.CANCELLED)
    assert await charged(harbour) == NOTHING


async def test_what_happens_in_one_transaction_is_charged_as_a_whole(harbour: Harbour):
    await harbour.node("n1")
    ended, running = await harbour.submit("ended"), await harbour.submit("running")
    await harbour.place()
    [first], [second] = await harbour.tasks(ended), await harbour.tasks(running)
    await harbour.apply(Change(first.id, T.RUNNING), Change(second.id, T.RUNNING), Change(first.id, T.SUCCEEDED))
    assert await charged(harbour) == sums(used=1)


async def test_a_lost_task_is_charged_to_its_node_alone(harbour: Harbour):
    node_id = await harbour.node("n1")
    [task] = await harbour.run(await harbour.submit("w"))
    await harbour.move(task, T.LOST, freed=False)
    assert await charged(harbour) == NOTHING
    assert await harbour.counters(node_id) == (0, 0, 1000)
    await harbour.free_lost(task.id)
    assert await charged(harbour) == NOTHING
    assert await harbour.counters(node_id) == (0, 0, 0)


async def test_a_place_that_is_kept_counts_as_reserved_and_is_not_counted_twice(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    assert await charged(harbour) == sums(reserved=1)
    await harbour.database.write(lambda c: holds.admit(c, workload_id, actor="test", now=now()))
    assert await charged(harbour) == sums(reserved=1)


async def test_a_hold_that_is_given_up_frees_the_tenant(harbour: Harbour):
    node_id = await harbour.node("n1")
    workload_id = await harbour.submit("w")
    await harbour.commit(await decision_on(harbour, workload_id, [node_id]), mode=Binding.TWO_PHASE)
    await harbour.database.write(
        lambda c: holds.release(c, workload_id, Reason("expired", "too late"), actor="test", now=now())
    )
    assert await charged(harbour) == NOTHING


async def test_private_work_is_counted_but_its_slots_are_not_charged(harbour: Harbour):
    await harbour.node("n1")
    workload_id = await harbour.submit("secret", replicas=2)
    await make_private(harbour, workload_id)
    await harbour.run(workload_id)
    assert await charged(harbour) == {"private-sessions": (0, 1)}


async def test_a_service_counts_as_one_session_while_some_replica_has_a_node(harbour: Harbour):
    await harbour.node("n1")
    workload_id = await harbour.submit("web", replicas=2)
    first, _ = await harbour.run(workload_id)
    await harbour.move(first, T.FAILED)
    assert await charged(harbour) == sums(used=1)
    await harbour.replace_ended()
    await harbour.place()
    assert (await charged(harbour))["sessions"] == (0, 1)
    await harbour.stop(workload_id)
    for task in await harbour.tasks(workload_id, current=False):
        await harbour.move(task, T.CANCELLED)
    assert await charged(harbour) == NOTHING


async def test_those_who_follow_are_told_whose_use_has_changed_but_not_the_readers_of_events(harbour: Harbour):
    await harbour.node("n1")
    await harbour.submit("w")
    await harbour.place()
    who = harbour.principal
    for id in (who.user_id, who.project_id, who.domain_id):
        assert [(e.noun, e.kind) for e in await harbour.feed(id)] == [("tenant", "usage")]


@on_postgresql
@pytest.mark.parametrize("mode", [Binding.OPTIMISTIC, Binding.PESSIMISTIC])
async def test_starts_and_ends_on_many_nodes_at_once_wait_for_each_other_in_one_order(
    harbour: Harbour, migrated_url: str, mode: Binding, retried: list[Exception]
):
    """Nothing is tried again: no two of them wait for each other."""
    nodes = [await harbour.node(f"n{number}", cpu=100) for number in range(4)]
    ids = [await harbour.submit(f"w{number}", slots={} if number % 2 else {"gpu": 0}) for number in range(24)]
    decisions = [await decision_on(harbour, id, [nodes[number % 4]]) for number, id in enumerate(ids)]
    databases = [Database(migrated_url) for _ in range(4)]

    async def live(number: int) -> None:
        one = Harbour(databases[number], harbour.principal, harbour.pool, harbour.office)
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
    assert await charged(harbour) == NOTHING
