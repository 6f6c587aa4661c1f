"""Attacks on logins: guessing, locking users out, forging addresses, and filling the database with failures."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from mooring import clock
from mooring.api.auth.login_records import UNKNOWN
from mooring.api.auth.login_throttle import LoginThrottle
from mooring.store.tenancy import admin_actions
from tests.api.world import ADMIN_PASSWORD, PASSWORD, World
from tests.store.databases import on_sqlite
from tests.system.conftest import running_servers
from tests.system.servers import Server, eventually


async def attempt(world: World, address: str, username: str, password: str) -> int:
    transport = httpx2.ASGITransport(app=world.app, client=(address, 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
        answer = await client.post("/api/auth/login", json={"username": username, "password": password})
        return answer.status_code


async def records(world: World) -> list[dict[str, Any]]:
    answer = await world.client.get("/api/actions?noun=login&limit=1000", headers=await world.admin())
    found: list[dict[str, Any]] = answer.json()["actions"]
    return found


async def test_a_user_cannot_lock_out_another_account(world: World) -> None:
    await world.user("ada")
    for _ in range(5):
        assert await attempt(world, "198.51.100.9", "ada", "guess") == 401
    assert await attempt(world, "198.51.100.9", "ada", PASSWORD) == 429
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200


async def test_an_account_under_attack_from_many_addresses_lets_its_owner_in_from_where_it_was(world: World) -> None:
    await world.user("ada")
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200
    for number in range(60):
        world.services.throttle.failed("ada", f"198.51.100.{number}")
    assert await attempt(world, "203.0.113.5", "ada", PASSWORD) == 429
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200
    # Another server, or this one after a restart, knows it as well.
    object.__setattr__(world.services, "throttle", LoginThrottle())
    for number in range(60):
        world.services.throttle.failed("ada", f"198.51.100.{number}")
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200


async def test_logins_and_failures_leave_records(world: World) -> None:
    await world.user("ada")
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200
    assert await attempt(world, "192.0.2.2", "ada", "guess") == 401
    assert await attempt(world, "192.0.2.3", "hunter2", "a password typed as the name") == 401
    newest_first = [(each["action"], each["username"], each["address"]) for each in await records(world)]
    assert newest_first == [
        ("login-failed", UNKNOWN, "192.0.2.3"),
        ("login-failed", "ada", "192.0.2.2"),
        ("login", "ada", "192.0.2.1"),
    ]


@on_sqlite
async def test_failures_do_not_fill_the_database(world: World) -> None:
    await world.user("ada")
    found = await _credentials(world, "ada")
    for number in range(2000):
        await world.services.login_records.failed(f"nobody{number}", None, f"198.51.100.{number % 250}", clock.now())
    assert len(await records(world)) <= 110
    await world.services.login_records.failed("ada", found, "192.0.2.1", clock.now())
    newest = (await records(world))[0]
    assert (newest["username"], newest["action"]) == ("ada", "login-failed")


async def _credentials(world: World, username: str) -> Any:
    from mooring.store.tenancy import users

    async with world.services.database.read() as connection:
        return await users.credentials(connection, username)


async def test_records_of_logins_age_and_no_others_do(world: World) -> None:
    await world.user("ada")
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200
    database = world.services.database
    others = len((await world.client.get("/api/actions", headers=await world.admin())).json()["actions"]) - 1
    assert others >= 1
    assert await database.write(lambda c: admin_actions.purge_logins(c, clock.now() - timedelta(days=1), 100)) == 0
    assert await database.write(lambda c: admin_actions.purge_logins(c, clock.now() + timedelta(days=1), 100)) == 1
    assert await records(world) == []
    left = (await world.client.get("/api/actions", headers=await world.admin())).json()["actions"]
    assert len(left) == others
    from sqlalchemy import text

    with pytest.raises(Exception, match="only ever added"):
        await database.write(lambda c: c.execute(text("DELETE FROM admin_actions")))


async def test_password_and_key_changes_and_reads_of_secrets_by_administrators_leave_records(world: World) -> None:
    ada, admin = await world.user("ada", project="vision"), await world.admin()
    body = {"old_password": PASSWORD, "new_password": "another one"}
    changed = await world.client.post("/api/auth/password", json=body, headers=ada)
    ada = {"Authorization": f"Bearer {changed.json()['access_token']}"}
    made = await world.client.post("/api/keypairs", json={}, headers=ada)
    await world.client.delete(f"/api/keypairs/{made.json()['access_key']}", headers=ada)
    await world.client.get("/api/projects/vision/secrets", headers=ada)
    await world.client.get("/api/projects/vision/secrets", headers=admin)
    await world.client.patch("/api/users/ada", json={"password": "a third one"}, headers=admin)
    listed = (await world.client.get("/api/actions?limit=5", headers=admin)).json()["actions"]
    assert [(each["username"], each["action"], each["noun"]) for each in listed] == [
        ("admin", "reset-password", "user"),
        ("admin", "list", "secret"),
        ("ada", "remove", "keypair"),
        ("ada", "create", "keypair"),
        ("ada", "change-password", "user"),
    ]


@pytest.mark.slow
async def test_a_flood_of_logins_from_one_address_delays_no_other_address(world: World) -> None:
    await world.user("ada")
    verified = asyncio.Event()
    passwords = world.services.passwords

    class Slow:
        """Hashing that takes as long as the test wants it to."""

        hash = passwords.hash

        async def verify(self, *_: Any, **__: Any) -> bool:
            await verified.wait()
            return False

    app_services = replace(world.services, passwords=Slow())  # type: ignore[arg-type]
    world.app.state.services = app_services
    flood = [asyncio.create_task(attempt(world, "198.51.100.9", f"user{n}", "guess")) for n in range(50)]
    done, waiting = set(flood), set(flood)
    while len(waiting) > 4:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {429}
    world.app.state.services = world.services
    assert await attempt(world, "192.0.2.1", "ada", PASSWORD) == 200
    verified.set()
    assert {await task for task in waiting} <= {401, 429}


def forwarded_login(server: Server, address: str, password: str) -> int:
    body = json.dumps({"username": "admin", "password": password}).encode()
    headers = {"Content-Type": "application/json", "X-Forwarded-For": address}
    try:
        request = urllib.request.Request(f"{server.url}/api/auth/login", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.slow
def test_a_task_on_the_servers_machine_cannot_choose_its_address() -> None:
    """uvicorn believes X-Forwarded-For of every connection from loopback unless told otherwise."""
    with running_servers() as servers:
        server = servers.start("--no-agent")
        found = [forwarded_login(server, f"203.0.113.{number}", "guess") for number in range(6)]
        assert found == [401] * 5 + [429]
        with running_servers() as behind:
            proxied = behind.start("--no-agent", environment={"MOORING_TRUSTED_PROXIES": "127.0.0.1"})
            found = [forwarded_login(proxied, f"203.0.113.{number}", "guess") for number in range(6)]
            assert found == [401] * 6
            assert forwarded_login(proxied, "203.0.113.1", ADMIN_PASSWORD) == 200
            with proxied.client() as client:
                addresses = {each.address for each in client.actions(noun="login").actions}
            assert {"203.0.113.1", "203.0.113.5", "127.0.0.1"} <= addresses
        # The audit at the end needs a login.
        eventually(lambda: forwarded_login(server, "203.0.113.9", ADMIN_PASSWORD) == 200)
