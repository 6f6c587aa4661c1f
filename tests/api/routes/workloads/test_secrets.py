"""Secrets and logins to registries go in and never come back; every change leaves a row, without the value."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from mooring.model.tenancy.tenants import Role
from mooring.security.encryption import SecretBox
from mooring.store import tables
from mooring.store.tables import metadata
from mooring.wire.workloads.secrets import MAX_SECRET_BYTES
from tests.api.world import World
from tests.store.databases import on_sqlite

VALUE = "correct-horse-battery-staple"
PASSWORD = "a-token-of-the-registry"
SECRETS = "/api/projects/vision/secrets"
REGISTRIES = "/api/projects/vision/registries"


def written(content: bytes) -> dict[str, str]:
    return {"value": base64.b64encode(content).decode()}


async def everything(world: World) -> str:
    """All that is in the database."""
    async with world.services.database.read() as connection:
        rows = [list(await connection.execute(select(table))) for table in metadata.sorted_tables]
    return repr(rows)


async def test_a_secret_is_listed_by_name_and_its_value_is_never_returned(world: World):
    paul = await world.user("paul", project="vision", role=Role.PROJECT_ADMIN)
    uma = await world.user("uma", project="vision")
    client = world.client
    made = await client.put(f"{SECRETS}/db", json=written(VALUE.encode()), headers=paul)
    assert (made.status_code, made.json()["name"], made.json()["size"]) == (200, "db", len(VALUE))
    login = {"username": "robot", "password": PASSWORD}
    logged_in = await client.put(f"{REGISTRIES}/registry.example.org:5000", json=login, headers=paul)
    assert logged_in.json()["registry"] == "registry.example.org:5000"
    listed = await client.get(SECRETS, headers=uma)
    assert [secret["name"] for secret in listed.json()] == ["db"]
    one = await client.get(f"{SECRETS}/db", headers=uma)
    assert one.json() == listed.json()[0]
    logins = await client.get(REGISTRIES, headers=uma)
    assert [(each["registry"], each["username"]) for each in logins.json()] == [("registry.example.org:5000", "robot")]
    actions = await client.get("/api/actions", headers=await world.admin())
    received = [(row["action"], row["noun"], row["object"]) for row in actions.json()["actions"]]
    assert ("create", "secret", "default/vision/db") in received
    assert ("create", "registry", "default/vision/registry.example.org:5000") in received
    events = await client.get("/api/events", headers=await world.admin())
    answers = [made, logged_in, listed, one, logins, actions, events]
    places = [*(answer.text for answer in answers), await everything(world)]
    for place in places:
        for secret in (VALUE, written(VALUE.encode())["value"], PASSWORD):
            assert secret not in place


@on_sqlite
async def test_a_secret_is_changed_and_removed(world: World):
    admin, client = await world.admin(), world.client
    await world.user("uma", project="vision")
    first = await client.put(f"{SECRETS}/db", json=written(b"one"), headers=admin)
    second = await client.put(f"{SECRETS}/db", json=written(b"eleven"), headers=admin)
    assert second.json()["size"] == 6
    assert second.json()["created_at"] == first.json()["created_at"]
    await client.put(f"{REGISTRIES}/index.docker.io", json={"username": "a", "password": "b"}, headers=admin)
    changed = await client.put(f"{REGISTRIES}/docker.io", json={"username": "c", "password": "d"}, headers=admin)
    logins = (await client.get(REGISTRIES, headers=admin)).json()
    assert logins == [changed.json()]
    for path in (f"{SECRETS}/db", f"{REGISTRIES}/docker.io"):
        assert (await client.delete(path, headers=admin)).status_code == 204
        assert (await client.delete(path, headers=admin)).status_code == 404
    assert (await client.get(SECRETS, headers=admin)).json() == []
    actions = (await client.get("/api/actions?noun=secret", headers=admin)).json()["actions"]
    # The admin is no member of the project: it leaves a record also where it only looks.
    looked = ["list", "list-registries"]
    assert [row["action"] for row in actions] == [looked[0], "remove", looked[1], "change", "create"]


@on_sqlite
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{SECRETS}/db", {"value": ""}),
        (f"{SECRETS}/db", {"value": "not base64!"}),
        (f"{SECRETS}/db", {"value": "abcde"}),
        (f"{SECRETS}/db", {}),
        (f"{SECRETS}/db", written(b"x" * (MAX_SECRET_BYTES + 1))),
        (f"{SECRETS}/No%20Name", written(b"x")),
        (f"{REGISTRIES}/https%3A", {"username": "a", "password": "b"}),
        (f"{REGISTRIES}/UPPER.org", {"username": "a", "password": "b"}),
        (f"{REGISTRIES}/ghcr.io", {"username": "a", "password": ""}),
        (f"{REGISTRIES}/ghcr.io", {"username": "a:b", "password": "b"}),
        (f"{REGISTRIES}/{'a' * 128}", {"username": "a", "password": "b"}),
    ],
)
async def test_invalid_input_is_rejected_without_echoing_it_and_changes_nothing(
    world: World, path: str, body: dict[str, Any]
):
    admin = await world.admin()
    await world.user("uma", project="vision")
    before = await world.counts()
    answer = await world.client.put(path, json=body, headers=admin)
    assert answer.status_code == 422, answer.text
    assert all(value not in answer.text for value in body.values() if len(value) > 3)
    assert await world.counts() == before


@on_sqlite
async def test_without_keys_a_secret_is_refused_with_a_sentence_that_names_the_setting(world: World):
    admin = await world.admin()
    world.app.state.services = replace(world.services, secret_box=SecretBox(None))
    answer = await world.client.put("/api/projects/default/secrets/db", json=written(b"x"), headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (409, "no-sealing-keys")
    assert "MOORING_SEALING_KEYS_FILE" in answer.json()["message"]
    listed = await world.client.get("/api/projects/default/secrets", headers=admin)
    assert listed.json() == []


async def test_secrets_go_with_their_project(world: World):
    admin, client = await world.admin(), world.client
    await client.post("/api/projects", json={"name": "short"}, headers=admin)
    await client.put("/api/projects/short/secrets/db", json=written(b"x"), headers=admin)
    await client.put("/api/projects/short/registries/a.org", json={"username": "a", "password": "b"}, headers=admin)
    assert (await client.delete("/api/projects/short", headers=admin)).status_code == 204
    async with world.services.database.read() as connection:
        for table in (tables.secrets, tables.registry_logins):
            assert (await connection.execute(select(table))).all() == []


@on_sqlite
async def test_a_row_records_a_change_without_its_value(world: World):
    admin, client = await world.admin(), world.client
    for password in ("first-password", "second-password"):
        login = {"username": password[:5], "password": password}
        await client.put("/api/projects/default/registries/a.org", json=login, headers=admin)
    row = (await client.get("/api/actions?noun=registry", headers=admin)).json()["actions"][0]
    assert (row["before"], row["after"]) == ({"username": "first"}, {"username": "secon"})
    assert "password" not in json.dumps(row)


@on_sqlite
async def test_work_may_name_the_secrets_of_its_project_and_shows_their_names_alone(world: World):
    uma = await world.user("uma", project="vision")
    paul = await world.user("paul", project="vision", role=Role.PROJECT_ADMIN)
    sam = await world.user("sam", project="speech")
    work = {"name": "web", "containers": [{"image": "nginx", "secrets": {"password": "db"}}]}
    for path in ("/api/workloads", "/api/workloads/dry-run"):
        refused = await world.client.post(path, json=work, headers=uma)
        assert (path, refused.status_code, refused.json()["code"]) == (path, 422, "no-such-secret")
    await world.client.put(f"{SECRETS}/db", json=written(VALUE.encode()), headers=paul)
    assert (await world.client.post("/api/workloads", json=work, headers=sam)).json()["code"] == "no-such-secret"
    accepted = await world.client.post("/api/workloads", json=work, headers=uma)
    assert accepted.status_code == 202, accepted.text
    shown = await world.client.get(f"/api/workloads/{accepted.json()['id']}", headers=uma)
    assert VALUE not in shown.text + await everything(world)
    async with world.services.database.read() as connection:
        (template,) = (await connection.execute(select(tables.workloads.c.template))).scalars()
    assert template["containers"][0]["secrets"] == {"password": "db"}
