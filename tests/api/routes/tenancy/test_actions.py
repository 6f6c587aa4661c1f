"""Administrative actions: every administrative route leaves a row in its transaction, and no secret."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text

from mooring import clock
from mooring.store import tables
from mooring.store.core.engine import Connection
from mooring.store.nodes import pools
from tests.api.world import World
from tests.store.databases import on_postgresql, on_sqlite

# What is asked for, and the row that it leaves.
CHANGES: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("POST", "/api/domains", {"name": "research"}, "create domain research"),
    ("PATCH", "/api/domains/research", {"active": False}, "change domain research"),
    ("DELETE", "/api/domains/research", None, "remove domain research"),
    ("POST", "/api/projects", {"name": "vision"}, "create project default/vision"),
    ("PATCH", "/api/projects/vision", {"active": True}, "change project default/vision"),
    ("POST", "/api/users", {"username": "eve", "password": "open sesame"}, "create user eve"),
    ("POST", "/api/projects/vision/members", {"username": "eve"}, "add-member project default/vision"),
    ("DELETE", "/api/projects/vision/members/eve", None, "remove-member project default/vision"),
    ("PATCH", "/api/users/eve", {"os_user": "eve1"}, "change user eve"),
    ("PATCH", "/api/users/eve", {"password": "open barley"}, "reset-password user eve"),
    ("DELETE", "/api/users/eve", None, "remove user eve"),
    ("DELETE", "/api/projects/vision", None, "remove project default/vision"),
    ("POST", "/api/policies", {"name": "small"}, "create policy small"),
    ("PATCH", "/api/policies/small", {"rules": {"max_sessions": 3}}, "change policy small"),
    ("POST", "/api/policies/small/revert", {}, "revert policy small"),
    ("DELETE", "/api/policies/small", None, "remove policy small"),
    ("PATCH", "/api/pools/default", {"profile": "pack"}, "change pool default"),
    ("POST", "/api/pools/default/revert", {"version": 1}, "revert pool default"),
    ("POST", "/api/pools/default/pause", {"reason": "repairs"}, "pause pool default"),
    ("POST", "/api/pools/default/resume", None, "resume pool default"),
    ("POST", "/api/pools/default/access", {"domain": "default"}, "grant-access pool default"),
    ("DELETE", "/api/pools/default/access?domain=default", None, "revoke-access pool default"),
    ("POST", "/api/nodes", {"name": "n1", "simulated": True, "resources": {"cpu": 1}}, "add node n1"),
    ("POST", "/api/nodes/n1/drain", None, "drain node n1"),
    ("PATCH", "/api/nodes/n1/taints", {"add": [{"key": "spot"}]}, "taint node n1"),
    ("POST", "/api/nodes/n1/resume", None, "resume node n1"),
    ("DELETE", "/api/nodes/n1", None, "remove node n1"),
    ("POST", "/api/pools", {"name": "lab"}, "create pool lab"),
    ("DELETE", "/api/pools/lab", None, "remove pool lab"),
    ("PUT", "/api/quotas/project/default", {"limits": {"cpu": 1}}, "change quota project default/default"),
    ("POST", "/api/quotas/project/default/revert", {}, "revert quota project default/default"),
    ("POST", "/api/join-tokens", {"name": "n2"}, "create join-token n2"),
]


async def rows(world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await world.client.get(f"/api/actions{query}", headers=await world.admin())
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["actions"]
    return found


async def test_every_administrative_change_leaves_one_row_and_no_secret(world: World):
    admin = await world.admin()
    answers = []
    for method, path, body, expected in CHANGES:
        before = await rows(world)
        answer = await world.client.request(method, path, json=body, headers=admin)
        assert answer.status_code < 300, (path, answer.text)
        answers.append(answer.text)
        newest, *rest = await rows(world)
        assert rest == before
        assert f"{newest['action']} {newest['noun']} {newest['object']}" == expected
        assert (newest["username"], newest["address"]) == ("admin", "127.0.0.1")
    token = json.loads(answers[-1])["token"]
    made = await world.client.post("/api/keypairs", json={}, headers=admin)
    everything = json.dumps(await rows(world, "?limit=1000"))
    for secret in ("open sesame", "open barley", token, made.json()["secret"], "hash"):
        assert secret not in everything


@on_sqlite
async def test_actions_on_the_work_of_others_are_recorded_and_those_on_ones_own_are_not(world: World):
    ada, admin = await world.user("ada"), await world.admin()
    web = await world.submit(ada, name="web", kind="deployment")
    job = await world.submit(ada, name="job", time=60)
    before = await rows(world)
    asked: list[tuple[dict[str, str], str, str, dict[str, int] | None]] = [
        (ada, "POST", f"{web}/scale", {"replicas": 2}),
        (ada, "POST", f"{job}/extend", {"by": 60}),
        (admin, "POST", f"{web}/scale", {"replicas": 3}),
        (admin, "POST", f"{job}/extend", {"by": 60}),
        (admin, "DELETE", f"{job}?keep=true&force=true", None),
        (ada, "DELETE", web, None),
    ]
    for headers, method, path, body in asked:
        answer = await world.client.request(method, f"/api/workloads/{path}", json=body, headers=headers)
        assert answer.status_code < 300, answer.text
    new = [row for row in await rows(world) if row not in before]
    assert [(row["username"], row["action"], row["noun"], row["object"]) for row in new] == [
        ("admin", "cancel", "workload", f"job ({job})"),
        ("admin", "extend", "workload", f"job ({job})"),
        ("admin", "scale", "workload", f"web ({web})"),
    ]
    assert (new[0]["after"], new[2]["before"], new[2]["after"]) == ({"force": True}, {"replicas": 2}, {"replicas": 3})


@on_sqlite
async def test_actions_are_found_by_noun_name_time_and_page(world: World):
    admin = await world.admin()
    for name in ("a", "b", "c"):
        await world.client.post("/api/domains", json={"name": name}, headers=admin)
    assert [row["object"] for row in await rows(world, "?noun=domain")] == ["c", "b", "a"]
    assert [row["object"] for row in await rows(world, "?noun=domain&object=b")] == ["b"]
    assert await rows(world, "?since=2999-01-01T00:00:00Z") == []
    page = (await world.client.get("/api/actions?noun=domain&limit=2", headers=admin)).json()
    older = (await world.client.get(f"/api/actions?noun=domain&before={page['next']}", headers=admin)).json()
    assert [row["object"] for row in older["actions"]] == ["a"]
    assert older["next"] is None
    for wrong in ("since=yesterday", "since=2026-01-01T00:00:00", "since=0001-01-01T00:00:00%2B14:00", "limit=0"):
        answer = await world.client.get(f"/api/actions?{wrong}", headers=admin)
        assert (wrong, answer.status_code) == (wrong, 422)


@on_sqlite
async def test_a_pool_can_be_reverted_to_its_state_before_the_first_change(world: World):
    admin = await world.admin()

    async def profile() -> str:
        answer = await world.client.get("/api/pools", headers=admin)
        return next(str(pool["profile"]) for pool in answer.json()["pools"] if pool["name"] == "default")

    original = await profile()
    await world.client.patch("/api/pools/default", json={"profile": "pack"}, headers=admin)
    await world.client.patch(
        "/api/pools/default", json={"profile": "spread", "preemption": {"mode": "terminate"}}, headers=admin
    )
    assert (await world.client.post("/api/pools/default/revert", json={}, headers=admin)).status_code == 204
    assert await profile() == "pack"
    assert (await world.client.post("/api/pools/default/revert", json={"version": 1}, headers=admin)).status_code == 204
    assert await profile() == original
    again = await world.client.post("/api/pools/default/revert", json={"version": 3}, headers=admin)
    assert again.status_code == 204
    assert await profile() == "spread"
    future = await world.client.post("/api/pools/default/revert", json={"version": 9}, headers=admin)
    assert (future.status_code, future.json()["code"]) == (422, "invalid-version")


@on_postgresql
@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/api/pools/default", {"profile": "pack"}, {"ageing_seconds": 60}),
        ("/api/policies/small", {"rules": {"max_sessions": 3}}, {"rules": {"max_priority": 50}}),
    ],
)
async def test_two_concurrent_changes_both_take_effect(
    world: World, path: str, first: dict[str, Any], second: dict[str, Any]
):
    admin, database = await world.admin(), world.services.database
    await world.client.post("/api/policies", json={"name": "small"}, headers=admin)
    table = tables.pools if "pools" in path else tables.policies
    async with database.engine.begin() as connection:
        # Each change waits here, so that both have begun when the first continues.
        await connection.execute(select(table.c.id).with_for_update())
        changes = [asyncio.create_task(world.client.patch(path, json=one, headers=admin)) for one in (first, second)]
        async with database.engine.connect() as watching:
            waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            while (await watching.execute(waiting)).scalar_one() < len(changes):
                await watching.rollback()
    for answer in await asyncio.gather(*changes):
        assert answer.status_code < 300, answer.text
    found = (await world.client.get(path, headers=admin)).json()
    for asked in (first, second):
        shown, wanted = (found["rules"], asked["rules"]) if "rules" in asked else (found, asked)
        assert {name: shown[name] for name in wanted} == wanted


async def test_a_pool_takes_its_guarantees_along(world: World):
    admin, client = await world.admin(), world.client
    for guaranteed in (True, False):
        assert (await client.post("/api/pools", json={"name": "lab"}, headers=admin)).status_code == 201
        if guaranteed:
            share = {"guaranteed": {"cpu": 4}, "pool": "lab"}
            assert (await client.put("/api/quotas/project/default", json=share, headers=admin)).status_code == 200
            await client.post("/api/pools/lab/access", json={"project": "default"}, headers=admin)
            assert (await client.delete("/api/pools/lab", headers=admin)).status_code == 204
    assert (await client.get("/api/quotas/project/default", headers=admin)).json()["guarantees"] == []
    assert (await client.get("/api/pools/lab/access", headers=admin)).json() == []


@on_sqlite
async def test_only_tenants_with_access_use_a_pool_that_is_not_public(world: World):
    admin, ada = await world.admin(), await world.user("ada", project="vision")

    async def close(connection: Connection) -> None:
        found = await pools.by_name(connection, "simulated")
        assert found is not None
        await pools.set_policy(connection, "simulated", replace(found.policy, public=False), clock.now())

    await world.services.database.write(close)
    work = {"containers": [{"image": "nginx"}], "pool": "simulated"}
    for path in ("/api/workloads", "/api/workloads/dry-run"):
        answer = await world.client.post(path, json=work, headers=ada)
        assert (path, answer.status_code, answer.json()["code"]) == (path, 403, "pool-not-allowed")
    granted = await world.client.post("/api/pools/simulated/access", json={"project": "vision"}, headers=admin)
    assert granted.status_code == 204
    listed = (await world.client.get("/api/pools/simulated/access", headers=admin)).json()
    assert [(one["scope"], one["name"]) for one in listed] == [("project", "default/vision")]
    # The rules of a request are read again after a second.
    for _ in range(100):
        answer = await world.client.post("/api/workloads/dry-run", json=work, headers=ada)
        if answer.status_code == 200:
            break
        await asyncio.sleep(0.1)
    assert answer.status_code == 200
    for wrong in ({}, {"keypair": "MKX", "project": "vision"}):
        answer = await world.client.post("/api/pools/simulated/access", json=wrong, headers=admin)
        assert answer.status_code == 422
    nobody = await world.client.delete("/api/pools/simulated/access?domain=default", headers=admin)
    assert nobody.status_code == 404
