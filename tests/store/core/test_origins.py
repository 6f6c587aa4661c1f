"""Queries written for the systems that Mooring descends from run unchanged on the views of the schema `origins`."""

from decimal import Decimal
from typing import Any

from sqlalchemy import text

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Kind
from tests.store.databases import on_postgresql
from tests.store.harness import Harness

pytestmark = on_postgresql

OCCUPANCY = """
SELECT k.access_key, k.user_uuid, k.group_id, k.domain_name, k.agent, ra.slot_name,
       SUM(CASE WHEN k.status IN ('RUNNING', 'TERMINATING') THEN ra.used ELSE ra.requested END) AS amount
FROM resource_allocations ra
JOIN kernels k ON k.id = ra.kernel_id
WHERE k.scaling_group = :scaling_group AND k.status = ANY(:resource_statuses)
GROUP BY k.access_key, k.user_uuid, k.group_id, k.domain_name, k.agent, ra.slot_name
"""
DOMAIN_USE = """
SELECT ra.slot_name, SUM(ra.used) AS current_usage
FROM resource_allocations ra
JOIN kernels k ON k.id = ra.kernel_id
WHERE k.domain_name = :domain_name AND k.status = ANY(:resource_statuses)
GROUP BY ra.slot_name
"""
DEPLOYMENT = "SELECT id, name, status, target_replicas, created_at FROM deployments WHERE name = :name"
REPLICAS = """
SELECT r.id, r.status, n.node_id FROM deployment_replicas r JOIN nodes n ON r.node_id = n.id
WHERE r.deployment_id = :deployment_id
"""
RESOURCES = """
SELECT cpu_cores, memory_mb, gpu_units, storage_gb FROM deployment_resources WHERE deployment_id = :deployment_id
"""
HISTORY = """
SELECT old_status, new_status, changed_at, reason FROM deployment_status_history
WHERE deployment_id = :deployment_id ORDER BY changed_at
"""
OCCUPYING = ["SCHEDULED", "PREPARING", "RUNNING", "TERMINATING"]


async def ask(harness: Harness, query: str, **parameters: Any) -> list[Any]:
    async with harness.database.read() as connection:
        await connection.execute(text("SET search_path = origins"))
        rows = list(await connection.execute(text(query), parameters))
        await connection.execute(text("RESET search_path"))
        return rows


async def test_queries_on_the_origins_views_return_cores_and_bytes(harness: Harness):
    await harness.node("n1", cpu=4, slots={"gpu": 2, "storage": "100Gi"})
    web = await harness.submit("web", replicas=2, cpu="1500m", memory="512Mi", slots={"gpu": 1, "storage": "10Gi"})
    await harness.run(web)
    job = await harness.submit("job", kind=Kind.SESSION, cpu="250m", memory="1Gi")
    await harness.place()

    rows = await ask(harness, OCCUPANCY, scaling_group="default", resource_statuses=OCCUPYING)
    who = harness.principal
    for row in rows:
        assert (row.access_key, row.user_uuid, row.group_id) == (who.access_key, who.user_id, who.project_id)
        assert (row.domain_name, row.agent) == ("default", "n1")
    # Two replicas that run with 1.5 cores each, and a job that is placed with 0.25.
    amounts = {row.slot_name: row.amount for row in rows}
    assert amounts == {"cpu": Decimal("3.25"), "memory": 2 * 2**29 + 2**30, "gpu": 2, "storage": 20 * 2**30}
    assert str(amounts["cpu"]) == "3.250000"
    assert str(amounts["memory"]) == "2147483648.000000"

    # Only what runs has a use; what is placed has none yet.
    use = {
        r.slot_name: r.current_usage
        for r in await ask(harness, DOMAIN_USE, domain_name="default", resource_statuses=OCCUPYING)
    }
    assert use == {"cpu": 3, "memory": 2**30, "gpu": 2, "storage": 20 * 2**30}
    assert await ask(harness, OCCUPANCY, scaling_group="simulated", resource_statuses=OCCUPYING) == []

    await harness.stop(job)
    for task in await harness.tasks(job):
        await harness.move(task, TaskStatus.CANCELLED)
    rows = await ask(harness, OCCUPANCY, scaling_group="default", resource_statuses=[*OCCUPYING, "CANCELLED"])
    assert {row.slot_name: row.amount for row in rows}["cpu"] == 3


async def test_a_deployment_is_found_with_its_replicas_resources_and_history(harness: Harness):
    await harness.node("n1", cpu=4, slots={"gpu": 2, "storage": "100Gi"})
    web = await harness.submit("web", replicas=2, cpu="1500m", memory="512Mi", slots={"gpu": 1, "storage": "10Gi"})
    tasks = await harness.run(web)

    [deployment] = await ask(harness, DEPLOYMENT, name="web")
    assert (deployment.id, deployment.status, deployment.target_replicas) == (web, "running", 2)
    replicas = await ask(harness, REPLICAS, deployment_id=web)
    assert sorted(replicas) == sorted((task.id, "running", "n1") for task in tasks)
    assert [tuple(row) for row in await ask(harness, RESOURCES, deployment_id=web)] == [(1.5, 512, 1, 10)]
    changes = [(r.old_status, r.new_status, r.reason) for r in await ask(harness, HISTORY, deployment_id=web)]
    assert changes == [
        ("none", "pending", "Deployment created by user"),
        ("pending", "scheduled", "Scheduled 2 replicas"),
        ("scheduled", "running", "All 2 replicas started"),
    ]

    await harness.stop(web, remove=True)
    for task in tasks:
        await harness.move(task, TaskStatus.CANCELLED)
    [deployment] = await ask(harness, DEPLOYMENT, name="web")
    assert deployment.status == "deleted"
    assert {row.status for row in await ask(harness, REPLICAS, deployment_id=web)} == {"stopped"}


async def test_end_statuses_have_their_original_names(harness: Harness):
    await harness.node("n1")
    job = await harness.submit("job", kind=Kind.SESSION, replicas=3)
    done, failed, lost = await harness.run(job)
    await harness.move(done, TaskStatus.SUCCEEDED)
    await harness.move(failed, TaskStatus.FAILED)
    await harness.move(lost, TaskStatus.LOST, freed=False)
    rows = await ask(harness, "SELECT id, status FROM kernels")
    assert {row.id: row.status for row in rows} == {done.id: "TERMINATED", failed.id: "ERROR", lost.id: "TERMINATING"}
    [node] = await ask(harness, "SELECT * FROM nodes")
    assert (node.node_id, node.status, node.cpu_cores, node.memory_mb) == ("n1", "active", 8.0, 16384)
    await harness.free_lost(lost.id)
    rows = await ask(harness, "SELECT status FROM kernels WHERE id = :id", id=lost.id)
    assert [row.status for row in rows] == ["ERROR"]


async def test_a_lost_task_occupies_its_node_until_it_is_freed(harness: Harness):
    await harness.node("n1")
    job = await harness.submit("job", kind=Kind.SESSION, cpu="1500m")
    await harness.place()
    [task] = await harness.tasks(job)
    await harness.move(task, TaskStatus.LOST, freed=False)
    rows = await ask(harness, OCCUPANCY, scaling_group="default", resource_statuses=OCCUPYING)
    assert {row.slot_name: row.amount for row in rows}["cpu"] == Decimal("1.5")


async def test_json_amounts_have_the_same_units_as_rows_and_kernels_have_type_and_private(harness: Harness):
    await harness.node("n1", cpu=4, slots={"gpu": 2})
    await harness.run(await harness.submit("web", cpu="1500m", slots={"gpu": 1}, type="interactive"))
    [kernel] = await ask(harness, "SELECT * FROM kernels")
    assert kernel.occupied_slots == kernel.requested_slots == {"cpu": 1.5, "memory": 2**30, "gpu": 1}
    assert (kernel.session_type, kernel.private) == ("interactive", False)
    [session] = await ask(harness, "SELECT * FROM sessions")
    assert (session.name, session.status, session.session_type) == ("web", "RUNNING", "interactive")
    [agent] = await ask(harness, "SELECT * FROM agents")
    assert (agent.id, agent.status, agent.available_slots["cpu"], agent.occupied_slots["cpu"]) == (
        "n1",
        "ALIVE",
        4,
        1.5,
    )


async def test_slots_have_backend_ai_names_if_the_session_sets_them(harness: Harness):
    await harness.node("n1", slots={"gpu": 2})
    async with harness.database.snapshot() as connection:
        for names, gpu in (("backend.ai", "cuda.device"), ("backend.ai/shares", "cuda.shares"), ("mooring", "gpu")):
            await connection.execute(text(f"SET LOCAL origins.slot_names = '{names}'"))
            for view in ("agent_resources", "resource_slot_types"):
                rows = await connection.execute(text(f"SELECT slot_name FROM origins.{view}"))
                found = set(rows.scalars())
                assert {"cpu", gpu, "memory" if names == "mooring" else "mem"} <= found
