"""Timeslots at the API: booked, listed, waited for, changed, cancelled, exported; and invalid requests."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from icalendar import Calendar
from sqlalchemy import update

from mooring import clock
from mooring.api.routes.workloads import timeslots as timeslot_routes
from mooring.model.calendar.timeslots import TimeslotStatus
from mooring.model.reasons import Reason
from mooring.model.tenancy.tenants import Role
from mooring.store.reservations import timeslots
from mooring.store.reservations.timeslots import TimeslotUpdate
from mooring.store.tables import timeslots as table
from tests.api.world import World
from tests.store.databases import on_sqlite

S = TimeslotStatus
START = clock.now().replace(microsecond=0) + timedelta(days=30)
HOUR = timedelta(hours=1)
Headers = dict[str, str]


def asked(**more: Any) -> dict[str, Any]:
    body = {"name": "lecture", "start": START.isoformat(), "duration": "1h", "resources": {"cpu": 2}, "count": 3}
    return {name: value for name, value in (body | more).items() if value is not None}


def at(written: str) -> datetime:
    return datetime.fromisoformat(written)


async def book(world: World, headers: Headers, **more: Any) -> str:
    answer = await world.client.post("/api/timeslots", json=asked(**more), headers=headers)
    assert answer.status_code == 202, answer.text
    found: str = answer.json()["ids"][0]
    return found


async def move(world: World, ref: str, *statuses: TimeslotStatus, **more: Any) -> None:
    """As the leader would."""

    async def work(connection: Any) -> None:
        for status in statuses:
            [slot] = await timeslots.load(connection, [UUID(ref)])
            assert await timeslots.apply_updates(connection, [TimeslotUpdate(slot, status, **more)], clock.now())

    await world.services.database.write(work)


async def shown(world: World, headers: Headers, ref: str) -> Any:
    return (await world.client.get(f"/api/timeslots/{ref}", headers=headers)).json()


async def listed(world: World, headers: Headers, query: str = "") -> list[str]:
    answer = await world.client.get(f"/api/timeslots{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return [slot["name"] for slot in answer.json()["timeslots"]]


async def test_a_booking_is_shown_as_requested(world: World):
    await world.add_node("n1")
    ann = await world.user("ann", project="vision")
    await world.user("ben", project="speech")
    answer = await world.client.post(
        "/api/timeslots",
        json=asked(
            pool="simulated",
            users=["ben"],
            projects=["vision"],
            lead="20m",
            grace=0,
            release_after="15m",
            purpose="AI 1",
        ),
        headers=ann,
    )
    assert answer.status_code == 202, answer.text
    body = answer.json()
    assert answer.headers["Location"].endswith(f"/api/timeslots/{body['ids'][0]}")
    slot = await shown(world, ann, "lecture")
    assert slot["id"] == body["ids"][0]
    assert {name: slot[name] for name in ("status", "kind", "pool", "user", "project", "users", "projects")} == {
        "status": "REQUESTED",
        "kind": "booking",
        "pool": "simulated",
        "user": "ann",
        "project": "vision",
        "users": ["ben"],
        "projects": ["vision"],
    }
    assert (at(slot["start"]), at(slot["end"])) == (START, START + HOUR)
    assert (slot["lead_seconds"], slot["grace_seconds"], slot["release_after_seconds"]) == (1200, 0, 900)
    assert (at(slot["eligible_at"]), slot["resources"], slot["count"]) == (START - HOUR / 3, {"cpu": "2"}, 3)
    assert slot["purpose"] == "AI 1"


@on_sqlite
async def test_lead_and_grace_are_the_pools_where_nothing_is_said(world: World):
    admin = await world.admin()
    change = {"bookings": {"lead_seconds": 60, "grace_seconds": 0}}
    assert (await world.client.patch("/api/pools/simulated", json=change, headers=admin)).status_code == 204
    pool = (await world.client.get("/api/pools/simulated", headers=admin)).json()
    stored = {"notice_seconds": 300, "open_ended": "until_lead", "open_ended_notice_seconds": 86_400}
    assert pool["bookings"] == {"lead_seconds": 60, "grace_seconds": 0, **stored}
    slot = await shown(world, admin, await book(world, admin, pool="simulated"))
    assert (slot["lead_seconds"], slot["grace_seconds"]) == (60, 0)
    slot = await shown(world, admin, await book(world, admin, name="other"))
    assert (slot["lead_seconds"], slot["grace_seconds"], slot["pool"]) == (2100, 300, "default")


@on_sqlite
@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"start": "2020-01-01T10:00:00Z"}, 422, "window-past"),
        ({"start": "2020-01-01T10:00:00Z", "duration": None, "end": START.isoformat()}, 422, "window-past"),
        ({"start": "2300-01-01T10:00:00Z"}, 422, "invalid-window"),
        ({"start": "9999-12-31T23:59:59Z"}, 422, "invalid-window"),
        ({"start": "9999-12-31T23:59:59-14:00"}, 422, "invalid-input"),
        ({"start": "0001-01-01T00:00:00+14:00"}, 422, "invalid-input"),
        ({"duration": None, "end": "2300-01-01T10:00:00Z"}, 422, "invalid-window"),
        ({"start": None, "duration": None, "end": "2020-01-01T10:00:00Z"}, 422, "invalid-window"),
        ({"duration": None, "end": START.isoformat()}, 422, "invalid-window"),
        ({"duration": None, "end": (START - HOUR).isoformat()}, 422, "invalid-window"),
        ({"end": (START + HOUR).isoformat()}, 422, "invalid-window"),
        ({"duration": None}, 422, "invalid-window"),
        ({"duration": 0}, 422, "invalid-input"),
        ({"lead": "forever"}, 422, "invalid-duration"),
        ({"start": "2100-01-01T10:00:00"}, 422, "invalid-input"),
        ({"release_after": "0"}, 422, "invalid-duration"),
        ({"resources": {}}, 422, "invalid-input"),
        ({"resources": {"cpu": 0}}, 422, "nothing-to-book"),
        ({"resources": {"memory": "8Ei"}, "count": 1000}, 422, "quantity-too-large"),
        ({"resources": {"gpu": 1}, "pool": "simulated"}, 422, "slot-not-served"),
        ({"count": 0}, 422, "invalid-input"),
        ({"pool": "nowhere"}, 422, "unknown-pool"),
        ({"project": "nowhere"}, 404, "not-found"),
        ({"users": ["nobody"]}, 404, "not-found"),
        ({"projects": ["nowhere"]}, 404, "not-found"),
        ({"rule": "FREQ=WEEKLY"}, 422, "invalid-rule"),
        ({"rule": "FREQ=DAILY;COUNT=501"}, 422, "series-too-long"),
        ({"rule": "FREQ=DAILY;COUNT=5", "timezone": "Moon/Base"}, 422, "unknown-timezone"),
    ],
)
async def test_an_invalid_booking_is_refused_and_changes_nothing(
    world: World, wrong: dict[str, Any], status: int, code: str
):
    await world.add_node("n1")
    ann = await world.user("ann")
    before = await world.counts()
    answer = await world.client.post("/api/timeslots", json=asked(**wrong), headers=ann)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await world.counts() == before


async def test_a_long_poll_returns_when_the_booking_is_decided(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann)
    waiting = asyncio.create_task(world.client.get(f"/api/timeslots/{ref}/wait?timeout=30", headers=ann))
    await asyncio.wait_for(world.changes.waiting.wait(), 30)
    alternatives = {"start": (START + HOUR).isoformat(), "count": 2}
    no = Reason("no-room", "fits from 11:00, or with 2 instead of 3", details={"alternatives": alternatives})
    await move(world, ref, S.REFUSED, reason=no)
    world.changes.send()
    answer = (await waiting).json()
    assert (answer["status"], answer["reason"]["details"]["alternatives"]) == ("REFUSED", alternatives)
    known = await world.client.get(f"/api/timeslots/{ref}/wait?version=1&timeout=30", headers=ann)
    assert known.json()["version"] == 2


@on_sqlite
async def test_placements_are_shown_by_node_name(world: World):
    await world.add_node("n1")
    ann = await world.user("ann")
    ref = await book(world, ann)
    node = (await world.client.get("/api/nodes/n1", headers=ann)).json()["id"]
    await move(world, ref, S.CONFIRMED, placements={UUID(node): 3})
    assert (await shown(world, ann, ref))["places"] == [{"node": "n1", "tasks": 3}]


async def test_lists_filter_by_window_status_and_pool(world: World):
    ann = await world.user("ann")
    late = {"start": (START + 3 * HOUR).isoformat()}
    await book(world, ann, name="early")
    await book(world, ann, name="late", pool="simulated", **late)
    gone = await book(world, ann, name="gone")
    await move(world, gone, S.CANCELLED)
    between = f"?from={(START + HOUR).isoformat()}&until={(START + 4 * HOUR).isoformat()}".replace("+", "%2B")
    assert await listed(world, ann) == ["early", "gone", "late"]
    assert await listed(world, ann, between) == ["late"]
    assert await listed(world, ann, "?pool=simulated") == ["late"]
    assert await listed(world, ann, "?status=cancelled") == ["gone"]
    assert await listed(world, ann, "?limit=1&offset=1") == ["gone"]
    long_ago = update(table).where(table.c.id == UUID(gone)).values(ended_at=START - timedelta(days=60))
    await world.services.database.write(lambda c: c.execute(long_ago))
    assert await listed(world, ann) == ["early", "late"]
    assert await listed(world, ann, "?all=true") == ["early", "gone", "late"]


@on_sqlite
async def test_invited_users_see_a_timeslot_and_others_do_not(world: World):
    ann = await world.user("ann", project="vision")
    people = {
        "ben": await world.user("ben", project="speech"),
        "cid": await world.user("cid", project="robots"),
        "dot": await world.user("dot", project="speech"),
        "eve": await world.user("eve", project="speech", role=Role.DOMAIN_ADMIN),
    }
    ref = await book(world, ann, users=["ben"], projects=["robots"])
    seen = {}
    for name, headers in people.items():
        by_id = await world.client.get(f"/api/timeslots/{ref}", headers=headers)
        by_name = await world.client.get("/api/timeslots/lecture", headers=headers)
        seen[name] = (by_id.status_code, by_name.status_code, await listed(world, headers))
    assert seen == {
        "ben": (200, 200, ["lecture"]),
        "cid": (200, 200, ["lecture"]),
        "dot": (404, 404, []),
        "eve": (200, 404, []),
    }
    assert await listed(world, people["eve"], "?everyone=true") == ["lecture"]
    assert (await world.client.delete(f"/api/timeslots/{ref}", headers=people["ben"])).status_code == 403
    assert (await world.client.delete(f"/api/timeslots/{ref}", headers=people["dot"])).status_code == 404


async def test_a_series_is_booked_listed_and_cancelled_as_a_whole(world: World):
    ann = await world.user("ann")
    answer = await world.client.post(
        "/api/timeslots", json=asked(rule="FREQ=DAILY;COUNT=3", timezone="Europe/Berlin"), headers=ann
    )
    body = answer.json()
    assert (len(body["ids"]), body["message"][:20]) == (3, "Requested 3 bookings")
    found = (await world.client.get(f"/api/timeslots?series={body['series']}", headers=ann)).json()["timeslots"]
    assert [slot["id"] for slot in found] == body["ids"]
    assert {(slot["rule"], slot["timezone"], slot["name"]) for slot in found} == {
        ("FREQ=DAILY;COUNT=3", "Europe/Berlin", "lecture")
    }
    # The name means the first of them, and when that is over the next.
    assert (await shown(world, ann, "lecture"))["id"] == body["ids"][0]
    await move(world, body["ids"][0], S.CONFIRMED, S.ACTIVE, S.ENDED)
    assert (await shown(world, ann, "lecture"))["id"] == body["ids"][1]
    # A change of one of them belongs to them as well.
    await move(world, body["ids"][2], S.CONFIRMED)
    changed = await world.client.patch(f"/api/timeslots/{body['ids'][2]}", json={"count": 1}, headers=ann)
    assert changed.json()["series"] == body["series"]
    answer = await world.client.delete(f"/api/timeslots/{body['ids'][1]}?series=true", headers=ann)
    assert (answer.status_code, answer.json()["cancelled"]) == (202, [*body["ids"][1:], changed.json()["id"]])
    again = await world.client.delete(f"/api/timeslots/{body['ids'][1]}", headers=ann)
    assert (again.status_code, again.json()["code"]) == (409, "timeslot-over")


async def test_a_change_is_a_request_that_keeps_the_old_promise_until_it_is_confirmed(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann)
    early = await world.client.patch(f"/api/timeslots/{ref}", json={"count": 4}, headers=ann)
    assert (early.status_code, early.json()["code"]) == (409, "timeslot-not-changeable")
    await move(world, ref, S.CONFIRMED)
    refused = (await world.client.patch(f"/api/timeslots/{ref}", json={"count": 4}, headers=ann)).json()
    assert (refused["status"], refused["count"], refused["replaces"]) == ("REQUESTED", 4, ref)
    assert (await shown(world, ann, ref))["status"] == "CONFIRMED"
    later = {"start": (START + HOUR).isoformat(), "resources": {"cpu": 1}}
    wanted = (await world.client.patch(f"/api/timeslots/{ref}", json=later, headers=ann)).json()
    assert (at(wanted["start"]), at(wanted["end"])) == (START + HOUR, START + 2 * HOUR)
    assert (wanted["resources"], wanted["count"]) == ({"cpu": "1"}, 3)
    # The change that was asked for before is given up for the new one.
    assert (await shown(world, ann, refused["id"]))["status"] == "CANCELLED"
    await move(world, wanted["id"], S.CONFIRMED)
    assert (await shown(world, ann, ref))["status"] == "CANCELLED"
    assert (await shown(world, ann, ref))["reason"]["details"] == {"by": wanted["id"]}


@on_sqlite
async def test_a_superseded_change_no_longer_counts(world: World):
    ann, admin = await world.user("ann"), await world.admin()
    await world.client.post("/api/policies", json={"name": "one", "rules": {"max_bookings": 1}}, headers=admin)
    await world.client.patch("/api/users/ann", json={"policy": "one"}, headers=admin)
    ref = await book(world, ann)
    await move(world, ref, S.CONFIRMED)
    for count in (4, 5):
        answer = await world.client.patch(f"/api/timeslots/{ref}", json={"count": count}, headers=ann)
        assert answer.status_code == 202, answer.text


@on_sqlite
async def test_an_earlier_end_of_one_that_has_begun_holds_at_once(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann)
    await move(world, ref, S.CONFIRMED, S.ACTIVE)
    answer = await world.client.patch(f"/api/timeslots/{ref}", json={"duration": "30m"}, headers=ann)
    assert (answer.status_code, answer.json()["id"], at(answer.json()["end"])) == (202, ref, START + HOUR / 2)
    assert answer.json()["status"] == "ACTIVE"


@on_sqlite
async def test_an_invalid_change_is_refused(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann)
    await move(world, ref, S.CONFIRMED)
    for wrong, code in (
        ({"end": (START - HOUR).isoformat()}, "invalid-window"),
        ({"end": START.isoformat(), "duration": "1h"}, "invalid-window"),
        ({"start": "2020-01-01T00:00:00Z"}, "window-past"),
        ({"resources": {"cpu": 0}}, "nothing-to-book"),
    ):
        answer = await world.client.patch(f"/api/timeslots/{ref}", json=wrong, headers=ann)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
    await move(world, ref, S.CANCELLED)
    answer = await world.client.patch(f"/api/timeslots/{ref}", json={"count": 1}, headers=ann)
    assert (answer.status_code, answer.json()["code"]) == (409, "timeslot-over")


async def test_the_same_request_under_the_same_key_books_once(world: World):
    ann = await world.user("ann")
    keyed = ann | {"Idempotency-Key": "k1"}
    at_once = (world.client.post("/api/timeslots", json=asked(), headers=keyed) for _ in range(3))
    first, *others = await asyncio.gather(*at_once)
    again = await world.client.post("/api/timeslots", json=asked(), headers=keyed)
    assert first.status_code == 202
    assert [answer.json() for answer in (*others, again)] == [first.json()] * 3
    assert await listed(world, ann) == ["lecture"]
    other = await world.client.post("/api/timeslots", json=asked(count=1), headers=keyed)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency-key-reused")


@on_sqlite
async def test_a_late_repeated_request_gets_the_first_answer(world: World, monkeypatch: pytest.MonkeyPatch):
    ann = await world.user("ann") | {"Idempotency-Key": "k1"}
    first = await world.client.post("/api/timeslots", json=asked(), headers=ann)
    monkeypatch.setattr("mooring.services.bookings.bookings.now", lambda: START + HOUR)
    late = await world.client.post("/api/timeslots", json=asked(), headers=ann)
    assert (late.status_code, late.json()) == (202, first.json())


@on_sqlite
async def test_a_calendar_has_present_and_future_timeslots_with_their_status(world: World):
    ann, ben = await world.user("ann"), await world.user("ben")
    open_one, gone = await book(world, ann, purpose="AI 1"), await book(world, ann, name="gone")
    sure = await book(world, ben, name="shared", users=["ann"], start=(START + HOUR).isoformat())
    await book(world, ben, name="private")
    await move(world, gone, S.CANCELLED)
    await move(world, sure, S.CONFIRMED)
    answer = await world.client.get("/api/timeslots.ics", headers=ann)
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    events = Calendar.from_ical(answer.text).events
    assert [(str(e["UID"]), str(e["SUMMARY"]), str(e["STATUS"]), e.start, e.end) for e in events] == [
        (f"{open_one}@mooring", "lecture", "TENTATIVE", START, START + HOUR),
        (f"{sure}@mooring", "shared", "CONFIRMED", START + HOUR, START + 2 * HOUR),
    ]
    assert str(events[0]["DESCRIPTION"]).startswith("AI 1\nbooking of ann: 3 x cpu 2")


@on_sqlite
async def test_bookings_of_others_are_cancelled_by_admins_with_a_record(world: World):
    ann, admin = await world.user("ann"), await world.admin()
    ref = await book(world, ann)
    assert (await world.client.delete(f"/api/timeslots/{ref}", headers=admin)).status_code == 202
    [action] = (await world.client.get("/api/actions?noun=timeslot", headers=admin)).json()["actions"]
    assert (action["action"], action["object"], action["username"]) == ("cancel", f"lecture ({ref})", "admin")
    assert (await shown(world, ann, ref))["reason"]["message"] == "Cancelled by admin"


@on_sqlite
async def test_maintenance_takes_nodes_at_once_and_everybody_sees_it(world: World):
    await world.add_node("n1")
    await world.add_node("n2")
    admin, ann = await world.admin(), await world.user("ann")
    body = {"nodes": ["n1", "n2", "n1"], "start": START.isoformat(), "duration": "4h", "reason": "new disks"}
    [made] = (await world.client.post("/api/maintenance", json=body, headers=admin)).json()
    assert (made["status"], made["kind"], made["pool"], made["purpose"]) == (
        "CONFIRMED",
        "maintenance",
        "simulated",
        "new disks",
    )
    assert made["places"] == [{"node": "n1", "tasks": 1}, {"node": "n2", "tasks": 1}]
    assert (made["lead_seconds"], at(made["end"])) == (0, START + 4 * HOUR)
    assert await listed(world, ann, "?kind=maintenance") == [made["name"]]
    assert (await world.client.delete(f"/api/timeslots/{made['id']}", headers=ann)).status_code == 403
    before = await world.counts()
    unknown = await world.client.post("/api/maintenance", json=body | {"nodes": ["n1", "n9"]}, headers=admin)
    assert (unknown.status_code, unknown.json()["message"]) == (404, "there is no node 'n9'")
    past = await world.client.post("/api/maintenance", json=body | {"start": "2020-01-01T00:00:00Z"}, headers=admin)
    assert (past.status_code, past.json()["code"]) == (422, "window-past")
    assert await world.counts() == before
    assert (await world.client.delete(f"/api/timeslots/{made['id']}", headers=admin)).status_code == 202
    actions = (await world.client.get("/api/actions?noun=maintenance", headers=admin)).json()["actions"]
    assert [action["action"] for action in actions] == ["cancel", "create"]


@on_sqlite
async def test_events_of_a_timeslot_are_visible_to_users_who_see_it(world: World):
    ann, ben = await world.user("ann"), await world.user("ben")
    ref = await book(world, ann)

    async def received(headers: Headers) -> list[tuple[str, str]]:
        events = (await world.client.get("/api/events?expand=true", headers=headers)).json()["events"]
        return [(event["kind"], event["timeslot"]) for event in events if event["id"] == ref]

    assert await received(ann) == [("REQUESTED", "lecture")]
    assert await received(await world.admin()) == [("REQUESTED", "lecture")]
    assert await received(ben) == []


async def test_work_in_a_timeslot_says_from_when_on_it_is_tried(world: World):
    ann = await world.user("ann")
    await world.add_node("n1")
    ref = await book(world, ann, pool="simulated", lead="20m")
    await move(world, ref, S.CONFIRMED)
    await world.submit(ann, name="exercise", booking="lecture")
    start = (await world.client.get("/api/workloads/exercise", headers=ann)).json()["start"]
    assert at(start["not_before"]) == START - timedelta(minutes=20)
    explained = (await world.client.get("/api/workloads/exercise/explanation", headers=ann)).json()
    assert at(explained["not_before"]) == START - timedelta(minutes=20)


@on_sqlite
async def test_windows_begin_and_end_with_whole_seconds(world: World):
    ann = await world.user("ann")
    slot = await shown(world, ann, await book(world, ann, start=None))
    assert (at(slot["start"]).microsecond, at(slot["end"]) - at(slot["start"])) == (0, HOUR)
    within = {"start": (START + HOUR / 7200).isoformat(), "duration": None, "end": (START + HOUR * 1.0001).isoformat()}
    slot = await shown(world, ann, await book(world, ann, **within))
    assert (at(slot["start"]), at(slot["end"])) == (START, START + HOUR)


@on_sqlite
async def test_a_booking_that_has_begun_can_be_extended_and_nothing_else(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann, start=None, duration="1h")
    await move(world, ref, S.CONFIRMED, S.ACTIVE)
    url = f"/api/timeslots/{ref}"
    for other in ({"count": 4}, {"resources": {"cpu": 8}}, {"start": START.isoformat()}):
        refused = await world.client.patch(url, json=other, headers=ann)
        assert (refused.status_code, refused.json()["code"]) == (409, "timeslot-not-changeable"), other
    end = at((await shown(world, ann, ref))["end"]) + HOUR
    extended = await world.client.patch(url, json={"end": end.isoformat()}, headers=ann)
    assert extended.status_code == 202, extended.text
    view = extended.json()
    assert (view["status"], view["replaces"], at(view["end"])) == ("REQUESTED", ref, end)
    assert (await shown(world, ann, ref))["status"] == "ACTIVE"


@on_sqlite
async def test_a_calendar_that_lacks_timeslots_says_so(world: World, monkeypatch: pytest.MonkeyPatch):
    ann = await world.user("ann")
    for number in range(3):
        await book(world, ann, name=f"lecture-{number}", start=(START + number * HOUR).isoformat())
    whole = await world.client.get("/api/timeslots.ics", headers=ann)
    assert whole.headers["X-Total-Count"] == "3"
    assert "DESCRIPTION" not in Calendar.from_ical(whole.text)
    monkeypatch.setattr(timeslot_routes, "_MAX_CALENDAR_EVENTS", 2)
    part = await world.client.get("/api/timeslots.ics", headers=ann)
    calendar = Calendar.from_ical(part.text)
    assert (len(calendar.events), part.headers["X-Total-Count"]) == (2, "3")
    assert str(calendar["DESCRIPTION"]).startswith("Incomplete: the first 2 of 3 bookings, by start.")


@on_sqlite
async def test_an_event_keeps_its_identity_in_calendars_when_the_booking_is_changed(world: World):
    ann = await world.user("ann")
    ref = await book(world, ann, name="lecture", purpose="Æsop, 1; 2\\3 " + "ü" * 200)
    await move(world, ref, S.CONFIRMED)

    async def events() -> list[Any]:
        answer = await world.client.get("/api/timeslots.ics", headers=ann)
        assert all(len(line.encode()) <= 75 for line in answer.text.split("\r\n"))
        return list(Calendar.from_ical(answer.text).events)

    [before] = await events()
    assert str(before["DESCRIPTION"]).splitlines()[0] == "Æsop, 1; 2\\3 " + "ü" * 200
    later = {"start": (START + HOUR).isoformat()}
    changed = (await world.client.patch(f"/api/timeslots/{ref}", json=later, headers=ann)).json()["id"]
    # The old promise holds until the change is decided.
    [pending] = await events()
    assert pending.start == START
    await move(world, changed, S.CONFIRMED)
    [after] = await events()
    assert (str(after["UID"]), after.start) == (str(before["UID"]), START + HOUR)
    assert int(after["SEQUENCE"]) >= int(before["SEQUENCE"])


@on_sqlite
async def test_dates_of_a_series_are_left_out(world: World):
    ann = await world.user("ann")
    day = timedelta(days=1)
    body = asked(rule="FREQ=DAILY;COUNT=3", exceptions=[(START + day).date().isoformat()])
    answer = await world.client.post("/api/timeslots", json=body, headers=ann)
    assert answer.status_code == 202, answer.text
    starts = [at((await shown(world, ann, id))["start"]) for id in answer.json()["ids"]]
    assert starts == [START, START + 2 * day]
    without_rule = await world.client.post("/api/timeslots", json=asked(exceptions=["2027-01-01"]), headers=ann)
    assert (without_rule.status_code, without_rule.json()["code"]) == (422, "invalid-rule")
