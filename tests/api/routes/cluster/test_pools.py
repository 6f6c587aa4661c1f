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
    assert unknown.json()["details"]["known"] == ["drf", "fair_share", "fifo", "lifo", "multi_factor"]


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


async def test_an_admin_gives_a_pool_a_health_program_and_takes_it_away(world: World):
    admin, user, client = await world.admin(), await world.user("ada"), world.client
    asked = {"health": {"command": ["check-gpus", "--quiet"], "interval_seconds": 30}}
    assert (await client.patch("/api/pools/default", json=asked, headers=user)).status_code == 403
    assert (await client.patch("/api/pools/default", json=asked, headers=admin)).status_code == 204
    shown = (await client.get("/api/pools/default", headers=user)).json()
    assert shown["health"] == {"command": ["check-gpus", "--quiet"], "interval_seconds": 30, "timeout_seconds": 10}
    for wrong, why in (
        ({"command": ["a"], "interval_seconds": 5}, "cannot take longer"),
        ({"command": [""]}, "needs a name"),
        ({"command": "check-gpus"}, "list"),
        ({"command": ["a\u0000b"]}, "characters in it that cannot be here"),
    ):
        refused = await client.patch("/api/pools/default", json={"health": wrong}, headers=admin)
        assert (refused.status_code, why in refused.text) == (422, True), refused.text
    assert (await client.get("/api/pools/default", headers=user)).json() == shown
    await client.patch("/api/pools/default", json={"health": {"command": []}}, headers=admin)
    assert (await client.get("/api/pools/default", headers=user)).json()["health"] is None
