"""Policies of tenants: given and taken away."""

from __future__ import annotations

import pytest

from tests.api.world import World
from tests.store.databases import on_sqlite


@on_sqlite
@pytest.mark.parametrize("nothing", [None, ""], ids=["null", "empty"])
@pytest.mark.parametrize("path", ["domains/default", "projects/default", "users/ann", "keypairs/KEY"])
async def test_null_removes_the_policy_of_any_tenant(world: World, path: str, nothing: str | None):
    admin = await world.admin()
    made = await world.client.post("/api/keypairs", json={"name": "k"}, headers=await world.user("ann"))
    path = f"/api/{path.replace('KEY', made.json()['access_key'])}"
    await world.client.post("/api/policies", json={"name": "small", "rules": {"max_sessions": 1}}, headers=admin)
    given = await world.client.patch(path, json={"policy": "small"}, headers=admin)
    assert (given.status_code, given.json()["policy"]) == (200, "small")
    unchanged = await world.client.patch(path, json={}, headers=admin)
    assert unchanged.json()["policy"] == "small"
    removed = await world.client.patch(path, json={"policy": nothing}, headers=admin)
    assert (removed.status_code, removed.json()["policy"]) == (200, None)
    assert (await world.client.get(path, headers=admin)).json()["policy"] is None
