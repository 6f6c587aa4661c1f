"""Labs at the API: a workload and its timeslot, written together, with the state that both make."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from mooring import clock
from mooring.model.calendar.timeslots import TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import tasks, timeslots, workloads
from tests.api.routes.workloads.test_timeslots import (
    HOUR,
    START,
    at,
    book,
    listed,
    move,
)
from tests.api.world import World
from tests.store.databases import on_sqlite

S, T = TimeslotStatus, TaskStatus


def asked(**more: Any) -> dict[str, Any]:
    workload = {
        "name": "lab7",
        "type": "interactive",
        "replicas": 2,
        "containers": [{"image": "net", "resources": {"cpu": 1, "memory": "1Gi"}}],
        "pool": "simulated",
        "placement": {"ports": 2},
    }
    return {"start": START.isoformat(), "duration": "2h", "lead": "10m", "workload": workload} | more


async def create(world: World, headers: dict[str, str], **more: Any) -> dict[str, str]:
    answer = await world.client.post("/api/labs", json=asked(**more), headers=headers)
    assert answer.status_code == 202, answer.text
    found: dict[str, str] = answer.json()
    return found


async def test_a_lab_reserves_exactly_the_requests_of_its_tasks(world: World):
    await world.add_node("n1")
    ann = await world.user("ann")
    made = await create(world, ann)
    lab = (await world.client.get("/api/labs/lab7", headers=ann)).json()
    assert (lab["state"], lab["timeslot"]["id"], lab["workload"]["id"]) == (
        "pending",
        made["timeslot"],
        made["workload"],
    )
    slot = lab["timeslot"]
    assert (slot["kind"], slot["name"], slot["pool"]) == ("lab", "lab7", "simulated")
    assert (slot["resources"], slot["count"], slot["lead_seconds"]) == ({"cpu": "1", "memory": "1Gi"}, 2, 600)
    assert (at(slot["start"]), at(slot["end"])) == (START, START + 2 * HOUR)
    shown = (await world.client.get(f"/api/workloads/{made['workload']}", headers=ann)).json()
    assert shown["booking"] == made["timeslot"]
    # What runs in a timeslot is not tried before its lead begins.
    assert at(shown["start"]["not_before"]) == START - timedelta(minutes=10)


@on_sqlite
async def test_the_state_and_the_ports_of_a_lab_follow_its_work(world: World):
    await world.add_node("n1")
    ann = await world.user("ann")
    made = await create(world, ann)
    slot, workload = made["timeslot"], made["workload"]

    async def state() -> str:
        found: str = (await world.client.get(f"/api/labs/{slot}", headers=ann)).json()["state"]
        return found

    await move(world, slot, S.CONFIRMED)
    assert await state() == "scheduled"
    await move(world, slot, S.ACTIVE)
    assert await state() == "instantiating"
    for index in (0, 1):
        await world.move(workload, T.SCHEDULED, T.RUNNING, index=index)
    assert await state() == "ready"
    given = update(tasks).where(tasks.c.workload_id == UUID(workload)).values(ports=[["TCP", 30001], ["TCP", 30002]])
    begun = update(timeslots).where(timeslots.c.id == UUID(slot)).values(starts_at=clock.now() - timedelta(minutes=1))
    await world.services.database.write(lambda c: c.execute(given))
    await world.services.database.write(lambda c: c.execute(begun))
    [lab] = (await world.client.get("/api/labs", headers=ann)).json()["labs"]
    assert (lab["state"], lab["ports"]) == ("running", {"0": [30001, 30002], "1": [30001, 30002]})
    await move(world, slot, S.ENDED)
    assert await state() == "stopping"
    for index in (0, 1):
        await world.move(workload, T.TERMINATING, T.CANCELLED, index=index)
    assert await state() == "stopped"


@on_sqlite
async def test_a_lab_that_is_refused_leaves_neither_timeslot_nor_workload(world: World):
    ann = await world.user("ann")
    await create(world, ann)
    policy = {"name": "few", "rules": {"max_bookings": 1}}
    admin = await world.admin()
    await world.client.post("/api/policies", json=policy, headers=admin)
    await world.client.patch("/api/users/ann", json={"policy": "few"}, headers=admin)
    before = await world.counts()
    named = asked()["workload"] | {"name": "other"}
    for body, status, code in (
        (asked(), 409, "name-taken"),
        (asked(workload=named), 422, "too-many-bookings"),
        (asked(duration=None), 422, "invalid-window"),
        (asked(start="2020-01-01T00:00:00Z"), 422, "window-past"),
        (asked(workload=named | {"starts_at": START.isoformat()}), 422, "invalid-lab"),
        (asked(workload=named | {"containers": [{"image": "net"}]}), 422, "nothing-to-book"),
    ):
        answer = await world.client.post("/api/labs", json=body, headers=ann)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await world.counts() == before


@on_sqlite
async def test_removing_a_lab_releases_its_reservation(world: World):
    ann, ben = await world.user("ann"), await world.user("ben")
    made = await create(world, ann)
    await book(world, ann, name="no-lab")
    assert (await world.client.delete("/api/labs/no-lab", headers=ann)).status_code == 404
    assert (await world.client.delete(f"/api/labs/{made['timeslot']}", headers=ben)).status_code == 404
    answer = await world.client.delete("/api/labs/lab7", headers=ann)
    assert (answer.status_code, answer.json()["cancelled"]) == (202, [made["timeslot"]])
    assert (await world.client.get("/api/labs/lab7", headers=ann)).json()["state"] == "terminated"
    assert (await world.client.get("/api/labs", headers=ben)).json()["labs"] == []


@on_sqlite
async def test_work_runs_in_a_booking_only_for_users_who_may_use_it(world: World):
    ann = await world.user("ann", project="vision")
    people = {
        "ann": ann,
        "ben": await world.user("ben", project="speech"),
        "cid": await world.user("cid", project="robots"),
        "dot": await world.user("dot", project="speech"),
        "admin": await world.admin(),
    }
    ref = await book(world, ann, pool="simulated", users=["ben"], projects=["robots"])
    codes = {}
    for name, headers in people.items():
        for booking in (ref, "lecture"):
            body = {"containers": [{"image": "a", "resources": {"cpu": 1}}], "booking": booking}
            answer = await world.client.post("/api/workloads", json=body, headers=headers)
            codes[name, booking == ref] = answer.status_code
    seen = {(name, by_id): 404 if name == "dot" else 202 for name in people for by_id in (True, False)}
    assert codes == seen
    async with world.services.database.read() as connection:
        rows = (await connection.execute(select(workloads.c.timeslot_id))).scalars().all()
    assert rows == [UUID(ref)] * 8


@on_sqlite
async def test_work_that_could_never_run_in_a_booking_is_refused(world: World):
    ann = await world.user("ann")
    await book(world, ann, pool="simulated")
    over = await book(world, ann, name="over", pool="simulated")
    await move(world, over, S.CANCELLED)
    lab = await create(world, ann)
    before = await world.counts()

    async def refused(booking: str, cpu: int = 1, **more: Any) -> tuple[int, str]:
        body = {"containers": [{"image": "a", "resources": {"cpu": cpu}}], "booking": booking, **more}
        answer = await world.client.post("/api/workloads", json=body, headers=ann)
        return answer.status_code, answer.json()["code"]

    assert await refused("over") == (409, "timeslot-over")
    assert await refused("nothing") == (404, "not-found")
    assert await refused(lab["timeslot"]) == (422, "timeslot-not-shared")
    assert await refused("lecture", cpu=7) == (422, "larger-than-timeslot")
    assert await refused("lecture", pool="default") == (422, "timeslot-elsewhere")
    assert await refused("lecture", starts_at=(START + HOUR).isoformat()) == (422, "invalid-start")
    assert await world.counts() == before


@on_sqlite
async def test_bookings_count_against_the_policies_and_quotas_of_their_booker(world: World):
    await world.add_node("n1")
    ann, admin = await world.user("ann"), await world.admin()
    rules = {
        "booking_horizon_seconds": 60 * 86400,
        "max_booking_seconds": 7200,
        "max_bookings": 4,
        "max_booking_slot_hours": {"cpu": "30"},
    }
    await world.client.post("/api/policies", json={"name": "some", "rules": rules}, headers=admin)
    await world.client.patch("/api/users/ann", json={"policy": "some"}, headers=admin)
    await world.client.put("/api/quotas/user/ann", json={"limits": {"cpu": 8}}, headers=admin)
    await book(world, ann, lead=0)  # 6 cpu in the first hour

    async def refused(**more: Any) -> tuple[int, str]:
        body = {"name": "b", "start": START.isoformat(), "duration": "1h", "resources": {"cpu": 1}, "lead": 0} | more
        answer = await world.client.post("/api/timeslots", json=body, headers=ann)
        return answer.status_code, answer.json().get("code", "")

    assert await refused(start=(START + timedelta(days=31)).isoformat()) == (422, "beyond-horizon")
    assert await refused(duration="3h") == (422, "booking-too-long")
    assert await refused(rule="FREQ=DAILY;COUNT=4") == (422, "too-many-bookings")
    assert await refused(count=8, duration="2h", start=(START + HOUR).isoformat(), rule="FREQ=DAILY;COUNT=2") == (
        422,
        "too-many-slot-hours",
    )
    assert await refused(count=3) == (412, "user-quota-exceeded")
    assert await listed(world, ann) == ["lecture"]
    # What runs without an end has its part of every window.
    workload = await world.submit(ann, pool="simulated", containers=[{"image": "a", "resources": {"cpu": 1}}])
    await world.move(workload, T.SCHEDULED, T.RUNNING)
    assert await refused(count=2) == (412, "user-quota-exceeded")
    assert await refused(count=1) == (202, "")
    assert await refused(count=7, start=(START + HOUR).isoformat()) == (202, "")
    assert await refused(count=8, start=(START + 2 * HOUR).isoformat()) == (412, "user-quota-exceeded")
    # A change does not count beside what it replaces.
    ref = (await world.client.get("/api/timeslots/lecture", headers=ann)).json()["id"]
    await move(world, ref, S.CONFIRMED)
    more = await world.client.patch(f"/api/timeslots/{ref}", json={"resources": {"cpu": 1}}, headers=ann)
    assert more.status_code == 202
    assert (await world.client.patch(f"/api/timeslots/{ref}", json={"count": 4}, headers=ann)).status_code == 412


async def test_simultaneous_bookings_do_not_exceed_a_quota(world: World):
    people = [await world.user(name, project="vision") for name in ("ann", "ben", "cid")]
    answer = await world.client.put(
        "/api/quotas/project/vision", json={"limits": {"cpu": 8}}, headers=await world.admin()
    )
    assert answer.status_code == 200
    body = {"start": START.isoformat(), "duration": "1h", "resources": {"cpu": 4}}
    answers = await asyncio.gather(
        *(world.client.post("/api/timeslots", json=body, headers=headers) for headers in people for _ in range(2))
    )
    assert sorted(answer.status_code for answer in answers) == [202, 202, 412, 412, 412, 412]


@on_sqlite
async def test_simultaneous_labs_do_not_exceed_a_limit(world: World):
    ann, admin = await world.user("ann"), await world.admin()
    await world.client.post("/api/policies", json={"name": "few", "rules": {"max_bookings": 2}}, headers=admin)
    await world.client.patch("/api/users/ann", json={"policy": "few"}, headers=admin)
    bodies = [asked(workload=asked()["workload"] | {"name": f"lab{number}"}) for number in range(6)]
    answers = await asyncio.gather(*(world.client.post("/api/labs", json=body, headers=ann) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [202, 202, 422, 422, 422, 422]
