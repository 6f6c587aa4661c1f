"""A workload beside a request: what differs is said field by field, what means the same does not differ."""

from typing import Any

import pytest

from tests.api.world import World
from tests.store.databases import on_sqlite

WEB: dict[str, Any] = {
    "name": "web",
    "kind": "deployment",
    "type": "compute",
    "replicas": 2,
    "labels": {"team": "a"},
    "containers": [
        {
            "name": "main",
            "image": "nginx:1",
            "environment": {"MODE": "a"},
            "resources": {"cpu": "500m", "memory": "1Gi"},
            "ports": [80],
            "mounts": [{"volume": "data", "path": "/data"}],
            "readiness": {"port": 80},
        },
        {"name": "log", "image": "log:1"},
    ],
    "init_containers": [{"name": "fetch", "image": "busybox"}],
    "volumes": [{"name": "data"}],
    "placement": {"node_selector": {"zone": "a"}},
    "rollout": {"surge": "50%", "drain_seconds": 1},
}


def changed(**more: Any) -> dict[str, Any]:
    main, log = WEB["containers"]
    return WEB | {"containers": [main | more, log]}


async def compared(world: World, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    answer = await world.client.post("/api/workloads/web/comparison", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@on_sqlite
async def test_differences_are_listed_field_by_field(world: World):
    headers = await world.user("ada")
    workload_id = await world.submit(headers, **WEB)
    before = await world.counts()
    main, log = WEB["containers"]
    cases: list[tuple[dict[str, Any], dict[str, tuple[str | None, str | None]]]] = [
        (WEB, {}),
        (changed(resources={"cpu": "0.5", "memory": 2**30}), {}),
        (changed(pull="if-not-present", user=None, readiness={"port": 80, "failures": 3}), {}),
        (WEB | {"restart": "always", "priority": 10, "max_restarts": 5}, {}),
        (WEB | {"replicas": 3}, {"replicas": ("2", "3")}),
        (changed(image="nginx:2"), {"containers.main.image": ("nginx:1", "nginx:2")}),
        (changed(environment={"MODE": "b"}), {"containers.main.environment.MODE": ("a", "b")}),
        (changed(environment={}), {"containers.main.environment.MODE": ("a", None)}),
        (
            changed(resources={"cpu": 1, "memory": "1Gi"}),
            {"containers.main.resources.cpu": ("0.5", "1")},
        ),
        (changed(ports=[80, 443]), {"containers.main.ports": ("[80]", "[80, 443]")}),
        (changed(readiness={"port": 81}), {"containers.main.readiness.port": ("80", "81")}),
        (WEB | {"containers": [log, main]}, {"containers": ("main, log", "log, main")}),
        (
            WEB | {"init_containers": []},
            {"init_containers": ("fetch", None), "init_containers.fetch.image": ("busybox", None)},
        ),
        (WEB | {"rollout": {"surge": 1, "unavailable": 0}}, {"rollout.surge": ("50%", "1")}),
        (WEB | {"rollout": None}, {}),
        (WEB | {"labels": {"team": "b"}}, {"labels.team": ("a", "b")}),
        (WEB | {"kind": "session", "type": "batch", "restart": "always", "rollout": None}, {
            "kind": ("deployment", "session"), "type": ("compute", "batch")
        }),
        (WEB | {"pool": "simulated", "project": "default"}, {}),
    ]  # fmt: skip
    for body, expected in cases:
        found = await compared(world, headers, body)
        differences = {each["field"]: (each["present"], each["wanted"]) for each in found["differences"]}
        assert differences == expected
        assert (found["id"], found["kind"], found["ended"]) == (workload_id, "deployment", False)
    other = await compared(world, headers, WEB | {"placement": {"node_selector": {"zone": "b"}}})
    assert [each["field"] for each in other["differences"]] == ["placement.node_selector"]
    assert await world.counts() == before


@on_sqlite
@pytest.mark.parametrize("body", [WEB | {"pool": "nowhere"}, changed(image="a b"), changed(mounts=[])])
async def test_a_request_that_would_be_refused_is_refused(world: World, body: dict[str, Any]):
    headers = await world.user("ada")
    await world.submit(headers, **WEB)
    answer = await world.client.post("/api/workloads/web/comparison", json=body, headers=headers)
    assert answer.status_code == 422


@on_sqlite
async def test_only_the_owner_sees_differences_of_the_environment(world: World):
    headers = await world.user("ada")
    workload_id = await world.submit(headers, **WEB)
    body = changed(environment={"MODE": "guess"}, image="nginx:2")
    answer = await world.client.post(f"/api/workloads/{workload_id}/comparison", json=body, headers=await world.admin())
    assert [each["field"] for each in answer.json()["differences"]] == ["containers.main.image"]
