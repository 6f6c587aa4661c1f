"""Accounting through the API: who sees whose use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert, select, update

from mooring import clock
from mooring.clock import now
from mooring.model.lifecycle import TaskStatus
from mooring.store.accounting import usage
from mooring.store.tables import projects, usage_buckets, users
from tests.api.agents.test_measured_usage import Hands
from tests.api.world import World
from tests.store.databases import on_sqlite


@pytest.fixture
def today(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The day does not end in the middle of a test."""
    hands = Hands(now())
    monkeypatch.setattr(clock, "source", hands)
    return usage.day_of(hands.at)


async def used(world: World, username: str | None, days_ago: int, amount: int, *, slot: str = "cpu") -> None:
    """An hour of so much by a user; without a name, by one that was removed with its project."""
    user_id = project_id = UUID(int=7)
    if username is not None:
        async with world.services.database.read() as connection:
            user_id = (await connection.execute(select(users.c.id).where(users.c.name == username))).scalar_one()
            project_id = (await connection.execute(select(projects.c.id))).scalar_one()
    row = {
        "starts_at": usage.day_of(now()) - timedelta(days=days_ago),
        "pool": "default",
        "project_id": project_id,
        "user_id": user_id,
        "slot_name": slot,
        "amount": amount,
        "seconds": 3600,
    }
    await world.services.database.write(lambda c: c.execute(insert(usage_buckets), [row]))


async def lines(world: World, headers: dict[str, str], **query: Any) -> list[tuple[str, str, str]]:
    answer = await world.client.get("/api/usage", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return [(line["name"], line["slot"], line["hours"]) for line in answer.json()["usage"]]


async def test_an_admin_sees_all_use_and_a_user_its_own(world: World):
    admin, ada, _ = await world.admin(), await world.user("ada"), await world.user("ben")
    await used(world, "ada", 0, 1500)
    await used(world, "ada", 3, 2000)
    await used(world, "ben", 3, 1000)
    await used(world, "ben", 0, 4 << 30, slot="memory")
    everything = [("ada", "cpu", "3.500"), ("ben", "cpu", "1.000"), ("ben", "memory", "4.000")]
    assert await lines(world, admin, by="user") == everything
    assert await lines(world, admin, by="project") == [
        ("default/default", "cpu", "4.500"),
        ("default/default", "memory", "4.000"),
    ]
    assert await lines(world, admin, by="domain", pool="default") == [
        ("default", "cpu", "4.500"),
        ("default", "memory", "4.000"),
    ]
    assert await lines(world, admin, by="pool", pool="simulated") == []
    await used(world, None, 0, 1000)
    assert await lines(world, admin, by="user") == [("(removed)", "cpu", "1.000"), *everything]
    assert ("(removed)", "cpu", "1.000") in await lines(world, admin, by="project")
    for by, name in (("user", "ada"), ("project", "default/default"), ("pool", "default")):
        assert await lines(world, ada, by=by) == [(name, "cpu", "3.500")]


@on_sqlite
async def test_the_days_that_are_named_count_with_the_last(world: World, today: datetime):
    admin = await world.admin()
    await world.user("ada")
    for days_ago in (0, 1, 2, 29, 30):
        await used(world, "ada", days_ago, 1000)
    day = [(today - timedelta(days=number)).date().isoformat() for number in range(31)]
    assert await lines(world, admin) == [("default/default", "cpu", "4.000")]
    assert await lines(world, admin, since=day[2], until=day[1]) == [("default/default", "cpu", "2.000")]
    assert await lines(world, admin, since=day[30]) == [("default/default", "cpu", "5.000")]
    wrong = await world.client.get("/api/usage", params={"since": day[0], "until": day[1]}, headers=admin)
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-days")
    for query in ({"since": "yesterday"}, {"by": "node"}):
        assert (await world.client.get("/api/usage", params=query, headers=admin)).status_code == 422
    for last in ("0001-01-01", "9999-12-31"):
        assert await lines(world, admin, until=last) == []


async def test_records_of_ended_work_are_seen_by_their_owner_and_an_admin(world: World):
    admin, ada, ben = await world.admin(), await world.user("ada"), await world.user("ben")
    await world.add_node("n1")
    for headers, name in ((ada, "of-ada"), (ben, "of-ben")):
        workload = await world.submit(headers, name=name, kind="session")
        await world.move(workload, TaskStatus.SCHEDULED, TaskStatus.RUNNING, TaskStatus.SUCCEEDED)

    async def names(headers: dict[str, str], **query: Any) -> list[str]:
        answer = await world.client.get("/api/usage/workloads", params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        return [record["name"] for record in answer.json()["workloads"]]

    assert await names(ada) == ["of-ada"]
    assert await names(ben) == ["of-ben"]
    assert sorted(await names(admin)) == ["of-ada", "of-ben"]
    assert await names(admin, limit=1) == ["of-ben"]
    assert await names(admin, pool="default") == []
    assert await names(admin, until=(now() - timedelta(days=1)).date().isoformat()) == []
    [record] = (await world.client.get("/api/usage/workloads", headers=ada)).json()["workloads"]
    assert (record["user"], record["peak"], record["nodes"]) == ("ada", {"cpu": "0.5"}, ["n1"])
    # Somebody else gets the name later, when nothing but the record tells of the first.
    later = update(users).where(users.c.name == "ben").values(created_at=now() + timedelta(seconds=1))
    await world.services.database.write(lambda c: c.execute(later))
    assert await names(ben) == []


@on_sqlite
async def test_every_user_may_ask_for_free_capacity(world: World):
    ada = await world.user("ada")
    await world.add_node("n1")
    answer = await world.client.get("/api/free", params={"pool": "simulated"}, headers=ada)
    assert answer.json()["pools"][0]["boxes"] == [{"cpu": "8", "memory": "16Gi", "storage": "1Ti"}]
    assert (await world.client.get("/api/free", params={"pool": "nowhere"}, headers=ada)).status_code == 404
    assert (await world.client.get("/api/free")).status_code == 401
