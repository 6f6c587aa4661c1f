"""The server's own routes, its description, and its documentation page."""

import re
from typing import Any

import pytest

from tests.api.world import World
from tests.store.databases import on_sqlite


@on_sqlite
async def test_health_says_what_the_server_is_doing(world: World):
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
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "checks": {"database": "ok"}})
    world.state.found = {"database": "ok", "agent": "does not answer"}
    answer = await world.client.get("/ready")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "checks": {"database": "ok", "agent": "does not answer"}}


@on_sqlite
async def test_metrics_are_prometheus_text(world: World):
    answer = await world.client.get("/metrics")
    assert answer.text == "mooring_passes_total 3\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_audit_of_a_working_system_is_clean(world: World):
    headers = await world.admin()
    await world.add_node("n1")
    await world.submit(headers)
    for method, path in (("GET", "/api/audit"), ("POST", "/api/audit/repair")):
        report = (await world.client.request(method, path, headers=headers)).json()
        assert (report["clean"], report["findings"], report["repaired"]) == (True, [], 0)


@on_sqlite
@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")
async def test_the_documentation_loads_nothing_from_elsewhere(world: World):
    page = await world.client.get("/docs")
    assert page.status_code == 200
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)["']""", page.text)
    assert len(loaded) >= 3
    for address in loaded:
        assert address.startswith(("http://mooring.test/", "/")), address
        answer = await world.client.get(address)
        assert answer.status_code == 200
        assert len(answer.content) > 100
    assert "cdn" not in page.text
    assert not re.findall(r"https?://(?!mooring\.test/)", page.text)


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
        secured = "security" in operation
        assert secured is (path.startswith("/api/") and path != "/api/auth/login")
        assert not secured or {"401", "503"} <= documented
        if "requestBody" in operation:
            assert {"400", "413", "422"} <= documented
        for status, response in operation["responses"].items():
            if status >= "400" and path != "/ready":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, (method, path, status)
    assert "HTTPValidationError" not in document["components"]["schemas"]
