"""The server's own routes, its description, and its documentation page."""

import re
from dataclasses import replace
from typing import Any

import httpx2

from mooring.api.app import OPERATIONS, create_app
from tests.api.world import World
from tests.store.databases import on_sqlite


@on_sqlite
async def test_health_reports_the_role_and_the_passes_of_the_server(world: World):
    answer = await world.client.get("/health")
    assert answer.json() == {
        "status": "ok",
        "role": "leader",
        "version": "1.2.3",
        "last_pass_at": None,
        "last_pass_ms": 1.5,
        "passes": 3,
    }


@on_sqlite
async def test_ready_answers_503_with_the_same_body_when_a_part_is_missing(world: World):
    answer = await world.client.get("/ready")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "checks": {"database": "ok"}, "degraded": {}})
    world.state.found = {"database": "ok", "agent": "does not answer"}
    answer = await world.client.get("/ready")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "checks": {"database": "ok", "agent": "does not answer"},
        "degraded": {},
    }


@on_sqlite
async def test_metrics_are_prometheus_text(world: World):
    answer = await world.client.get("/metrics")
    assert answer.text == "mooring_passes_total 3\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


@on_sqlite
async def test_metrics_require_their_token_where_one_is_set(world: World):
    world.app.state.services = replace(world.services, metrics_token="s3cret")
    for wrong in ({}, {"Authorization": "Bearer other"}, await world.admin()):
        refused = await world.client.get("/metrics", headers=wrong)
        assert (refused.status_code, refused.json()["code"]) == (401, "not-authenticated")
    assert (await world.client.get("/metrics", headers={"Authorization": "Bearer s3cret"})).status_code == 200


async def test_the_audit_of_a_working_system_is_clean(world: World):
    headers = await world.admin()
    await world.add_node("n1")
    await world.submit(headers)
    for method, path in (("GET", "/api/audit"), ("POST", "/api/audit/repair")):
        report = (await world.client.request(method, path, headers=headers)).json()
        assert (report["clean"], report["findings"], report["repaired"]) == (True, [], 0)


@on_sqlite
async def test_the_front_page_of_a_scheduler_introduces_it_and_runs_nothing(world: World):
    services = replace(world.services, public_url="http://<script>alert(1)</script>")
    for known, text in ((world.services, "mooring login --server http://mooring.test"), (services, "&lt;script&gt;")):
        transport = httpx2.ASGITransport(app=create_app(known, OPERATIONS))
        async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
            page = await client.get("/")
            assert (await client.get("/workloads")).status_code == 404
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.headers["content-security-policy"].startswith("default-src 'none';")
        assert text in page.text
        assert "1.2.3" in page.text
        assert not re.search("<script|<style|style=|onclick|<form", page.text)


@on_sqlite
async def test_the_documentation_loads_nothing_from_elsewhere_and_has_the_policy_of_the_console(world: World):
    page = await world.client.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = page.headers["content-security-policy"]
    assert policy == (await world.client.get("/overview")).headers["content-security-policy"]
    # No script in the page itself.
    assert re.findall(r"<script[^>]*>[^<]", page.text) == []
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page.text)
    assert len(loaded) == 4
    for address in loaded:
        assert not address.startswith(("http", "/")), address
        answer = await world.client.get(f"/{address}")
        assert answer.status_code == 200
        assert len(answer.content) > 100
        assert answer.headers["content-security-policy"] == policy
    assert (await world.client.get("/swagger/__init__.py")).status_code == 404
    assert "persistAuthorization: false" in (await world.client.get("/swagger/start.js")).text


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


@on_sqlite
async def test_the_description_names_every_operation_and_its_errors(world: World):
    document = (await world.client.get("/openapi.json")).json()
    found = operations(document)
    ids = [operation["operationId"] for _, _, operation in found]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z_]+", operation_id) for operation_id in ids)
    tags = {tag["name"] for tag in document["tags"]}
    for method, path, operation in found:
        assert set(operation["tags"]) <= tags
        documented = set(operation["responses"])
        # Any request can get these before it reaches its route.
        assert {"400", "408", "413", "426", "429", "431", "500"} <= documented
        secured = "security" in operation
        # Agents show the credential of their node, which is no user's.
        with_login = path not in {"/api/auth/login", "/api/auth/redeem"} and not path.startswith("/api/agent/")
        assert secured is (path.startswith("/api/") and with_login)
        assert not secured or {"401", "503"} <= documented
        if "requestBody" in operation:
            assert "422" in documented
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/ready":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (method, path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]
