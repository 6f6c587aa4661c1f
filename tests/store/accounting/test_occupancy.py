"""Occupancy of tenants and nodes, from one query over the ledger."""

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store.accounting import occupancy
from mooring.store.nodes import pools
from tests.store.commit.test_tenant_usage import make_private
from tests.store.harness import Harness

T = TaskStatus
ONE = {"cpu": 1000, "memory": 1 << 30}


def times(number: int) -> dict[str, int]:
    return {slot: number * amount for slot, amount in ONE.items()}


async def test_tenants_are_summed_over_all_pools_and_nodes_by_pool(harness: Harness):
    """Running, placed, private and lost workloads in one pool, and a placed one in another."""
    node_id = await harness.node("n1")
    running, placed, private, lost = [
        await harness.submit(name, replicas=2) for name in ("running", "placed", "private", "lost")
    ]
    await make_private(harness, private)
    await harness.run(running)
    await harness.place()
    for task in await harness.tasks(lost):
        await harness.move(task, T.LOST, freed=False)
    for task in await harness.tasks(placed):
        await harness.move(task, T.TERMINATING)
    pool = await harness.database.write(
        lambda c: pools.ensure(c, "other", runtimes=["process"], simulated=False, now=now())
    )
    other = Harness(harness.database, harness.principal, pool, harness.leadership)
    other_node = await other.node("n2")
    await other.submit("elsewhere")
    await other.place()
    await harness.submit("waiting", cpu=100)

    async with harness.database.snapshot() as connection:
        found = await occupancy.occupancy(connection)
    who = harness.principal
    assert found.keypairs == {who.access_key: times(5)}
    assert found.users == {who.user_id: times(5)}
    assert found.projects == {who.project_id: times(5)}
    assert found.domains == {who.domain_id: times(5)}
    assert found.nodes == {"default": {node_id: times(8)}, "other": {other_node: times(1)}}


async def test_freed_tasks_and_idle_nodes_are_not_listed(harness: Harness):
    await harness.node("n1")
    [task] = await harness.run(await harness.submit("w"))
    await harness.move(task, T.SUCCEEDED)
    async with harness.database.snapshot() as connection:
        assert await occupancy.occupancy(connection) == occupancy.Occupancy()
