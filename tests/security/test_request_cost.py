"""The work that one small request causes is bounded, and the expensive part of it leaves the event loop free.

The tests count steps and sizes, and look at threads; none of them measures time.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from types import ModuleType
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import func, select

from mooring import clock
from mooring.api.routes.workloads import batches
from mooring.api.routes.workloads import timeslots as timeslot_routes
from mooring.model.errors import InvalidInput
from mooring.model.tenancy.policies import NO_POLICY
from mooring.model.workloads.dependencies import Condition
from mooring.services.bookings import booking_limits, bookings
from mooring.services.queries import queries as queries_module
from mooring.services.queries import timeline
from mooring.services.submission import submission, translation
from mooring.services.submission.dependencies import cycles, dependents_of_refused
from mooring.store.commit import transitions
from mooring.store.core import ids
from mooring.store.tables import tasks
from mooring.store.tenancy import keypairs
from mooring.store.views import timeslots as timeslot_views
from mooring.store.workloads import new_workloads, volumes
from mooring.store.workloads.new_workloads import NewWorkload
from tests.api.world import World
from tests.services.submission.test_translation import translated
from tests.store.databases import on_sqlite

START = (clock.now() + timedelta(days=30)).replace(microsecond=0)
CONTAINERS = [{"image": "nginx", "resources": {"cpu": "500m"}}]
LARGE_PLACEMENT = {
    "node_affinity": [
        {"match": [{"key": f"k{n}", "operator": "In", "values": [f"v{m}" for m in range(32)]} for n in range(32)]}
    ]
}


class Threads:
    """Records the threads that run functions of modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.seen: dict[str, set[threading.Thread]] = {}

    def watch(self, module: ModuleType, name: str) -> None:
        function = getattr(module, name)

        def recorded(*arguments: Any, **named: Any) -> Any:
            self.seen.setdefault(name, set()).add(threading.current_thread())
            return function(*arguments, **named)

        self._monkeypatch.setattr(module, name, recorded)

    def off_loop(self) -> set[str]:
        """The functions that ran, and never on the thread of the event loop."""
        return {name for name, threads in self.seen.items() if threading.current_thread() not in threads}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


@on_sqlite
@pytest.mark.parametrize("frequency", ["DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
async def test_a_rule_without_an_occurrence_is_refused_off_the_event_loop(
    world: World, threads: Threads, frequency: str
):
    threads.watch(bookings, "occurrences")
    rule = f"FREQ={frequency};COUNT=1;BYMONTH=2;BYMONTHDAY=30"
    answer = await world.client.post("/api/timeslots", json=booking(rule=rule), headers=await world.user("mallory"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-rule")
    assert "no occurrence" in answer.json()["message"]
    assert threads.off_loop() == {"occurrences"}


@on_sqlite
async def test_a_series_does_not_multiply_a_large_placement(world: World):
    mallory = await world.user("mallory")
    body = booking(rule="FREQ=DAILY;COUNT=500", placement=LARGE_PLACEMENT)
    answer = await world.client.post("/api/timeslots", json=body, headers=mallory)
    assert (answer.status_code, answer.json()["code"]) == (422, "series-too-large")
    assert answer.json()["details"]["limit_bytes"] == 1024 * 1024
    once = await world.client.post("/api/timeslots", json=booking(placement=LARGE_PLACEMENT), headers=mallory)
    assert once.status_code == 202


@on_sqlite
async def test_users_without_a_policy_have_a_limit_on_timeslots(world: World, monkeypatch: pytest.MonkeyPatch):
    mallory = await world.user("mallory")
    assert NO_POLICY.max_bookings
    monkeypatch.setattr(booking_limits, "policy_for", AsyncMock(return_value=replace(NO_POLICY, max_bookings=6)))
    body = booking(rule="FREQ=DAILY;COUNT=4")
    assert (await world.client.post("/api/timeslots", json=body, headers=mallory)).status_code == 202
    refused = await world.client.post("/api/timeslots", json=body, headers=mallory)
    assert (refused.status_code, refused.json()["code"]) == (422, "too-many-bookings")
    assert refused.json()["details"] == {"limit": 6, "live": 4, "requested": 4}


@on_sqlite
async def test_a_calendar_is_written_off_the_event_loop(world: World, threads: Threads):
    mallory = await world.user("mallory")
    await world.client.post("/api/timeslots", json=booking(), headers=mallory)
    threads.watch(timeslot_routes, "calendar_of")
    assert (await world.client.get("/api/timeslots.ics", headers=mallory)).text.count("BEGIN:VEVENT") == 1
    assert threads.off_loop() == {"calendar_of"}


async def test_a_long_calendar_is_read_in_parts(world: World, monkeypatch: pytest.MonkeyPatch):
    mallory, named, sizes = await world.user("mallory"), timeslot_views._named, []

    async def counted(connection: Any, rows: Sequence[Any]) -> Any:
        sizes.append(len(rows))
        return await named(connection, rows)

    await world.client.post("/api/timeslots", json=booking(rule="FREQ=DAILY;COUNT=5"), headers=mallory)
    assert timeslot_views._AT_ONCE <= 1000
    monkeypatch.setattr(timeslot_views, "_AT_ONCE", 2)
    monkeypatch.setattr(timeslot_views, "_named", counted)
    calendar = (await world.client.get("/api/timeslots.ics", headers=mallory)).text
    starts = [line for line in calendar.splitlines() if line.startswith("DTSTART")]
    assert (len(starts), starts) == (5, sorted(set(starts)))
    assert sizes == [2, 2, 1]


@on_sqlite
async def test_a_batch_is_parsed_translated_and_hashed_off_the_event_loop(world: World, threads: Threads):
    threads.watch(batches, "_parsed")
    for name in ("read_batch", "translate_batch", "hash_of"):
        threads.watch(submission, name)
    body = {"workloads": [{"containers": CONTAINERS}] * 3, "idempotency_key": "k"}
    answer = await world.client.post("/api/workloads/batch", json=body, headers=await world.user("mallory"))
    assert answer.json()["accepted"] == 3
    assert threads.off_loop() == {"_parsed", "read_batch", "translate_batch", "hash_of"}


async def test_many_tasks_are_written_and_cancelled_off_the_event_loop(world: World, threads: Threads):
    mallory = await world.user("mallory")
    threads.watch(new_workloads, "_submission")
    threads.watch(transitions, "plan")
    name = await world.submit(mallory, replicas=1000)
    assert (await world.client.delete(f"/api/workloads/{name}?keep=true", headers=mallory)).status_code == 202
    assert threads.off_loop() == {"_submission", "plan"}


async def test_an_array_is_written_and_cancelled_as_one_row(world: World):
    mallory = await world.user("mallory")
    name = await world.submit(mallory, array="0-9999")
    assert await _number_of_tasks(world) == 0
    assert (await world.client.delete(f"/api/workloads/{name}?keep=true", headers=mallory)).status_code == 202
    assert await _number_of_tasks(world) == 0
    shown = (await world.client.get(f"/api/workloads/{name}", headers=mallory)).json()
    assert (shown["status"], shown["counts"]) == ("CANCELLED", {"CANCELLED": 10_000})


async def _number_of_tasks(world: World) -> int:
    async with world.services.database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(tasks))).scalar_one())


@on_sqlite
@pytest.mark.parametrize("path", ["/api/workloads", "/api/workloads/dry-run", "/api/workloads/batch"])
async def test_an_array_that_is_refused_makes_no_task(world: World, monkeypatch: pytest.MonkeyPatch, path: str):
    made = []

    def counted() -> Any:
        made.append(ids.new_id())
        return made[-1]

    monkeypatch.setattr(translation, "new_id", counted)
    one = {"containers": CONTAINERS, "array": "0-99999"}
    body = {"workloads": [one]} if path.endswith("batch") else one
    answer = await world.client.post(path, json=body, headers=await world.user("mallory"))
    assert answer.json()["code"] in ("array-too-large", "batch-too-large")
    assert len(made) <= 1


@on_sqlite
async def test_a_dry_run_lists_a_bounded_number_of_tasks(world: World, threads: Threads):
    threads.watch(queries_module, "_tried")
    body = {"containers": CONTAINERS, "array": "0-2999"}
    answer = await world.client.post("/api/workloads/dry-run", json=body, headers=await world.user("mallory"))
    assert len(answer.json()["tasks"]) == 1000
    assert threads.off_loop() == {"_tried"}


@on_sqlite
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps({f"f{n}": 1 for n in range(20_000)}), id="fields"),
        pytest.param(
            json.dumps({"containers": CONTAINERS, "labels": {f"-{n}": 1 for n in range(15_000)}}), id="labels"
        ),
        pytest.param(
            json.dumps({"containers": [{"image": "a", "environment": {f"-{n}": 1 for n in range(15_000)}}]}),
            id="environment",
        ),
        pytest.param(json.dumps({"containers": [{}] * 60_000}), id="containers"),
        pytest.param(json.dumps({"containers": [{"image": "a", "command": [1] * 80_000}]}), id="command"),
    ],
)
async def test_a_request_of_very_many_names_is_refused_without_a_look_at_each(world: World, content: str):
    headers = {**await world.user("mallory"), "content-type": "application/json"}
    answer = await world.client.post("/api/workloads", content=content, headers=headers)
    assert answer.status_code == 422
    assert 1 <= len(answer.json()["details"]["errors"]) <= 2
    assert "at most" in answer.text
    assert "more)" not in answer.json()["message"] or "(and 1 more)" in answer.json()["message"]


@on_sqlite
async def test_the_answer_to_a_batch_names_a_few_problems_of_each_workload(world: World):
    wrong = {"containers": CONTAINERS, **{f"f{n}": 1 for n in range(250)}}
    answer = await world.client.post(
        "/api/workloads/batch", json={"workloads": [wrong] * 20}, headers=await world.user("mallory")
    )
    errors = [each["error"] for each in answer.json()["workloads"]]
    assert len(errors) == 20
    assert all(len(error["details"]["errors"]) == 3 and "(and 249 more)" in error["message"] for error in errors)


@on_sqlite
@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{"a":' * 40_000 + "1" + "}" * 40_000, id="deep objects"),
        pytest.param("[" * 250_000, id="deep lists"),
        pytest.param('{"replicas": ' + "9" * 250_000 + "}", id="a long number"),
    ],
)
@pytest.mark.parametrize("path", ["/api/workloads", "/api/workloads/batch", "/api/timeslots"])
async def test_json_that_is_too_deep_or_too_long_is_refused(world: World, path: str, content: str):
    headers = {**await world.user("mallory"), "content-type": "application/json"}
    answer = await world.client.post(path, content=content, headers=headers)
    assert answer.status_code in (400, 422)


@on_sqlite
@pytest.mark.parametrize("written", ["9" * 60, "9" * 250_000, "1e99", "1e999999", "1e-999999", "0." + "0" * 60 + "1"])
async def test_an_amount_that_no_slot_can_hold_is_refused(world: World, written: str):
    body = {"containers": [{"image": "a", "resources": {"cpu": written}}]}
    answer = await world.client.post("/api/workloads", json=body, headers=await world.user("mallory"))
    assert answer.status_code in (413, 422)


@on_sqlite
@pytest.mark.parametrize(
    ("path", "module", "name", "code"),
    [
        ("/api/keypairs", keypairs, "MAX_PER_USER", "too-many-keypairs"),
        ("/api/volumes", volumes, "MAX_PER_PROJECT", "too-many-volumes"),
    ],
)
async def test_lists_that_a_user_can_fill_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch, path: str, module: ModuleType, name: str, code: str
):
    monkeypatch.setattr(module, name, 2)
    mallory, eve = await world.user("mallory"), await world.user("eve")
    bodies = [{"name": f"n{number}", **({"size": "1"} if path == "/api/volumes" else {})} for number in range(3)]
    answers = [await world.client.post(path, json=body, headers=mallory) for body in bodies]
    assert [answer.status_code for answer in answers] == [201, 201, 409]
    assert (answers[-1].json()["code"], answers[-1].json()["details"]) == (code, {"limit": 2, "present": 2})
    if path == "/api/keypairs":
        assert (await world.client.post(path, json=bodies[0], headers=eve)).status_code == 201


def test_a_timeline_has_a_bounded_number_of_points():
    timeline.check_size(100, 500)
    with pytest.raises(InvalidInput, match="at most 50 steps") as refused:
        timeline.check_size(1000, 500)
    assert refused.value.code == "timeline-too-large"


class Counted(tuple[Any, ...]):
    """Dependencies that count how often they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.passes += 1
        return super().__iter__()


def chain(number: int, *, length: int) -> list[NewWorkload]:
    """Groups of workloads in a row, of which each depends on the next and the last on the first."""
    one = translated()
    new = [replace(one, id=ids.new_id()) for _ in range(number)]

    def after(place: int) -> NewWorkload:
        start = place - place % length
        return new[start + (place - start + 1) % length]

    return [
        replace(each, schedule=replace(each.schedule, dependencies=Counted([(after(place).id, Condition.AFTER_OK)])))
        for place, each in enumerate(new)
    ]


@pytest.mark.parametrize("length", [2, 1000])
def test_circles_of_a_batch_are_found_in_one_pass(length: int):
    new = chain(1000, length=length)
    Counted.passes = 0
    found = cycles(new)
    assert sorted(map(len, found)) == [length] * (1000 // length)
    assert {each.id for circle in found for each in circle} == {each.id for each in new}
    assert Counted.passes <= len(new)


def test_dependents_of_a_refused_workload_are_found_in_one_pass():
    new = chain(1000, length=1000)
    Counted.passes = 0
    assert dependents_of_refused(new[:-1], [new[-1].id]).keys() == {each.id for each in new[:-1]}
    assert Counted.passes <= len(new)


def booking(**more: Any) -> dict[str, Any]:
    return {"start": START.isoformat(), "duration": "1h", "resources": {"cpu": 1}, **more}
