"""The demand that pools learn is stored by the leader, and survives restarts and the deletion of old workloads."""

from __future__ import annotations

from sqlalchemy import update

from mooring.api.serializers import pool_view
from mooring.clock import now
from mooring.controllers.scheduling.learned_demand import LearnedDemandLoop
from mooring.mirror.mirror import Mirror
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.devices import DeviceDemand
from mooring.model.workloads.constraints import Constraints
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.expected_fill.learning import FIRST
from mooring.store.nodes.pools import create
from mooring.store.tables import pools, workloads
from mooring.store.views.nodes import pool_by_name
from tests.store.harness import Harness

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
        ("1", ["A100"], 97.1),
        ("0.5", [], 2.9),
    ]


async def test_other_pools_learn_nothing(harness: Harness):
    await submitted(harness, FIRST, slots={"gpu": 1})
    await LearnedDemandLoop(harness.fenced).once()
    assert await expected(harness) == []
