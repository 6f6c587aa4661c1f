"""Quotas through the API: everybody sees its own, an admin changes them, and what was done stays on record."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.tenants import Role
from mooring.store.tables import admin_actions
from tests.api.world import World
from tests.store.databases import on_sqlite


def lines(answer: Any) -> dict[tuple[str, str], dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return {(line["scope"], line["slot"]): line for line in answer.json()["quotas"]}


async def test_limits_usage_and_remainders_are_shown_at_each_level(world: World):
    admin, ada, client = await world.admin(), await world.user("ada"), world.client
    await world.add_node("n1")
    for path, limits in (
        ("user/ada", {"cpu": "4", "sessions": 3}),
        ("project/default", {"cpu": 8, "gpu": 0}),
        ("domain/default", {"memory": "1Ti"}),
    ):
        assert (await client.put(f"/api/quotas/{path}", json={"limits": limits}, headers=admin)).status_code == 200
    first, second = await world.submit(ada, name="first"), await world.submit(ada, name="second")
    await world.move(first, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    await world.move(second, TaskStatus.SCHEDULED)
    found = lines(await client.get("/api/quotas", headers=ada))
    user = found["user", "cpu"]
    shown = [user[column] for column in ("name", "limit", "used", "reserved", "left")]
    assert shown == ["ada", "4", "0.5", "0.5", "3"]
    assert found["user", "sessions"]["left"] == "1"
    assert found["project", "cpu"]["left"] == "7"
    assert found["project", "gpu"]["limit"] == "0"
    assert (found["domain", "memory"]["limit"], found["domain", "cpu"]["limit"]) == ("1Ti", None)
    assert found["keypair", "cpu"]["left"] is None


async def test_usage_above_the_guarantee_of_a_project_is_borrowed(world: World):
    admin, client = await world.admin(), world.client
    await world.add_node("n1")
    await world.move(await world.submit(admin), TaskStatus.SCHEDULED)
    assert lines(await client.get("/api/quotas/project/default", headers=admin))["project", "cpu"]["borrowed"] is None
    guarantee = {"guaranteed": {"cpu": "300m"}, "pool": "simulated"}
    found = await client.put("/api/quotas/project/default", json=guarantee, headers=admin)
    assert lines(found)["project", "cpu"]["borrowed"] == "0.2"
    assert found.json()["guarantees"] == [
        {"pool": "simulated", "slot": "cpu", "guaranteed": "0.3", "in_use": "0.5", "borrowed": "0.2"}
    ]


async def test_an_override_is_shown_with_its_end_and_goes_with_the_limit(world: World):
    admin, client = await world.admin(), world.client
    until = (now() + timedelta(hours=1)).isoformat()
    await client.put("/api/quotas/user/admin", json={"limits": {"cpu": 1}}, headers=admin)
    asked = {"limits": {"cpu": 2}, "until": until}
    line = lines(await client.put("/api/quotas/user/admin", json=asked, headers=admin))["user", "cpu"]
    assert line["limit"] == "2"
    assert line["until"] is not None
    gone = await client.put("/api/quotas/user/admin", json={"limits": {"cpu": None}}, headers=admin)
    assert lines(gone) == {}


async def test_only_authorised_users_change_quotas_and_each_change_is_recorded(world: World):
    admin, ada, client = await world.admin(), await world.user("ada"), world.client
    refused = await client.put("/api/quotas/user/ada", json={"limits": {"cpu": 100}}, headers=ada)
    assert (refused.status_code, refused.json()["code"]) == (403, "not-allowed")
    assert (await client.put("/api/quotas/user/admin", json={"limits": {"cpu": 1}}, headers=ada)).status_code == 404
    for _ in range(2):
        await client.put("/api/quotas/user/ada", json={"limits": {"cpu": 1}}, headers=admin)
    async with world.services.database.read() as connection:
        [action] = (await connection.execute(select(admin_actions).where(admin_actions.c.noun == "quota"))).all()
    assert (action.username, action.noun, action.object) == ("admin", "quota", "user ada")
    assert (action.before["limits"], action.after["limits"]) == ({}, {"cpu": "1"})


async def test_every_quota_can_be_reverted(world: World):
    admin, client, path = await world.admin(), world.client, "/api/quotas/project/default"
    await client.put(path, json={"limits": {"cpu": 4, "memory": "1Gi"}}, headers=admin)
    await client.put(path, json={"guaranteed": {"cpu": 2}, "pool": "default"}, headers=admin)
    soon = (now() + timedelta(hours=1)).isoformat()
    await client.put(path, json={"limits": {"cpu": 9}, "until": soon}, headers=admin)
    assert (await client.put(path, json={"limits": {"cpu": None, "gpu": 1}}, headers=admin)).status_code == 200

    async def reverted(**body: int) -> tuple[dict[str, str], dict[str, str]]:
        answer = await client.post(f"{path}/revert", json=body, headers=admin)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return (
            {line["slot"]: line["limit"] for line in found["quotas"] if line["limit"] is not None},
            {share["slot"]: share["guaranteed"] for share in found["guarantees"]},
        )

    assert await reverted() == ({"cpu": "9", "memory": "1Gi"}, {"cpu": "2"})
    assert await reverted(version=2) == ({"cpu": "4", "memory": "1Gi"}, {})
    assert await reverted(version=1) == ({}, {})
    refused = await client.post(f"{path}/revert", json={"version": 8}, headers=admin)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-version")
    async with world.services.database.read() as connection:
        rows = await connection.execute(select(admin_actions.c.action, admin_actions.c.version))
        found = [tuple(row) for row in rows if row.version is not None and row.version > 1]
    changes = [("change", version) for version in range(2, 6)]
    assert found == [*changes, *(("revert", version) for version in range(6, 9))]


@on_sqlite
async def test_a_name_that_another_domain_has_too_means_ones_own(world: World):
    await world.user("uma", project="vision")
    frank = await world.user("frank", domain="beta", project="vision", role=Role.DOMAIN_ADMIN)
    path = "/api/quotas/project/vision"
    assert (await world.client.put(path, json={"limits": {"cpu": 1}}, headers=frank)).status_code == 200
    ambiguous = await world.client.get(path, headers=await world.admin())
    assert (ambiguous.status_code, ambiguous.json()["code"]) == (422, "ambiguous-name")


@pytest.mark.parametrize("scope", ["keypair", "user", "project", "domain"])
async def test_an_invalid_name_is_the_name_of_no_tenant(world: World, scope: str):
    for name in ("a%00b", "%F0%9F%90%99", "x" * 300):
        answer = await world.client.get(f"/api/quotas/{scope}/{name}", headers=await world.admin())
        assert answer.status_code == 404, answer.text


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("user/nobody", {"limits": {"cpu": 1}}, 404, "not-found"),
        ("team/default", {"limits": {"cpu": 1}}, 422, "invalid-input"),
        ("user/admin", {}, 422, "invalid-quota"),
        ("user/admin", {"limits": {"cpu": -1}}, 422, "invalid-input"),
        ("user/admin", {"limits": {"cpu": "nonsense"}}, 422, "invalid-quantity"),
        ("user/admin", {"limits": {"cpu": 1}, "until": "2020-01-01T00:00:00Z"}, 422, "invalid-quota"),
        ("user/admin", {"limits": {"cpu": 1}, "until": "2090-01-01T00:00:00"}, 422, "invalid-quota"),
        ("user/admin", {"limits": {"cpu": 1}, "until": "9999-12-31T23:59:59-12:00"}, 422, "invalid-quota"),
        ("user/admin", {"limits": {"cpu": None}, "until": "2090-01-01T00:00:00Z"}, 422, "invalid-quota"),
        ("user/admin", {"guaranteed": {"cpu": 1}, "pool": "default"}, 422, "invalid-quota"),
        ("project/default", {"guaranteed": {"cpu": 1}}, 404, "not-found"),
        ("project/default", {"guaranteed": {"sessions": 1}, "pool": "default"}, 422, "invalid-quota"),
    ],
)
async def test_an_invalid_quota_is_refused_and_changes_nothing(
    world: World, path: str, body: dict[str, Any], status: int, code: str
):
    admin = await world.admin()
    before = await world.counts()
    answer = await world.client.put(f"/api/quotas/{path}", json=body, headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await world.counts() == before
