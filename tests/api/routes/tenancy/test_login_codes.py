"""One-time login codes: used once, within minutes, and never longer than the login behind them."""

from datetime import timedelta

import httpx2
import jwt
from sqlalchemy import select

from mooring import clock
from mooring.store.tables import login_codes as table
from mooring.store.tenancy import login_codes
from tests.api.world import ADMIN_PASSWORD, World


async def new_code(world: World, headers: dict[str, str]) -> str:
    answer = await world.client.post("/api/auth/codes", headers=headers)
    assert (answer.status_code, answer.json()["expires_in"]) == (201, 600)
    assert answer.headers["cache-control"] == "no-store"
    code: str = answer.json()["code"]
    return code


async def redeem(world: World, code: str) -> httpx2.Response:
    return await world.client.post("/api/auth/redeem", json={"code": code})


async def test_a_code_logs_its_user_in_once(world: World):
    await world.user("ada")
    code = await new_code(world, await world.login("ada"))
    token = (await redeem(world, code)).json()["access_token"]
    me = await world.client.get("/api/auth/me", headers={"Authorization": f"Bearer {token}"})
    assert me.json()["username"] == "ada"
    again = await redeem(world, code)
    assert (again.status_code, again.json()["code"]) == (401, "wrong-code")


async def test_only_the_hash_of_a_code_is_stored(world: World):
    code = await new_code(world, await world.admin())
    async with world.services.database.read() as connection:
        rows = (await connection.execute(select(table))).all()
    assert len(rows) == 1
    assert len(code) >= 43
    assert code not in str(rows)


async def test_a_code_expires_after_ten_minutes(world: World):
    code = await new_code(world, await world.admin())
    at = clock.now() + timedelta(minutes=10, seconds=1)
    assert await world.services.database.write(lambda c: login_codes.redeem(c, code, at)) is None


async def test_a_code_does_not_prolong_the_login_behind_it(world: World):
    headers = await world.login("admin", ADMIN_PASSWORD)
    token = (await redeem(world, await new_code(world, headers))).json()["access_token"]
    before = jwt.decode(headers["Authorization"].removeprefix("Bearer "), options={"verify_signature": False})
    after = jwt.decode(token, options={"verify_signature": False})
    assert after["auth_time"] == before["auth_time"]
    assert after["sid"] != before["sid"]


async def test_a_code_ends_with_the_login_that_created_it(world: World):
    headers = await world.login("admin", ADMIN_PASSWORD)
    code = await new_code(world, headers)
    assert (await world.client.delete("/api/logins/current", headers=headers)).status_code == 204
    assert (await redeem(world, code)).status_code == 401


async def test_a_code_ends_when_the_user_is_deactivated(world: World):
    await world.user("ada")
    code = await new_code(world, await world.login("ada"))
    changed = await world.client.patch("/api/users/ada", json={"active": False}, headers=await world.admin())
    assert changed.status_code == 200
    assert (await redeem(world, code)).status_code == 401


async def test_a_user_has_ten_codes_at_most(world: World):
    headers = await world.admin()
    codes = [await new_code(world, headers) for _ in range(12)]
    async with world.services.database.read() as connection:
        assert len((await connection.execute(select(table.c.code_hash))).all()) == login_codes.MAX_PER_USER
    assert (await redeem(world, codes[0])).status_code == 401
    assert (await redeem(world, codes[-1])).status_code == 200


async def test_guessing_codes_is_slowed_down_by_address(world: World):
    for _ in range(20):
        assert (await redeem(world, "guess")).status_code == 401
    refused = await redeem(world, "guess")
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-attempts")


async def test_a_keypair_creates_no_codes(world: World):
    headers = await world.admin()
    made = (await world.client.post("/api/keypairs", json={}, headers=headers)).json()
    keypair = httpx2.BasicAuth(made["access_key"], made["secret"])
    answer = await world.client.post("/api/auth/codes", auth=keypair)
    assert answer.status_code == 403


async def test_expired_codes_are_purged(world: World):
    await new_code(world, await world.admin())
    purge = world.services.database.write
    assert await purge(lambda c: login_codes.purge(c, clock.now(), 10)) == 0
    assert await purge(lambda c: login_codes.purge(c, clock.now() + timedelta(minutes=11), 10)) == 1


async def test_redeeming_is_recorded_as_a_login(world: World):
    headers = await world.login("admin", ADMIN_PASSWORD)
    await redeem(world, await new_code(world, headers))
    actions = (await world.client.get("/api/actions?noun=login", headers=headers)).json()["actions"]
    assert [each["action"] for each in actions[:2]] == ["login", "login"]
