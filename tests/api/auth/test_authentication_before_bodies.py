"""A request with a body is authenticated before the body is read, and looked up once unless the body takes its time."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from mooring import clock
from mooring.api.auth import login_cache, logins
from mooring.api.middleware import outermost
from mooring.store.tenancy import admin_actions, users
from tests.api.world import World
from tests.store.databases import on_sqlite

pytestmark = on_sqlite
PARTS = (b'{"containers": [{"image": "nginx", ', b'"resources": {"cpu": "500m"}}]}')


class Body:
    """The parts of a body, and how many of them were taken."""

    def __init__(self, parts: Sequence[bytes] = PARTS) -> None:
        self._parts = parts
        self.taken = 0

    async def receive(self) -> dict[str, Any]:
        self.taken += 1
        more = self.taken < len(self._parts)
        return {"type": "http.request", "body": self._parts[self.taken - 1], "more_body": more}


async def post(world: World, headers: dict[str, str], body: Body) -> int:
    """The status of a submission whose body comes in parts."""
    statuses: list[int] = []
    given = {"content-type": "application/json", "transfer-encoding": "chunked", **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/api/workloads",
        "raw_path": b"/api/workloads",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "server": ("mooring.test", 80),
        "client": ("192.0.2.1", 1),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
    }

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await world.app(scope, body.receive, send)  # type: ignore[arg-type]
    [status] = statuses
    return status


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for every time that a token is looked up in the database."""
    found: list[object] = []
    really = logins.by_token

    async def counted(connection: Any, claims: Any) -> logins.Login:
        found.append(claims)
        return await really(connection, claims)

    monkeypatch.setattr(logins, "by_token", counted)
    return found


async def test_no_part_of_a_body_is_taken_of_a_revoked_token(world: World, lookups: list[object]):
    ada, body = await world.user("ada"), Body()
    await world.services.database.write(
        lambda c: users.change(c, "ada", active=False, actor=admin_actions.SERVER, now=clock.now())
    )
    assert await post(world, ada, body) == 401
    assert body.taken == 0
    assert len(lookups) == 1


async def test_a_valid_token_is_looked_up_once(world: World, lookups: list[object]):
    ada, body = await world.user("ada"), Body()
    assert await post(world, ada, body) == 202
    assert body.taken == len(PARTS)
    assert len(lookups) == 1


async def test_a_token_is_looked_up_again_when_its_body_was_long_on_its_way(
    world: World, lookups: list[object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outermost, "_LOGIN_SECONDS", -1.0)
    monkeypatch.setattr(login_cache, "_LIFETIME", timedelta(0))
    ada = await world.user("ada")
    assert await post(world, ada, Body()) == 202
    assert len(lookups) == 2
