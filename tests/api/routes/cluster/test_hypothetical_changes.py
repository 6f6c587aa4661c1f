"""Hypothetical questions over HTTP: bounded, and answered by what the caller may see."""

from typing import Any

from tests.api.world import World
from tests.store.databases import on_sqlite


async def ask(world: World, headers: dict[str, str], **request: Any) -> tuple[int, dict[str, Any]]:
    answer = await world.client.post("/api/what-if", json=request, headers=headers)
    return answer.status_code, answer.json()


@on_sqlite
async def test_answer_compares_starts_with_and_without_the_change(world: World):
    await world.add_node("n1", resources={"cpu": 1, "memory": "16Gi", "storage": "1Ti"})
    ada = await world.user("ada")
    containers = [{"image": "nginx", "resources": {"cpu": 1}}]
    first = await world.submit(ada, name="first", containers=containers, priority=20)
    second = await world.submit(ada, name="second", containers=containers, priority=10)
    status, answer = await ask(world, ada, add_nodes=[{"like": "n1", "count": 1}], workloads=["second"])
    assert status == 200, answer
    by_id = {each["id"]: each for each in answer["workloads"]}
    assert by_id[first]["start"] is not None
    assert by_id[second]["start"] is None
    assert by_id[second]["changed_start"] is not None
    assert (answer["earlier"], answer["without"]["workloads"]) == (1, 2)
    # The work of others is no part of the answer, and cannot be asked about.
    eve = await world.user("eve")
    status, answer = await ask(world, eve, add_nodes=[{"like": "n1"}])
    assert (status, answer["workloads"], answer["without"]["workloads"]) == (200, [], 0)
    assert (await ask(world, eve, cancel=[first]))[0] == 404
    assert (await ask(world, eve, workloads=[first]))[0] == 404


@on_sqlite
async def test_tenants_ask_neither_about_others_nor_about_policies(world: World):
    await world.add_node("n1")
    ada = await world.user("ada")
    for question in (
        {"fail_nodes": {"names": ["n1"]}},
        {"remove_nodes": {"names": ["n1"]}},
        {"pools": {"simulated": {"profile": "pack"}}},
        {"everyone": True},
    ):
        assert (await ask(world, ada, **question))[0] == 403, question
    assert (await world.client.post("/api/what-if", json={})).status_code == 401


@on_sqlite
async def test_questions_are_bounded(world: World):
    admin = await world.admin()
    for question in (
        {"add_nodes": [{"like": "n1", "count": 100_000}]},
        {"seconds": 10**9},
        {"limit": 10**6},
        {"pools": {"default": {"no_such": 1}}},
        {"no_such": 1},
        {"cancel": ["w"] * 101},
    ):
        assert (await ask(world, admin, **question))[0] == 422, question
