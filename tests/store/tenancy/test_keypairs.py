"""Keypairs: secrets stored as hashes, scope, expiry, last use, and the keypair that owns a user's work."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select

from mooring import clock
from mooring.model.errors import Conflict, NotFound
from mooring.model.tenancy.tenants import KeyScope, Role
from mooring.store import tables
from mooring.store.core.engine import Connection, Database
from mooring.store.tenancy import (
    admin_actions,
    keypairs,
    tenants,
    users,
)
from mooring.store.tenancy.keypairs import Keypair
from tests.store.harness import Harness
from tests.store.tenant_builders import ACTOR, add_member, make_project, make_user

NOW = clock.now()


async def make(database: Database, username: str, expires_at: datetime | None = None) -> tuple[Keypair, str]:
    async def work(connection: Connection) -> tuple[Keypair, str]:
        user = await users.find(connection, username)
        return await keypairs.create(
            connection,
            user_id=user.id,
            project_id=user.project_id,
            scope=KeyScope.WORK,
            name="ci",
            expires_at=expires_at,
            actor=ACTOR,
            now=NOW,
        )

    return await database.write(work)


async def verified(database: Database, access_key: str, secret: str, at: datetime = NOW) -> Keypair | None:
    async with database.read() as connection:
        return await keypairs.verified(connection, access_key, secret, at)


async def test_a_secret_has_256_bits_and_is_stored_as_a_hash_only(database: Database):
    await make_user(database, "ada")
    made, secret = await make(database, "ada")
    assert len(secret) >= 43
    async with database.read() as connection:
        row = (
            await connection.execute(select(tables.keypairs).where(tables.keypairs.c.access_key == made.access_key))
        ).one()
        received = await admin_actions.page(connection, noun="keypair", limit=10)
    assert secret not in str(row)
    assert len(row.secret_hash) == 64
    assert secret not in str(received)
    assert row.secret_hash not in str(received)
    assert [action.object for action in received] == [made.access_key]


async def test_only_the_secret_opens(database: Database):
    await make_user(database, "ada")
    made, secret = await make(database, "ada")
    found = await verified(database, made.access_key, secret)
    assert found is not None
    assert (found.username, found.scope, found.name) == ("ada", KeyScope.WORK, "ci")
    assert await verified(database, "MK" + "A" * 18, secret) is None
    for guess in ("", "x", "secret\0", "é", "\ud800"):
        assert await verified(database, made.access_key, guess) is None
        assert await verified(database, guess, secret) is None


async def test_a_keypair_without_a_secret_opens_nothing(database: Database):
    user_id = await make_user(database, "ada")
    async with database.read() as connection:
        (own,) = await keypairs.every(connection, user_id=user_id)
    assert not own.has_secret
    assert await verified(database, own.access_key, "") is None


async def test_a_keypair_ends_at_its_time_and_when_it_is_deactivated(database: Database):
    await make_user(database, "ada")
    made, secret = await make(database, "ada", NOW + timedelta(minutes=1))
    assert await verified(database, made.access_key, secret, NOW + timedelta(seconds=59)) is not None
    assert await verified(database, made.access_key, secret, NOW + timedelta(seconds=60)) is None
    await database.write(lambda c: keypairs.change(c, made.access_key, active=False, actor=ACTOR, now=NOW))
    assert await verified(database, made.access_key, secret) is None


async def test_the_last_use_is_written_down_at_most_once_a_minute(database: Database):
    await make_user(database, "ada")
    made, _ = await make(database, "ada")

    async def used(seconds: int) -> datetime | None:
        at = NOW + timedelta(seconds=seconds)
        await database.write(lambda c: keypairs.note_use(c, made, at))
        async with database.read() as connection:
            return (await keypairs.find(connection, made.access_key)).last_used_at

    assert not keypairs.use_is_noted(made, NOW)
    assert await used(0) == NOW
    assert await used(59) == NOW
    assert keypairs.use_is_noted(replace(made, last_used_at=NOW), NOW + timedelta(seconds=59))
    assert await used(60) == NOW + timedelta(seconds=60)


async def test_work_after_a_login_is_carried_by_a_keypair_that_does_not_end(database: Database):
    user_id = await make_user(database, "ada")
    await make(database, "ada", NOW + timedelta(days=1))
    await make_project(database, "speech")
    async with database.read() as connection:
        account = await tenants.account(connection, user_id)
        assert account is not None
        found = await keypairs.find(connection, account.principal.access_key)
        elsewhere = await keypairs.project_access(connection, user_id, "speech")
    assert not found.has_secret
    assert elsewhere is not None
    assert elsewhere.access_key is None
    made = await database.write(lambda c: keypairs.ensure(c, user_id, elsewhere.project_id, NOW))
    assert await database.write(lambda c: keypairs.ensure(c, user_id, elsewhere.project_id, NOW)) == made


async def test_a_keypair_acts_in_its_project_within_its_scope(database: Database):
    user_id = await make_user(database, "ada")
    await make_project(database, "speech")
    await add_member(database, "speech", "ada", Role.PROJECT_ADMIN)
    made, _ = await make(database, "ada")
    async with database.read() as connection:
        account = await tenants.account(connection, user_id)
    assert account is not None
    who = account.by(made)
    assert (who.access_key, who.scope, who.by_keypair) == (made.access_key, KeyScope.WORK, True)
    assert who.projects == {made.project_id}
    assert who.administers == frozenset()


async def test_a_keypair_that_work_is_charged_to_stays(harness: Harness):
    await harness.submit("web")
    charged = harness.principal.access_key
    with pytest.raises(Conflict, match="deactivate it instead"):
        await harness.database.write(lambda c: keypairs.remove(c, charged, actor=ACTOR, now=NOW))
    made, _ = await make(harness.database, "admin")
    await harness.database.write(lambda c: keypairs.remove(c, made.access_key, actor=ACTOR, now=NOW))
    async with harness.database.read() as connection:
        with pytest.raises(NotFound):
            await keypairs.find(connection, made.access_key)
