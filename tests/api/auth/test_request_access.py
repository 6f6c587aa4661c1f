"""Authorisation of admins and users, for their own objects and those of others."""

from typing import Any

import pytest

from tests.api.world import World

READS = ["/api/workloads/{id}", "/api/workloads/{id}/history", "/api/workloads/{id}/wait?timeout=0",
         "/api/workloads/{id}/logs", "/api/deployment/status/{id}"]  # fmt: skip


@pytest.mark.parametrize(
    ("who", "reads", "changes"),
    [("owner", 200, 202), ("admin", 200, 202), ("stranger", 404, 404), ("nobody", 401, 401)],
)
async def test_a_workload_belongs_to_its_owner_and_admins(world: World, who: str, reads: int, changes: int):
    owner = await world.user("ada")
    workload_id = await world.submit(owner, name="web", kind="deployment")
    headers = {
        "owner": owner,
        "admin": await world.admin(),
        "stranger": await world.user("bob"),
        "nobody": {},
    }[who]
    before = await world.counts()
    for path in READS:
        answer = await world.client.get(path.format(id=workload_id), headers=headers)
        assert (path, answer.status_code) == (path, reads)
    for method, path, body in (
        ("POST", f"/api/workloads/{workload_id}/scale", {"replicas": 2}),
        ("POST", f"/api/deployment/scale/{workload_id}", {"replicas": 3}),
        ("DELETE", f"/api/workloads/{workload_id}", None),
    ):
        answer = await world.client.request(method, path, json=body, headers=headers)
        assert (path, answer.status_code) == (path, changes)
    assert (await world.counts() == before) is (changes != 202)


async def test_a_name_means_ones_own_even_to_an_admin(world: World):
    owner = await world.user("ada")
    await world.submit(owner, name="web")
    for headers in (await world.admin(), await world.user("bob")):
        assert (await world.client.get("/api/workloads/web", headers=headers)).status_code == 404


ADMIN_ONLY: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("GET", "/api/users", None, 200),
    ("POST", "/api/users", {"username": "eve"}, 201),
    ("PATCH", "/api/users/bob", {"os_user": "bob1"}, 200),
    ("POST", "/api/nodes", {"name": "n2", "simulated": True, "resources": {"cpu": 1}}, 201),
    ("POST", "/api/nodes/n1/drain", None, 200),
    ("POST", "/api/nodes/n1/resume", None, 200),
    ("DELETE", "/api/nodes/n1", None, 204),
    ("POST", "/api/join-tokens", {"name": "n3"}, 201),
    ("GET", "/api/audit", None, 200),
    ("POST", "/api/audit/repair", None, 200),
    ("GET", "/api/workloads?everyone=true", None, 200),
]
EVERYBODY = ["/api/auth/me", "/api/workloads", "/api/deployment/list", "/api/nodes", "/api/nodes/n1", "/api/pools"]
PUBLIC = ["/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"]


async def test_admin_routes_are_refused_to_users_and_nothing_is_written(world: World):
    await world.add_node("n1")
    bob = await world.user("bob")
    before = await world.counts()
    for method, path, body, _ in ADMIN_ONLY:
        refused = await world.client.request(method, path, json=body, headers=bob)
        assert (path, refused.status_code, refused.json()["code"]) == (path, 403, "not-allowed")
        unknown = await world.client.request(method, path, json=body)
        assert (path, unknown.status_code, unknown.json()["code"]) == (path, 401, "not-authenticated")
    assert await world.counts() == before
    admin = await world.admin()
    for method, path, body, expected in ADMIN_ONLY:
        answer = await world.client.request(method, path, json=body, headers=admin)
        assert (path, answer.status_code) == (path, expected)


async def test_public_reads_need_a_login(world: World):
    await world.add_node("n1")
    bob = await world.user("bob")
    for path in EVERYBODY:
        assert (path, (await world.client.get(path)).status_code) == (path, 401)
        assert (path, (await world.client.get(path, headers=bob)).status_code) == (path, 200)
    for path in PUBLIC:
        assert (path, (await world.client.get(path)).status_code) == (path, 200)


async def test_users_are_made_with_a_password_that_is_shown_once(world: World):
    admin = await world.admin()
    body = {"username": "eve", "role": "admin", "project": "vision", "os_user": "eve1"}
    made = (await world.client.post("/api/users", json=body, headers=admin)).json()
    assert (made["username"], made["role"], made["project"], made["os_user"]) == ("eve", "admin", "vision", "eve1")
    await world.login("eve", made["password"])
    listed = await world.client.get("/api/users", headers=admin)
    assert [user["username"] for user in listed.json()] == ["admin", "eve"]
    assert made["password"] not in listed.text
    given = {"username": "bob", "password": "correct horse"}
    assert (await world.client.post("/api/users", json=given, headers=admin)).json()["password"] is None
    again = await world.client.post("/api/users", json=given, headers=admin)
    assert (again.status_code, again.json()["code"]) == (409, "user-exists")


async def test_the_only_admin_cannot_be_removed(world: World):
    admin = await world.admin()
    for change in ({"role": "user"}, {"active": False}):
        answer = await world.client.patch("/api/users/admin", json=change, headers=admin)
        assert (answer.status_code, answer.json()["code"]) == (409, "last-admin")
    missing = await world.client.patch("/api/users/nobody", json={"active": False}, headers=admin)
    assert missing.status_code == 404
