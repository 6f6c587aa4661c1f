"""Occupancy from the ledger, over all axes."""

from uuid import UUID

from sqlalchemy import select, update

from mooring.model.lifecycle import TaskStatus
from mooring.store import occupancy
from mooring.store.occupancy import Occupied
from mooring.store.tables import node_resources, tenant_resources, workloads
from tests.store.harbour import Harbour


async def test_every_axis_adds_up_to_what_the_counters_say(harbour: Harbour):
    nodes = {str(await harbour.node(name)) for name in ("n1", "n2")}
    running = await harbour.submit("running", replicas=2, cpu=2)
    await harbour.run(running)
    await harbour.submit("scheduled", cpu=1)
    private = await harbour.submit("private", cpu=1)
    await harbour.database.write(
        lambda c: c.execute(update(workloads).where(workloads.c.id == private).values(private=True))
    )
    await harbour.place()
    lost = await harbour.run(await harbour.submit("lost", cpu=3))
    await harbour.move(lost[0], TaskStatus.LOST, freed=False)
    await harbour.move((await harbour.run(await harbour.submit("ended")))[0], TaskStatus.FAILED)
    await harbour.submit("waiting", cpu=500)
    async with harbour.database.read() as connection:
        found = await occupancy.all_axes(connection)
        of_node = {node: await occupancy.of_node(connection, UUID(node)) for node in nodes}
    assert {row.axis for row in found} == {"keypair", "user", "project", "domain", "node"}
    counted = {
        Occupied("node", "default", str(row.node_id), row.slot_name, row.held + row.reserved, row.used)
        for row in await harbour.rows(select(node_resources))
    }
    assert {row for row in found if row.axis == "node"} == counted
    assert {(row.id, row.slot): (row.reserved, row.used) for row in counted} == {
        (node, slot): amounts for node, slots in of_node.items() for slot, amounts in slots.items()
    }
    table = tenant_resources.c
    charged = await harbour.rows(
        select(tenant_resources).where(
            table.pool == "", table.slot_name.in_(["cpu", "memory"]), table.reserved + table.used > 0
        )
    )
    assert {row for row in found if row.axis != "node"} == {
        Occupied(row.scope, "", row.tenant_id, row.slot_name, row.reserved, row.used) for row in charged
    }
    user = str(harbour.principal.user_id)
    assert Occupied("user", "", user, "cpu", 1000, 4000) in found
