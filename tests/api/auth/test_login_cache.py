"""Cached logins: most requests need no query for theirs, and a revocation counts from the next request on."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import event

from mooring import clock
from mooring.api.auth.login_cache import LoginCache
from mooring.api.auth.logins import Login
from mooring.model.tenancy.tenants import Principal, Role
from mooring.store.control.configuration_version import ConfigurationVersion
from mooring.store.core.ids import new_id
from mooring.store.tenancy import domains
from tests.api.world import PASSWORD, World

SHOWN = b"Bearer some-token"
NOW = clock.now()


def some_login() -> Login:
    ids = [new_id() for _ in range(3)]
    return Login(Principal(ids[0], "ada", Role.USER, ids[1], ids[2], "key"), None)


async def queries_during(world: World, headers: dict[str, str], *, requests: int = 1) -> int:
    """Return the number of queries for accounts that concurrent requests cause."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        found.append(statement)

    engine = world.services.database._reader.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        sent = (world.client.get("/api/workloads", headers=headers) for _ in range(requests))
        assert {answer.status_code for answer in await asyncio.gather(*sent)} == {200}
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sum("token_epoch" in statement for statement in found)


async def test_a_second_request_needs_no_query_for_its_login(world: World):
    ada = await world.user("ada")
    await world.client.get("/api/workloads", headers=ada)
    assert await queries_during(world, ada) == 0


@pytest.mark.parametrize("change", [{"active": False}, {"password": PASSWORD + "!"}])
async def test_revocation_counts_at_the_next_request(world: World, change: dict[str, object]):
    ada, admin = await world.user("ada"), await world.admin()
    for _ in range(2):
        assert (await world.client.get("/api/workloads", headers=ada)).status_code == 200
    assert (await world.client.patch("/api/users/ada", json=change, headers=admin)).status_code == 200
    assert (await world.client.get("/api/workloads", headers=ada)).status_code == 401


async def test_write_of_the_store_alone_invalidates_a_login(world: World):
    ada = await world.user("ada")
    await world.client.get("/api/workloads", headers=ada)
    # A transaction without a single event.
    await world.services.database.write(lambda c: domains.ensure(c, "another", clock.now()))
    assert await queries_during(world, ada) == 1


def test_login_is_found_until_the_configuration_changes_or_a_second_has_passed():
    version, login = ConfigurationVersion(), some_login()
    cache = LoginCache(version)
    assert cache.find(SHOWN, NOW) is None
    cache.add(SHOWN, login, cache.version, NOW)
    assert cache.find(SHOWN, NOW) is login
    assert cache.find(b"Bearer other", NOW) is None
    assert cache.find(SHOWN, NOW + timedelta(seconds=1)) is None
    assert cache.find(SHOWN, NOW - timedelta(seconds=1)) is None
    version.receive(frozenset({("task", "RUNNING"), ("pool", "placed"), ("tenant", "usage")}))
    assert cache.find(SHOWN, NOW) is login
    version.receive(frozenset({("task", "RUNNING"), ("configuration", "changed")}))
    assert cache.find(SHOWN, NOW) is None


def test_login_whose_query_began_before_a_change_is_not_used():
    version, login = ConfigurationVersion(), some_login()
    cache = LoginCache(version)
    before = cache.version
    version.receive(None)
    cache.add(SHOWN, login, before, NOW)
    assert cache.find(SHOWN, NOW) is None


def test_nothing_is_cached_without_a_version():
    cache = LoginCache()
    cache.add(SHOWN, some_login(), cache.version, NOW)
    assert cache.find(SHOWN, NOW) is None


async def test_concurrent_requests_of_one_credential_share_a_query(world: World):
    assert await queries_during(world, await world.user("ada"), requests=5) == 1
