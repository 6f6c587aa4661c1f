"""A stolen keypair: whatever its user may do elsewhere, it gets no further than its own project and scope."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from mooring import clock
from mooring.model.tenancy.tenants import Role
from tests.api.event_stream import streaming
from tests.api.routes.tenancy.test_keypairs import make
from tests.api.world import PASSWORD, World
from tests.store.databases import on_sqlite

Headers = dict[str, str]
ROLES = {"ada": Role.USER, "dora": Role.DOMAIN_ADMIN, "root": Role.ADMIN, "paul": Role.PROJECT_ADMIN}
SCOPES = ["all", pytest.param("work", marks=pytest.mark.slow), "read"]
WORK = {"containers": [{"image": "nginx", "resources": {"cpu": "500m"}}]}


@dataclass
class Tenants:
    """A user with work in two projects, and keypairs for the first."""

    world: World
    username: str
    login: Headers
    key: Headers
    access_key: str
    inside: str
    outside: str
    slot_outside: str

    async def ask(self, method: str, path: str, body: Any = None, headers: Headers | None = None) -> tuple[int, Any]:
        answer = await self.world.client.request(method, path, json=body, headers=headers or self.key)
        return answer.status_code, answer.json() if answer.content and "json" in answer.headers[
            "content-type"
        ] else None


async def tenants(world: World, username: str, scope: str = "all", **more: Any) -> Tenants:
    """`vision` is the keypair's project; everything in `speech` is the same user's."""
    admin = await world.admin()
    login = await world.user(username, role=ROLES[username], project="vision")
    assert (await world.client.post("/api/projects", json={"name": "speech"}, headers=admin)).status_code == 201
    role = "project-admin" if ROLES[username] is Role.PROJECT_ADMIN else "user"
    for member in (username, "admin"):
        body = {"username": member, "role": role}
        assert (await world.client.post("/api/projects/speech/members", json=body, headers=admin)).status_code == 200
    inside = await world.submit(login, name="inside")
    outside = await world.submit(login, name="outside", project="speech")
    begin = (clock.now() + timedelta(days=1)).isoformat()
    booking = {"name": "later", "project": "speech", "start": begin, "duration": "1h", "resources": {"cpu": "1"}}
    booked = await world.client.post("/api/timeslots", json=booking, headers=login)
    assert booked.status_code == 202, booked.text
    volume = {"name": "data", "project": "speech", "size": "1Gi"}
    assert (await world.client.post("/api/volumes", json=volume, headers=login)).status_code == 201
    secret = await world.client.put("/api/projects/speech/secrets/token", json={"value": "aGVsbG8="}, headers=admin)
    assert secret.status_code == 200, secret.text
    made, key = await make(world, login, project="vision", scope=scope, **more)
    return Tenants(world, username, login, key, made["access_key"], inside, outside, booked.json()["ids"][0])


@on_sqlite
@pytest.mark.parametrize("username", ROLES)
@pytest.mark.parametrize("scope", SCOPES)
async def test_objects_of_other_projects_do_not_exist_for_a_keypair(world: World, username: str, scope: str) -> None:
    mine = await tenants(world, username, scope)
    hidden = [
        ("GET", f"/api/workloads/{mine.outside}", None),
        ("GET", "/api/workloads/outside", None),
        ("GET", f"/api/workloads/{mine.outside}/tasks", None),
        ("GET", f"/api/workloads/{mine.outside}/history", None),
        ("GET", f"/api/workloads/{mine.outside}/logs", None),
        ("GET", f"/api/workloads/{mine.outside}/wait?timeout=0", None),
        ("GET", f"/api/workloads/{mine.outside}/explanation", None),
        ("DELETE", f"/api/workloads/{mine.outside}", None),
        ("GET", f"/api/sessions/{mine.outside}", None),
        ("GET", f"/api/events?workload={mine.outside}", None),
        ("GET", f"/api/timeslots/{mine.slot_outside}", None),
        ("GET", "/api/timeslots/later", None),
        ("DELETE", f"/api/timeslots/{mine.slot_outside}", None),
        ("GET", "/api/volumes/data?project=speech", None),
        ("DELETE", "/api/volumes/data?project=speech", None),
        ("GET", "/api/projects/speech", None),
        ("GET", "/api/projects/speech/members", None),
        ("GET", "/api/projects/speech/secrets", None),
        ("GET", "/api/projects/speech/secrets/token", None),
        ("PUT", "/api/projects/speech/secrets/token", {"value": "aGVsbG8="}),
        ("GET", "/api/projects/speech/registries", None),
        ("GET", "/api/quotas/project/speech", None),
    ]
    for method, path, body in hidden:
        status, answer = await mine.ask(method, path, body)
        assert (path, status) == (path, 404), answer
        seen = {"GET": 200}.get(method)
        if seen and username == "root":
            assert (path, (await mine.ask(method, path, body, mine.login))[0] in (200, 409)) == (path, True)


@on_sqlite
@pytest.mark.parametrize("username", ROLES)
@pytest.mark.parametrize("scope", SCOPES)
async def test_lists_of_a_keypair_hold_its_own_project_only(world: World, username: str, scope: str) -> None:
    mine = await tenants(world, username, scope)
    everyone = [] if username == "ada" else ["?everyone=true"]
    for query in ["", *everyone]:
        listed = (await mine.ask("GET", f"/api/workloads{query}"))[1]["workloads"]
        assert {each["name"] for each in listed} == {"inside"}
        assert (await mine.ask("GET", f"/api/timeslots{query}"))[1]["timeslots"] == []
    assert (await mine.ask("GET", "/api/volumes"))[1] == []
    assert [each["name"] for each in (await mine.ask("GET", "/api/projects"))[1]] == ["vision"]
    keypairs = (await mine.ask("GET", "/api/keypairs"))[1]
    assert {each["project"] for each in keypairs} == {"vision"}
    assert "later" not in (await mine.world.client.get("/api/timeslots.ics", headers=mine.key)).text
    events = (await mine.ask("GET", "/api/events?limit=1000"))[1]["events"]
    assert {each["workload_id"] for each in events} == {mine.inside}
    async with streaming(world.app, "", mine.key) as stream:
        await stream.message()
        await world.submit(mine.login, name="elsewhere", project="speech")
        here = await world.submit(mine.login, name="here")
        assert (await stream.event())["workload_id"] == here
    assert (await mine.ask("GET", "/api/auth/me"))[1]["project"] == "vision"


@on_sqlite
@pytest.mark.parametrize("username", ROLES)
async def test_a_keypair_submits_books_and_stores_in_its_own_project_only(world: World, username: str) -> None:
    mine = await tenants(world, username)
    begin = (clock.now() + timedelta(days=1)).isoformat()
    slot = {"start": begin, "duration": "1h", "resources": {"cpu": "1"}}
    for path, body in (
        ("/api/workloads", {**WORK, "project": "speech"}),
        ("/api/workloads", {**WORK, "project": "no-such-project"}),
        ("/api/workloads/dry-run", {**WORK, "project": "speech"}),
        ("/api/sessions", {"image": "a", "project": "speech"}),
        ("/api/timeslots", {**slot, "project": "speech"}),
        ("/api/volumes", {"name": "more", "project": "speech", "size": "1Gi"}),
    ):
        status, answer = await mine.ask("POST", path, body)
        assert (path, status, answer["code"]) == (path, 403, "keypair-project")
    more: list[dict[str, Any]] = [
        {"dependencies": [{"workload": "outside"}]},
        {"dependencies": [{"workload": mine.outside}]},
        {"booking": "later", "containers": [{"command": ["true"], "resources": {"cpu": "500m"}}]},
    ]
    for body in ({**WORK, **each} for each in more):
        status, answer = await mine.ask("POST", "/api/workloads", body)
        assert status in (404, 422), answer
        allowed = await mine.ask("POST", "/api/workloads", {**body, "project": "speech"}, mine.login)
        assert allowed[0] == 202, allowed


@on_sqlite
@pytest.mark.parametrize("username", ["dora", "root"])
async def test_a_keypair_of_an_administrator_cannot_get_itself_another_credential(world: World, username: str) -> None:
    mine = await tenants(world, username)
    await world.user("ben", project="vision")
    for method, path, body in (
        ("PATCH", "/api/users/ben", {"password": "known to me"}),
        ("PATCH", f"/api/users/{username}", {"password": "known to me"}),
        ("PATCH", "/api/users/ben", {"role": "domain-admin"}),
        ("POST", "/api/users", {"username": "eve", "password": "known to me"}),
        ("POST", "/api/keypairs", {"user": "ben"}),
        ("POST", "/api/auth/password", {"old_password": PASSWORD, "new_password": "known to me"}),
        ("POST", "/api/auth/renew", None),
    ):
        status, answer = await mine.ask(method, path, body)
        assert (path, status, answer["code"]) == (path, 403, "keypair-scope")


@on_sqlite
async def test_a_keypair_made_with_a_keypair_is_never_wider_or_longer_lived(world: World) -> None:
    mine = await tenants(world, "ada", expires_in_seconds=3600)
    made, child = await make(world, mine.key)
    parent = (await mine.ask("GET", f"/api/keypairs/{mine.access_key}"))[1]
    assert (made["project"], made["expires_at"], made["parent_key"]) == (
        "vision",
        parent["expires_at"],
        mine.access_key,
    )
    for body, code in (
        ({"project": "speech"}, "keypair-project"),
        ({"project": "default"}, "keypair-project"),
        ({"expires_in_seconds": 86400}, "keypair-scope"),
    ):
        status, answer = await mine.ask("POST", "/api/keypairs", body)
        assert (body, status, answer["code"]) == (body, 403, code)
    shorter, _ = await make(world, mine.key, expires_in_seconds=600)
    assert shorter["expires_at"] < parent["expires_at"]
    for scope in ("work", "read"):
        _, narrow = await make(world, mine.login, project="vision", scope=scope)
        assert (await mine.ask("POST", "/api/keypairs", {"scope": scope}, narrow))[0] == 403
    # A keypair cannot give another back what its user took away.
    unlimited, _ = await make(world, mine.login, project="vision", scope="read")
    path = f"/api/keypairs/{unlimited['access_key']}"
    assert (await mine.ask("PATCH", path, {"scope": "all"}))[0] == 403
    assert (await mine.ask("PATCH", path, {"active": False}))[0] == 200
    assert (await mine.ask("PATCH", path, {"active": True}))[0] == 403
    assert (await mine.ask("GET", "/api/auth/me", headers=child))[0] == 200


@on_sqlite
async def test_a_keypair_with_limits_of_its_own_makes_no_other(world: World) -> None:
    mine = await tenants(world, "ada")
    admin = await world.admin()
    assert (await mine.ask("POST", "/api/policies", {"name": "small", "rules": {"max_sessions": 1}}, admin))[0] == 201
    assert (await mine.ask("PATCH", f"/api/keypairs/{mine.access_key}", {"policy": "small"}, admin))[0] == 200
    assert (await mine.ask("POST", "/api/keypairs", {}))[1]["code"] == "keypair-scope"
    assert (await mine.ask("PATCH", f"/api/keypairs/{mine.access_key}", {"policy": None}, admin))[0] == 200
    limits = {"limits": {"cpu": 1}}
    assert (await mine.ask("PUT", f"/api/quotas/keypair/{mine.access_key}", limits, admin))[0] == 200
    assert (await mine.ask("POST", "/api/keypairs", {}))[1]["code"] == "keypair-scope"


@pytest.mark.parametrize("limited_by", ["policy", "quota", "temporary quota"])
async def test_limits_of_a_keypair_end_the_keypairs_that_it_made_before(world: World, limited_by: str) -> None:
    mine = await tenants(world, "ada")
    admin = await world.admin()
    _, child_key = await make(world, mine.key)
    _, grandchild_key = await make(world, child_key)
    _, other_key = await make(world, mine.login, project="vision")
    if limited_by == "policy":
        policy = {"name": "small", "rules": {"limits": {"cpu": 1}}}
        assert (await mine.ask("POST", "/api/policies", policy, admin))[0] == 201
        assert (await mine.ask("PATCH", f"/api/keypairs/{mine.access_key}", {"policy": "small"}, admin))[0] == 200
    else:
        until = {} if limited_by == "quota" else {"until": (clock.now() + timedelta(hours=1)).isoformat()}
        change = {"limits": {"cpu": 1}, **until}
        assert (await mine.ask("PUT", f"/api/quotas/keypair/{mine.access_key}", change, admin))[0] == 200
    for headers in (child_key, grandchild_key):
        assert (await mine.ask("GET", "/api/auth/me", headers=headers))[0] == 401
    for headers in (mine.key, other_key):
        assert (await mine.ask("GET", "/api/auth/me", headers=headers))[0] == 200
    assert (await mine.ask("POST", "/api/keypairs", {}))[1]["code"] == "keypair-scope"


async def test_a_keypair_ends_with_the_one_that_made_it(world: World) -> None:
    mine = await tenants(world, "ada")
    child, child_key = await make(world, mine.key)
    _, grandchild_key = await make(world, child_key)
    narrowed = await mine.ask("PATCH", f"/api/keypairs/{mine.access_key}", {"scope": "read"}, mine.login)
    assert narrowed[0] == 200
    assert (await mine.ask("POST", "/api/workloads", WORK, grandchild_key))[0] == 403
    shown = (await mine.ask("GET", f"/api/keypairs/{child['access_key']}", headers=mine.login))[1]
    assert shown["scope"] == "read"
    assert (await mine.ask("PATCH", f"/api/keypairs/{mine.access_key}", {"active": False}, mine.login))[0] == 200
    for headers in (child_key, grandchild_key):
        assert (await mine.ask("GET", "/api/auth/me", headers=headers))[0] == 401


async def test_a_changed_password_revokes_keypairs_if_asked_to(world: World) -> None:
    mine = await tenants(world, "ada")
    change: dict[str, Any] = {"old_password": PASSWORD, "new_password": "another one"}
    status, answer = await mine.ask("POST", "/api/auth/password", change, mine.login)
    assert status == 200
    assert (await mine.ask("GET", "/api/auth/me"))[0] == 200
    login = {"Authorization": f"Bearer {answer['access_token']}"}
    change = {"old_password": "another one", "new_password": "a third one", "revoke_keypairs": True}
    status, answer = await mine.ask("POST", "/api/auth/password", change, login)
    assert status == 200
    assert (await mine.ask("GET", "/api/auth/me"))[0] == 401
    # What carries work after a login has no secret, and stays.
    again = {"Authorization": f"Bearer {answer['access_token']}"}
    assert (await mine.ask("POST", "/api/workloads", WORK, again))[0] == 202


async def test_unused_keypairs_are_reported(world: World) -> None:
    mine = await tenants(world, "ada")
    unused, _ = await make(world, mine.login, name="forgotten")
    assert (await mine.ask("GET", "/api/auth/me"))[0] == 200
    admin = await world.admin()
    listed = (await mine.ask("GET", "/api/keypairs?everyone=true&unused_days=0", headers=admin))[1]
    assert {each["access_key"] for each in listed} == {unused["access_key"], mine.access_key}
    assert all(each["unused_since"] is not None for each in listed)
    assert (await mine.ask("GET", "/api/keypairs?everyone=true&unused_days=1", headers=admin))[1] == []
    shown = (await mine.ask("GET", f"/api/keypairs/{mine.access_key}", headers=admin))[1]
    assert shown["unused_since"] == shown["last_used_at"] is not None


async def test_null_removes_a_policy(world: World) -> None:
    mine = await tenants(world, "ada")
    admin = await world.admin()
    assert (await mine.ask("POST", "/api/policies", {"name": "small", "rules": {"max_sessions": 1}}, admin))[0] == 201
    for path in (
        "/api/users/ada",
        "/api/projects/vision",
        "/api/domains/default",
        f"/api/keypairs/{mine.access_key}",
    ):
        assert (await mine.ask("PATCH", path, {"policy": "small"}, admin))[1]["policy"] == "small"
        assert (await mine.ask("PATCH", path, {"active": True}, admin))[1]["policy"] == "small"
        assert (await mine.ask("PATCH", path, {"policy": None}, mine.login))[0] == 403
        assert (await mine.ask("PATCH", path, {"policy": None}, admin))[1]["policy"] is None
    assert (await mine.ask("PATCH", "/api/users/ada", {"os_user": "ada1"}, admin))[1]["os_user"] == "ada1"
    assert (await mine.ask("PATCH", "/api/users/ada", {"os_user": None}, admin))[1]["os_user"] is None
