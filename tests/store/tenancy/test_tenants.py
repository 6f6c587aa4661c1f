"""Users, their passwords and keypairs, projects, the first start, and join tokens."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select

from mooring import clock
from mooring.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from mooring.model.tenancy.tenants import Role
from mooring.store import tables
from mooring.store.core.engine import Database
from mooring.store.nodes import join_tokens, pools
from mooring.store.tables import identities, keypairs, projects
from mooring.store.tenancy import (
    admin_actions,
    signing_keys,
    tenants,
    users,
)
from tests.store.tenant_builders import make_user


async def bootstrap(database: Database) -> bool:
    return await database.write(lambda c: tenants.bootstrap(c, password_hash="hash", now=clock.now()))


async def count(database: Database) -> list[int]:
    async with database.read() as connection:
        return [
            (await connection.execute(select(func.count()).select_from(table))).scalar_one()
            for table in (tables.domains, projects, tables.users, identities, keypairs)
        ]


async def test_the_first_start_makes_one_of_each_tenant(database: Database):
    assert await bootstrap(database)
    assert await count(database) == [1, 1, 1, 1, 1]
    assert not await bootstrap(database)
    assert await count(database) == [1, 1, 1, 1, 1]


async def test_one_of_several_concurrent_starts_creates_the_admin(database: Database, migrated_url: str):
    others = [Database(migrated_url) for _ in range(4)]
    created = await asyncio.gather(*(bootstrap(other) for other in (database, *others)))
    for other in others:
        await other.close()
    assert sorted(created) == [False, False, False, False, True]
    assert await count(database) == [1, 1, 1, 1, 1]


async def test_the_admin_is_a_principal_of_the_default_project(database: Database):
    await bootstrap(database)
    async with database.read() as connection:
        found = await users.credentials(connection, "admin")
        assert found is not None
        account = await tenants.account(connection, found.user_id)
    assert account is not None
    assert account.principal.is_admin
    assert account.principal.access_key.startswith("MK")
    assert len(account.principal.access_key) == 20
    assert found.password_hash == "hash"


async def test_projects_that_are_made_at_once_get_different_numbers(database: Database):
    await bootstrap(database)
    await asyncio.gather(*(make_user(database, f"user{n}", project=f"project{n % 4}") for n in range(8)))
    async with database.read() as connection:
        rows = (await connection.execute(select(projects.c.name, projects.c.number))).all()
    assert sorted(name for name, _ in rows) == ["default", "project0", "project1", "project2", "project3"]
    assert sorted(number for _, number in rows) == [1, 2, 3, 4, 5]


async def test_a_username_is_taken_once(database: Database):
    await make_user(database, "ada")
    before = await count(database)
    with pytest.raises(Conflict, match="there is a user 'ada' already"):
        await make_user(database, "ada", project="another")
    assert await count(database) == before


async def test_the_last_active_admin_stays(database: Database):
    await make_user(database, "ada", role=Role.ADMIN)
    await make_user(database, "bob", role=Role.ADMIN)
    outcomes = await asyncio.gather(
        database.write(lambda c: users.change(c, "ada", role=Role.USER, now=clock.now())),
        database.write(lambda c: users.change(c, "bob", active=False, now=clock.now())),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "User"]


async def test_omitted_fields_do_not_change(database: Database):
    user_id = await make_user(database, "ada")
    await database.write(lambda c: users.change(c, "ada", os_user="ada1", now=clock.now()))
    await database.write(lambda c: users.change(c, "ada", role=Role.ADMIN, now=clock.now()))
    async with database.read() as connection:
        user = await users.find(connection, "ada")
        account = await tenants.account(connection, user_id)
    assert (user.role, user.active, user.os_user) == (Role.ADMIN, True, "ada1")
    assert account is not None
    assert account.token_epoch == 1
    await database.write(lambda c: users.change(c, "ada", os_user="", now=clock.now()))
    async with database.read() as connection:
        assert (await users.find(connection, "ada")).os_user is None


async def test_two_changes_of_one_password_do_not_both_win(database: Database):
    user_id = await make_user(database, "ada")

    async def change(new: str) -> int:
        return await database.write(
            lambda c: users.change_password(
                c, user_id, old_hash="hash of ada", new_hash=new, actor=admin_actions.SERVER, now=clock.now()
            )
        )

    outcomes = await asyncio.gather(change("one"), change("two"), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "int"]


async def test_unknown_users_are_not_found(database: Database):
    async with database.read() as connection:
        assert await users.credentials(connection, "nobody") is None
        with pytest.raises(NotFound):
            await users.find(connection, "nobody")
    with pytest.raises(NotFound):
        await database.write(lambda c: users.change(c, "nobody", active=False, now=clock.now()))


async def test_one_of_two_first_servers_with_different_keys_is_refused(database: Database, migrated_url: str):
    other = Database(migrated_url)
    answers = await asyncio.gather(
        database.write(lambda c: signing_keys.register(c, ["a"], clock.now())),
        other.write(lambda c: signing_keys.register(c, ["b"], clock.now())),
    )
    await other.close()
    assert sorted(answers) in ([[], ["a"]], [[], ["b"]])


class JoinTokens:
    """A database with a pool and an admin, and join tokens for a node `n1`."""

    def __init__(self, database: Database, admin_id: UUID) -> None:
        self.database = database
        self.admin_id = admin_id
        self.now = clock.now()

    async def create(self, pool: str = "default") -> str:
        return await self.database.write(
            lambda c: join_tokens.create(
                c,
                node_name="n1",
                pool=pool,
                created_by=self.admin_id,
                expires_at=self.now + timedelta(minutes=1),
                now=self.now,
                region="eu-west",
                labels={"rack": "r1"},
            )
        )

    async def consume(self, token: str, *, after_seconds: int = 0, name: str | None = None) -> join_tokens.JoinGrant:
        at = self.now + timedelta(seconds=after_seconds)
        return await self.database.write(lambda c: join_tokens.consume(c, token, at, node_name=name))


@pytest.fixture
async def tokens(database: Database) -> JoinTokens:
    await database.write(lambda c: pools.ensure(c, "default", runtimes=["process"], simulated=False, now=clock.now()))
    await database.write(lambda c: pools.ensure(c, "play", runtimes=["process"], simulated=True, now=clock.now()))
    return JoinTokens(database, await make_user(database, "ada", role=Role.ADMIN))


async def test_a_join_token_is_used_once(tokens: JoinTokens):
    token = await tokens.create()
    grant = await tokens.consume(token, name="n1")
    assert (grant.node_name, grant.pool, grant.region, grant.labels) == ("n1", "default", "eu-west", {"rack": "r1"})
    assert grant.created_by == tokens.admin_id
    with pytest.raises(Conflict, match="used before"):
        await tokens.consume(token)


async def test_only_one_of_two_concurrent_uses_of_a_join_token_succeeds(tokens: JoinTokens):
    token = await tokens.create()
    outcomes = await asyncio.gather(tokens.consume(token), tokens.consume(token), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "JoinGrant"]


async def test_a_join_token_expires(tokens: JoinTokens):
    token = await tokens.create()
    with pytest.raises(NotAllowed, match="expired"):
        await tokens.consume(token, after_seconds=60)
    await tokens.consume(token, after_seconds=59)


async def test_a_join_token_is_for_one_name(tokens: JoinTokens):
    token = await tokens.create()
    with pytest.raises(NotAllowed, match="'n1', not 'n2'"):
        await tokens.consume(token, name="n2")
    await tokens.consume(token, name="n1")


@pytest.mark.parametrize("token", ["", "mj-nonsense", "'; DROP TABLE join_tokens; --", "\ud800"])
async def test_an_unknown_join_token_is_refused(tokens: JoinTokens, token: str):
    with pytest.raises(NotAllowed, match="unknown join token"):
        await tokens.consume(token)


async def test_a_real_node_cannot_join_a_simulated_or_unknown_pool(tokens: JoinTokens):
    with pytest.raises(InvalidInput, match="simulated"):
        await tokens.create(pool="play")
    with pytest.raises(NotFound):
        await tokens.create(pool="nowhere")
