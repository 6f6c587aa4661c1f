"""Logging in, tokens and what ends them."""

import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import jwt
import pytest

from mooring import clock
from mooring.api.auth.signing import SigningKey, SigningKeys
from mooring.api.auth.tokens import (
    AUDIENCE,
    ISSUER,
    Claims,
    Tokens,
)
from mooring.api.streams.server_proxy import FORWARDED
from mooring.model.errors import NotAuthenticated
from mooring.store.tenancy import users
from tests.api.world import ADMIN_PASSWORD, KEYS, PASSWORD, World
from tests.store.databases import on_sqlite

KEY = KEYS.newest


async def test_a_login_returns_a_token_that_identifies_the_user(world: World):
    answer = await world.client.post("/api/auth/login", json={"username": "admin", "password": ADMIN_PASSWORD})
    assert answer.status_code == 200
    assert answer.json()["token_type"] == "bearer"
    assert answer.json()["expires_in"] == 3600
    assert answer.headers["cache-control"] == "no-store"
    headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    me = (await world.client.get("/api/auth/me", headers=headers)).json()
    assert (me["username"], me["role"], me["domain"], me["project"]) == ("admin", "admin", "default", "default")


@pytest.mark.parametrize(("username", "password"), [("admin", "wrong"), ("nobody", ADMIN_PASSWORD), ("", "")])
async def test_a_failed_login_does_not_reveal_its_reason(world: World, username: str, password: str):
    answer = await world.client.post("/api/auth/login", json={"username": username, "password": password})
    assert answer.status_code == 401
    assert answer.json()["code"] == "wrong-credentials"
    assert answer.json()["message"] == "the username or the password is wrong"


async def test_an_unknown_user_costs_as_much_work_as_a_known_one(world: World, monkeypatch: pytest.MonkeyPatch):
    verified: list[str | None] = []
    verify = world.services.passwords._verify

    def counting(password_hash: str | None, password: str) -> bool:
        verified.append(password_hash)
        return verify(password_hash, password)

    monkeypatch.setattr(world.services.passwords, "_verify", counting)
    await world.client.post("/api/auth/login", json={"username": "nobody", "password": "x"})
    await world.client.post("/api/auth/login", json={"username": "admin", "password": "x"})
    assert len(verified) == 2
    assert verified[0] is None
    assert verified[1] is not None


async def test_guessing_is_slowed_down_after_five_failures(world: World):
    for _ in range(5):
        answer = await world.client.post("/api/auth/login", json={"username": "admin", "password": "guess"})
        assert answer.status_code == 401
    answer = await world.client.post("/api/auth/login", json={"username": "admin", "password": ADMIN_PASSWORD})
    assert answer.status_code == 429
    assert answer.json()["code"] == "too-many-attempts"
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_renewed_token_works_and_remembers_when_the_password_was_given(world: World):
    headers = await world.admin()
    answer = await world.client.post("/api/auth/renew", headers=headers)
    assert answer.status_code == 200
    renewed = answer.json()["access_token"]
    before = _payload(headers["Authorization"].removeprefix("Bearer "))
    assert _payload(renewed)["auth_time"] == before["auth_time"]
    me = await world.client.get("/api/auth/me", headers={"Authorization": f"Bearer {renewed}"})
    assert me.status_code == 200


def test_a_login_cannot_be_renewed_beyond_seven_days():
    now = clock.now()
    tokens = Tokens(KEYS, now=lambda: now)
    nearly = tokens.issue(Claims(uuid4(), 1, now - timedelta(days=7) + timedelta(seconds=60)))
    assert nearly.expires_in_seconds == 60
    with pytest.raises(NotAuthenticated, match="log in again"):
        tokens.issue(Claims(uuid4(), 1, now - timedelta(days=7)))


async def test_a_changed_password_ends_every_older_token(world: World):
    old = await world.user("ada")
    change = {"old_password": PASSWORD, "new_password": "another one"}
    answer = await world.client.post("/api/auth/password", json=change, headers=old)
    assert answer.status_code == 200
    ended = await world.client.get("/api/auth/me", headers=old)
    assert (ended.status_code, ended.json()["code"]) == (401, "token-revoked")
    new = {"Authorization": f"Bearer {answer.json()['access_token']}"}
    assert (await world.client.get("/api/auth/me", headers=new)).status_code == 200
    wrong = await world.client.post("/api/auth/login", json={"username": "ada", "password": PASSWORD})
    assert wrong.status_code == 401
    await world.login("ada", "another one")


async def test_a_password_is_not_changed_without_the_old_one(world: World):
    headers = await world.user("ada")
    change = {"old_password": "not it", "new_password": "another one"}
    answer = await world.client.post("/api/auth/password", json=change, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong-credentials")
    await world.login("ada")


async def test_a_deactivated_user_is_out_at_once_and_its_old_tokens_stay_over(world: World):
    admin, ada = await world.admin(), await world.user("ada")
    answer = await world.client.patch("/api/users/ada", json={"active": False}, headers=admin)
    assert answer.json()["active"] is False
    assert (await world.client.get("/api/auth/me", headers=ada)).status_code == 401
    login = await world.client.post("/api/auth/login", json={"username": "ada", "password": PASSWORD})
    assert (login.status_code, login.json()["code"]) == (401, "user-inactive")
    await world.client.patch("/api/users/ada", json={"active": True}, headers=admin)
    assert (await world.client.get("/api/auth/me", headers=ada)).status_code == 401
    await world.login("ada")


async def test_a_role_counts_from_the_moment_it_is_given(world: World):
    admin, ada = await world.admin(), await world.user("ada")
    assert (await world.client.get("/api/users", headers=ada)).status_code == 403
    await world.client.patch("/api/users/ada", json={"role": "admin"}, headers=admin)
    assert (await world.client.get("/api/users", headers=ada)).status_code == 200


async def _genuine(world: World) -> dict[str, Any]:
    async with world.services.database.read() as connection:
        found = await users.credentials(connection, "admin")
    assert found is not None
    now = int(time.time())
    return {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": str(found.user_id),
        "epoch": found.token_epoch,
        "auth_time": now,
        "iat": now,
        "exp": now + 60,
    }


def _encode(
    payload: dict[str, Any], key: bytes = KEY.secret, kid: str | None = KEY.id, algorithm: str = "HS256"
) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid} if kid is not None else None)


async def test_a_token_of_ours_made_by_hand_is_accepted(world: World):
    """The forgeries below differ from this one in one point each."""
    headers = {"Authorization": f"Bearer {_encode(await _genuine(world))}"}
    assert (await world.client.get("/api/auth/me", headers=headers)).status_code == 200


FORGERIES: dict[str, Any] = {
    "expired": lambda p: _encode(p | {"iat": 1, "exp": 2}),
    "of another audience": lambda p: _encode(p | {"aud": "another"}),
    "of another issuer": lambda p: _encode(p | {"iss": "another"}),
    "signed by another key": lambda p: _encode(p, key=b"x" * 32),
    "of an unknown key id": lambda p: _encode(p, key=b"x" * 32, kid="0" * 16),
    "without a key id": lambda p: _encode(p, kid=None),
    "not signed": lambda p: jwt.encode(p, "", algorithm="none", headers={"kid": KEY.id}),
    "by another algorithm": lambda p: _encode(p, algorithm="HS384"),
    "given out in the future": lambda p: _encode(p | {"iat": p["iat"] + 3600, "exp": p["exp"] + 7200}),
    "without an end": lambda p: _encode({k: v for k, v in p.items() if k != "exp"}),
    "without an epoch": lambda p: _encode({k: v for k, v in p.items() if k != "epoch"}),
    "of another epoch": lambda p: _encode(p | {"epoch": p["epoch"] + 1}),
    "with an epoch of a wrong type": lambda p: _encode(p | {"epoch": True}),
    "of a user that is no id": lambda p: _encode(p | {"sub": "admin"}),
    "of nobody": lambda p: _encode(p | {"sub": str(uuid4())}),
    "with a huge time": lambda p: _encode(p | {"auth_time": 10**18}),
    "cut off": lambda p: _encode(p)[:-4],
    "no token": lambda p: "nonsense",
    "far too long": lambda p: _encode(p | {"more": "x" * 10_000}),
}


@on_sqlite
@pytest.mark.filterwarnings("ignore::jwt.InsecureKeyLengthWarning")
@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_token_is_refused_and_nothing_is_written(world: World, forgery: str):
    token = FORGERIES[forgery](await _genuine(world))
    before = await world.counts()
    headers = {"Authorization": f"Bearer {token}"}
    answer = await world.client.post("/api/users", json={"username": "eve"}, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] in ("token-invalid", "token-expired", "token-revoked")
    assert await world.counts() == before


@on_sqlite
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer"])
async def test_requests_without_a_token_or_a_keypair_are_refused(world: World, header: str):
    answer = await world.client.get("/api/auth/me", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["code"]) in [
        (401, "not-authenticated"),
        (401, "token-invalid"),
        (401, "wrong-credentials"),
    ]


def _payload(token: str) -> dict[str, Any]:
    payload: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return payload


async def test_only_servers_that_share_the_keys_can_vouch_for_a_clients_address(world: World):
    headers = await world.admin()
    shown, far = headers["Authorization"], "192.0.2.7"
    stranger = Tokens(SigningKeys([SigningKey(b"x" * 32)]))
    yesterday = clock.now() - timedelta(days=1)
    cases = {
        "a fellow": (Tokens(KEYS).vouch(far, shown), far),
        "a stranger": (stranger.vouch(far, shown), "127.0.0.1"),
        "for somebody else": (Tokens(KEYS).vouch(far, "Bearer other"), "127.0.0.1"),
        "long ago": (Tokens(KEYS, now=lambda: yesterday).vouch(far, shown), "127.0.0.1"),
        "of nowhere": (Tokens(KEYS).vouch(None, shown), "127.0.0.1"),
        "a login": (shown.removeprefix("Bearer "), "127.0.0.1"),
        "a mere word": (far, "127.0.0.1"),
    }
    for number, (case, (said, address)) in enumerate(cases.items()):
        body = {"name": f"project-{number}"}
        made = await world.client.post("/api/projects", json=body, headers={**headers, FORWARDED: said})
        assert made.status_code == 201, made.text
        [newest] = (await world.client.get("/api/actions?limit=1", headers=headers)).json()["actions"]
        assert (case, newest["object"].endswith(body["name"]), newest["address"]) == (case, True, address)


async def test_a_statement_between_servers_is_not_accepted_as_a_login(world: World):
    said = Tokens(KEYS).vouch("192.0.2.7", "Bearer x")
    answer = await world.client.get("/api/auth/me", headers={"Authorization": f"Bearer {said}"})
    assert (answer.status_code, answer.json()["code"]) == (401, "token-invalid")
