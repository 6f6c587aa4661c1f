"""The first start, and the password that it gives out once."""

import asyncio

import pytest

from mooring import clock
from mooring.api.auth.bootstrap import first_start
from mooring.api.auth.passwords import Passwords
from mooring.model.errors import InvalidInput
from mooring.store.core.engine import Database
from mooring.store.tenancy import tenants, users


async def start(database: Database, password: str | None = None) -> str | None:
    return await first_start(database, Passwords(), password, clock.now())


async def verified(database: Database, password: str) -> bool:
    async with database.read() as connection:
        found = await users.credentials(connection, "admin")
    assert found is not None
    return await Passwords().verify(found.password_hash, password)


async def test_the_given_password_is_the_admins_and_later_starts_change_nothing(database: Database):
    assert await start(database, "admin123") == "admin123"
    assert await start(database, "another one") is None
    assert await start(database) is None
    assert await verified(database, "admin123")
    assert not await verified(database, "another one")


async def test_one_of_several_concurrent_starts_prints_the_valid_password(database: Database, migrated_url: str):
    others = [Database(migrated_url) for _ in range(3)]
    given = await asyncio.gather(*(start(other) for other in (database, *others)))
    for other in others:
        await other.close()
    passwords = [password for password in given if password is not None]
    assert len(passwords) == 1
    assert await verified(database, passwords[0])


async def test_a_password_that_is_too_short_stops_the_start(database: Database):
    with pytest.raises(InvalidInput, match="8 to 256"):
        await start(database, "short")
    async with database.read() as connection:
        assert not await tenants.has_admin(connection)


async def test_a_hash_that_cannot_be_read_is_a_wrong_password():
    assert not await Passwords().verify("nonsense", "password")
