"""Limits at the API: a refusal with all violations, and why something waits."""

from typing import Any

from sqlalchemy import insert, update

from mooring import clock
from mooring.model.tenancy.quotas import Scope
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.tables import policies, projects
from mooring.store.tenancy import quotas
from tests.api.world import World
from tests.store.databases import on_sqlite

pytestmark = on_sqlite
BODY = {"containers": [{"image": "nginx", "resources": {"cpu": "2"}}], "pool": "simulated"}


async def give_policy(world: World, rules: dict[str, Any]) -> None:
    async def work(connection: Connection) -> None:
        id = new_id()
        await connection.execute(insert(policies).values(id=id, name="strict", rules=rules, created_at=clock.now()))
        await connection.execute(update(projects).values(policy_id=id))

    await world.services.database.write(work)


async def test_a_submission_that_a_limit_refuses_gets_412_with_every_violation(world: World):
    ada = await world.user("ada")
    await give_policy(world, {"max_pending": 1, "max_pending_slots": {"cpu": "3"}})
    await world.submit(ada, name="first", **BODY)
    before = await world.counts()
    for path in ("/api/workloads", "/api/workloads/dry-run"):
        answer = await world.client.post(path, json={"name": "second", **BODY}, headers=ada)
        assert answer.status_code == 412
        refused = answer.json()
        assert refused["code"] == "admission-refused"
        found = [
            (v["slot"], v["used"], v["requested"], v["limit"], v["excess"]) for v in refused["details"]["violations"]
        ]
        assert sorted(found) == [("cpu", 2000, 2000, 3000, 1000), ("pending", 1, 1, 1, 1)]
        assert (refused["details"]["project"], refused["details"]["domain"]) == ("default", "default")
    assert await world.counts() == before


async def test_an_explanation_names_the_limit_that_keeps_work_waiting(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")

    async def limit(connection: Connection) -> None:
        found = await quotas.find(connection, Scope.PROJECT, "default")
        await quotas.set_quota(connection, found, quotas.QuotaChange(limits={"cpu": 1000}), clock.now())

    await world.services.database.write(limit)
    received = "needs 2 cpu, limit 1 (project 'default')"
    tried = await world.client.post("/api/workloads/dry-run", json=BODY, headers=ada)
    workload_id = await world.submit(ada, **BODY)
    asked = await world.client.get(f"/api/workloads/{workload_id}/explanation", headers=ada)
    for answer in (tried, asked):
        explained = answer.json()
        assert explained["outcome"] == "waiting"
        assert (explained["reason"]["by"], explained["reason"]["message"]) == ("group_resource_limit", received)
        assert explained["candidates"] == 1
