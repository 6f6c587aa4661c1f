"""Explanations and dry runs: who may ask, and what the record holds."""

from typing import Any

from mooring.model.lifecycle import TaskStatus
from tests.api.world import World

BIG = [{"image": "nginx", "resources": {"cpu": 64}}]


async def explained(world: World, headers: dict[str, str], ref: str) -> dict[str, Any]:
    answer = await world.client.get(f"/api/workloads/{ref}/explanation", headers=headers)
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


async def tried(world: World, headers: dict[str, str], **more: Any) -> dict[str, Any]:
    body = {"containers": [{"image": "nginx", "resources": {"cpu": 2}}], "pool": "simulated", **more}
    answer = await world.client.post("/api/workloads/dry-run", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


async def test_the_explanation_of_a_pending_workload_names_what_each_node_lacks(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    await world.add_node("n2", resources={"cpu": 16, "memory": "16Gi"})
    workload_id = await world.submit(headers, name="big", containers=BIG)
    record = await explained(world, headers, "big")
    assert (record["id"], record["name"], record["status"]) == (workload_id, "big", "PENDING")
    assert (record["outcome"], record["nodes"], record["candidates"]) == ("waiting", 2, 0)
    assert record["summary"] == "0 of 2 nodes: 2 lack 64 cpu (best has 16)"
    assert record["reason"]["message"] == record["summary"]
    assert [(removed["by"], removed["nodes"]) for removed in record["removed"]] == [("resources", 2)]
    assert record["removed"][0]["details"]["lacking"]["cpu"]["needs"] == 64000
    assert [miss["node"] for miss in record["nearest_misses"]] == ["n2", "n1"]
    assert (record["winner"], record["placed_on"]) == (None, [])
    assert [(task["index"], task["node"], task["status"]) for task in record["tasks"]] == [(0, None, "PENDING")]


async def test_an_explanation_is_as_current_as_the_nodes(world: World):
    headers = await world.user("ada")
    await world.submit(headers, name="big", containers=BIG)
    assert (await explained(world, headers, "big"))["summary"] == "pool 'simulated' has no nodes"
    await world.add_node("n1", resources={"cpu": 100, "memory": "16Gi"})
    record = await explained(world, headers, "big")
    assert (record["outcome"], record["winner"]["node"]) == ("placed", "n1")


async def test_the_explanation_of_a_placed_workload_compares_its_node(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    await world.add_node("n2")
    workload_id = await world.submit(headers, name="train")
    await world.move(workload_id, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    record = await explained(world, headers, "train")
    assert (record["status"], record["outcome"]) == ("RUNNING", "placed")
    assert (record["winner"]["node"], record["runner_up"]["node"]) == ("n1", "n2")
    # Without its own task the nodes are alike.
    assert record["winner"]["scores"] == record["runner_up"]["scores"]
    assert set(record["winner"]["scores"]) == set(record["weights"])
    assert record["tasks"][0] == {
        "index": 0,
        "node": "n1",
        "status": "RUNNING",
        "score": 0.87,
        "ports": [],
        "devices": {},
    }


async def test_an_ended_workload_is_not_placed_again(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    workload_id = await world.submit(headers, name="train")
    await world.move(workload_id, TaskStatus.SCHEDULED, TaskStatus.RUNNING, TaskStatus.FAILED)
    record = await explained(world, headers, "train")
    assert (record["outcome"], record["status"], record["winner"]) == ("ended", "FAILED", None)
    assert record["reason"]["message"] == "it broke"


async def test_only_the_owner_and_admins_may_ask(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    workload_id = await world.submit(ada, name="train")
    for ref in ("train", workload_id, "nothing"):
        answer = await world.client.get(f"/api/workloads/{ref}/explanation", headers=bob)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert (await explained(world, await world.admin(), workload_id))["name"] == "train"
    assert (await world.client.get(f"/api/workloads/{workload_id}/explanation")).status_code == 401
    assert (await world.client.post("/api/workloads/dry-run", json={"containers": BIG})).status_code == 401


async def test_an_explanation_reveals_nothing_about_other_tenants(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    await world.add_node("n1")
    secret = await world.submit(bob, name="bobs-secret", labels={"app": "bobs-app"})
    await world.move(secret, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    await world.submit(ada, name="big", containers=[{"image": "nginx", "resources": {"cpu": 8}}])
    answer = await world.client.get("/api/workloads/big/explanation", headers=ada)
    # Eight less the half core of the other one.
    assert answer.json()["summary"] == "0 of 1 node: 1 lacks 8 cpu (best has 7.5)"
    assert "bob" not in answer.text


async def test_a_dry_run_shows_where_the_tasks_would_go_and_writes_nothing(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    await world.add_node("n2", resources={"cpu": 16, "memory": "16Gi"})
    before = await world.counts()
    record = await tried(world, headers, name="web", kind="deployment", replicas=3)
    assert (record["id"], record["status"], record["name"], record["outcome"]) == (None, None, "web", "placed")
    assert {task["node"] for task in record["tasks"]} == {"n1", "n2"}
    assert [task["status"] for task in record["tasks"]] == ["PLACED"] * 3
    assert record["winner"]["node"] == record["tasks"][0]["node"] == "n2"
    assert record["runner_up"]["node"] == "n1"
    assert record["reason"] is None
    assert await world.counts() == before
    # Asked again, the trial before has left nothing behind.
    assert (await tried(world, headers, name="web", kind="deployment", replicas=3)) == record


async def test_a_dry_run_says_why_it_would_wait_or_fail(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    part = await tried(world, headers, replicas=5)
    # Four of two cores each on the node with eight.
    assert part["outcome"] == "placed"
    assert [task["node"] for task in part["tasks"]] == ["n1"] * 4 + [None]
    assert part["reason"]["message"].startswith("4 of 5 tasks placed; for the next, 0 of 1 node: 1 lacks 2 cpu")
    whole = await tried(world, headers, replicas=5, on_insufficient="fail")
    assert (whole["outcome"], whole["tasks"][0]["node"]) == ("impossible", None)


async def test_a_dry_run_is_refused_where_the_submission_would_be(world: World):
    headers = await world.user("ada")
    await world.submit(headers, name="web")
    for body, status, code in (
        ({"name": "web", "containers": BIG}, 409, "name-taken"),
        ({"pool": "nowhere", "containers": BIG}, 422, "unknown-pool"),
        ({"containers": []}, 422, "invalid-input"),
        ({"containers": [{"resources": {"cpu": 1}}]}, 422, "nothing-to-run"),
    ):
        answer = await world.client.post("/api/workloads/dry-run", json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_placement_preferences_are_part_of_a_dry_run(world: World):
    headers = await world.user("ada")
    await world.add_node("n1", labels={"zone": "a"}, taints=[{"key": "gpu"}])
    await world.add_node("n2", labels={"zone": "b"})
    await world.add_node("n3")
    wanted = {"node_selector": {"zone": "a"}}
    record = await tried(world, headers, placement=wanted)
    assert record["outcome"] == "waiting"
    assert record["summary"] == (
        "0 of 3 nodes: 2 without the requested labels (zone=a), 1 with untolerated taint gpu:NoSchedule"
    )
    # One filter alone turns it down: that is as near as it gets.
    assert record["nearest_misses"][0]["node"] == "n1"
    apart = {"anti_affinity": [{"labels": {"app": "web"}}]}
    record = await tried(world, headers, labels={"app": "web"}, placement=apart, replicas=3)
    assert sorted(task["node"] or "" for task in record["tasks"]) == ["", "n2", "n3"]
    assert record["reason"]["code"] == "task-anti-affinity"


async def test_a_node_is_not_forbidden_to_a_task_by_that_very_task(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    apart = {"anti_affinity": [{"labels": {"app": "web"}}]}
    workload_id = await world.submit(headers, name="web", labels={"app": "web"}, placement=apart)
    await world.move(workload_id, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    record = await explained(world, headers, "web")
    assert (record["candidates"], record["winner"]["node"]) == (1, "n1")
    assert [node["node"] for node in record["placed_on"]] == ["n1"]
    assert (await tried(world, headers, labels={"app": "web"}, placement=apart))["outcome"] == "waiting"


async def test_gang_options_are_part_of_a_dry_run(world: World):
    headers = await world.user("ada")
    await world.add_node("n1", labels={"zone": "a"})
    await world.add_node("n2", labels={"zone": "b"}, resources={"cpu": 16, "memory": "16Gi"})
    # Each task asks for two cores; n1 has eight.
    single = await tried(world, headers, replicas=5, single_node=True)
    assert [task["node"] for task in single["tasks"]] == ["n2"] * 5
    packed = await tried(world, headers, replicas=4, pack=["zone"])
    assert {task["node"] for task in packed["tasks"]} == {"n1"}
    short = await tried(world, headers, replicas=20, min_tasks=13)
    assert short["outcome"] == "waiting"
    assert short["reason"]["message"].startswith(
        "capacity for 12 of 20 tasks, of which 13 start together; for the next, "
    )
    placed = await tried(world, headers, replicas=20, min_tasks=12)
    assert sum(task["node"] is not None for task in placed["tasks"]) == 12


async def test_a_workload_shows_its_gang_options(world: World):
    headers = await world.user("ada")
    group = {"name": "g", "direction": "pack", "enforcement": "strict"}
    asked = {"replicas": 3, "min_tasks": 2, "pack": ["zone"], "min_available": 1, "preemptible": False}
    await world.submit(headers, name="web", group=group, **asked)
    shown = (await world.client.get("/api/workloads/web", headers=headers)).json()
    assert {name: shown[name] for name in asked} == asked
    assert (shown["group"], shown["single_node"], shown["preempts"], shown["labels"]) == ("g", False, True, {})
