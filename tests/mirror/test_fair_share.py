"""Factors of fair share from what the store has counted."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

import pytest
from sqlalchemy import insert

from mooring.clock import now
from mooring.mirror.fair_share import factors
from mooring.mirror.mirror import Mirror
from mooring.model.policy.pools import FairShare
from mooring.model.tenancy.fair_share import Factors, factor
from mooring.services.administration.shares import Shares
from mooring.store.accounting import usage
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.tables import domains, projects, usage_buckets
from tests.store.databases import on_sqlite
from tests.store.harness import LONG_AGO, Harness

RULES = FairShare(half_life_days=1, lookback_days=2, slot_weights=(("cpu", 1000), ("memory", 0)))
DAY_SECONDS = 86_400


async def tenants(harness: Harness) -> tuple[UUID, UUID]:
    """Another domain with a project."""
    domain_id, project_id = new_id(), new_id()

    async def work(connection: Connection) -> None:
        domain = {"id": domain_id, "name": "lab", "created_at": LONG_AGO}
        project = {"id": project_id, "domain_id": domain_id, "name": "vision", "number": 7, "created_at": LONG_AGO}
        await connection.execute(insert(domains), [domain])
        await connection.execute(insert(projects), [project])

    await harness.database.write(work)
    return domain_id, project_id


def bucket(day: datetime, project_id: UUID, user_id: UUID, amount: int, pool: str = "default") -> dict[str, object]:
    """An amount of processors for the whole day."""
    return {
        "starts_at": day,
        "pool": pool,
        "project_id": project_id,
        "user_id": user_id,
        "slot_name": "cpu",
        "amount": amount,
        "seconds": DAY_SECONDS,
    }


async def test_each_level_has_its_sum_and_a_user_one_factor_per_project(harness: Harness):
    await harness.node("n1", cpu=8)
    domain_id, project_id = await tenants(harness)
    ada, ben = new_id(), new_id()
    at = now()
    today = usage.day_of(at)
    used = [
        bucket(today, project_id, ada, 4000),
        bucket(today - usage.DAY, project_id, ada, 4000),
        bucket(today, project_id, ben, 2000),
        bucket(today, harness.principal.project_id, ada, 1000),
        # Too long ago, and in another pool.
        bucket(today - 2 * usage.DAY, project_id, ben, 8000),
        bucket(today, project_id, ben, 8000, pool="simulated"),
    ]
    await harness.database.write(lambda c: c.execute(insert(usage_buckets), used))
    async with harness.database.read() as connection:
        found = await factors(connection, "default", RULES, at)
    # Of 8 cores for 2 days ada had 4 today, and 4 yesterday that count half.
    ada_used, ben_used, ada_here = 6 / 16, 2 / 16, 1 / 16
    expected = {(project_id, ada): ada_used, (project_id, ben): ben_used, (harness.principal.project_id, ada): ada_here}
    assert found.users == {tenant: pytest.approx(factor(part)) for tenant, part in expected.items()}
    assert found.projects[project_id] == pytest.approx(factor(ada_used + ben_used))
    assert found.domains[domain_id] == found.projects[project_id]
    assert found.domains[harness.principal.domain_id] == pytest.approx(factor(ada_here))


@on_sqlite
async def test_the_mirror_knows_them_for_pools_that_order_by_use(harness: Harness):
    await harness.node("n1", cpu=8)
    used = bucket(usage.day_of(now()), harness.principal.project_id, harness.principal.user_id, 8000)
    await harness.database.write(lambda c: c.execute(insert(usage_buckets), [used]))
    mirror = Mirror(harness.database)
    await mirror.load()
    assert mirror.factors["default"] == Factors()
    pool = mirror.pools["default"]
    mirror.pools["default"] = replace(pool, policy=replace(pool.policy, sequencer="fair_share", fair_share=RULES))
    await mirror.follow()
    assert mirror.factors["default"].projects == {harness.principal.project_id: pytest.approx(factor(1 / 2))}
    assert mirror.factors["simulated"] == Factors()


@on_sqlite
async def test_placement_continues_if_usage_cannot_be_read(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object) -> None:
        raise RuntimeError("no answer")

    mirror = Mirror(harness.database)
    await mirror.load()
    pool = mirror.pools["default"]
    mirror.pools["default"] = replace(pool, policy=replace(pool.policy, sequencer="fair_share"))
    monkeypatch.setattr(usage, "decayed", broken)
    await harness.submit("job")
    assert await mirror.follow() is True
    assert (len(mirror.queue), mirror.factors["default"]) == (1, Factors())


@on_sqlite
async def test_a_weight_changes_the_factors_at_once(harness: Harness):
    await harness.node("n1", cpu=8)
    mirror = Mirror(harness.database)
    await mirror.load()
    await Shares(harness.database).set_weight(harness.principal, "project", "default", 250)
    await mirror.follow()
    assert mirror.factors["default"].weights.projects == {harness.principal.project_id: 250}
