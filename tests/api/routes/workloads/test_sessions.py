"""Sessions over HTTP: a thin translation to and from workloads."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from mooring.api.routes.workloads.sessions import as_workload
from mooring.model.lifecycle import TaskStatus as T
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.placement import PlacementRequest
from mooring.wire.workloads.workload_fields import SessionRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.api.world import World
from tests.store.databases import on_sqlite


async def create(world: World, headers: dict[str, str], **body: Any) -> Any:
    answer = await world.client.post("/api/sessions", json={"command": ["true"], **body}, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer


def test_a_session_is_a_workload_in_other_words():
    plain = as_workload(SessionRequest(command=["bash"]))
    assert plain == WorkloadRequest(type="interactive", containers=[ContainerRequest(command=["bash"])])
    spread = as_workload(SessionRequest(image="torch", cluster_size=4, nodes=["n1"], nodes_strictly=True, time="2h"))
    assert (spread.replicas, spread.gang, spread.single_node, spread.time) == (4, True, False, "2h")
    assert spread.placement == PlacementRequest(nodes=["n1"], nodes_strictly=True)
    assert as_workload(SessionRequest(image="torch", cluster_size=2, mode="single-node")).single_node


def test_a_session_has_all_that_containers_and_their_tasks_can_have():
    container = {"image": "lab", "ports": [8888], "mounts": [{"volume": "home", "path": "/home"}], "terminal": True}
    task = {"volumes": [{"name": "home", "kind": "named"}], "restart": "on-failure", "stop_grace_seconds": 60}
    place = {"region": "eu", "placement": {"ports": 1}}
    session = SessionRequest.model_validate({**container, **task, **place, "nodes": ["n1"]})
    place["placement"] = {"ports": 1, "nodes": ["n1"]}
    wanted = {"type": "interactive", "containers": [container], **task, **place}
    assert as_workload(session) == WorkloadRequest.model_validate(wanted)


@on_sqlite
async def test_a_session_is_created_looked_at_listed_and_cancelled(world: World):
    headers = await world.user("ada")
    answer = await create(world, headers, name="train", type="batch", time="1h", signal="USR1@60", array="0-4%2")
    accepted = answer.json()
    assert answer.headers["location"] == f"http://mooring.test/api/sessions/{accepted['id']}"
    await create(world, headers, name="shell")
    await world.submit(headers, name="web", kind="deployment")
    listed = (await world.client.get("/api/sessions?type=batch", headers=headers)).json()
    assert [(one["name"], one["counts"]) for one in listed["workloads"]] == [("train", {"PENDING": 5})]
    assert (await world.client.get("/api/sessions", headers=headers)).json()["total"] == 2
    shown = (await world.client.get("/api/sessions/train", headers=headers)).json()
    assert (shown["time_limit_seconds"], shown["signal"], shown["parallel"]) == (3600, "USR1@60", 2)
    assert shown["array"] == {"first": 0, "step": 1}
    assert (await world.client.get("/api/sessions/web", headers=headers)).status_code == 404
    gone = await world.client.delete("/api/sessions/train", headers=headers)
    assert (gone.status_code, gone.json()["status"]) == (202, "CANCELLED")
    assert (await world.client.get("/api/sessions?everyone=true", headers=headers)).status_code == 403


@on_sqlite
async def test_since_when_a_session_is_idle_is_shown_while_it_runs(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    answer = await create(world, headers, name="notebook", idle_timeout="30m")
    waiting = (await world.client.get("/api/sessions/notebook", headers=headers)).json()
    assert (waiting["idle_timeout_seconds"], waiting["idle_since"]) == (1800, None)
    await world.move(answer.json()["id"], T.SCHEDULED, T.RUNNING)
    shown = (await world.client.get("/api/sessions/notebook", headers=headers)).json()
    since, ends = (datetime.fromisoformat(shown[name]) for name in ("idle_since", "idle_ends_at"))
    assert (since, ends - since) == (datetime.fromisoformat(shown["tasks"][0]["started_at"]), timedelta(minutes=30))


@on_sqlite
@pytest.mark.parametrize("field", [{"private": True}, {"type": "system"}, {"nodes": ["n1"], "nodes_strictly": True}])
async def test_a_field_alone_gives_no_right(world: World, field: dict[str, Any]):
    body = {"command": ["true"], **field}
    refused = await world.client.post("/api/sessions", json=body, headers=await world.user("ada"))
    assert (refused.status_code, refused.json()["code"]) == (403, "right-missing")
    await create(world, await world.admin(), **field)


@on_sqlite
async def test_dependencies_of_a_session_are_shown_with_their_state(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    first = (await create(world, headers, name="first")).json()["id"]
    needs = [{"workload": "first", "condition": "after-ok"}]
    await create(world, headers, name="second", dependencies=needs, retries=2, starts_at="2026-05-01T12:00:00Z")
    await world.move(first, T.SCHEDULED, T.PREPARING, T.RUNNING, T.FAILED)
    shown = (await world.client.get("/api/workloads/second", headers=headers)).json()
    assert shown["dependencies"] == [
        {"id": first, "name": "first", "condition": "after-ok", "status": "FAILED", "fate": "broken"}
    ]
    assert (shown["retries"], shown["starts_at"]) == (2, "2026-05-01T12:00:00Z")


@on_sqlite
async def test_the_tasks_of_an_array_come_in_pages(world: World):
    headers = await world.user("ada")
    await create(world, headers, name="sweep", array="10-19")
    answer = await world.client.get("/api/workloads/sweep/tasks?limit=3&offset=8&status=pending", headers=headers)
    page = answer.json()
    assert ([task["index"] for task in page["tasks"]], page["total"]) == ([8, 9], 10)


@on_sqlite
async def test_single_indexes_of_an_array_are_cancelled_over_http(world: World):
    headers = await world.user("ada")
    await create(world, headers, name="sweep", array="10-19")
    await create(world, headers, name="train")
    cancelled = await world.client.delete("/api/workloads/sweep/tasks?index=12,15-16", headers=headers)
    assert (cancelled.status_code, cancelled.json()["counts"]) == (202, {"PENDING": 7, "CANCELLED": 3})
    again = await world.client.delete("/api/workloads/sweep/tasks?index=12", headers=headers)
    assert (again.status_code, again.json()["counts"]) == (202, {"PENDING": 7, "CANCELLED": 3})
    page = await world.client.get("/api/workloads/sweep/tasks?status=cancelled", headers=headers)
    assert [(task["index"], task["reason"]) for task in page.json()["tasks"]] == [
        (number, "Cancelled by ada") for number in (2, 5, 6)
    ]
    unknown = await world.client.delete("/api/workloads/sweep/tasks?index=11,20", headers=headers)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-task")
    assert "has no index 20: its indexes are 10-19" in unknown.json()["message"]
    no_array = await world.client.delete("/api/workloads/train/tasks?index=0", headers=headers)
    assert (no_array.status_code, no_array.json()["code"]) == (409, "not-an-array")
    for invalid in ("", "index=", "index=a", f"index={'1,' * 600}1"):
        assert (await world.client.delete(f"/api/workloads/sweep/tasks?{invalid}", headers=headers)).status_code == 422
    foreign = await world.client.delete("/api/workloads/sweep/tasks?index=11", headers=await world.user("bob"))
    assert foreign.status_code == 404
    shown = (await world.client.get("/api/workloads/sweep", headers=headers)).json()
    assert (shown["status"], shown["counts"]) == ("PENDING", {"PENDING": 7, "CANCELLED": 3})


@on_sqlite
async def test_a_session_is_extended_over_http(world: World):
    headers = await world.user("ada")
    await create(world, headers, name="train", time=60)
    answer = await world.client.post("/api/workloads/train/extend", json={"by": "1m"}, headers=headers)
    assert (answer.status_code, answer.json()["time_limit_seconds"]) == (200, 120)
    nothing = await world.client.post("/api/workloads/train/extend", json={}, headers=headers)
    assert nothing.status_code == 422
    foreign = await world.client.post("/api/workloads/train/extend", json={"by": "1m"}, headers=await world.user("bob"))
    assert foreign.status_code == 404
