"""Properties of every response: one form of errors, a request id, and no internals."""

import httpx2
import pytest
from fastapi import APIRouter
from structlog.testing import capture_logs

from mooring.api.app import create_app
from mooring.model.errors import (
    Conflict,
    InvalidInput,
    LeadershipLost,
    MooringError,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooManyAttempts,
    Unavailable,
)
from tests.api.world import World
from tests.store.databases import on_sqlite

pytestmark = on_sqlite


class Special(Conflict):
    code = "special"


def client_with(world: World, router: APIRouter) -> httpx2.AsyncClient:
    app = create_app(world.services, [router])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://mooring.test")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotAuthenticated("who?"), 401, "not-authenticated"),
        (NotAllowed("no"), 403, "not-allowed"),
        (NotFound("where?"), 404, "not-found"),
        (Conflict("twice"), 409, "conflict"),
        (Special("twice"), 409, "special"),
        (InvalidInput("what?", code="invalid-name"), 422, "invalid-name"),
        (TooManyAttempts("slowly"), 429, "too-many-attempts"),
        (Unavailable("later"), 503, "unavailable"),
        (LeadershipLost("over"), 503, "leadership-lost"),
        (ConnectionRefusedError("database is down"), 503, "unavailable"),
        (MooringError("unmapped"), 500, "error"),
    ],
)
async def test_an_error_has_one_status_and_one_shape(world: World, error: Exception, status: int, code: str):
    router = APIRouter()

    @router.get("/raise")
    async def raising() -> None:
        raise error

    async with client_with(world, router) as client:
        answer = await client.get("/raise")
    assert answer.status_code == status
    body = answer.json()
    assert set(body) == {"code", "message", "details"}
    assert body["code"] == code


async def test_an_unexpected_failure_is_logged_with_its_trace_and_not_shown(world: World):
    router = APIRouter()

    @router.get("/raise")
    async def raising() -> None:
        raise RuntimeError("the secret is swordfish")

    with capture_logs() as lines:
        async with client_with(world, router) as client:
            answer = await client.get("/raise")
    assert answer.status_code == 500
    body = answer.json()
    assert body["code"] == "internal-error"
    assert "swordfish" not in answer.text
    assert body["details"]["request_id"] == answer.headers["x-request-id"]
    assert body["details"]["request_id"] in body["message"]
    failure = next(line for line in lines if line["event"] == "A request failed")
    assert failure["exc_info"]
    assert (failure["method"], failure["path"]) == ("GET", "/raise")


async def test_a_message_that_cannot_be_encoded_is_shown_with_question_marks(world: World):
    router = APIRouter()

    @router.get("/raise")
    async def raising() -> None:
        raise NotFound("\ud800", details={"name": "\udfff"})

    async with client_with(world, router) as client:
        answer = await client.get("/raise")
    assert answer.json() == {"code": "not-found", "message": "?", "details": {"name": "?"}}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/api/nowhere", 404, "not-found"),
        ("GET", "/api/nodes/", 404, "not-found"),
        ("POST", "/", 405, "method-not-allowed"),
        ("PUT", "/api/workloads", 405, "method-not-allowed"),
        ("DELETE", "/health", 405, "method-not-allowed"),
    ],
)
async def test_unknown_paths_and_methods_have_the_same_shape(
    world: World, method: str, path: str, status: int, code: str
):
    answer = await world.client.request(method, path, headers=await world.admin())
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert set(answer.json()) == {"code", "message", "details"}
    if status == 405:
        assert answer.headers["allow"]


async def test_every_answer_carries_a_request_id_of_its_own(world: World):
    first, second = await world.client.get("/health"), await world.client.get("/nowhere")
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert first.headers["x-content-type-options"] == "nosniff"
