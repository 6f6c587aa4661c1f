"""Logins by password: their list, and their end at every server."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from mooring import clock
from mooring.api.auth import logins
from mooring.api.streams.open_connections import AccessRevoked
from mooring.model.tenancy.tenants import Role
from mooring.store.core.engine import Connection
from mooring.store.tables import logins as login_table
from mooring.store.tenancy import logins as stored_logins
from tests.api.routes.tenancy.test_keypairs import basic
from tests.api.world import ADMIN_PASSWORD, PASSWORD, World

Headers = dict[str, str]


async def listed(world: World, headers: Headers, user: str | None = None) -> list[dict[str, Any]]:
    answer = await world.client.get("/api/logins", params={"user": user} if user else {}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def status(world: World, headers: Headers) -> int:
    return (await world.client.get("/api/auth/me", headers=headers)).status_code


async def test_logins_are_listed_with_their_times_and_address(world: World):
    await world.user("ada")
    first, second = await world.login("ada"), await world.login("ada")
    found = await listed(world, second)
    assert [(each["user"], each["current"]) for each in found] == [("ada", True), ("ada", False)]
    assert {each["address"] for each in found} == {"127.0.0.1"}
    assert all(each["created_at"] <= each["last_used_at"] < each["expires_at"] for each in found)
    assert [each["current"] for each in await listed(world, first)] == [False, True]


async def test_an_ended_login_is_refused_everywhere_and_the_others_stay(world: World):
    await world.user("ada")
    first, second = await world.login("ada"), await world.login("ada")
    renewed = (await world.client.post("/api/auth/renew", headers=first)).json()["access_token"]
    [_, ended] = await listed(world, second)
    assert (await world.client.delete(f"/api/logins/{ended['id']}", headers=second)).status_code == 204
    for token in (first, {"Authorization": f"Bearer {renewed}"}):
        answer = await world.client.get("/api/auth/me", headers=token)
        assert (answer.status_code, answer.json()["code"]) == (401, "token-revoked")
    assert (await world.client.post("/api/auth/renew", headers=first)).status_code == 401
    assert [each["current"] for each in await listed(world, second)] == [True]
    again = await world.client.delete(f"/api/logins/{ended['id']}", headers=second)
    assert (again.status_code, again.json()["code"]) == (404, "not-found")


async def test_an_open_connection_ends_with_its_login(world: World):
    await world.user("ada")
    headers = await world.login("ada")
    claims = world.services.tokens.verify(headers["Authorization"].removeprefix("Bearer "))
    async with world.services.database.read() as connection:
        login = await logins.by_token(connection, claims)
    with world.services.connections.opened(login, lambda principal: None) as opened:
        await world.services.connections.recheck()
        assert opened.open
        assert (await world.client.delete("/api/logins/current", headers=headers)).status_code == 204
        await world.services.connections.recheck()
        with pytest.raises(AccessRevoked, match="this login was revoked"):
            await opened.run(asyncio.Event().wait())


async def test_all_logins_end_with_tokens_of_older_servers(world: World):
    unstored = await world.user("ada")
    stored, other = await world.login("ada"), await world.user("ben")
    assert [await status(world, each) for each in (unstored, stored)] == [200, 200]
    assert (await world.client.delete("/api/logins", headers=stored)).status_code == 204
    assert [await status(world, each) for each in (unstored, stored, other)] == [401, 401, 200]
    assert await listed(world, await world.login("ada"), "ada") != []


async def test_a_token_without_a_stored_login_has_no_current_one(world: World):
    answer = await world.client.delete("/api/logins/current", headers=await world.user("ada"))
    assert (answer.status_code, answer.json()["message"]) == (404, "there is no login 'current'")


async def test_admins_end_logins_of_others_with_a_record(world: World):
    admin = await world.admin()
    await world.user("ada")
    dora = await world.user("dora", role=Role.DOMAIN_ADMIN)
    ada, ben = await world.login("ada"), await world.user("ben")
    [login] = await listed(world, dora, "ada")
    refused = await world.client.delete(f"/api/logins/{login['id']}", headers=ben)
    assert refused.status_code == 404
    assert (await world.client.delete(f"/api/logins/{login['id']}", headers=dora)).status_code == 204
    assert await status(world, ada) == 401
    await world.login("admin", ADMIN_PASSWORD)
    [of_admin] = await listed(world, dora, "admin")
    assert (await world.client.delete(f"/api/logins/{of_admin['id']}", headers=dora)).status_code == 403
    assert (await world.client.delete("/api/logins", params={"user": "ada"}, headers=admin)).status_code == 204
    actions = (await world.client.get("/api/actions", params={"object": "ada"}, headers=admin)).json()["actions"]
    ended = [each for each in actions if each["action"].startswith("revoke-login")]
    assert [(each["action"], each["username"]) for each in ended] == [
        ("revoke-logins", "admin"),
        ("revoke-login", "dora"),
    ]
    assert ended[1]["before"]["id"] == login["id"]


async def test_a_keypair_sees_logins_and_ends_none(world: World):
    ada = await world.user("ada")
    await world.login("ada")
    made = (await world.client.post("/api/keypairs", json={}, headers=ada)).json()
    keypair = basic(made["access_key"], made["secret"])
    [login] = await listed(world, keypair)
    for path in (f"/api/logins/{login['id']}", "/api/logins/current", "/api/logins"):
        answer = await world.client.delete(path, headers=keypair)
        assert (answer.status_code, answer.json()["code"]) == (403, "keypair-scope")
    assert await listed(world, ada) != []


async def test_a_new_password_ends_the_stored_logins(world: World):
    await world.user("ada")
    old = await world.login("ada")
    change = {"old_password": PASSWORD, "new_password": "another one"}
    token = (await world.client.post("/api/auth/password", json=change, headers=old)).json()["access_token"]
    assert [each["current"] for each in await listed(world, {"Authorization": f"Bearer {token}"})] == [True]


@pytest.mark.parametrize(("minutes", "noted"), [(4, False), (6, True)])
async def test_the_last_use_is_noted_to_a_few_minutes(world: World, minutes: int, noted: bool):
    await world.user("ada")
    headers = await world.login("ada")
    before = clock.now() - timedelta(minutes=minutes)

    async def age(connection: Connection) -> None:
        await connection.execute(update(login_table).values(last_used_at=before))

    await world.services.database.write(age)
    await status(world, headers)
    [found] = await listed(world, headers)
    assert (datetime.fromisoformat(found["last_used_at"]) > before) is noted


async def test_expired_logins_are_purged(world: World):
    await world.user("ada")
    await world.login("ada")
    database = world.services.database
    at = clock.now()
    assert await database.write(lambda c: stored_logins.purge(c, at, 10)) == 0
    assert await database.write(lambda c: stored_logins.purge(c, at + timedelta(hours=2), 10)) == 1
