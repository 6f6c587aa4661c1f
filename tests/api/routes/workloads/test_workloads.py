"""Workloads over HTTP: submitting, listing, looking, waiting, output, scaling, removing."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import fastapi.routing
import pytest
from sqlalchemy import select, update

from mooring import clock
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.model.lifecycle import TaskStatus as T
from mooring.services.submission.group_commit import GroupCommit
from mooring.store.core.constraint_columns import decode_constraints
from mooring.store.tables import workloads
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WaitState
from tests.api.world import World, real_pool_takes_containers
from tests.store.databases import on_sqlite

RUN = (T.SCHEDULED, T.PREPARING, T.RUNNING)


async def names(world: World, headers: dict[str, str], **query: Any) -> list[str]:
    answer = await world.client.get("/api/workloads", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return [workload["name"] for workload in answer.json()["workloads"]]


async def test_a_submission_is_accepted_and_can_be_looked_at_by_id_and_name(world: World):
    headers = await world.user("ada")
    body = {
        "name": "train",
        "containers": [{"image": "nginx", "command": ["run", "it"], "resources": {"cpu": "500m", "memory": "2Gi"}}],
        "labels": {"team": "vision"},
        "pool": "simulated",
    }
    answer = await world.client.post("/api/workloads", json=body, headers=headers)
    assert answer.status_code == 202
    accepted = answer.json()
    assert (accepted["status"], accepted["pool"], accepted["simulated"]) == ("PENDING", "simulated", True)
    assert answer.headers["location"] == f"http://mooring.test/api/workloads/{accepted['id']}"
    by_id = (await world.client.get(f"/api/workloads/{accepted['id']}", headers=headers)).json()
    by_name = (await world.client.get("/api/workloads/train", headers=headers)).json()
    assert by_id == by_name
    assert by_id["resources"] == {"cpu": "0.5", "memory": "2Gi"}
    assert (by_id["image"], by_id["command"], by_id["labels"]) == ("nginx", ["run", "it"], {"team": "vision"})
    assert (by_id["user"], by_id["project"], by_id["simulated"]) == ("ada", "default", True)
    assert [(task["index"], task["attempt"], task["status"]) for task in by_id["tasks"]] == [(0, 1, "PENDING")]


@on_sqlite
@pytest.mark.parametrize("status", [202, 422])
async def test_answer_does_not_depend_on_who_reads_the_request(world: World, status: int):
    """FastAPI reads requests whose content type has parameters; the others, if valid, have a shorter way."""
    headers, answers = await world.user("ada"), []
    for name, content_type in (("one", "application/json"), ("two", "application/json; charset=utf-8")):
        body = {"name": name, "containers": [{"image": "nginx"}] if status != 422 else [{"image": 5}]}
        sent = {**headers, "Content-Type": content_type, "Idempotency-Key": name}
        answers.append(await world.client.post("/api/workloads", content=json.dumps(body), headers=sent))
    direct, by_fastapi = answers
    assert [answer.status_code for answer in answers] == [status, status]
    assert direct.headers.keys() == by_fastapi.headers.keys()
    assert direct.headers["content-type"] == by_fastapi.headers["content-type"]
    if status == 202:
        assert direct.json().keys() == by_fastapi.json().keys()
        assert direct.headers["location"].endswith(direct.json()["id"])
    else:
        assert direct.json() == by_fastapi.json()


@on_sqlite
async def test_valid_submission_is_not_resolved_by_fastapi(world: World, monkeypatch: pytest.MonkeyPatch):
    headers = await world.user("ada")

    async def refuse(**_: Any) -> Any:
        raise AssertionError("its dependencies are resolved by inspection")

    monkeypatch.setattr(fastapi.routing, "solve_dependencies", refuse)
    assert await world.submit(headers)


@on_sqlite
async def test_submissions_of_one_user_share_transactions_beyond_the_seats(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    headers = await world.user("ada")
    everybody, sizes, arrived = 3 * LoadLimits().seats, list[int](), asyncio.Event()
    submit, write = GroupCommit.write, GroupCommit._write
    submitted: list[Any] = []

    async def counted(self: GroupCommit, submission: Any) -> Any:
        submitted.append(submission)
        if len(submitted) == everybody:
            arrived.set()
        return await submit(self, submission)

    async def held(self: GroupCommit, group: Any) -> None:
        # The first transaction takes until all others wait for the next one.
        sizes.append(len(group))
        async with asyncio.timeout(60):
            await arrived.wait()
        await write(self, group)

    monkeypatch.setattr(GroupCommit, "write", counted)
    monkeypatch.setattr(GroupCommit, "_write", held)
    body = {"containers": [{"image": "nginx"}], "pool": "simulated"}
    posts = (world.client.post("/api/workloads", json=body, headers=headers) for _ in range(everybody))
    assert {answer.status_code for answer in await asyncio.gather(*posts)} == {202}
    assert sum(sizes) == everybody
    assert max(sizes) > LoadLimits().seats


async def test_a_name_means_the_living_workload_before_newer_ones_that_ended(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    first = await world.submit(headers, name="train")
    await world.move(first, *RUN, T.SUCCEEDED)
    second = await world.submit(headers, name="train")
    assert (await world.client.get("/api/workloads/train", headers=headers)).json()["id"] == second
    await world.move(second, *RUN, T.FAILED)
    assert (await world.client.get("/api/workloads/train", headers=headers)).json()["id"] == second
    await world.client.delete(f"/api/workloads/{second}", headers=headers)
    assert (await world.client.get("/api/workloads/train", headers=headers)).json()["id"] == first


async def test_the_list_shows_ones_own_that_live_or_ended_within_the_hour(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    await world.add_node("n1")
    ids = {name: await world.submit(ada, name=name) for name in ("alive", "ended", "long-ended", "removed")}
    await world.submit(bob, name="foreign")
    for name in ("ended", "long-ended"):
        await world.move(ids[name], *RUN, T.SUCCEEDED)
    await world.services.database.write(
        lambda c: c.execute(
            update(workloads)
            .where(workloads.c.name == "long-ended")
            .values(ended_at=clock.now() - timedelta(minutes=61))
        )
    )
    answer = await world.client.delete("/api/workloads/removed", headers=ada)
    assert (answer.status_code, answer.json()["removed"]) == (202, True)
    assert await names(world, ada) == ["ended", "alive"]
    assert await names(world, ada, all=True) == ["long-ended", "ended", "alive"]
    assert await names(world, ada, active=True) == await names(world, ada, active=True, all=True) == ["alive"]
    assert await names(world, ada, all=True, status="SUCCEEDED") == ["long-ended", "ended"]
    assert await names(world, ada, status="succeeded") == ["ended"]
    assert await names(world, ada, status=["PENDING", "SUCCEEDED"]) == ["ended", "alive"]
    assert await names(world, ada, name="alive") == ["alive"]
    assert await names(world, ada, kind="deployment") == []
    assert await names(world, await world.admin()) == []
    assert await names(world, await world.admin(), everyone=True) == ["foreign", "ended", "alive"]
    assert (await world.client.get("/api/workloads?everyone=true", headers=ada)).status_code == 403


async def test_a_cancelled_workload_stays_listed_and_force_waits_for_no_node(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")
    job = await world.submit(ada, name="job")
    await world.move(job, *RUN)
    for query, status, tasks in (("", "TERMINATING", ["TERMINATING"]), ("&force=true", "CANCELLED", ["LOST"])):
        answer = await world.client.delete(f"/api/workloads/job?keep=true{query}", headers=ada)
        assert (answer.status_code, answer.json()["status"]) == (202, status)
        seen = (await world.client.get("/api/workloads/job", headers=ada)).json()
        assert [task["status"] for task in seen["tasks"]] == tasks
    assert await names(world, ada) == ["job"]
    # The node did not say that nothing is left.
    node = (await world.client.get("/api/nodes/n1", headers=await world.admin())).json()
    assert node["slots"]["cpu"]["used"] != "0"


async def test_pages_cover_the_list_without_overlap(world: World):
    headers = await world.user("ada")
    for number in range(5):
        await world.submit(headers, name=f"w{number}", priority=number % 2)
    assert await names(world, headers, sort="name", limit=2, offset=2) == ["w2", "w3"]
    assert await names(world, headers, sort="-name", limit=2) == ["w4", "w3"]
    assert await names(world, headers, sort="-priority", limit=3) == ["w3", "w1", "w4"]
    answer = await world.client.get("/api/workloads?limit=2&offset=10", headers=headers)
    assert answer.json() == {"workloads": [], "total": 5, "limit": 2, "offset": 10}


async def test_environment_values_are_shown_to_the_owner_only(world: World):
    ada = await world.user("ada")
    container = {"image": "nginx", "environment": {"TOKEN": "s3cr3t"}}
    workload_id = await world.submit(ada, name="train", containers=[container])
    mine = await world.client.get(f"/api/workloads/{workload_id}", headers=ada)
    assert mine.json()["environment"] == {"main": {"TOKEN": "s3cr3t"}}
    admin = await world.admin()
    for path in (
        f"/api/workloads/{workload_id}",
        f"/api/workloads/{workload_id}/history",
        f"/api/workloads/{workload_id}/wait?timeout=0",
        "/api/workloads?everyone=true",
    ):
        answer = await world.client.get(path, headers=admin)
        assert answer.status_code == 200
        assert "s3cr3t" not in answer.text
    assert "s3cr3t" not in (await world.client.get("/api/workloads", headers=ada)).text


async def test_the_history_lists_changes_of_the_workload_and_its_tasks_in_order(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    await world.submit(headers, name="train")
    await world.move((await world.client.get("/api/workloads/train", headers=headers)).json()["id"], *RUN)
    rows = (await world.client.get("/api/workloads/train/history", headers=headers)).json()["history"]
    reported = [(row["noun"], row["task_index"], row["attempt"], row["old_status"], row["new_status"]) for row in rows]
    assert reported == [
        ("workload", None, None, "none", "PENDING"),
        ("task", 0, 1, "PENDING", "SCHEDULED"),
        ("workload", None, None, "PENDING", "SCHEDULED"),
        ("task", 0, 1, "SCHEDULED", "PREPARING"),
        ("workload", None, None, "SCHEDULED", "PREPARING"),
        ("task", 0, 1, "PREPARING", "RUNNING"),
        ("workload", None, None, "PREPARING", "RUNNING"),
    ]
    assert [row["actor"] for row in rows[:2]] == ["ada", "scheduler"]
    assert (rows[1]["term"], rows[1]["reason"]) == (1, "Placed on n1")
    newest = (await world.client.get("/api/workloads/train/history?limit=2", headers=headers)).json()["history"]
    assert newest == rows[-2:]


async def test_a_wait_returns_after_the_awaited_change(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    workload_id = await world.submit(headers, name="train")
    path = f"/api/workloads/{workload_id}/wait?for=running&timeout=60"
    waiting = asyncio.create_task(world.client.get(path, headers=headers))
    await world.changes.waiting.wait()
    await world.move(workload_id, *RUN)
    world.changes.send()
    answer = await waiting
    assert (answer.status_code, answer.json()["status"], answer.json()["running"]) == (200, "RUNNING", 1)


@on_sqlite
async def test_a_waiter_is_answered_when_the_server_stops(world: World):
    headers = await world.user("ada")
    await world.submit(headers, name="train")
    waiting = asyncio.create_task(world.client.get("/api/workloads/train/wait?timeout=60", headers=headers))
    await world.changes.waiting.wait()
    world.services.feed.close()
    async with asyncio.timeout(30):
        answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (200, "PENDING")


async def test_a_change_while_a_waiter_looks_is_not_slept_through(world: World, monkeypatch: pytest.MonkeyPatch):
    headers = await world.user("ada")
    await world.add_node("n1")
    workload_id = await world.submit(headers, name="train")
    look = views.wait_state

    async def look_and_change(connection: Any, looked_at: UUID) -> WaitState | None:
        seen = await look(connection, looked_at)
        if seen is not None and not seen.ended:
            await world.move(workload_id, *RUN, T.SUCCEEDED)
            world.changes.send()
        return seen

    monkeypatch.setattr(views, "wait_state", look_and_change)
    async with asyncio.timeout(60):
        answer = await world.client.get("/api/workloads/train/wait?timeout=300", headers=headers)
    assert answer.json()["status"] == "SUCCEEDED"


async def test_a_waiter_gets_the_present_state_when_nothing_is_left_to_wait_for(world: World):
    headers = await world.user("ada")
    await world.add_node("n1")
    workload_id = await world.submit(headers, name="train")

    async def status(query: str) -> str:
        answer = await world.client.get(f"/api/workloads/train/wait?{query}", headers=headers)
        assert answer.status_code == 200
        found: str = answer.json()["status"]
        return found

    assert await status("for=ended&timeout=0") == "PENDING"
    assert await status("for=changed&version=999&timeout=60") == "PENDING"
    await world.move(workload_id, *RUN, T.FAILED)
    assert await status("for=ended&timeout=60") == "FAILED"
    assert await status("for=running&timeout=60") == "FAILED"
    assert not world.changes.timeouts


async def running_for_real(world: World, headers: dict[str, str]) -> str:
    """A workload of two tasks in a pool that is not simulated; the first has a node."""
    await real_pool_takes_containers(world.services.database)
    await world.add_node("n1")
    workload_id = await world.submit(headers, name="train", pool="real", replicas=2)
    await world.move(workload_id, *RUN)
    return workload_id


async def test_output_is_streamed_from_the_node_of_the_task(world: World):
    headers = await world.user("ada")
    await running_for_real(world, headers)
    answer = await world.client.get("/api/workloads/train/logs?tail=5&follow=true", headers=headers)
    assert (answer.status_code, answer.content) == (200, b"one\ntwo\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    detail = (await world.client.get("/api/workloads/train", headers=headers)).json()
    asked = world.logs.asked[0]
    assert (str(asked["task_id"]), asked["tail"], asked["follow"]) == (detail["tasks"][0]["id"], 5, True)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    query = {"since": "1970-01-01T01:00:05+01:00", "timestamps": "true"}
    answer = await world.client.get("/api/workloads/train/logs", params=query, headers=headers)
    assert (world.logs.asked[1]["since"], world.logs.asked[1]["timestamps"]) == (5.0, True)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8; times=noted"
    naive = await world.client.get("/api/workloads/train/logs", params={"since": "2026-01-01"}, headers=headers)
    assert naive.status_code == 422


async def test_the_output_of_an_earlier_attempt_is_asked_for_by_its_number(world: World):
    headers = await world.user("ada")
    await running_for_real(world, headers)
    assert (await world.client.get("/api/workloads/train/logs?attempt=1", headers=headers)).status_code == 200
    answer = await world.client.get("/api/workloads/train/logs?attempt=2", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-attempt")


async def test_a_node_that_does_not_answer_is_an_error_and_not_an_empty_output(world: World):
    headers = await world.user("ada")
    await running_for_real(world, headers)
    world.logs.fails_after = 0
    answer = await world.client.get("/api/workloads/train/logs", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    world.logs.fails_after = 1
    answer = await world.client.get("/api/workloads/train/logs", headers=headers)
    assert (answer.status_code, answer.text) == (
        200,
        "one\n\n[mooring] the output is cut off here: node n1 does not answer\n",
    )


@on_sqlite
@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_disconnects_ends_the_stream_from_the_node(
    world: World, begun: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.api.routes.workloads.workloads._FIRST_OUTPUT_SECONDS", 0)
    headers = await world.user("ada")
    await running_for_real(world, headers)
    world.logs.silent = True
    leaves, started = asyncio.Event(), asyncio.Event()
    received = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if received:
            return received.pop()
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        started.set()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/api/workloads/train/logs",
        "raw_path": b"/api/workloads/train/logs",
        "query_string": b"follow=true",
        "headers": [(b"authorization", headers["Authorization"].encode())],
        "client": ("127.0.0.1", 1),
        "server": ("mooring.test", 80),
    }
    if not begun:
        leaves.set()
    request = asyncio.create_task(world.app(scope, receive, send))
    await world.logs.asking.wait()
    if begun:
        await started.wait()
        leaves.set()
    await request
    assert world.logs.closed == 1


async def test_a_task_without_output_says_why(world: World):
    headers = await world.user("ada")
    await running_for_real(world, headers)
    waits = await world.client.get("/api/workloads/train/logs?task=1", headers=headers)
    assert (waits.status_code, waits.json()["code"]) == (409, "no-output-yet")
    unknown = await world.client.get("/api/workloads/train/logs?task=7", headers=headers)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-task")
    gone = await world.client.delete("/api/nodes/n1?force=true", headers=await world.admin())
    assert gone.status_code == 204
    removed = await world.client.get("/api/workloads/train/logs", headers=headers)
    assert (removed.status_code, removed.json()["code"]) == (404, "output-gone")


async def test_a_simulated_task_says_that_nothing_runs(world: World):
    headers = await world.user("ada")
    await world.submit(headers, name="train")
    answer = await world.client.get("/api/workloads/train/logs?follow=true", headers=headers)
    assert answer.text == "simulated: nothing runs, so there is no output\n"


async def test_a_deployment_is_scaled_and_a_session_is_not(world: World):
    headers = await world.user("ada")
    await world.submit(headers, name="web", kind="deployment")
    await world.submit(headers, name="train")
    answer = await world.client.post("/api/workloads/web/scale", json={"replicas": 3}, headers=headers)
    assert (answer.status_code, answer.json()["replicas"]) == (202, 3)
    detail = (await world.client.get("/api/workloads/web", headers=headers)).json()
    assert len(detail["tasks"]) == 3
    refused = await world.client.post("/api/workloads/train/scale", json={"replicas": 3}, headers=headers)
    assert refused.status_code == 409


@on_sqlite
@pytest.mark.parametrize(
    "ref",
    [
        "nothing",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "UPPER",
        "a b",
        "%00",
        "' OR 1=1 --",
        "x" * 5000,
        "%ED%A0%80",
        "-",
    ],
)
async def test_unknown_workloads_are_not_found_whatever_their_name(world: World, ref: str):
    headers = await world.user("ada")
    await world.submit(headers, name="train")
    before = await world.counts()
    for method, rest in (
        ("GET", ""),
        ("GET", "/history"),
        ("GET", "/wait"),
        ("GET", "/logs"),
        ("DELETE", ""),
        ("POST", "/scale"),
    ):
        body = {"replicas": 2} if method == "POST" else None
        answer = await world.client.request(method, f"/api/workloads/{ref}{rest}", headers=headers, json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert await world.counts() == before


async def test_the_containers_of_a_task_are_shown_in_the_order_of_their_start(world: World):
    headers = await world.user("ada")
    web = {"name": "web", "image": "nginx:1", "ports": [80], "mounts": [{"volume": "data", "path": "/data"}]}
    log = {"name": "log", "image": "log:1", "sidecar": True}
    await world.submit(
        headers,
        name="site",
        containers=[web],
        init_containers=[log, {"name": "fetch", "image": "busybox"}],
        volumes=[{"name": "data"}],
    )
    shown = (await world.client.get("/api/workloads/site", headers=headers)).json()["containers"]
    assert [(each["name"], each["role"], each["image"]) for each in shown] == [
        ("log", "sidecar", "log:1"),
        ("fetch", "init", "busybox"),
        ("web", "main", "nginx:1"),
    ]
    assert (shown[2]["ports"], shown[2]["mounts"]) == ([80], {"/data": "data"})


@pytest.mark.parametrize(
    ("container", "qos"),
    [
        ({"resources": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}, "Guaranteed"),
        ({"resources": {"cpu": 1}}, "Burstable"),
    ],
)
async def test_the_quality_of_service_class_is_shown(world: World, container: dict[str, Any], qos: str):
    user = await world.user("ada")
    workload_id = await world.submit(user, containers=[{"image": "nginx", **container}])
    shown = (await world.client.get(f"/api/workloads/{workload_id}", headers=user)).json()
    assert shown["qos"] == qos


async def test_volume_zones_and_simulated_behaviour_are_taken_from_a_request(world: World):
    user = await world.user("ada")
    placement = {"volume_zones": {"topology/zone": ["b", "a"]}}
    workload_id = await world.submit(user, placement=placement, labels={"simulation/seconds": "5"})
    async with world.services.database.read() as connection:
        stored = await connection.scalar(select(workloads.c.constraints).where(workloads.c.id == UUID(workload_id)))
    assert stored is not None
    assert decode_constraints(stored).volume_zones == (("topology/zone", frozenset({"a", "b"})),)
    wrongs: list[dict[str, Any]] = [
        {"placement": {"volume_zones": {"z": []}}},
        {"labels": {"simulation/seconds": "soon"}},
    ]
    for wrong in wrongs:
        body = {"containers": [{"image": "nginx"}], **wrong}
        assert (await world.client.post("/api/workloads", json=body, headers=user)).status_code == 422


@on_sqlite
async def test_a_list_is_filtered_by_part_of_the_name_and_by_pool(world: World):
    headers = await world.admin()
    for name in ("train-1", "train-2", "serve-1"):
        await world.submit(headers, name=name)

    async def names(query: str) -> list[str]:
        answer = await world.client.get(f"/api/workloads?sort=name&{query}", headers=headers)
        return [each["name"] for each in answer.json()["workloads"]]

    assert await names("search=TRAIN") == ["train-1", "train-2"]
    assert await names("search=e-1") == ["serve-1"]
    # Signs that mean something in patterns stand for themselves.
    assert await names("search=e_1") == await names("search=e%251") == []
    # Typed text need not be a possible name.
    assert await names("search=two%20words") == []
    assert len(await names("pool=simulated")) == 3
    assert await names("pool=default") == []
