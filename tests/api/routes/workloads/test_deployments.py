"""Deployments over time, through the API: updates, the way back, a pause, revisions and endpoints."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from mooring.model.lifecycle import TaskStatus
from mooring.services.deployments.deployments import DeploymentAdmin
from mooring.store.commit.status_changes import Change
from tests.api.world import World
from tests.store.databases import on_sqlite

T = TaskStatus
Headers = dict[str, str]


async def deploy(world: World, headers: Headers, **more: Any) -> str:
    """A deployment `web` of two replicas that are placed."""
    container = {"image": "nginx:1", "command": ["serve"], "environment": {"A": "1"}, "resources": {"cpu": 1}}
    return await world.submit(headers, name="web", kind="deployment", replicas=2, containers=[container], **more)


async def ask(world: World, headers: Headers, what: str, body: Any = None) -> Any:
    answer = await world.client.post(f"/api/deployments/web/{what}", json=body, headers=headers)
    return answer.status_code, answer.json()


@on_sqlite
async def test_an_update_changes_the_given_fields_and_keeps_the_others(world: World):
    headers = await world.admin()
    await deploy(world, headers)
    status, view = await ask(
        world,
        headers,
        "update",
        {"image": "nginx:2", "environment": {"A": None, "B": "2"}, "resources": {"memory": "1Gi"}, "replicas": 3},
    )
    assert status == 202
    assert (view["image"], view["command"], view["replicas"]) == ("nginx:2", ["serve"], 3)
    assert view["resources"] == {"cpu": "1", "memory": "1Gi"}
    assert (view["rollout"]["phase"], view["rollout"]["revision"], view["rollout"]["outdated"]) == ("rolling", 2, 0)
    detail = (await world.client.get("/api/workloads/web", headers=headers)).json()
    assert detail["environment"] == {"main": {"B": "2"}}
    # Pending tasks are created again.
    assert [(t["revision"], t["status"]) for t in detail["tasks"] if t["current"]] == [(2, "PENDING")] * 2
    found = (await world.client.get("/api/deployments/web/revisions", headers=headers)).json()["revisions"]
    assert [(r["number"], r["cause"], r["images"], r["present"]) for r in found] == [
        (1, "as submitted", ["nginx:1"], False),
        (2, "image nginx:2, environment A, B, memory 1Gi", ["nginx:2"], True),
    ]
    assert "'2'" not in str(found[1]["cause"])


@on_sqlite
@pytest.mark.parametrize(("what", "body"), [("update", {"image": "nginx:3"}), ("rollback", {})])
async def test_a_deployment_scaled_during_a_change_of_its_template_stays_scaled(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, body: dict[str, Any]
):
    headers = await world.admin()
    await deploy(world, headers)
    await ask(world, headers, "update", {"image": "nginx:2"})
    admitted = DeploymentAdmin._admitted

    async def scaled_first(*arguments: Any) -> Any:
        scaled = await world.client.post("/api/workloads/web/scale", json={"replicas": 5}, headers=headers)
        assert scaled.status_code == 202
        return await admitted(*arguments)

    monkeypatch.setattr(DeploymentAdmin, "_admitted", scaled_first)
    status, view = await ask(world, headers, what, body)
    assert (status, view["replicas"], view["rollout"]["revision"]) == (202, 5, 3)


@on_sqlite
async def test_going_back_is_a_new_revision_made_from_an_old_template(world: World):
    headers = await world.admin()
    await deploy(world, headers)
    assert (await ask(world, headers, "rollback", {}))[1]["code"] == "no-revision"
    await ask(world, headers, "update", {"image": "nginx:2"})
    await ask(world, headers, "update", {"image": "nginx:3"})
    status, view = await ask(world, headers, "rollback", {"revision": 1})
    assert (status, view["image"], view["rollout"]["revision"]) == (202, "nginx:1", 4)
    assert (await ask(world, headers, "rollback", {"revision": 1}))[1]["code"] == "same-revision"
    assert (await ask(world, headers, "rollback", {"revision": 9}))[0] == 404
    assert (await ask(world, headers, "rollback", {}))[1]["image"] == "nginx:3"
    found = (await world.client.get("/api/deployments/web/revisions", headers=headers)).json()["revisions"]
    assert [r["cause"] for r in found[3:]] == ["back to revision 1", "back to revision 3"]


@on_sqlite
async def test_a_whole_template_replaces_the_present_one(world: World):
    headers = await world.admin()
    await deploy(world, headers)
    template = {"containers": [{"name": "app", "image": "app:1"}, {"name": "proxy", "image": "proxy:1"}]}
    status, view = await ask(world, headers, "update", {"template": template, "cause": "split in two"})
    assert (status, view["image"]) == (202, "app:1")
    status, view = await ask(world, headers, "update", {"container": "proxy", "image": "proxy:2"})
    found = (await world.client.get("/api/deployments/web/revisions", headers=headers)).json()["revisions"]
    assert [(r["cause"], r["images"]) for r in found[1:]] == [
        ("split in two", ["app:1", "proxy:1"]),
        ("proxy: image proxy:2", ["app:1", "proxy:2"]),
    ]


@on_sqlite
async def test_numbers_alone_make_no_revision(world: World):
    headers = await world.admin()
    await deploy(world, headers)
    bounds = {"surge": "50%", "unavailable": 1, "drain_seconds": 0, "deadline_seconds": 60}
    status, view = await ask(world, headers, "update", {"replicas": 4, "rollout": bounds})
    assert status == 202
    assert (view["replicas"], view["counts"]) == (4, {"PENDING": 4})
    assert view["rollout"] | {"surge": "50%", "unavailable": "1", "drain_seconds": 0} == view["rollout"]
    assert (view["rollout"]["phase"], view["rollout"]["revision"]) == ("done", 1)


WRONG: dict[str, tuple[Any, str]] = {
    "an image with shell characters": ({"image": "nginx; rm -rf /"}, "invalid-input"),
    "names of Mooring's own": ({"environment": {"MOORING_X": "1"}}, "reserved-environment"),
    "a container that is not there": ({"container": "x", "image": "b"}, "unknown-container"),
    "a whole and a part": ({"template": {"containers": [{"image": "b"}]}, "image": "c"}, "invalid-update"),
    "a process": ({"template": {"containers": [{"command": ["true"]}]}}, "other-runtime"),
    "what no node has": ({"resources": {"tpu": 1}}, "slot-not-served"),
    "nothing could move": ({"rollout": {"surge": 0}}, "invalid-rollout"),
    "no replica": ({"replicas": 0}, "invalid-input"),
    "an unknown word": ({"picture": "b"}, "invalid-input"),
}


@on_sqlite
async def test_a_wrong_update_is_refused_and_changes_nothing(world: World):
    headers = await world.admin()
    await world.add_node("s1")
    await deploy(world, headers)
    before = await world.counts()
    for case, (body, code) in WRONG.items():
        status, problem = await ask(world, headers, "update", body)
        assert (case, status, problem["code"]) == (case, 422, code)
    assert await world.counts() == before


@on_sqlite
async def test_pause_and_resume_depend_on_the_state_of_the_rollout(world: World):
    headers = await world.admin()
    await deploy(world, headers)
    assert (await ask(world, headers, "pause"))[1]["code"] == "rollout-done"
    await ask(world, headers, "update", {"image": "nginx:2"})
    assert (await ask(world, headers, "pause"))[1]["rollout"]["phase"] == "paused"
    assert (await ask(world, headers, "pause"))[1]["code"] == "rollout-paused"
    assert (await ask(world, headers, "resume"))[1]["rollout"]["phase"] == "rolling"
    await world.client.delete("/api/workloads/web", headers=headers)
    assert (await ask(world, headers, "update", {"image": "nginx:3"}))[1]["code"] == "already-ended"


@on_sqlite
async def test_sessions_are_no_deployments(world: World):
    headers = await world.admin()
    await world.submit(headers, name="web")
    assert (await ask(world, headers, "update", {"image": "b"}))[0] == 404


@on_sqlite
async def test_endpoints_are_the_tasks_that_accept_traffic(world: World):
    headers = await world.admin()
    id = await deploy(world, headers)

    async def listed() -> tuple[list[int], str]:
        answer = (await world.client.get("/api/workloads/web/endpoints", headers=headers)).json()
        return [each["index"] for each in answer["endpoints"]], answer["cursor"]

    assert (await listed())[0] == []
    await world.add_node("n1")
    for index in range(2):
        await world.move(id, T.SCHEDULED, T.RUNNING, index=index)
    indexes, cursor = await listed()
    assert indexes == [0, 1]
    first = (await world.client.get("/api/workloads/web", headers=headers)).json()["tasks"][0]["id"]
    await world.apply(Change(UUID(first), T.RUNNING, ready=False))
    assert (await listed())[0] == [1]
    view = (await world.client.get("/api/workloads/web", headers=headers)).json()
    assert (view["running"], view["ready"], view["tasks"][0]["ready"]) == (2, 1, False)
    received = (await world.client.get(f"/api/events?since={cursor}&workload=web", headers=headers)).json()["events"]
    assert [event["kind"] for event in received if event["noun"] == "task"] == ["unready"]
