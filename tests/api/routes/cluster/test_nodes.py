"""Nodes, pools and join tokens over HTTP."""

from datetime import UTC, datetime, timedelta

from mooring import clock
from mooring.model.lifecycle import TaskStatus as T
from mooring.store.nodes import join_tokens
from tests.api.world import World


async def test_a_node_shows_its_capacity_and_its_usage(world: World):
    headers = await world.user("ada")
    await world.add_node("n1", region="eu-west", labels={"rack": "r1"})
    await world.add_node("n2")
    resources = {"cpu": "1500m", "memory": "2Gi"}
    workload_id = await world.submit(headers, containers=[{"image": "nginx", "resources": resources}])
    await world.move(workload_id, T.SCHEDULED)
    listed = (await world.client.get("/api/nodes", headers=headers)).json()["nodes"]
    assert [node["name"] for node in listed] == ["n1", "n2"]
    node = listed[0]
    assert (node["pool"], node["status"], node["simulated"], node["region"]) == ("simulated", "READY", True, "eu-west")
    assert (node["tasks"], listed[1]["tasks"]) == (1, 0)
    assert node["slots"]["cpu"] == {
        "capacity": "8",
        "allocatable": "8",
        "held": "0",
        "reserved": "1.5",
        "used": "0",
        "free": "6.5",
    }
    assert node["slots"]["memory"]["free"] == "14Gi"
    assert (await world.client.get("/api/nodes/n1", headers=headers)).json() == node
    assert (await world.client.get("/api/nodes?pool=default", headers=headers)).json() == {"nodes": []}


async def test_the_number_of_devices_of_a_node_is_limited(world: World):
    body = {"name": "n1", "simulated": True, "resources": {"cpu": 8, "gpu": 1_000_000_000}}
    answer = await world.client.post("/api/nodes", json=body, headers=await world.admin())
    assert (answer.status_code, answer.json()["code"]) == (422, "too-many-devices")
    assert (await world.client.get("/api/nodes", headers=await world.admin())).json() == {"nodes": []}


async def test_a_node_is_drained_resumed_and_removed(world: World):
    await world.add_node("n1")
    admin = await world.admin()
    assert (await world.client.post("/api/nodes/n1/drain", headers=admin)).json()["schedulable"] is False or (
        await world.client.get("/api/nodes/n1", headers=admin)
    ).json()["status"] == "DRAINING"
    resumed = (await world.client.post("/api/nodes/n1/resume", headers=admin)).json()
    assert (resumed["status"], resumed["schedulable"]) == ("READY", True)
    removed = await world.client.delete("/api/nodes/n1", headers=admin)
    assert (removed.status_code, removed.content) == (204, b"")
    for method, path in (("GET", ""), ("POST", "/drain"), ("POST", "/resume"), ("DELETE", "")):
        for name in ("n1", "%00", "UPPER"):
            answer = await world.client.request(method, f"/api/nodes/{name}{path}", headers=admin)
            assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


async def test_a_drain_has_a_time_and_a_reason(world: World):
    await world.add_node("n1")
    admin = await world.admin()
    drain = {"timeout_seconds": 60, "reason": "new disks"}
    node = (await world.client.post("/api/nodes/n1/drain", json=drain, headers=admin)).json()
    assert (node["status"], node["draining"], node["drain_reason"]) == ("DRAINING", True, "new disks")
    left = datetime.fromisoformat(node["drain_until"]) - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(seconds=60)
    # Without a timeout the drain has no end.
    again = (await world.client.post("/api/nodes/n1/drain", json={}, headers=admin)).json()
    assert (again["drain_until"], again["drain_reason"]) == (None, None)
    for wrong in ({"timeout_seconds": 0}, {"timeout": 5}, {"reason": "two\nlines"}, {"reason": "a \x9b31m colour"}):
        answer = await world.client.post("/api/nodes/n1/drain", json=wrong, headers=admin)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    resumed = (await world.client.post("/api/nodes/n1/resume", headers=admin)).json()
    assert (resumed["draining"], resumed["drain_until"]) == (False, None)


async def test_taints_are_changed_one_by_one(world: World):
    await world.add_node("n1")
    admin = await world.admin()
    for change, expected in (
        ({"add": [{"key": "spot", "effect": "NoExecute"}, {"key": "lab", "value": "a"}]}, ["spot", "lab"]),
        ({"remove": [{"key": "lab", "effect": "NoExecute"}]}, ["spot", "lab"]),
        ({"remove": [{"key": "lab"}]}, ["spot"]),
    ):
        answer = await world.client.patch("/api/nodes/n1/taints", json=change, headers=admin)
        assert [taint["key"] for taint in answer.json()["taints"]] == expected
    own = await world.client.patch("/api/nodes/n1/taints", json={"remove": [{"key": "mooring/failing"}]}, headers=admin)
    assert (own.status_code, own.json()["code"]) == (422, "own-taint")


async def test_seconds_of_a_toleration_go_with_no_execute(world: World):
    await world.add_node("n1")
    work = {"name": "w", "pool": "simulated", "containers": [{"image": "x"}]}
    for effect, status in (("NoExecute", 202), ("NoSchedule", 422)):
        toleration = {"key": "spot", "operator": "Exists", "effect": effect, "seconds": 5}
        asked = work | {"name": effect.lower(), "placement": {"tolerations": [toleration]}}
        answer = await world.client.post("/api/workloads", json=asked, headers=await world.admin())
        assert answer.status_code == status, answer.text


async def test_a_node_name_is_taken_once(world: World):
    await world.add_node("n1")
    body = {"name": "n1", "simulated": True, "resources": {"cpu": 1}}
    answer = await world.client.post("/api/nodes", json=body, headers=await world.admin())
    assert answer.status_code == 409


async def test_pools_say_how_many_nodes_they_have(world: World):
    await world.add_node("n1")
    pools = (await world.client.get("/api/pools", headers=await world.user("ada"))).json()["pools"]
    assert [(pool["name"], pool["simulated"], pool["runtimes"], pool["nodes"]) for pool in pools] == [
        ("default", False, ["container", "process"], 0),
        ("simulated", True, ["container"], 1),
    ]


async def test_a_join_token_lets_the_named_node_in(world: World):
    admin = await world.admin()
    body = {"name": "n1", "region": "eu-west", "labels": {"rack": "r1"}, "expires_in_seconds": 60}
    answer = await world.client.post("/api/join-tokens", json=body, headers=admin)
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    token = answer.json()["token"]
    grant = await world.services.database.write(lambda c: join_tokens.consume(c, token, clock.now(), node_name="n1"))
    assert (grant.pool, grant.region, grant.labels) == ("default", "eu-west", {"rack": "r1"})
    for pool, status in (("simulated", 422), ("nowhere", 404)):
        refused = await world.client.post("/api/join-tokens", json=body | {"pool": pool}, headers=admin)
        assert refused.status_code == status


async def test_labels_and_region_of_a_node_change_after_it_joined(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    await world.add_node("n1", labels={"zone": "a", "disk": "ssd"}, region="eu-west")
    asked = {"labels": {"zone": "b", "disk": None, "rack": "7"}, "region": "moon"}
    assert (await client.patch("/api/nodes/n1", json=asked, headers=user)).status_code == 403
    changed = await client.patch("/api/nodes/n1", json=asked, headers=admin)
    assert changed.status_code == 200, changed.text
    assert (changed.json()["labels"], changed.json()["region"]) == ({"zone": "b", "rack": "7"}, "moon")
    cleared = await client.patch("/api/nodes/n1", json={"region": ""}, headers=admin)
    assert (cleared.json()["labels"], cleared.json()["region"]) == ({"zone": "b", "rack": "7"}, None)
    too_many = {"labels": {f"l{number}": "x" for number in range(64)}}
    before = (await client.get("/api/nodes/n1", headers=admin)).json()
    assert (await client.patch("/api/nodes/n1", json=too_many, headers=admin)).status_code == 422
    assert (await client.get("/api/nodes/n1", headers=admin)).json() == before
    assert (await client.patch("/api/nodes/none", json=asked, headers=admin)).status_code == 404
    actions = (await client.get("/api/actions", headers=admin)).json()["actions"]
    assert [each["action"] for each in actions if each["object"] == "n1"].count("change") == 2


async def test_a_pool_of_simulated_nodes_takes_them_and_others_do_not(world: World):
    admin, client = await world.admin(), world.client
    made = await client.post("/api/pools", json={"name": "toys", "simulated": True}, headers=admin)
    assert made.status_code == 201, made.text
    await world.add_node("n1", pool="toys")
    node = (await client.get("/api/nodes/n1", headers=admin)).json()
    assert (node["pool"], node["simulated"]) == ("toys", True)
    body = {"name": "n2", "simulated": True, "resources": {"cpu": 1}}
    real = await client.post("/api/nodes", json={**body, "pool": "default"}, headers=admin)
    assert (real.status_code, real.json()["code"]) == (409, "pool-not-simulated")
    assert (await client.post("/api/nodes", json={**body, "pool": "none"}, headers=admin)).status_code == 404


async def test_only_admins_preview_a_drain_and_it_changes_nothing(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    await world.add_node("n1")
    assert (await client.get("/api/nodes/n1/drain", headers=user)).status_code == 403
    preview = (await client.get("/api/nodes/n1/drain", params={"timeout": True}, headers=admin)).json()
    assert preview == {"node": "n1", "tasks": [], "moves": 0, "waiting": 0}
    assert (await client.get("/api/nodes/n1", headers=admin)).json()["draining"] is False
    assert (await client.get("/api/nodes/none/drain", headers=admin)).status_code == 404
