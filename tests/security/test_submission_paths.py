"""The short way of a submission past FastAPI gives the same answers as FastAPI, for every request and every user."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from mooring.api import submission_route
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from tests.api.routes.tenancy.test_keypairs import make
from tests.api.world import World
from tests.security.test_task_flood import beside
from tests.store.databases import on_sqlite

Headers = dict[str, str]
CONTAINERS = [{"image": "nginx", "resources": {"cpu": "500m"}}]
_OWN = ("id", "request_id")

BODIES = {
    "valid": json.dumps({"name": "w", "containers": CONTAINERS}).encode(),
    "unknown field": json.dumps({"name": "w", "containers": CONTAINERS, "owner": "root"}).encode(),
    "null": b"null",
    "list": b"[]",
    "text": b'"w"',
    "nothing": b"",
    "unfinished": b'{"name": "w"',
    "two documents": b"{} {}",
    "not a number": b'{"name": "w", "containers": [{"image": "nginx"}], "priority": NaN}',
    "infinite": b'{"name": "w", "containers": [{"image": "nginx"}], "priority": 1e999}',
    "huge integer": b'{"name": "w", "containers": [{"image": "nginx"}], "priority": ' + b"9" * 5000 + b"}",
    "repeated key": b'{"name": "v", "name": "w", "containers": [{"image": "nginx"}]}',
    "deep": b'{"name": "w", "labels": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "no text": b'{"name": "\xff"}',
    "utf-16": json.dumps({"name": "w", "containers": CONTAINERS}).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + json.dumps({"name": "w", "containers": CONTAINERS}).encode(),
    "null character": json.dumps({"name": "w", "containers": [{"image": "a", "command": ["a\0b"]}]}).encode(),
    "half a character": b'{"name": "w", "containers": [{"image": "a", "environment": {"A": "\\ud800"}}]}',
    "foreign project": json.dumps({"name": "w", "containers": CONTAINERS, "project": "speech"}).encode(),
    "foreign pool": json.dumps({"name": "w", "containers": CONTAINERS, "pool": "none"}).encode(),
    "system type": json.dumps({"name": "w", "containers": CONTAINERS, "type": "system"}).encode(),
    "too many tasks": json.dumps({"name": "w", "containers": CONTAINERS, "array": "0-99999999"}).encode(),
}
KEYS = [b"", b"a" * 129, b"two words", b"\xe9"]


async def credentials(world: World) -> dict[str, Headers]:
    """Return the headers of every kind of principal, and of some who are none."""
    admin, ada = await world.admin(), await world.user("ada")
    shown: dict[str, Headers] = {"admin": admin, "user": ada, "nobody": {}, "forged": {"Authorization": "Bearer a.b.c"}}
    for scope in ("all", "work", "read"):
        shown[f"keypair {scope}"] = (await make(world, ada, scope=scope))[1]
    gone = await world.user("gone")
    assert (await world.client.patch("/api/users/gone", json={"active": False}, headers=admin)).status_code == 200
    return {**shown, "deactivated": gone}


def shown(answer: httpx2.Response) -> tuple[int, dict[str, str], Any]:
    """Return an answer without what differs between two equal requests."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("x-request-id", "content-length")}
    body = answer.json()
    if answer.status_code == 202:
        assert headers.pop("location").endswith(body["id"])
    return answer.status_code, headers, {name: value for name, value in body.items() if name not in _OWN}


@on_sqlite
async def test_short_way_answers_as_fastapi_does(world: World, monkeypatch: pytest.MonkeyPatch):
    # Neither way is refused for what was sent before.
    generous = beside(world, load=LoadShedding(LoadLimits(requests=1e9, address_requests=1e9)))
    read = submission_route._valid
    taken: list[bool] = []

    async def noted(request: Any) -> Any:
        found = await read(request)
        taken.append(found is not None)
        return found

    async def refused(_request: Any) -> None:
        return None

    async def answer_to(headers: httpx2.Headers, content: bytes) -> tuple[int, dict[str, str], Any]:
        answer = await generous.client.post("/api/workloads", content=content, headers=headers)
        if answer.status_code == 202:
            removed = f"/api/workloads/{answer.json()['id']}"
            assert (await generous.client.delete(removed, headers=headers)).status_code == 202
        return shown(answer)

    sent = [
        (f"{who}, {what}", httpx2.Headers(headers), content)
        for who, headers in (await credentials(world)).items()
        for what, content in BODIES.items()
    ]
    token = (await world.token("ada"))["Authorization"].encode()
    sent += [
        (f"key {key!r}", httpx2.Headers([(b"Authorization", token), (b"Idempotency-Key", key)]), BODIES["valid"])
        for key in KEYS
    ]
    statuses = set[int]()
    for what, given, content in sent:
        headers = httpx2.Headers([*given.raw, (b"Content-Type", b"application/json")])
        monkeypatch.setattr(submission_route, "_valid", noted)
        short = await answer_to(headers, content)
        monkeypatch.setattr(submission_route, "_valid", refused)
        assert short == await answer_to(headers, content), what
        statuses.add(short[0])
    assert any(taken)
    assert {202, 401, 403, 404, 422} <= statuses
    assert max(statuses) < 500
