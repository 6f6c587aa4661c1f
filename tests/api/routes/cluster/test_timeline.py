"""Start times and the timeline, for every user."""

from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import Update, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.services.queries import queries as queries_module
from mooring.store.tables import workloads
from tests.api.world import World
from tests.store.databases import on_sqlite

CONTAINERS = [{"image": "a", "resources": {"cpu": 8}}]


async def test_a_pending_workload_shows_its_position_planned_start_and_backoff(world: World):
    ada, ben = await world.user("ada"), await world.user("ben")
    await world.submit(ben, name="theirs", priority=50)
    first = await world.submit(ada, name="first")
    at = (now() + timedelta(hours=1)).replace(microsecond=0)
    await world.submit(ada, name="later", starts_at=at.isoformat())
    planned = update(workloads).where(workloads.c.name == "first").values(planned_start_at=at)
    await world.services.database.write(lambda c: c.execute(planned))
    listed = (await world.client.get("/api/workloads", headers=ada)).json()["workloads"]
    starts = {each["name"]: each["start"] for each in listed}
    assert (starts["first"]["position"], starts["later"]["position"]) == (2, 3)
    assert starts["first"]["planned_at"].startswith(at.isoformat()[:19])
    assert (starts["first"]["not_before"], starts["later"]["not_before"][:19]) == (None, at.isoformat()[:19])
    one = (await world.client.get(f"/api/workloads/{first}", headers=ada)).json()
    assert one["start"] == starts["first"]
    await world.add_node("n1")
    await world.move(first, TaskStatus.SCHEDULED)
    assert (await world.client.get(f"/api/workloads/{first}", headers=ada)).json()["start"] is None


async def _execute(statement: Update, connection: AsyncConnection) -> None:
    await connection.execute(statement)


@on_sqlite
async def test_an_estimated_start_is_shown_if_it_is_ahead_and_there_is_no_planned_start(world: World):
    ada = await world.user("ada")
    at = (now() + timedelta(hours=1)).replace(microsecond=0)
    quota = {"code": "project-quota-exceeded", "message": "no", "by": "quota", "cure": "release"}
    cases: dict[str, dict[str, object]] = {
        "estimated": {"estimated_start_at": at},
        "planned": {"estimated_start_at": at, "planned_start_at": at},
        "past": {"estimated_start_at": at - timedelta(hours=2)},
        "quota": {"estimated_start_at": at, "reason": quota},
    }
    for name, values in cases.items():
        await world.submit(ada, name=name)
        stored = update(workloads).where(workloads.c.name == name).values(**values)
        await world.services.database.write(partial(_execute, stored))
    listed = (await world.client.get("/api/workloads", headers=ada)).json()["workloads"]
    received = {each["name"]: each["start"]["estimated_at"] for each in listed}
    assert (received.pop("estimated") or "")[:19] == at.isoformat()[:19]
    assert received == {"planned": None, "past": None, "quota": None}


@on_sqlite
async def test_an_explanation_estimates_the_start_of_work_behind_others(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")
    running = await world.submit(ada, name="running", containers=CONTAINERS, time=3600)
    await world.move(running, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    for name in ("second", "third"):
        await world.submit(ada, name=name, containers=CONTAINERS, time=7200)
    await world.submit(ada, name="endless", containers=CONTAINERS)
    await world.submit(ada, name="never", containers=CONTAINERS, time=60)

    async def hours(name: str) -> float | None:
        answer = await world.client.get(f"/api/workloads/{name}/explanation", headers=ada)
        received = answer.json()["estimated_start"]
        return None if received is None else round((datetime.fromisoformat(received) - now()).total_seconds() / 3600, 1)

    assert [await hours(name) for name in ("second", "third", "endless")] == [1.0, 3.0, 5.0]
    # Behind work without an end there is no time that anybody could name.
    assert await hours("never") is None


@on_sqlite
async def test_with_too_many_ahead_an_explanation_gives_the_stored_estimate(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queries_module, "MOST_AHEAD", 1)
    ada = await world.user("ada")
    await world.add_node("n1")
    running = await world.submit(ada, name="running", containers=CONTAINERS, time=3600)
    await world.move(running, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    for name in ("second", "third", "fourth"):
        await world.submit(ada, name=name, containers=CONTAINERS, time=7200)
    at = (now() + timedelta(hours=7)).replace(microsecond=0)
    stored = update(workloads).values(estimated_start_at=at)
    await world.services.database.write(partial(_execute, stored))

    async def received(name: str) -> tuple[str, bool]:
        answer = (await world.client.get(f"/api/workloads/{name}/explanation", headers=ada)).json()
        return answer["estimated_start"][:19], answer["estimate_is_stored"]

    assert await received("fourth") == (at.isoformat()[:19], True)
    estimate, is_stored = await received("third")
    assert not is_stored
    assert estimate < at.isoformat()[:19]


@on_sqlite
async def test_the_timeline_has_steps_by_pool_or_by_node(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")
    await world.add_node("n2")
    running = await world.submit(ada, name="running", containers=CONTAINERS, time=2 * 3600)
    await world.move(running, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    query = {"pool": "simulated", "hours": "4", "steps": "4"}
    found = (await world.client.get("/api/timeline", params=query, headers=ada)).json()
    [pool] = found["outlooks"]
    [cpu] = [slot for slot in pool["slots"] if slot["slot"] == "cpu"]
    assert (found["steps"], found["step_seconds"], pool["nodes"], cpu["capacity"]) == (4, 3600, 2, 16000)
    assert cpu["running"] == [8000, 8000, 8000, 0]
    assert cpu["free"] == [8000, 8000, 8000, 16000]
    by_node = (await world.client.get("/api/timeline", params=query | {"nodes": "true"}, headers=ada)).json()
    free = {each["node"]: each["slots"][0]["free"][0] for each in by_node["outlooks"]}
    assert free == {"n1": 0, "n2": 8000}
    # A planned start takes its part of the nodes that are planned for it.
    await world.submit(ada, name="planned", containers=CONTAINERS, time=3600)
    values = {"planned_start_at": now() + timedelta(hours=2.5), "planned_nodes": {"n2": 1}}
    stored = update(workloads).where(workloads.c.name == "planned").values(**values)
    await world.services.database.write(partial(_execute, stored))
    by_node = (await world.client.get("/api/timeline", params=query | {"nodes": "true"}, headers=ada)).json()
    slots = {each["node"]: each["slots"][0] for each in by_node["outlooks"]}
    assert (slots["n1"]["planned"], slots["n2"]["planned"]) == ([0, 0, 0, 0], [0, 0, 8000, 8000])
    assert slots["n2"]["free"] == [8000, 8000, 0, 0]
    assert (await world.client.get("/api/timeline?pool=nowhere", headers=ada)).status_code == 404
    assert (await world.client.get("/api/timeline?hours=9999", headers=ada)).status_code == 422
    assert (await world.client.get("/api/timeline")).status_code == 401


@on_sqlite
async def test_work_that_starts_soon_is_listed_in_the_order_of_its_starts(world: World):
    ada = await world.user("ada")
    starts: dict[str, dict[str, object]] = {
        "late": {"planned_start_at": now() + timedelta(hours=2)},
        "soon": {"estimated_start_at": now() + timedelta(hours=1)},
        "past": {"estimated_start_at": now() - timedelta(hours=1)},
        "unknown": {},
    }
    for name, values in starts.items():
        await world.submit(ada, name=name)
        if values:
            stored = update(workloads).where(workloads.c.name == name).values(**values)
            await world.services.database.write(partial(_execute, stored))
    query = {"starting": "true", "sort": "start"}
    found = (await world.client.get("/api/workloads", params=query, headers=ada)).json()
    assert ([each["name"] for each in found["workloads"]], found["total"]) == (["soon", "late"], 2)


@on_sqlite
async def test_a_list_without_positions_has_the_starts(world: World):
    ada = await world.user("ada")
    await world.submit(ada, name="waiting")
    for asked, position in (("true", 1), ("false", None)):
        found = (await world.client.get("/api/workloads", params={"positions": asked}, headers=ada)).json()
        [workload] = found["workloads"]
        assert (workload["start"]["position"], workload["start"]["waits_for"]) == (position, "room")


async def test_positions_follow_the_sequencer_of_the_pool(world: World):
    ada, ben, admin = await world.user("ada"), await world.user("ben"), await world.admin()
    for name, user in (("a1", ada), ("a2", ada), ("b1", ben)):
        await world.submit(user, name=name)
    positions = {"fifo": [1, 2, 3], "lifo": [3, 2, 1], "fair_queue": [1, 3, 2]}
    for sequencer, expected in positions.items():
        changed = await world.client.patch("/api/pools/simulated", json={"sequencer": sequencer}, headers=admin)
        assert changed.status_code == 204
        query = {"everyone": "true", "sort": "name"}
        found = (await world.client.get("/api/workloads", params=query, headers=admin)).json()["workloads"]
        assert [each["start"]["position"] for each in found] == expected
