"""Requests made from the API's own description: none of them makes the server fail or answer outside of it."""

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mooring import clock
from mooring.api.agents import routes
from mooring.api.agents.hub import AgentHub
from mooring.api.app import EVERYTHING, create_app
from mooring.api.services import Services
from mooring.store.core.engine import Database
from tests.api.world import World, prepare
from tests.store.databases import migrate

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, dict[str, str]]]:
    """An API with a user, a node, a session in a lab and a deployment, and an admin's token."""
    file: Path = tmp_path_factory.mktemp("schema") / "mooring.db"
    url = f"sqlite+aiosqlite:///{file}"
    migrate(url)
    database = Database(url)

    async def fill() -> tuple[FastAPI, dict[str, str]]:
        services, logs, changes, state = await prepare(database)
        app = create_app(services, (*EVERYTHING, routes.router(database, AgentHub(database, changes))))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
            world = World(services, app, client, logs, changes, state)
            headers = await world.admin()
            await world.user("bob")
            await world.add_node("n1")
            template = {"resources": {"cpu": 4}}
            await client.put("/api/pools/default/templates/small", json=template, headers=headers)
            start = (clock.now() + timedelta(days=1)).isoformat()
            workload = {"name": "train", "containers": [{"image": "nginx", "resources": {"cpu": "500m"}}]}
            lab = {"start": start, "duration": "1h", "workload": workload}
            assert (await client.post("/api/labs", json=lab, headers=headers)).status_code == 202
            await world.submit(headers, name="web", kind="deployment")
        await database.close()
        # Streams end at once: nothing comes on them here.
        services.feed.close()
        return app, headers

    yield run(fill())
    run(database.close())


class Late:
    """Stands for the application while the tests are collected."""

    app: FastAPI | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)


late = Late()
# Put into about every second path, since made-up names lead no further than to "not found".
EXISTING = {
    "ref": "train",
    "task_id": "00000000-0000-0000-0000-000000000000",
    "deployment_id": "web",
    "name": "default",
    "project": "default",
    "registry": "ghcr.io",
    "username": "bob",
    "scope": "user",
    "tenant": "bob",
    "template": "small",
    "upload_id": "00000000-0000-0000-0000-000000000000",
    "access_key": "MK" + "A" * 18,
    "login_id": "019b76da-a800-7000-8000-000000000001",
}
# The description depends on no service but the version.
services = cast(Services, SimpleNamespace(version="0", trusted_proxies=()))
agent_routes = routes.router(cast(Database, None), cast(AgentHub, None))
schema = schemathesis.openapi.from_dict(create_app(services, (*EVERYTHING, agent_routes)).openapi())
schema.app = late
# All are made of what a submission takes, which takes longest of all to make up.
operations = (
    schema.exclude(path="/api/workloads/batch")
    .exclude(path="/api/workloads/dry-run")
    .exclude(path="/api/labs", method="POST")
)


# An operation that Schemathesis cannot read is an error here, while tests are collected.
OPERATIONS = [cast(Ok[Any], found).ok() for found in operations.get_all_operations()]
_ANSWER_SECONDS = 120
"""An answer that another process computes may take long on a busy machine."""
SETTINGS = settings(
    max_examples=6,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
# Not parametrized by Schemathesis: it gives all operations one test id, of which pytest-xdist runs a single test, and
# generates their requests while tests are collected.
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_no_request_of_the_description_makes_the_server_fail(operation: Any, served: tuple[FastAPI, dict[str, str]]):
    late.app, headers = served
    requests = st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode])

    @SETTINGS
    @given(requests, st.booleans())
    def check(case: Any, existing: bool) -> None:
        if existing:
            case.path_parameters = {name: EXISTING[name] for name in case.path_parameters or {}}
        if case.path.endswith("/wait"):
            case.query = {**(case.query or {}), "timeout": 0}
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=_ANSWER_SECONDS)

    check()


def test_every_operation_that_writes_declares_a_conflict_with_another_request():
    undeclared = [
        f"{method.upper()} {path}"
        for path, methods in schema.raw_schema["paths"].items()
        for method, operation in methods.items()
        if method in {"post", "put", "patch", "delete"} and "409" not in operation["responses"]
    ]
    assert undeclared == []
