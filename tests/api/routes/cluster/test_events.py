"""Events over HTTP: who sees which, page by page and as a stream that is resumed without a gap or a repeat."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock
from mooring.api.routes.cluster import events as events_module
from mooring.api.streams.event_feed import EventFeed
from mooring.model.lifecycle import TaskStatus
from mooring.store.control import events, feed
from mooring.store.core.engine import Database
from mooring.store.tenancy import tenants, users
from mooring.store.views.events import Watch
from tests.api.event_stream import Stream, streaming
from tests.api.world import World
from tests.store.databases import on_sqlite

Headers = dict[str, str]


@pytest.fixture
def signalled(world: World) -> World:
    """Commits notify the streams, as in a server."""
    world.services.database.on_commit.append(world.changes.send)
    return world


async def listed(world: World, headers: Headers, **query: Any) -> dict[str, Any]:
    answer = await world.client.get("/api/events", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def kinds(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["noun"], event["kind"]) for event in found["events"]]


async def test_one_event_per_committed_change_with_the_term_of_the_leader(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")
    workload_id = await world.submit(ada, name="web", kind="deployment")
    await world.move(workload_id, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    found = await listed(world, ada)
    assert kinds(found) == [
        ("workload", "PENDING"),
        ("task", "SCHEDULED"),
        ("workload", "SCHEDULED"),
        ("task", "RUNNING"),
        ("workload", "RUNNING"),
    ]
    assert [event["term"] for event in found["events"]] == [None, 1, 1, 1, 1]
    assert {event["workload_id"] for event in found["events"]} == {workload_id}
    revisions = [event["revision"] for event in found["events"]]
    assert revisions == sorted(set(revisions))
    assert found["more"] is False
    assert (await listed(world, ada, since=found["next"]))["events"] == []
    # Names and what decisions saw come on request.
    assert {event["node"] for event in found["events"]} == {None}
    expanded = await listed(world, ada, expand=True, since=found["events"][0]["cursor"], limit=1)
    assert expanded["more"] is True
    (placed,) = expanded["events"]
    assert (placed["workload"], placed["task_index"], placed["node"], placed["pool"]) == ("web", 0, "n1", "simulated")


async def test_a_user_sees_the_events_of_own_workloads_only_and_an_admin_all(world: World):
    ada, bob, admin = await world.user("ada"), await world.user("bob"), await world.admin()
    await world.add_node("secret-node")
    first = await world.submit(ada, name="first")
    second = await world.submit(ada, name="second")
    bobs = await world.submit(bob, name="bobs")
    await world.move(bobs, TaskStatus.SCHEDULED, node="secret-node")
    assert {event["workload_id"] for event in (await listed(world, ada))["events"]} == {first, second}
    assert {event["workload_id"] for event in (await listed(world, bob))["events"]} == {bobs}
    assert "secret-node" not in str(await listed(world, ada, expand=True))
    everything = await listed(world, admin, expand=True)
    assert {event["noun"] for event in everything["events"]} >= {"workload", "task", "node"}
    assert "secret-node" in str(everything)
    only = await listed(world, ada, workload="second")
    assert [event["workload_id"] for event in only["events"]] == [second]
    for path in ("/api/events", "/api/events/stream"):
        assert (await world.client.get(path)).status_code == 401
        of_another = await world.client.get(path, params={"workload": bobs}, headers=ada)
        assert of_another.status_code == 404


async def test_filter_and_score_details_are_shown_on_request(world: World):
    admin = await world.admin()
    saw = {"removed": {"resources": 3}, "candidates": 2, "selected": "n1"}
    own = UUID(await world.submit(admin, name="web"))
    since = (await listed(world, admin))["next"]
    placed = events.NewEvent("task", own, 2, "SCHEDULED", None, own, saw)
    await world.services.database.write(lambda c: events.append(c, [placed], clock.now(), term=7))
    (plain,) = (await listed(world, admin, since=since))["events"]
    (expanded,) = (await listed(world, admin, since=since, expand=True))["events"]
    assert (plain["term"], plain["details"], expanded["details"]) == (7, None, saw)


async def test_a_cursor_that_is_too_old_is_gone_and_a_wrong_one_is_refused(world: World):
    admin = await world.admin()
    start = (await listed(world, admin))["next"]
    await world.submit(admin, name="one")
    await world.submit(admin, name="two")
    await world.services.database.write(lambda c: feed.purge(c, clock.now() + timedelta(days=1)))
    for path in ("/api/events", "/api/events/stream"):
        gone = await world.client.get(path, params={"since": start}, headers=admin)
        assert (gone.status_code, gone.json()["code"]) == (410, "events-purged")
        for wrong in ("x", "1", "1-x", "99999999999999999999-1"):
            answer = await world.client.get(path, params={"since": wrong}, headers=admin)
            assert answer.status_code == 422
    gone = await world.client.get("/api/events/stream", headers={**admin, "Last-Event-ID": start})
    assert gone.status_code == 410
    assert (await listed(world, admin))["events"] == []


async def next_names(stream: Stream, number: int) -> list[str]:
    return [(await stream.event())["workload"] for _ in range(number)]


async def test_a_stream_is_resumed_without_a_gap_or_a_repeat(signalled: World):
    world = signalled
    ada = await world.user("ada")
    async with streaming(world.app, "expand=true", ada) as stream:
        assert "id" in await stream.message()
        await world.submit(ada, name="one")
        await world.submit(ada, name="two")
        assert await next_names(stream, 2) == ["one", "two"]
    await world.submit(ada, name="three")
    # A browser asks for the same address again and names the last id in a header, which goes before the query.
    headers = {**ada, "Last-Event-ID": stream.cursor or ""}
    async with streaming(world.app, "expand=true&since=0-0", headers) as again:
        await world.submit(ada, name="four")
        assert await next_names(again, 2) == ["three", "four"]


async def test_a_stream_that_breaks_before_the_first_event_knows_where_it_was(signalled: World):
    world = signalled
    ada = await world.user("ada")
    async with streaming(world.app, "", ada) as stream:
        await stream.message()
    await world.submit(ada, name="missed")
    async with streaming(world.app, f"since={stream.cursor}&expand=true", ada) as again:
        assert await next_names(again, 1) == ["missed"]


@on_sqlite
async def test_a_reader_that_falls_behind_the_memory_misses_nothing(database: Database, signalled: World):
    world = signalled
    followed = EventFeed(database, world.changes, remembered=4)
    admin = await world.admin()
    with followed.reading():
        slow = await followed.end()
        for number in range(12):
            await world.submit(admin, name=f"w{number}")
        # Somebody else keeps up, so that the feed has read and forgotten most of it.
        quick, seen = slow, 0
        while seen < 12:
            page = await followed.after(quick, watch=Watch(), wait_seconds=1)
            quick, seen = page.next, seen + len(page.events)
        late: list[str | None] = []
        while len(late) < 12:
            page = await followed.after(slow, watch=Watch(), wait_seconds=1)
            slow = page.next
            late += [event.workload for event in page.events]
    assert late == [f"w{number}" for number in range(12)]


@on_sqlite
async def test_a_quiet_stream_is_kept_alive_and_skips_events_of_others(
    signalled: World, monkeypatch: pytest.MonkeyPatch
):
    world = signalled
    ada = await world.user("ada")
    monkeypatch.setattr(events_module, "_KEEP_ALIVE_SECONDS", 0.05)
    async with streaming(world.app, "", ada) as stream:
        start = (await stream.message())["id"]
        await world.submit(await world.admin(), name="another")
        while stream.cursor == start:
            assert "data" not in await stream.message()
    assert (await listed(world, ada, since=stream.cursor))["events"] == []


@on_sqlite
async def test_streams_end_when_the_server_stops(signalled: World):
    world = signalled
    async with streaming(world.app, "", await world.admin()) as stream:
        await stream.message()
        world.services.feed.close()
        async with asyncio.timeout(30):
            await stream.ended.wait()


@on_sqlite
async def test_a_stream_reports_that_its_cursor_was_purged(world: World):
    admin, followed = await world.admin(), world.services.feed
    start = await followed.end()
    await world.submit(admin, name="one")
    await world.submit(admin, name="two")
    await world.services.database.write(lambda c: feed.purge(c, clock.now() + timedelta(days=1)))
    with followed.reading():
        messages = [message async for message in events_module._messages(followed, start, Watch(), expand=False)]
    assert len(messages) == 2
    assert messages[1].startswith(b"event: end\ndata: ")
    assert b"events-purged" in messages[1]


@on_sqlite
async def test_the_number_of_streams_is_limited_per_user(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    limit = world.services.rates.limits.streams
    async with world.services.database.read() as connection:
        user = await users.find(connection, "ada")
        account = await tenants.account(connection, user.id)
    assert account is not None
    closes = [world.services.rates.open_stream(account.principal) for _ in range(limit)]
    refused = await world.client.get("/api/events/stream", headers=ada)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-streams")
    assert int(refused.headers["Retry-After"]) > 0
    async with streaming(world.app, "", bob) as stream:
        assert stream.status == 200
    closes.pop()()
    async with streaming(world.app, "", ada) as stream:
        assert stream.status == 200
    # Those that ended are counted out.
    async with streaming(world.app, "", ada) as stream:
        assert stream.status == 200
