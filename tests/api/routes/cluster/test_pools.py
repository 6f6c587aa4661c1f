"""Pools through the API: everybody sees them, an admin chooses how they place."""

from __future__ import annotations

from tests.api.world import World


async def test_an_admin_chooses_a_profile_and_others_may_not(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    refused = await client.patch("/api/pools/default", json={"profile": "pack"}, headers=user)
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    asked = {"profile": "pack", "weights": {"most_allocated": 2}}
    changed = await client.patch("/api/pools/default", json=asked, headers=admin)
    assert changed.status_code == 204, changed.text
    pools = {pool["name"]: pool for pool in (await client.get("/api/pools", headers=user)).json()["pools"]}
    assert (pools["default"]["profile"], pools["default"]["weights"]) == ("pack", {"most_allocated": 2})
    unknown = await client.patch("/api/pools/default", json={"profile": "nonsense"}, headers=admin)
    assert (unknown.status_code, "balanced" in unknown.json()["message"]) == (422, True)
    assert (await client.patch("/api/pools/nowhere", json={"profile": "pack"}, headers=admin)).status_code == 404


async def test_an_option_that_does_not_exist_is_refused_with_those_that_do(world: World):
    admin = await world.admin()
    refused = await world.client.patch("/api/pools/default", json={"sequenser": "drf"}, headers=admin)
    assert refused.status_code == 422
    assert "there is no option 'sequenser'; known are ageing_seconds, allowed_types, backfill, binding" in refused.text
    unknown = await world.client.patch("/api/pools/default", json={"sequencer": "random"}, headers=admin)
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown-sequencer")
    assert unknown.json()["details"]["known"] == ["drf", "fair_queue", "fair_share", "fifo", "lifo", "multi_factor"]


async def test_an_admin_makes_and_removes_pools_and_others_may_not(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    asked = {"name": "lab", "head_of_line": "strict"}
    assert (await client.post("/api/pools", json=asked, headers=user)).status_code == 403
    made = await client.post("/api/pools", json=asked, headers=admin)
    assert (made.status_code, made.json()["head_of_line"], made.json()["nodes"]) == (201, "strict", 0)
    assert (await client.post("/api/pools", json=asked, headers=admin)).status_code == 409
    assert (await client.get("/api/pools/lab", headers=user)).json() == made.json()
    assert (await client.delete("/api/pools/lab", headers=user)).status_code == 403
    assert (await client.delete("/api/pools/lab", headers=admin)).status_code == 204
    assert (await client.get("/api/pools/lab", headers=user)).status_code == 404


async def test_an_admin_sets_and_removes_the_health_program_of_a_pool(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    asked = {"health": {"command": ["check-gpus", "--quiet"], "interval_seconds": 30}}
    assert (await client.patch("/api/pools/default", json=asked, headers=user)).status_code == 403
    assert (await client.patch("/api/pools/default", json=asked, headers=admin)).status_code == 204
    shown = (await client.get("/api/pools/default", headers=user)).json()
    assert shown["health"] == {"command": ["check-gpus", "--quiet"], "interval_seconds": 30, "timeout_seconds": 10}
    for wrong, why in (
        ({"command": ["a"], "interval_seconds": 5}, "must not be longer"),
        ({"command": [""]}, "needs a name"),
        ({"command": "check-gpus"}, "list"),
        ({"command": ["a\u0000b"]}, "characters that are not allowed here"),
    ):
        refused = await client.patch("/api/pools/default", json={"health": wrong}, headers=admin)
        assert (refused.status_code, why in refused.text) == (422, True), refused.text
    assert (await client.get("/api/pools/default", headers=user)).json() == shown
    await client.patch("/api/pools/default", json={"health": {"command": []}}, headers=admin)
    assert (await client.get("/api/pools/default", headers=user)).json()["health"] is None


async def test_a_tie_breaker_is_chosen_per_pool_and_shown(world: World):
    admin, client = await world.admin(), world.client
    asked = {"selector": "highest", "selector_options": {"ties": "least_loaded", "top": 2}}
    changed = await client.patch("/api/pools/default", json=asked, headers=admin)
    assert changed.status_code == 204, changed.text
    pool = (await client.get("/api/pools/default", headers=admin)).json()
    assert (pool["selector"], pool["selector_options"]) == ("highest", {"ties": "least_loaded", "top": 2})
    unknown = await client.patch("/api/pools/default", json={"filters": {"approved": {}}}, headers=admin)
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown-filter")
    too_large = {"selector_options": {"top": 10**30}}
    assert (await client.patch("/api/pools/default", json=too_large, headers=admin)).status_code == 422
    assert (await client.get("/api/pools/default", headers=admin)).json() == pool


async def test_the_default_requests_of_a_pool_are_shown_changed_and_checked(world: World):
    admin = await world.admin()
    created = await world.client.post("/api/pools", json={"name": "usual"}, headers=admin)
    assert created.status_code == 201
    pool = (await world.client.get("/api/pools/usual", headers=admin)).json()
    assert (pool["default_cpu"], pool["default_memory"]) == ("1", "1Gi")
    change = {"default_cpu": "250m", "default_memory": 0}
    assert (await world.client.patch("/api/pools/usual", json=change, headers=admin)).status_code < 300
    pool = (await world.client.get("/api/pools/usual", headers=admin)).json()
    assert (pool["default_cpu"], pool["default_memory"]) == ("0.25", "0")
    refused = await world.client.patch("/api/pools/usual", json={"default_cpu": "0.0001"}, headers=admin)
    assert (refused.status_code, refused.json()["code"]) == (422, "inexact-quantity")


async def test_a_submission_stores_the_default_requests_of_its_pool_and_an_update_keeps_them(world: World):
    admin = await world.admin()
    await world.client.post("/api/pools", json={"name": "usual", "default_cpu": 2}, headers=admin)
    body = {"name": "web", "kind": "deployment", "pool": "usual", "containers": [{"command": ["serve"]}]}
    assert (await world.client.post("/api/workloads", json=body, headers=admin)).status_code == 202
    shown = (await world.client.get("/api/workloads/web", headers=admin)).json()
    assert shown["resources"] == {"cpu": "2", "memory": "1Gi"}
    # The same template again is no change, and another one gets the same requests.
    for command in (["serve"], ["serve", "more"]):
        update = {"template": {"containers": [{"command": command}]}}
        answer = await world.client.post("/api/deployments/web/update", json=update, headers=admin)
        assert answer.status_code < 300, answer.text
        shown = (await world.client.get("/api/workloads/web", headers=admin)).json()
        assert shown["resources"] == {"cpu": "2", "memory": "1Gi"}
