"""The capacity of pools in sums."""

from mooring.model.lifecycle import TaskStatus
from tests.api.world import World


async def test_capacity_is_summed_by_pool_with_the_nodes_by_state(world: World):
    ada, admin = await world.user("ada"), await world.admin()
    for name in ("n1", "n2", "n3"):
        await world.add_node(name)
    running = await world.submit(ada, name="running", containers=[{"image": "a", "resources": {"cpu": 8}}])
    await world.move(running, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    assert (await world.client.post("/api/nodes/n3/drain", headers=admin)).status_code == 200
    [pool] = (await world.client.get("/api/capacity", headers=ada)).json()["pools"]
    nodes = (await world.client.get("/api/nodes", headers=ada)).json()["nodes"]
    assert (pool["pool"], pool["states"]) == ("simulated", {"READY": 2, "DRAINING": 1})
    cpu = pool["slots"]["cpu"]
    assert float(cpu["allocatable"]) == sum(float(node["slots"]["cpu"]["allocatable"]) for node in nodes)
    assert (cpu["used"], float(cpu["free"])) == ("8", float(cpu["allocatable"]) - 8)
    assert (await world.client.get("/api/capacity")).status_code == 401
