"""Plans of moves and single moves over HTTP."""

from typing import Any
from uuid import UUID

import pytest

from mooring.clock import now
from mooring.model.lifecycle import TaskStatus as T
from mooring.model.policy.defragmentation import Bound, Gain, Move, Plan, Step
from mooring.store.nodes import defragmentation_plans, pools
from tests.api.world import World

_PLAN = "/api/pools/simulated/defragmentation"


async def running(world: World, headers: dict[str, str], name: str, node: str, gpus: int, **more: Any) -> str:
    resources = {"cpu": "500m", "gpu": gpus}
    containers = [{"image": "nginx", "resources": resources}]
    workload_id = await world.submit(headers, name=name, containers=containers, **more)
    await world.move(workload_id, T.SCHEDULED, T.PREPARING, T.RUNNING, node=node)
    return workload_id


async def fragmented(world: World, **more: Any) -> tuple[dict[str, str], str]:
    """Return an admin and the id of a workload on n1, which has to leave for one that wants the whole node."""
    for name in ("n1", "n2"):
        await world.add_node(name, resources={"cpu": 8, "memory": "16Gi", "gpu": 4})
    ada = await world.user("ada")
    small = await running(world, ada, "small", "n1", 1, **more)
    await running(world, ada, "session", "n2", 1, type="interactive")
    await world.submit(ada, name="large", containers=[{"image": "nginx", "resources": {"cpu": 1, "gpu": 4}}])
    return await world.admin(), small


async def test_a_plan_moves_batch_work_and_says_what_starts(world: World):
    admin, small = await fragmented(world)
    answer = await world.client.post(_PLAN, json={"max_moves": 5}, headers=admin)
    assert answer.status_code == 200
    found = answer.json()
    [step] = found["steps"]
    assert [(move["workload_id"], move["source"], move["target"]) for move in step["moves"]] == [(small, "n1", "n2")]
    assert [(start["workload"], start["node"]) for start in step["starts"]] == [("large", "n1")]
    assert (found["gained"], found["moves"], found["movable"], found["placed"]) == (4, 1, 1, 2)
    assert found["bound"] == pytest.approx(4, abs=0.1)


async def test_work_that_is_not_preemptible_stays(world: World):
    admin, _ = await fragmented(world, preemptible=False)
    assert (await world.client.post(_PLAN, json={}, headers=admin)).json()["movable"] == 0
    allowed = (await world.client.post(_PLAN, json={"interactive": True}, headers=admin)).json()
    assert (allowed["movable"], allowed["gained"]) == (1, 4)


async def test_only_admins_plan_and_input_is_checked(world: World):
    ada = await world.user("eve")
    assert (await world.client.post(_PLAN, json={}, headers=ada)).status_code == 403
    admin = await world.admin()
    for body in ({"max_moves": 0}, {"max_moves": 100_000}, {"gain": "speed"}, {"unknown": 1}):
        assert (await world.client.post(_PLAN, json=body, headers=admin)).status_code == 422
    assert (await world.client.post("/api/pools/none/defragmentation", json={}, headers=admin)).status_code == 404


async def test_a_move_is_refused_once_the_task_left_its_node(world: World):
    admin, _ = await fragmented(world)
    found = (await world.client.post(_PLAN, json={}, headers=admin)).json()
    [move] = found["steps"][0]["moves"]
    body = {"plan": found["id"], "task_id": move["task_id"], "source": "n1", "target": "n2"}
    wrong = await world.client.post(f"{_PLAN}/moves", json={**body, "source": "n2"}, headers=admin)
    assert (wrong.status_code, wrong.json()["code"]) == (409, "plan-departed")
    assert (await world.client.post(f"{_PLAN}/moves", json=body, headers=admin)).status_code == 204
    again = await world.client.post(f"{_PLAN}/moves", json=body, headers=admin)
    assert (again.status_code, again.json()["code"]) == (409, "plan-departed")
    history = (await world.client.get("/api/workloads/small/history", headers=await world.token("ada"))).json()
    assert any(f"from n1 to n2 by admin for plan {found['id']}" in (row["reason"] or "") for row in history["history"])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"preemptible": False}, id="not preemptible"),
        pytest.param({"replicas": 2, "gang": True}, id="gang"),
        pytest.param({}, id="to where it is"),
    ],
)
async def test_no_move_takes_what_no_plan_would(world: World, options: dict[str, Any]):
    admin, small = await fragmented(world, **options)
    tasks = (await world.client.get(f"/api/workloads/{small}", headers=admin)).json()["tasks"]
    target = "n2" if options else "n1"
    for task in tasks:
        body = {"plan": str(UUID(int=1)), "task_id": task["id"], "source": "n1", "target": target}
        answer = await world.client.post(f"{_PLAN}/moves", json=body, headers=admin)
        assert (answer.status_code, answer.json()["code"]) == (409, "plan-departed")
    after = (await world.client.get(f"/api/workloads/{small}", headers=admin)).json()["tasks"]
    assert [task["status"] for task in after] == [task["status"] for task in tasks]


async def test_pending_work_over_its_quota_buys_no_moves(world: World):
    admin, _ = await fragmented(world)
    quota = {"limits": {"gpu": 4}}
    assert (await world.client.put("/api/quotas/user/ada", json=quota, headers=admin)).status_code == 200
    found = (await world.client.post(_PLAN, json={}, headers=admin)).json()
    assert (found["steps"], found["gained"]) == ([], 0)


async def test_everybody_sees_the_budget_of_automatic_moves_and_only_admins_the_moves(world: World):
    admin, small = await fragmented(world)
    ada = await world.token("ada")
    assert (await world.client.get("/api/pools/simulated", headers=ada)).json()["automatic_moves"] is None
    change = {"defragmentation": {"moves_per_hour": 3}}
    assert (await world.client.patch("/api/pools/simulated", json=change, headers=admin)).status_code == 204
    async with world.services.database.read() as connection:
        pool = await pools.by_name(connection, "simulated")
    assert pool is not None
    move = Move(UUID(int=1), UUID(small), "small", UUID(int=2), "n1", UUID(int=3), "n2", {"gpu": 1000}, 5)
    plan = Plan(Gain.GPU, (Step((move,)),), 4, bound=Bound(4.0))
    await world.services.database.write(
        lambda c: defragmentation_plans.insert_plan(c, pool.id, UUID(int=4), plan, now=now(), term=1)
    )
    found = (await world.client.get("/api/pools/simulated", headers=ada)).json()["automatic_moves"]
    assert (found["moves_left"], found["status"], found["planned"], found["bound"]) == (3, "EXECUTING", 1, 4)
    assert "small" not in str(found)
    assert (await world.client.get(_PLAN, headers=ada)).status_code == 403
    [shown] = (await world.client.get(_PLAN, headers=admin)).json()["plans"]
    assert [(each["workload"], each["status"], each["target"]) for each in shown["moves"]] == [
        ("small", "PLANNED", "n2")
    ]
    assert (await world.client.get("/api/pools/none/defragmentation", headers=admin)).status_code == 404
