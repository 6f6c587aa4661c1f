"""Rates per user and per address: only the one that exceeds its rate is refused."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.rates import Buckets, Rates
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.model.errors import TooManyAttempts
from mooring.model.tenancy.tenants import Principal, Role
from tests.api.auth.test_login_throttle import Clock
from tests.api.world import World
from tests.store.databases import on_sqlite


def principal(number: int, role: Role = Role.USER) -> Principal:
    return Principal(UUID(int=number), f"user{number}", role, UUID(int=1), UUID(int=1), "key")


def accepted(rates: Rates, who: Principal, tries: int) -> int:
    """Number of requests accepted out of this many at once."""
    number = 0
    for _ in range(tries):
        try:
            rates.request(who, 1.0)
        except TooManyAttempts:
            break
        number += 1
    return number


def test_two_seconds_worth_may_come_at_once_and_then_as_many_as_the_rate():
    clock = Clock()
    rates = Rates(LoadLimits(requests=10), clock=clock)
    ada, bob = principal(1), principal(2)
    assert accepted(rates, ada, 100) == 20
    with pytest.raises(TooManyAttempts, match="try again in 1 second") as refused:
        rates.request(ada, 1.0)
    assert (refused.value.code, refused.value.details) == ("too-many-requests", {"retry_after_seconds": 1})
    assert accepted(rates, bob, 5) == 5
    clock.time += 0.5
    assert accepted(rates, ada, 100) == 5
    clock.time += 3600
    assert accepted(rates, ada, 100) == 20


def test_an_admin_may_have_more():
    rates = Rates(LoadLimits(requests=10, streams=2, admin_factor=3), clock=Clock())
    admin = principal(1, Role.ADMIN)
    assert accepted(rates, admin, 100) == 60
    for _ in range(6):
        rates.open_stream(admin)
    with pytest.raises(TooManyAttempts, match="6 streams"):
        rates.open_stream(admin)


def test_open_channels_are_counted_separately_from_streams():
    rates = Rates(LoadLimits(streams=1, channels=2))
    rates.open_stream(principal(1))
    closes = [rates.open_channel(principal(1)) for _ in range(2)]
    rates.open_channel(principal(2))
    with pytest.raises(TooManyAttempts, match="2 channels"):
        rates.open_channel(principal(1))
    closes[0]()
    rates.open_channel(principal(1))


def test_a_cost_above_the_burst_needs_a_full_bucket():
    clock = Clock()
    rates = Rates(LoadLimits(requests=10), clock=clock)
    rates.request(principal(1), 100)
    with pytest.raises(TooManyAttempts) as refused:
        rates.request(principal(1), 1.0)
    # 100 are taken at 10 per second, and 20 may be missing.
    assert refused.value.details == {"retry_after_seconds": 9}


def test_the_memory_is_bounded():
    buckets = Buckets(Clock(), max_keys=10)
    for number in range(1000):
        buckets.take(str(number), 1.0, 1.0)
    assert len(buckets) == 10


def limited(world: World, **limits: Any) -> None:
    """Gives the API other limits, on a clock that stands still."""
    load = LoadShedding(LoadLimits(**limits), clock=Clock())
    world.app.state.services = replace(world.services, load=load)


@on_sqlite
async def test_only_the_flooding_user_gets_429(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    limited(world, requests=5)
    answers = [(await world.client.get("/api/pools", headers=ada)).status_code for _ in range(12)]
    assert answers == [200] * 10 + [429] * 2
    refused = await world.client.get("/api/pools", headers=ada)
    assert refused.json()["code"] == "too-many-requests"
    assert refused.headers["Retry-After"] == "1"
    assert (await world.client.get("/api/pools", headers=bob)).status_code == 200


@on_sqlite
async def test_dry_runs_have_their_own_limit(world: World):
    ada = await world.user("ada")
    await world.submit(ada, name="web")
    limited(world, queries=1)
    body = {"containers": [{"image": "nginx"}]}
    first = await world.client.get("/api/workloads/web/explanation", headers=ada)
    second = await world.client.post("/api/workloads/dry-run", json=body, headers=ada)
    third = await world.client.get("/api/workloads/web/explanation", headers=ada)
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert (await world.client.get("/api/workloads/web", headers=ada)).status_code == 200


@on_sqlite
async def test_requests_without_a_valid_login_are_counted_by_address_and_separately_from_health_checks(world: World):
    ada = await world.user("ada")
    limited(world, address_requests=2)
    wrong = {"Authorization": "Bearer made-up"}
    answers = [
        (await world.client.get("/api/pools")).status_code,
        (await world.client.get("/api/pools", headers=wrong)).status_code,
        (await world.client.get("/api/pools", headers=wrong)).status_code,
        (await world.client.get("/openapi.json")).status_code,
        (await world.client.get("/api/pools")).status_code,
    ]
    # The description of the API costs a whole burst.
    assert answers == [401, 401, 401, 429, 401]
    assert (await world.client.get("/api/pools")).status_code == 429
    # There are many people behind one address, and those who watch the server.
    assert (await world.client.get("/api/pools", headers=ada)).status_code == 200
    assert [(await world.client.get("/health")).status_code for _ in range(5)] == [200] * 4 + [429]
