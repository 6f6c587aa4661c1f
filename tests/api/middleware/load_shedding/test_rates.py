"""How much one may ask for: whoever floods is refused, and nobody else."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.rates import Buckets, RateLimits, Rates
from mooring.model.errors import TooManyAttempts
from mooring.model.tenants import Principal, Role
from tests.api.test_throttle import Clock
from tests.api.world import World
from tests.store.databases import on_sqlite


def principal(number: int, role: Role = Role.USER) -> Principal:
    return Principal(UUID(int=number), f"user{number}", role, UUID(int=1), UUID(int=1), "key")


def accepted(rates: Rates, who: Principal, tries: int) -> int:
    """How many of so many requests at once are let in."""
    number = 0
    for _ in range(tries):
        try:
            rates.request(who)
        except TooManyAttempts:
            break
        number += 1
    return number


def test_two_seconds_worth_may_come_at_once_and_then_as_many_as_the_rate():
    clock = Clock()
    rates = Rates(RateLimits(requests=10), clock=clock)
    ada, bob = principal(1), principal(2)
    assert accepted(rates, ada, 100) == 20
    with pytest.raises(TooManyAttempts, match="try again in 1 second") as refused:
        rates.request(ada)
    assert (refused.value.code, refused.value.details) == ("too-many-requests", {"retry_after_seconds": 1})
    assert accepted(rates, bob, 5) == 5
    clock.time += 0.5
    assert accepted(rates, ada, 100) == 5
    clock.time += 3600
    assert accepted(rates, ada, 100) == 20


def test_one_who_has_nothing_left_is_refused_before_anything_is_looked_up():
    rates = Rates(RateLimits(requests=10), clock=Clock())
    ada = principal(1)
    rates.check(ada.user_id)
    accepted(rates, ada, 100)
    with pytest.raises(TooManyAttempts):
        rates.check(ada.user_id)
    rates.check(principal(2).user_id)


def test_an_admin_may_have_more():
    rates = Rates(RateLimits(requests=10, streams=2, admin_factor=3), clock=Clock())
    admin = principal(1, Role.ADMIN)
    assert accepted(rates, admin, 100) == 60
    with pytest.raises(TooManyAttempts):
        rates.check(admin.user_id)
    for _ in range(6):
        rates.open_stream(admin)
    with pytest.raises(TooManyAttempts, match="6 streams"):
        rates.open_stream(admin)


def test_ways_into_tasks_are_counted_while_they_are_open_and_apart_from_streams():
    rates = Rates(RateLimits(streams=1, channels=2))
    rates.open_stream(principal(1))
    closes = [rates.open_channel(principal(1)) for _ in range(2)]
    rates.open_channel(principal(2))
    with pytest.raises(TooManyAttempts, match="2 channels"):
        rates.open_channel(principal(1))
    closes[0]()
    rates.open_channel(principal(1))


def test_what_costs_more_than_there_ever_is_needs_a_full_bucket():
    clock = Clock()
    rates = Rates(RateLimits(requests=10), clock=clock)
    rates.request(principal(1), 100)
    with pytest.raises(TooManyAttempts) as refused:
        rates.request(principal(1))
    # 100 are taken at 10 per second, and 20 may be missing.
    assert refused.value.details == {"retry_after_seconds": 9}


def test_the_memory_is_bounded():
    buckets = Buckets(Clock(), most_keys=10)
    for number in range(1000):
        buckets.take(str(number), 1.0, 1.0)
    assert len(buckets) == 10


def limited(world: World, **limits: Any) -> None:
    """Gives the API other limits, on a clock that stands still."""
    rates = Rates(RateLimits(**limits), clock=Clock())
    world.app.state.services = replace(world.services, rates=rates)


@on_sqlite
async def test_429_hits_the_one_who_floods(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    limited(world, requests=5)
    answers = [(await world.client.get("/api/pools", headers=ada)).status_code for _ in range(12)]
    assert answers == [200] * 10 + [429] * 2
    refused = await world.client.get("/api/pools", headers=ada)
    assert refused.json()["code"] == "too-many-requests"
    assert refused.headers["Retry-After"] == "1"
    assert (await world.client.get("/api/pools", headers=bob)).status_code == 200


@on_sqlite
async def test_questions_have_a_limit_of_their_own(world: World):
    ada = await world.user("ada")
    await world.submit(ada, name="web")
    limited(world, questions=1)
    body = {"containers": [{"image": "nginx"}]}
    first = await world.client.get("/api/workloads/web/explanation", headers=ada)
    second = await world.client.post("/api/workloads/dry-run", json=body, headers=ada)
    third = await world.client.get("/api/workloads/web/explanation", headers=ada)
    assert (first.status_code, second.status_code, third.status_code) == (200, 200, 429)
    assert (await world.client.get("/api/workloads/web", headers=ada)).status_code == 200


@on_sqlite
async def test_those_without_a_login_are_counted_by_address_and_those_with_one_are_not(world: World):
    ada = await world.user("ada")
    limited(world, address_requests=2)
    wrong = {"Authorization": "Bearer made-up"}
    answers = [
        (await world.client.get("/health")).status_code,
        (await world.client.get("/api/pools")).status_code,
        (await world.client.get("/api/pools", headers=wrong)).status_code,
        (await world.client.get("/api/pools", headers=wrong)).status_code,
        (await world.client.get("/api/pools", headers=wrong)).status_code,
        (await world.client.get("/health")).status_code,
    ]
    assert answers == [200, 401, 401, 401, 429, 429]
    # Behind one address there are many people.
    assert (await world.client.get("/api/pools", headers=ada)).status_code == 200
