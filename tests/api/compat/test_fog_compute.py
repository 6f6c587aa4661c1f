"""Deployments in the words of fog-compute."""

from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from mooring.api.compat.fog_compute import as_workload, check_limits
from mooring.api.services import DeploymentLimits
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus as T
from mooring.model.resources.slots import parse_amounts
from mooring.wire.workloads.fog_compute import DeploymentRequest
from tests.api.world import World

RUN = (T.SCHEDULED, T.PREPARING, T.RUNNING)


def request(**more: Any) -> dict[str, Any]:
    """The request of the published example, word for word unless changed."""
    return {
        "name": "web-api",
        "type": "compute",
        "container_image": "nginx:latest",
        "replicas": 3,
        "resources": {"cpu": 2.0, "memory": 2048, "gpu": 0, "storage": 20},
        **more,
    }


def resources(**more: Any) -> dict[str, Any]:
    return {"resources": {"cpu": 2.0, "memory": 2048, "gpu": 0, "storage": 20, **more}}


async def deploy(world: World, headers: dict[str, str], **more: Any) -> str:
    answer = await world.client.post("/api/deployment/deploy", json=request(**more), headers=headers)
    assert answer.status_code == 202, answer.text
    deployment_id: str = answer.json()["deployment_id"]
    return deployment_id


async def status(world: World, headers: dict[str, str], deployment_id: str) -> dict[str, Any]:
    answer = await world.client.get(f"/api/deployment/status/{deployment_id}", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_published_example_works_word_for_word(world: World):
    await world.add_node("n1")
    login = await world.client.post(
        "/api/auth/login",
        headers={"Content-Type": "application/json"},
        content='{"username": "admin", "password": "admin123"}',
    )
    assert login.json()["token_type"] == "bearer"
    headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
    answer = await world.client.post(
        "/api/deployment/deploy",
        headers=headers | {"Content-Type": "application/json"},
        content="""{
    "name": "web-api",
    "type": "compute",
    "container_image": "nginx:latest",
    "replicas": 3,
    "resources": {
      "cpu": 2.0,
      "memory": 2048,
      "gpu": 0,
      "storage": 20
    }
  }""",
    )
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["success"], accepted["status"], accepted["replicas"]) == (True, "pending", 3)
    deployment_id = accepted["deployment_id"]
    assert accepted["message"].startswith(f"Deployment queued. Use /status/{deployment_id} to track progress.")
    assert "simulated" in accepted["message"]
    found = await status(world, headers, deployment_id)
    assert (found["deployment_id"], found["status"], len(found["replicas"])) == (deployment_id, "pending", 3)
    first = found["history"][-1]
    assert (first["old_status"], first["new_status"], first["changed_by"]) == ("none", "pending", "admin")
    assert first["reason"] == "Deployment created by user"


async def test_a_named_pool_is_not_explained(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    answer = await world.client.post("/api/deployment/deploy", json=request(pool="simulated"), headers=headers)
    assert answer.json()["message"].endswith("to track progress.")


async def test_work_without_a_pool_hears_that_all_nodes_are_simulated(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    body = {"name": "job", "containers": [{"image": "alpine", "command": ["true"]}]}
    unnamed = await world.client.post("/api/workloads", json=body, headers=headers)
    assert "It runs on simulated nodes" in unnamed.json()["message"]
    named = await world.client.post(
        "/api/workloads", json=body | {"name": "named", "pool": "simulated"}, headers=headers
    )
    assert (named.json()["simulated"], named.json()["message"]) == (True, "Accepted into pool 'simulated'.")


async def test_a_deployment_without_replicas_is_scaled_to_zero(world: World):
    headers = await world.user("ada")
    deployment_id = await deploy(world, headers)
    path = f"/api/workloads/{deployment_id}"
    scaled = await world.client.post(f"{path}/scale", json={"replicas": 0}, headers=headers)
    assert (scaled.status_code, scaled.json()["health"]) == (202, "scaled-to-zero")
    found = (await world.client.get(path, headers=headers)).json()
    assert (found["status"], found["health"], found["health_reason"]) == ("RUNNING", "scaled-to-zero", None)
    listed = (await world.client.get("/api/workloads", headers=headers)).json()["workloads"]
    assert [each["health"] for each in listed] == ["scaled-to-zero"]


async def test_the_log_describes_a_deployment(world: World):
    headers = await world.user("ada")
    with capture_logs() as lines:
        deployment_id = await deploy(world, headers)
    received = [(line["log_level"], line["event"]) for line in lines]
    assert ("info", "Creating deployment: web-api (compute) for user ada") in received
    assert ("info", f"Created deployment record {deployment_id} for web-api with 3 replicas") in received
    assert ("info", f"Queued deployment {deployment_id} for scheduling") in received


async def test_status_health_and_history_follow_the_replicas(world: World):
    headers = await world.user("ada")
    for node in ("n1", "n2"):
        await world.add_node(node)
    deployment_id = await deploy(world, headers, replicas=2)
    assert (await status(world, headers, deployment_id))["health"] == "unhealthy"
    await world.move(deployment_id, T.SCHEDULED, node="n1", index=0)
    await world.move(deployment_id, T.SCHEDULED, node="n2", index=1)
    found = await status(world, headers, deployment_id)
    assert found["status"] == "scheduled"
    assert [(r["node"], r["status"], r["score"]) for r in found["replicas"]] == [
        ("n1", "starting", 0.87),
        ("n2", "starting", 0.87),
    ]
    for index in (0, 1):
        await world.move(deployment_id, T.PREPARING, index=index)
    await world.move(deployment_id, T.RUNNING, index=0)
    found = await status(world, headers, deployment_id)
    assert (found["health"], found["running_replicas"], found["target_replicas"]) == ("degraded", 1, 2)
    await world.move(deployment_id, T.RUNNING, index=1)
    found = await status(world, headers, deployment_id)
    assert (found["status"], found["health"], found["simulated"]) == ("running", "healthy", True)
    changes = [(row["old_status"], row["new_status"]) for row in found["history"]]
    assert changes == [("scheduled", "running"), ("pending", "scheduled"), ("none", "pending")]


async def test_a_deleted_deployment_stays_readable_and_is_not_deleted_twice(world: World):
    headers = await world.user("ada")
    deployment_id = await deploy(world, headers)
    answer = await world.client.delete(f"/api/deployment/{deployment_id}", headers=headers)
    assert (answer.status_code, answer.json()["status"]) == (202, "deleted")
    assert (await status(world, headers, deployment_id))["status"] == "deleted"
    again = await world.client.delete(f"/api/deployment/{deployment_id}", headers=headers)
    assert (again.status_code, again.json()["code"]) == (409, "deployment-deleted")
    scaled = await world.client.post(f"/api/deployment/scale/{deployment_id}", json={"replicas": 2}, headers=headers)
    assert (scaled.status_code, scaled.json()["code"]) == (409, "deployment-deleted")


async def test_scaling_is_bounded_and_counted(world: World):
    headers = await world.user("ada")
    deployment_id = await deploy(world, headers)
    path = f"/api/deployment/scale/{deployment_id}"
    answer = await world.client.post(path, json={"replicas": 100}, headers=headers)
    assert (answer.status_code, answer.json()["replicas"]) == (202, 100)
    assert answer.json()["message"] == "Scaling from 3 to 100 replicas."
    same = await world.client.post(path, json={"replicas": 100}, headers=headers)
    assert same.json()["message"] == "The deployment has 100 replicas already."
    for replicas in (0, 101, -1, 10**30):
        answer = await world.client.post(path, json={"replicas": replicas}, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert (await status(world, headers, deployment_id))["target_replicas"] == 100


async def test_the_list_filters_sorts_and_pages(world: World):
    headers = await world.user("ada")
    for node in ("n1", "n2"):
        await world.add_node(node)
    ids = {name: await deploy(world, headers, name=name, replicas=1) for name in ("alpha", "bravo", "delta")}
    await deploy(world, headers, name="charlie", type="gateway")
    await world.submit(headers, name="no-deployment")
    await world.move(ids["bravo"], *RUN)
    await world.client.delete(f"/api/deployment/{ids['delta']}", headers=headers)

    async def listed(**query: Any) -> list[tuple[str, str]]:
        answer = await world.client.get("/api/deployment/list", params=query, headers=headers)
        assert answer.status_code == 200
        return [(found["name"], found["status"]) for found in answer.json()["deployments"]]

    assert await listed() == [("charlie", "pending"), ("bravo", "running"), ("alpha", "pending")]
    assert await listed(sort="name", limit=2) == [("alpha", "pending"), ("bravo", "running")]
    assert await listed(sort="status") == [("charlie", "pending"), ("alpha", "pending"), ("bravo", "running")]
    assert await listed(status="running") == [("bravo", "running")]
    assert await listed(status="deleted") == [("delta", "deleted")]
    assert await listed(type="gateway") == [("charlie", "pending")]
    assert await listed(offset=2) == [("alpha", "pending")]
    totals = (await world.client.get("/api/deployment/list?limit=1", headers=headers)).json()
    assert (totals["total"], totals["limit"], totals["offset"]) == (3, 1, 0)
    assert (await world.client.get("/api/deployment/list?limit=101", headers=headers)).status_code == 422


async def test_deployments_of_others_and_other_kinds_are_not_found(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    deployment_id = await deploy(world, ada)
    session_id = await world.submit(ada, name="train")
    for headers, ref in ((bob, deployment_id), (ada, session_id), (ada, str(uuid4())), (ada, "no-id"), (ada, "%00")):
        for method, path in (
            ("GET", f"/api/deployment/status/{ref}"),
            ("POST", f"/api/deployment/scale/{ref}"),
            ("DELETE", f"/api/deployment/{ref}"),
        ):
            body = {"replicas": 2} if method == "POST" else None
            answer = await world.client.request(method, path, headers=headers, json=body)
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert (await status(world, ada, deployment_id))["target_replicas"] == 3


@pytest.mark.parametrize(
    ("cpu", "millicores"), [(2.0, 2000), (2, 2000), (0.5, 500), (1.1, 1100), (0.7, 700), (15.999, 15999)]
)
def test_cores_are_taken_exactly_as_they_were_written(cpu: float, millicores: int):
    workload = as_workload(DeploymentRequest.model_validate(request(**resources(cpu=cpu, memory=513))))
    amounts = parse_amounts(workload.containers[0].resources)
    assert amounts == {"cpu": millicores, "memory": 513 * 2**20, "gpu": 0, "storage": 20 * 2**30}
    assert (workload.kind, workload.gang, workload.max_per_node, workload.on_insufficient) == (
        "deployment",
        True,
        1,
        "fail",
    )


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("resources.cpu", resources(cpu=0.4)),
        ("resources.cpu", resources(cpu=16.001)),
        ("resources.cpu", resources(cpu=-1)),
        ("resources.memory", resources(memory=511)),
        ("resources.memory", resources(memory=10**30)),
        ("resources.gpu", resources(gpu=9)),
        ("resources.gpu", resources(gpu=-1)),
        ("resources.storage", resources(storage=0)),
        ("resources.storage", resources(storage=1001)),
        ("replicas", {"replicas": 0}),
        ("replicas", {"replicas": 11}),
    ],
)
def test_amounts_outside_the_bounds_are_refused_by_name(field: str, body: dict[str, Any]):
    with pytest.raises(InvalidInput, match=f"{field}: a deployment may have"):
        check_limits(DeploymentRequest.model_validate(request(**body)), DeploymentLimits())


def test_the_bounds_are_settings():
    check_limits(DeploymentRequest.model_validate(request(replicas=50)), DeploymentLimits(max_replicas=50))
