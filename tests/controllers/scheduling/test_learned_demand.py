"""The demand that pools learn is stored by the leader, and survives restarts and the deletion of old workloads."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from mooring.api.serializers import pool_view
from mooring.clock import now
from mooring.controllers.scheduling.learned_demand import LearnedDemandLoop
from mooring.mirror.mirror import Mirror
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.devices import DeviceDemand
from mooring.model.resources.slots import format_amounts
from mooring.model.workloads.arrays import parse_array
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.learning import FIRST
from mooring.store.nodes import learned_demand
from mooring.store.nodes import pools as pools_store
from mooring.store.nodes.pools import create
from mooring.store.tables import pools, workloads
from mooring.store.views.nodes import pool_by_name
from tests.store.harness import Harness
from tests.store.tenant_builders import make_user

A100 = Constraints(devices=(DeviceDemand("gpu", frozenset({"A100"})),))


async def expected(harness: Harness) -> list[TypicalRequest]:
    """Return what a server expects that has just started."""
    mirror = Mirror(harness.database)
    await mirror.load()
    return list(mirror.cluster.devices.typical.get("default", ()))


async def submitted(harness: Harness, count: int, **options: object) -> None:
    for number in range(count):
        await harness.submit(f"w-{number}-{sorted(options)}", **options)  # type: ignore[arg-type]


async def test_the_leader_stores_the_demand_of_pools_that_place_by_it(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="gpu")))
    loop = LearnedDemandLoop(harness.fenced)
    await submitted(harness, FIRST - 1, slots={"gpu": 1}, constraints=A100)
    await loop.once()
    assert await expected(harness) == [], "too few workloads"

    await submitted(harness, 1, replicas=3, slots={"gpu": "0.5"})
    await loop.once()
    demand = await expected(harness)
    assert [(each.request["gpu"], each.weight, each.models) for each in demand] == [
        (1000, FIRST - 1, frozenset({"A100"})),
        (500, 3, frozenset()),
    ]

    other = await harness.database.write(
        lambda c: create(c, "other", runtimes=[], simulated=True, policy=PoolPolicy("pack"), now=now())
    )
    await harness.database.write(lambda c: c.execute(update(workloads).values(pool_id=other.id)))
    await loop.once()
    assert await expected(harness) == demand, "it outlives the workloads that it was learned from"

    async with harness.database.read() as connection:
        row = await pool_by_name(connection, "default")
    assert row is not None
    shown = pool_view(row).learned_demand
    assert [(each.request["gpu"], each.models, each.percent) for each in shown] == [
        ("1", ["A100"], 83.3),
        ("0.5", [], 16.7),
    ]


async def test_other_pools_learn_nothing(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="locality")))
    await submitted(harness, FIRST, slots={"gpu": 1})
    await LearnedDemandLoop(harness.fenced).once()
    assert await expected(harness) == []


async def test_pool_without_a_chosen_profile_learns_before_its_first_device_joins(harness: Harness):
    await harness.database.write(lambda c: c.execute(update(pools).values(profile="auto")))
    await submitted(harness, FIRST, slots={"gpu": 1})
    await LearnedDemandLoop(harness.fenced).once()
    assert [each.request["gpu"] for each in await expected(harness)] == [1000]


async def demand_of(harness: Harness, limit: int) -> dict[str, tuple[int, int]]:
    """Return the tasks and workloads of each request for GPUs."""
    async with harness.database.read() as connection:
        newest = await learned_demand.newest(connection, harness.pool.id, limit)
    return {format_amounts(each.request)["gpu"]: (each.tasks, each.workloads) for each in newest}


async def test_flood_of_one_user_is_half_of_the_demand_at_most(harness: Harness):
    async def of_user(name: str, count: int, gpu: int) -> None:
        user = await make_user(harness.database, name)
        ids = [await harness.submit(f"{name}-{number}", slots={"gpu": gpu}) for number in range(count)]
        own = workloads.c.id.in_(ids)
        await harness.database.write(lambda c: c.execute(update(workloads).where(own).values(user_id=user)))

    await of_user("ada", 20, 1)
    await of_user("bob", 20, 2)
    await of_user("mallory", 60, 8)
    assert await demand_of(harness, 40) == {"8": (20, 20), "2": (20, 20)}
    assert await demand_of(harness, 60) == {"8": (30, 30), "2": (20, 20), "1": (10, 10)}
    assert await demand_of(harness, 100) == {"8": (60, 60), "2": (20, 20), "1": (20, 20)}, "nobody is left out for it"


async def test_withdrawn_work_and_the_size_of_an_array_do_not_decide_the_demand(harness: Harness):
    await submitted(harness, 3, slots={"gpu": 1})
    withdrawn = [await harness.submit(f"withdrawn-{number}", slots={"gpu": 8}) for number in range(5)]
    await harness.database.write(
        lambda c: c.execute(update(workloads).where(workloads.c.id.in_(withdrawn)).values(ended_at=now()))
    )
    array = ScheduleOptions(array=parse_array("0-9999"))
    await harness.submit("array", replicas=10_000, kind=Kind.SESSION, slots={"gpu": 4}, schedule=array)
    assert await demand_of(harness, 100) == {"4": (learned_demand.MOST_TASKS, 1), "1": (3, 3)}


async def test_stored_demand_is_bounded_and_read_by_placement_alone(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(learned_demand, "MOST_REQUESTS", 3)
    for gpu in range(1, 6):
        for number in range(gpu):
            await harness.submit(f"w-{gpu}-{number}", slots={"gpu": gpu})
    assert await demand_of(harness, 100) == {"5": (5, 5), "4": (4, 4), "3": (3, 3)}
    assert "learned_demand" not in str(pools_store._ALL)
