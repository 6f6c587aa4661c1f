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
