"""Many workloads in one request, and requests that may be repeated."""

import asyncio
from typing import Any

from tests.api.middleware.load_shedding.test_rates import limited
from tests.api.world import World
from tests.store.databases import on_sqlite

PATH = "/api/workloads/batch"
Headers = dict[str, str]


def workload(name: str | None, **more: Any) -> dict[str, Any]:
    return {"name": name, "containers": [{"image": "nginx", "resources": {"cpu": "100m"}}], **more}


async def submit(world: World, headers: Headers, *workloads: Any, status: int = 202, **more: Any) -> dict[str, Any]:
    answer = await world.client.post(PATH, json={"workloads": workloads, **more}, headers=headers)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_each_is_accepted_or_refused_by_itself(world: World):
    ada = await world.user("ada")
    await world.submit(ada, name="there")
    answer = await submit(
        world,
        ada,
        workload("one"),
        workload("there"),
        workload("web", kind="deployment", replicas=3),
        workload("one"),
        workload("Not a name"),
        workload("nowhere", pool="nowhere"),
        "no workload at all",
        workload(None),
    )
    assert (answer["accepted"], answer["refused"]) == (3, 5)
    codes = [item["error"] and item["error"]["code"] for item in answer["workloads"]]
    assert codes == [None, "name-taken", None, "name-taken", "invalid-input", "unknown-pool", "invalid-input", None]
    assert answer["workloads"][4]["error"]["details"]["errors"][0]["field"] == "name"
    counts = await world.counts()
    assert (counts["workloads"], counts["tasks"]) == (4, 6)
    found = await world.client.get(f"/api/workloads/{answer['workloads'][2]['id']}", headers=ada)
    assert (found.json()["name"], len(found.json()["tasks"])) == ("web", 3)


async def test_the_same_key_gets_the_same_answer_and_doubles_nothing(world: World):
    ada = await world.user("ada")
    named = {**ada, "Idempotency-Key": "once"}
    first = await submit(world, named, workload("one"), workload(None), workload("Not a name"))
    before = await world.counts()
    assert await submit(world, named, workload("one"), workload(None), workload("Not a name")) == first
    # In a field of the body it is the same key, and the order of fields says nothing.
    again = [dict(reversed(one.items())) for one in (workload("one"), workload(None), workload("Not a name"))]
    assert await submit(world, ada, *again, idempotency_key="once") == first
    another = await submit(world, named, workload("two"), status=409)
    assert another["code"] == "idempotency-key-reused"
    assert await world.counts() == before
    # Keys are a user's own.
    theirs = await submit(world, {**await world.user("bob"), "Idempotency-Key": "once"}, workload("one"))
    assert theirs["accepted"] == 1


async def test_simultaneous_requests_with_one_idempotency_key_run_once(world: World):
    named = {**await world.user("ada"), "Idempotency-Key": "once"}
    answers = await asyncio.gather(*(submit(world, named, workload(None), workload("web")) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    assert (await world.counts())["workloads"] == 2


async def test_a_single_submission_has_keys_too(world: World):
    ada = await world.user("ada")
    named = {**ada, "Idempotency-Key": "once"}
    first = await world.client.post("/api/workloads", json=workload(None), headers=named)
    again = await world.client.post("/api/workloads", json=workload(None), headers=named)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert first.headers["Location"] == again.headers["Location"]
    for refused in (
        await world.client.post("/api/workloads", json=workload("other"), headers=named),
        await world.client.post(PATH, json={"workloads": [workload(None)]}, headers=named),
    ):
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency-key-reused")
    # What was refused changed nothing, so its key is still free.
    taken = {**ada, "Idempotency-Key": "second"}
    name = first.json()["name"]
    assert (await world.client.post("/api/workloads", json=workload(name), headers=taken)).status_code == 409
    assert (await world.client.post("/api/workloads", json=workload("new"), headers=taken)).status_code == 202


@on_sqlite
async def test_a_thousand_are_taken_and_one_more_is_refused(world: World):
    ada = await world.user("ada")
    # Larger than the body of any other request may be.
    container = {"image": "nginx", "environment": {"PURPOSE": "x" * 300}}
    thousand = [workload(f"w{number}", containers=[container]) for number in range(1000)]
    before = await world.counts()
    refused = await submit(world, ada, *thousand, workload("last"), status=422)
    assert refused["details"]["errors"][0]["field"] == "workloads"
    assert await world.counts() == before
    assert (await submit(world, ada, *thousand))["accepted"] == 1000


@on_sqlite
async def test_an_invalid_batch_is_refused_and_writes_nothing(world: World):
    ada = await world.user("ada")
    before = await world.counts()
    for body, status in (
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        (b'{"workloads": []}', 422),
        (b'{"workloads": 1}', 422),
        (b'{"workloads": [{}], "more": 1}', 422),
        (b'{"workloads": [{}], "idempotency_key": "with space"}', 422),
        (b'{"workloads": [' + b" " * (8 << 20) + b"]}", 413),
    ):
        answer = await world.client.post(PATH, content=body, headers=ada)
        assert (body[:60], answer.status_code) == (body[:60], status)
    two_keys = {"workloads": [workload("w")], "idempotency_key": "one"}
    answer = await world.client.post(PATH, json=two_keys, headers={**ada, "Idempotency-Key": "two"})
    assert answer.status_code == 422
    assert (await world.client.post(PATH, json={"workloads": [workload("w")]})).status_code == 401
    assert await world.counts() == before


@on_sqlite
async def test_a_batch_counts_for_a_tenth_of_a_request_per_workload(world: World):
    ada = await world.user("ada")
    limited(world, requests=5)
    await submit(world, ada, *(workload(f"a{number}") for number in range(80)))
    refused = await submit(world, ada, *(workload(f"b{number}") for number in range(80)), status=429)
    assert refused["code"] == "too-many-requests"
    assert (await submit(world, ada, workload("last"), status=429))["details"]["retry_after_seconds"] == 1
