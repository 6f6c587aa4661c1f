"""Invalid input: a clear response each, nothing written, nothing repeated that may be secret."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from mooring.client.credentials import Login
from mooring.wire.cluster.nodes import JoinToken
from mooring.wire.fields import MAX_BODY_BYTES
from mooring.wire.tenancy import tenants
from mooring.wire.tenancy.users import LoginRequest, PasswordChange, Token, UserChange, UserCreated, UserRequest
from tests.api.world import World
from tests.store.databases import on_sqlite

WORKLOAD = {"name": "train", "containers": [{"image": "nginx", "resources": {"cpu": 1}}]}


def workload(**more: Any) -> dict[str, Any]:
    return WORKLOAD | more


def container(**more: Any) -> dict[str, Any]:
    return WORKLOAD | {"containers": [{"image": "nginx", **more}]}


BAD_WORKLOADS: dict[str, Any] = {
    "nothing": {},
    "a list": [],
    "a text": "train",
    "null": None,
    "no containers": workload(containers=[]),
    "too many containers": workload(containers=[{"image": "nginx", "name": f"c{n}"} for n in range(17)]),
    "an unknown field": workload(nmae="train"),
    "an unknown field within": container(imgae="nginx"),
    "a name that is a number": workload(name=5),
    "a name with SQL": workload(name="x'; DROP TABLE workloads; --"),
    "a name with a NUL": workload(name="a\0b"),
    "a name with a lone surrogate": workload(name="\ud800"),
    "a name with a line break at its end": workload(name="train\n"),
    "a long name": workload(name="x" * 100_000),
    "a text instead of a number": workload(replicas="3"),
    "a boolean instead of a number": workload(replicas=True),
    "a fraction of a replica": workload(replicas=1.5),
    "no replica": workload(replicas=0),
    "a negative number": workload(replicas=-1),
    "too many replicas": workload(replicas=1001),
    "a huge number": workload(priority=10**400),
    "an unknown kind": workload(kind="lab"),
    "an unknown pool": workload(pool="nowhere"),
    "a negative amount": container(resources={"cpu": "-1"}),
    "a negative number as amount": container(resources={"cpu": -1}),
    "an amount beyond 64 bits": container(resources={"memory": "9Ei"}),
    "a number beyond 64 bits": container(resources={"memory": 2**63}),
    "an amount that is too fine": container(resources={"cpu": "0.0001"}),
    "an amount with an absurd exponent": container(resources={"cpu": "1e999999999"}),
    "an amount that is no number": container(resources={"cpu": "lots"}),
    "an amount that is a boolean": container(resources={"cpu": True}),
    "a slot that is no name": container(resources={"CPU!": 1}),
    "an environment name with an equals sign": container(environment={"A=B": "c"}),
    "an environment value with a NUL": container(environment={"A": "b\0c"}),
    "an environment value with a lone surrogate": container(environment={"A": "\udfff"}),
    "a field name with a lone surrogate": workload(**{"\ud800": 1}),
    "a command with a NUL": container(command=["a\0"]),
    "a very long command": container(command=["x" * 40_000]),
    "an image with a space": container(image="nginx latest"),
    "neither image nor command": workload(containers=[{}]),
}


@on_sqlite
@pytest.mark.parametrize("case", BAD_WORKLOADS)
async def test_an_invalid_workload_is_refused(world: World, case: str):
    headers = await world.user("ada")
    before = await world.counts()
    content = json.dumps(BAD_WORKLOADS[case])
    answer = await world.client.post(
        "/api/workloads", content=content, headers=headers | {"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert set(answer.json()) == {"code", "message", "details"}
    assert len(answer.text) < 4000
    assert await world.counts() == before


@on_sqlite
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/users", {"username": "Eve"}),
        ("/api/users", {"username": "eve", "password": "short"}),
        ("/api/users", {"username": "eve", "role": "root"}),
        ("/api/users", {"username": "eve", "os_user": "a\0"}),
        ("/api/nodes", {"name": "n1", "resources": {"cpu": 1}}),
        ("/api/nodes", {"name": "n1", "simulated": False, "resources": {"cpu": 1}}),
        ("/api/nodes", {"name": "n1", "simulated": True, "resources": {}}),
        ("/api/nodes", {"name": "n1", "simulated": True, "resources": {"cpu": "1e30"}}),
        ("/api/nodes", {"name": "n1", "simulated": True, "resources": {"cpu": 1}, "max_tasks": 2**31}),
        ("/api/join-tokens", {"name": "n1", "expires_in_seconds": 1}),
        ("/api/join-tokens", {"name": "n1", "labels": {"a b": "c"}}),
        ("/api/deployment/deploy", {"name": "w", "container_image": "x", "resources": {"cpu": "2", "memory": 512}}),
        ("/api/deployment/deploy", {"name": "w", "container_image": "x", "resources": {"cpu": True, "memory": 512}}),
        ("/api/deployment/deploy", {"name": "w", "container_image": "x", "resources": {"cpu": 1e-7, "memory": 512}}),
        ("/api/deployment/deploy", {"name": "w", "container_image": "x", "resources": {"cpu": 1.00001, "memory": 512}}),
    ],
)
async def test_other_invalid_requests_are_refused(world: World, path: str, body: dict[str, Any]):
    headers = await world.admin()
    before = await world.counts()
    answer = await world.client.post(path, json=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert await world.counts() == before


@on_sqlite
@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=x", f"limit={2**63}", f"offset={2**64}", "offset=-1", f"limit={'9' * 5000}",
        "sort=id", "status=BROKEN", "kind=lab", "name=%00", "name=a%20b", "all=perhaps", "name=" + "x" * 1000,
    ],
)  # fmt: skip
async def test_an_invalid_query_is_refused(world: World, query: str):
    answer = await world.client.get(f"/api/workloads?{query}", headers=await world.admin())
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")
    assert answer.json()["message"].startswith(query.split("=")[0])


@on_sqlite
@pytest.mark.parametrize("query", ["timeout=nan", "timeout=inf", "timeout=-1", "timeout=301", "for=ever", "version=-1"])
async def test_a_wait_is_bounded(world: World, query: str):
    headers = await world.admin()
    await world.submit(headers, name="train")
    answer = await world.client.get(f"/api/workloads/train/wait?{query}", headers=headers)
    assert answer.status_code == 422


@on_sqlite
@pytest.mark.parametrize(
    "content",
    [
        b"{", b"", b"{'name': 'train'}", b'{"name": "train"} {}', b"\xff\xfe{}", b'{"name": "\xff"}', b"[" * 100_000,
        b'{"priority": ' + b"9" * 10_000 + b"}", b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    ],
)  # fmt: skip
async def test_a_body_that_is_not_json_is_refused(world: World, content: bytes):
    headers = await world.admin() | {"Content-Type": "application/json"}
    before = await world.counts()
    answer = await world.client.post("/api/workloads", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"] in ("invalid-json", "invalid-input")
    assert await world.counts() == before


@on_sqlite
async def test_not_a_number_is_no_amount(world: World):
    headers = await world.admin() | {"Content-Type": "application/json"}
    for cpu in ("NaN", "Infinity", "-Infinity", "1e999"):
        content = f'{{"name": "w", "container_image": "x", "resources": {{"cpu": {cpu}, "memory": 512}}}}'
        answer = await world.client.post("/api/deployment/deploy", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")


@on_sqlite
async def test_a_body_of_another_type_is_refused(world: World):
    headers = await world.admin() | {"Content-Type": "text/plain"}
    answer = await world.client.post("/api/workloads", content=json.dumps(WORKLOAD), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-input")


@on_sqlite
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused_before_anything_else(world: World, chunked: bool):
    name = b"x" * 1_000_000
    content = b'{"name": "' + name + b'", "containers": [{"image": "nginx"}]}'

    async def in_pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 50_000):
            yield content[start : start + 50_000]

    headers = await world.admin() | {"Content-Type": "application/json"}
    before = await world.counts()
    sent: Any = in_pieces() if chunked else content
    answer = await world.client.post("/api/workloads", content=sent, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")
    assert str(MAX_BODY_BYTES) in answer.json()["message"]
    assert await world.counts() == before


@on_sqlite
async def test_an_error_names_every_wrong_field_but_repeats_no_value(world: World):
    headers = await world.admin()
    body = {"old_password": "s3cr3t-old", "new_password": "s3cr3t" * 100, "more": "s3cr3t"}
    answer = await world.client.post("/api/auth/password", json=body, headers=headers)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["details"]["errors"]] == ["new_password", "more"]
    assert answer.json()["message"].startswith("new_password: ")
    assert "s3cr3t" not in answer.text


@on_sqlite
async def test_a_login_survives_odd_characters(world: World):
    for username, status in (
        ("ad\0min", 422),
        ("\ud800", 422),
        ("ädmin ☃", 401),
        ("' OR '1'='1", 401),
        ("x" * 256, 422),
    ):
        content = json.dumps({"username": username, "password": "\0"})
        answer = await world.client.post(
            "/api/auth/login", content=content, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == status


def test_requests_and_answers_do_not_show_their_secrets():
    secret = "open sesame"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with_secrets = [
        LoginRequest(username="ada", password=secret),
        PasswordChange(old_password=secret, new_password=secret),
        UserRequest(username="ada", password=secret),
        UserChange(password=secret),
        Token(access_token=secret, expires_in=1),
        JoinToken(token=secret, name="n1", pool="default", expires_at=now),
        cast(Any, tenants.KeypairCreated).model_construct(secret=secret),
        cast(Any, UserCreated).model_construct(password=secret),
        Login(username="ada", token=secret, obtained_at=0, expires_at=1),
    ]
    for one in with_secrets:
        assert secret not in repr(one), type(one)
