"""Who occupies how much, from one statement over the ledger."""

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store import occupancy, pools
from tests.store.harbour import Harbour
from tests.store.test_charges import make_private

T = TaskStatus
ONE = {"cpu": 1000, "memory": 1 << 30}


def times(number: int) -> dict[str, int]:
    return {slot: number * amount for slot, amount in ONE.items()}


async def test_tenants_occupy_over_all_pools_and_nodes_in_their_own(harbour: Harbour):
    """Running, placed, private and lost work in one pool, and placed work in another."""
    node_id = await harbour.node("n1")
    running, placed, private, lost = [
        await harbour.submit(name, replicas=2) for name in ("running", "placed", "private", "lost")
    ]
    await make_private(harbour, private)
    await harbour.run(running)
    await harbour.place()
    for task in await harbour.tasks(lost):
        await harbour.move(task, T.LOST, freed=False)
    for task in await harbour.tasks(placed):
        await harbour.move(task, T.TERMINATING)
    pool = await harbour.database.write(
        lambda c: pools.ensure(c, "other", runtimes=["process"], simulated=False, now=now())
    )
    other = Harbour(harbour.database, harbour.principal, pool, harbour.office)
    other_node = await other.node("n2")
    await other.submit("elsewhere")
    await other.place()
    await harbour.submit("waiting", cpu=100)

    async with harbour.database.snapshot() as connection:
        found = await occupancy.occupancy(connection)
        assert await occupancy.of_node(connection, node_id) == times(8)
        assert await occupancy.of_node(connection, other_node) == times(1)
    who = harbour.principal
    assert found.keypairs == {who.access_key: times(5)}
    assert found.users == {who.user_id: times(5)}
    assert found.projects == {who.project_id: times(5)}
    assert found.domains == {who.domain_id: times(5)}
    assert found.nodes == {"default": {node_id: times(8)}, "other": {other_node: times(1)}}


async def test_what_was_freed_and_what_nobody_has_is_not_there(harbour: Harbour):
    node_id = await harbour.node("n1")
    [task] = await harbour.run(await harbour.submit("w"))
    await harbour.move(task, T.SUCCEEDED)
    async with harbour.database.snapshot() as connection:
        assert await occupancy.occupancy(connection) == occupancy.Occupancy()
        assert await occupancy.of_node(connection, node_id) == {}
