"""When work starts, and what the time ahead holds, as everybody may ask."""

from datetime import datetime, timedelta

from sqlalchemy import update

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import workloads
from tests.api.world import World
from tests.store.databases import on_sqlite

CONTAINERS = [{"image": "a", "resources": {"cpu": 8}}]


async def test_what_waits_says_its_place_its_planned_start_and_until_when_it_is_not_tried(world: World):
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


@on_sqlite
async def test_an_explanation_estimates_the_start_of_what_is_behind_others(world: World):
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
        told = answer.json()["estimated_start"]
        return None if told is None else round((datetime.fromisoformat(told) - now()).total_seconds() / 3600, 1)

    assert [await hours(name) for name in ("second", "third", "endless")] == [1.0, 3.0, 5.0]
    # Behind work without an end there is no time that anybody could name.
    assert await hours("never") is None


@on_sqlite
async def test_the_time_ahead_is_told_in_steps_by_pool_or_by_node(world: World):
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
    assert (await world.client.get("/api/timeline?pool=nowhere", headers=ada)).status_code == 404
    assert (await world.client.get("/api/timeline?hours=9999", headers=ada)).status_code == 422
    assert (await world.client.get("/api/timeline")).status_code == 401
