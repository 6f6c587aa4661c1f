"""Keypairs as credentials at real routes: what opens, what does not, and how far the scope reaches."""

import base64
from typing import Any

import pytest

from mooring.model.tenancy.tenants import Role
from mooring.services import acting_project
from tests.api.world import World
from tests.store.databases import on_sqlite


def basic(access_key: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{access_key}:{secret}".encode()).decode()}


async def make(world: World, headers: dict[str, str], **fields: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """A keypair, and the headers of one who has it."""
    answer = await world.client.post("/api/keypairs", json=fields, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    made: dict[str, Any] = answer.json()
    return made, basic(made["access_key"], made["secret"])


async def status(world: World, headers: dict[str, str], method: str = "GET", path: str = "/api/auth/me") -> int:
    return (await world.client.request(method, path, headers=headers)).status_code


@on_sqlite
async def test_a_keypair_opens_while_it_and_its_user_and_domain_are_active(world: World):
    ada = await world.user("ada", domain="research")
    admin = await world.admin()
    made, key = await make(world, ada, name="ci", expires_in_seconds=3600)
    me = await world.client.get("/api/auth/me", headers=key)
    assert (me.status_code, me.json()["username"]) == (200, "ada")
    shown = (await world.client.get(f"/api/keypairs/{made['access_key']}", headers=ada)).json()
    assert "secret" not in shown
    assert shown["last_used_at"] is not None
    for path, change, back in (
        (f"/api/keypairs/{made['access_key']}", {"active": False}, {"active": True}),
        ("/api/users/ada", {"active": False}, {"active": True}),
        ("/api/domains/research", {"active": False}, {"active": True}),
    ):
        assert (await world.client.patch(path, json=change, headers=admin)).status_code == 200
        assert (path, await status(world, key)) == (path, 401)
        assert (await world.client.patch(path, json=back, headers=admin)).status_code == 200
        assert (path, await status(world, key)) == (path, 200)


@on_sqlite
async def test_invalid_keypairs_all_get_the_same_response(world: World):
    ada = await world.user("ada")
    made, _ = await make(world, ada)
    answers = set()
    for headers in (
        basic(made["access_key"], "guess"),
        basic("MK" + "A" * 18, made["secret"]),
        basic("", ""),
        basic("a\0b", "c"),
        {"Authorization": "Basic !!!"},
        {"Authorization": "Basic " + base64.b64encode(b"\xff\xfe").decode()},
    ):
        answer = await world.client.get("/api/workloads", headers=headers)
        assert answer.status_code == 401
        answers.add(answer.json()["code"])
    assert answers == {"wrong-credentials"}


@on_sqlite
async def test_the_scope_narrows_the_permissions_of_the_user(world: World):
    ada = await world.user("ada")
    work = {"containers": [{"image": "nginx"}]}
    _, read = await make(world, ada, scope="read")
    _, works = await make(world, ada, scope="work")
    _, everything = await make(world, ada)
    submitted = await world.submit(ada, name="web")
    expected = {"read": (read, 403, 403, 403), "work": (works, 202, 202, 403), "all": (everything, 202, 202, 201)}
    for name, (headers, submits, removes, makes) in expected.items():
        assert (name, await status(world, headers, path=f"/api/workloads/{submitted}")) == (name, 200)
        answer = await world.client.post("/api/workloads", json=work | {"name": name}, headers=headers)
        assert (name, answer.status_code) == (name, submits)
        own = answer.json().get("id", submitted)
        assert (name, await status(world, headers, "DELETE", f"/api/workloads/{own}")) == (name, removes)
        answer = await world.client.post("/api/keypairs", json={}, headers=headers)
        assert (name, answer.status_code) == (name, makes)
        for path in ("/api/auth/renew", "/api/auth/password"):
            body = {"old_password": "x", "new_password": "correct horse"} if path.endswith("password") else None
            answer = await world.client.post(path, json=body, headers=headers)
            assert (name, path, answer.status_code) == (name, path, 403)


@on_sqlite
async def test_a_keypair_of_an_admin_for_work_does_not_touch_the_work_of_others(world: World):
    ada, admin = await world.user("ada"), await world.admin()
    submitted = await world.submit(ada, name="web")
    _, key = await make(world, admin, scope="work")
    assert await status(world, key, path=f"/api/workloads/{submitted}") == 200
    refused = await world.client.delete(f"/api/workloads/{submitted}", headers=key)
    assert (refused.status_code, refused.json()["code"]) == (403, "keypair-scope")


@on_sqlite
async def test_work_is_charged_to_the_project_and_the_keypair_it_came_with(world: World):
    lead = await world.user("lead", role=Role.DOMAIN_ADMIN)
    ada = await world.user("ada")
    await world.client.post("/api/projects", json={"name": "vision"}, headers=lead)
    outside = await world.client.post(
        "/api/workloads", json={"project": "vision", "containers": [{"image": "nginx"}]}, headers=ada
    )
    assert outside.status_code == 404
    await world.client.post("/api/projects/vision/members", json={"username": "ada"}, headers=lead)
    named = await world.submit(ada, name="named", project="vision")
    detail = (await world.client.get(f"/api/workloads/{named}", headers=ada)).json()
    assert detail["project"] == "vision"
    made = (await world.client.get("/api/keypairs", headers=ada)).json()
    assert {(key["project"], key["has_secret"]) for key in made} == {("default", False), ("vision", False)}
    _, key = await make(world, ada, project="vision")
    assert (await world.client.get("/api/auth/me", headers=key)).json()["project"] == "vision"
    by_key = await world.submit(key, name="by-key")
    assert (await world.client.get(f"/api/workloads/{by_key}", headers=ada)).json()["project"] == "vision"
    body = {"project": "default", "containers": [{"image": "nginx"}]}
    elsewhere = await world.client.post("/api/workloads", json=body, headers=key)
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (403, "keypair-project")


@on_sqlite
async def test_each_workload_of_a_batch_names_its_own_project(world: World):
    ada = await world.user("ada")
    some = {"containers": [{"image": "nginx"}]}
    body = {"workloads": [some | {"name": "a"}, some | {"name": "b", "project": "nowhere"}, some | {"project": 5}]}
    answer = (await world.client.post("/api/workloads/batch", json=body, headers=ada)).json()
    errors = [item["error"] and item["error"]["code"] for item in answer["workloads"]]
    assert errors == [None, "not-found", "invalid-input"]


@on_sqlite
async def test_a_project_that_is_not_active_takes_no_new_work(world: World):
    ada, admin = await world.user("ada", project="vision"), await world.admin()
    await world.client.patch("/api/projects/vision", json={"active": False}, headers=admin)
    for path in ("/api/workloads", "/api/workloads/dry-run"):
        answer = await world.client.post(path, json={"containers": [{"image": "nginx"}]}, headers=ada)
        assert (answer.status_code, answer.json()["code"]) == (409, "project-inactive")


@on_sqlite
async def test_a_keypair_in_a_project_that_its_user_is_no_member_of_is_refused(world: World):
    ada, admin = await world.user("ada"), await world.admin()
    await world.client.post("/api/projects", json={"name": "vision"}, headers=admin)
    for project, code in (("vision", 409), ("nowhere", 404)):
        answer = await world.client.post("/api/keypairs", json={"project": project}, headers=ada)
        assert (project, answer.status_code) == (project, code)


@on_sqlite
async def test_a_keypair_ends_with_the_membership_and_cannot_be_reactivated(world: World):
    ada, admin = await world.user("ada"), await world.admin()
    await world.client.post("/api/projects", json={"name": "vision"}, headers=admin)
    await world.client.post("/api/projects/vision/members", json={"username": "ada"}, headers=admin)
    made, by_keypair = await make(world, ada, project="vision")
    path = f"/api/keypairs/{made['access_key']}"
    assert await status(world, by_keypair, path="/api/quotas") == 200
    await world.client.delete("/api/projects/vision/members/ada", headers=admin)
    assert (await world.client.patch(path, json={"active": True}, headers=ada)).json()["active"]
    assert await status(world, by_keypair, path="/api/quotas") == 401


async def test_a_submission_for_a_keypair_removed_at_the_same_moment_can_be_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(acting_project, "_CACHE_SECONDS", 60.0)
    ada, admin = await world.user("ada"), await world.admin()
    work = {"containers": [{"image": "nginx"}]}
    # Refused for its pool, so that the keypair that it would be charged to is cached for a moment and has no work.
    unknown = await world.client.post("/api/workloads", json=work | {"pool": "nowhere"}, headers=ada)
    assert unknown.status_code == 422
    [keypair] = (await world.client.get("/api/keypairs?user=ada", headers=admin)).json()
    # As if another server removed it, whose signal has not arrived yet.
    world.services.database.on_commit.clear()
    assert await status(world, admin, "DELETE", f"/api/keypairs/{keypair['access_key']}") == 204
    answer = await world.client.post("/api/workloads", json=work, headers=ada)
    assert (answer.status_code, answer.json()["code"]) == (409, "overtaken")
