"""A small request cannot stand for any number of tasks: rates and limits count tasks, not requests."""

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from mooring import clock
from mooring.api.app import create_app
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.model.tenancy import policies as model
from mooring.model.tenancy.policies import parse_policy
from mooring.model.tenancy.quotas import Scope
from mooring.services.submission.submission import SubmissionService
from mooring.store.core.engine import Connection
from mooring.store.tenancy import policies, projects, users
from mooring.store.tenancy.tenants import DEFAULT_DOMAIN, DEFAULT_PROJECT
from mooring.wire.fields import MAX_BATCH, MAX_BATCH_TASKS
from tests.api.world import World
from tests.store.databases import on_sqlite
from tests.store.tenant_builders import ACTOR

CONTAINERS = [{"image": "nginx", "resources": {"cpu": "500m"}}]
MAX_TASKS_ASKED = 45_000
Headers = dict[str, str]


def array(size: int, **more: Any) -> dict[str, Any]:
    return {"containers": CONTAINERS, "array": f"0-{size - 1}", **more}


async def submit(world: World, headers: Headers, body: dict[str, Any], path: str = "") -> Any:
    return await world.client.post(f"/api/workloads{path}", json=body, headers=headers)


async def limit(world: World, *, user: str | None = None, **rules: Any) -> None:
    """Give a user, or else the default project, a policy."""

    async def work(connection: Connection) -> None:
        name = f"of-{user or 'project'}"
        await policies.create(connection, name, parse_policy(rules), actor=ACTOR, now=clock.now())
        if user is not None:
            await users.change(connection, user, policy=name, actor=ACTOR, now=clock.now())
        else:
            where = (DEFAULT_DOMAIN, DEFAULT_PROJECT)
            await projects.change(connection, *where, policy=name, actor=ACTOR, now=clock.now())

    await world.services.database.write(work)


@on_sqlite
async def test_a_batch_of_many_large_arrays_is_refused_as_a_whole(world: World):
    mallory, before = await world.user("mallory"), await world.counts()
    answer = await submit(world, mallory, {"workloads": [array(10_000)] * MAX_BATCH}, "/batch")
    assert (answer.status_code, answer.json()["code"]) == (422, "batch-too-large")
    assert answer.json()["details"] == {"requested": 10_000 * MAX_BATCH, "limit": MAX_BATCH_TASKS}
    after = await world.counts()
    assert {name: after[name] for name in ("workloads", "tasks")} == {n: before[n] for n in ("workloads", "tasks")}


async def test_tasks_above_the_limit_of_a_user_are_refused_until_others_have_ended(world: World):
    mallory = await world.user("mallory")
    await limit(world, user="mallory", max_pending_tasks=25)
    first = await submit(world, mallory, array(20))
    assert first.status_code == 202
    refused = await submit(world, mallory, array(10))
    assert (refused.status_code, refused.json()["code"]) == (412, "too-many-pending-tasks")
    assert "user 'mallory' has 20 pending tasks, and 25 are allowed" in refused.json()["message"]
    [violation] = refused.json()["details"]["violations"]
    assert (violation["used"], violation["requested"], violation["limit"]) == (20, 10, 25)
    assert (await submit(world, mallory, array(10), "/dry-run")).json()["code"] == "too-many-pending-tasks"
    assert (await submit(world, mallory, array(5))).status_code == 202
    await world.client.delete(f"/api/workloads/{first.json()['id']}", headers=mallory)
    assert (await submit(world, mallory, array(20))).status_code == 202


@on_sqlite
async def test_each_workload_of_a_batch_counts_for_the_next(world: World):
    mallory = await world.user("mallory")
    await limit(world, user="mallory", max_pending_tasks=25)
    answer = await submit(world, mallory, {"workloads": [array(10), array(10), array(10), array(5)]}, "/batch")
    codes = [each["error"] and each["error"]["code"] for each in answer.json()["workloads"]]
    assert codes == [None, None, "too-many-pending-tasks", None]


@on_sqlite
async def test_the_limit_of_a_project_counts_all_its_users(world: World):
    mallory, ada = await world.user("mallory"), await world.user("ada")
    await limit(world, max_pending_tasks=25)
    assert (await submit(world, mallory, array(20))).status_code == 202
    refused = await submit(world, ada, array(10))
    assert refused.json()["code"] == "too-many-pending-tasks"
    assert "project 'default' has 20 pending tasks" in refused.json()["message"]


@on_sqlite
@pytest.mark.parametrize("scope", [Scope.USER, Scope.PROJECT])
async def test_users_and_projects_without_a_policy_have_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch, scope: Scope
):
    mallory = await world.user("mallory")
    assert model.PENDING_TASKS[scope] > 0
    monkeypatch.setitem(model.PENDING_TASKS, scope, 15)
    assert (await submit(world, mallory, array(10))).status_code == 202
    assert (await submit(world, mallory, array(10))).json()["code"] == "too-many-pending-tasks"
    await limit(world, user="mallory" if scope is Scope.USER else None, max_pending_tasks=None)
    assert (await submit(world, mallory, array(10))).status_code == 202


GROWN = [
    pytest.param("/api/workloads/web/scale", {}, id="scale"),
    pytest.param("/api/deployments/web/update", {}, id="update of the number"),
    pytest.param("/api/deployments/web/update", {"image": "nginx:2"}, id="update of the template"),
]
"""Requests, without their number, that give a deployment more replicas."""


@on_sqlite
@pytest.mark.parametrize(("path", "change"), GROWN)
@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [("max_pending_tasks", 412, "too-many-pending-tasks"), ("max_tasks", 422, "too-many-tasks")],
)
async def test_no_way_to_grow_a_deployment_exceeds_a_limit(
    world: World, path: str, change: dict[str, Any], rule: str, status: int, code: str
):
    mallory = await world.user("mallory")
    await limit(world, user="mallory", **{rule: 25})
    made = await submit(world, mallory, {"containers": CONTAINERS, "kind": "deployment", "name": "web"})
    assert made.status_code == 202
    refused = await world.client.post(path, json={**change, "replicas": 30}, headers=mallory)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    shown = await world.client.get("/api/workloads/web", headers=mallory)
    assert shown.json()["replicas"] == 1
    grown = await world.client.post(path, json={**change, "replicas": 25}, headers=mallory)
    assert (grown.status_code, grown.json()["replicas"]) == (202, 25)


async def test_tasks_that_another_server_accepted_count(world: World):
    mallory = await world.user("mallory")
    await limit(world, user="mallory", max_pending_tasks=25)
    other = beside(world, submissions=SubmissionService(world.services.database))
    assert (await submit(world, mallory, array(10))).status_code == 202
    assert (await submit(other, mallory, array(10))).status_code == 202
    # By its own count there is capacity for 15; one task more triggers a new count.
    assert (await submit(world, mallory, array(16))).json()["code"] == "too-many-pending-tasks"


@on_sqlite
async def test_requests_are_charged_by_their_tasks(world: World):
    mallory = await world.user("mallory")
    slow = beside(world, load=LoadShedding(LoadLimits(requests=10), clock=lambda: 0.0))
    # Of 20 requests at once, an array of 300 tasks is 15.
    assert (await submit(slow, mallory, array(300))).status_code == 202
    refused = await submit(slow, mallory, array(300))
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")
    batch = {"workloads": [array(100), array(100)]}
    assert (await submit(slow, mallory, batch, "/batch")).status_code == 429
    assert (await submit(slow, mallory, {"containers": CONTAINERS})).status_code == 202


@on_sqlite
async def test_a_new_revision_is_charged_by_the_tasks_that_it_replaces(world: World):
    mallory = await world.user("mallory")
    body = {"containers": CONTAINERS, "kind": "deployment", "name": "web", "replicas": 300}
    assert (await submit(world, mallory, body)).status_code == 202
    slow = beside(world, load=LoadShedding(LoadLimits(requests=10), clock=lambda: 0.0))
    # Of 20 requests at once, 300 tasks are 15.
    updated = await slow.client.post("/api/deployments/web/update", json={"image": "nginx:2"}, headers=mallory)
    assert updated.status_code == 202
    for path, more in (("update", {"image": "nginx:3"}), ("rollback", {})):
        refused = await slow.client.post(f"/api/deployments/web/{path}", json=more, headers=mallory)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-requests")


def beside(world: World, **parts: Any) -> World:
    """Another server over the same database, with other parts."""
    services = replace(world.services, **parts)
    app = create_app(services)
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://mooring.test")
    return replace(world, services=services, app=app, client=client)


@on_sqlite
async def test_the_largest_array_that_a_policy_allows_can_be_submitted(world: World):
    mallory = await world.user("mallory")
    await limit(world, user="mallory", max_array_size=None)
    assert (await submit(world, mallory, array(MAX_TASKS_ASKED))).status_code == 202
