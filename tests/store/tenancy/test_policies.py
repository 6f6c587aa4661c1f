"""Policies: who carries which, which one speaks, and going back to what was."""

import pytest
from sqlalchemy import Executable, delete, update

from mooring import clock
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.tenancy.policies import NO_POLICY, parse_policy
from mooring.model.tenancy.quotas import Scope
from mooring.store import tables
from mooring.store.core.engine import Database
from mooring.store.tenancy import (
    admin_actions,
    domains,
    keypairs,
    policies,
    projects,
    users,
)
from tests.store.tenant_builders import ACTOR, make_user

NOW = clock.now()


async def make(database: Database, name: str, **rules: object) -> None:
    await database.write(lambda c: policies.create(c, name, parse_policy(rules), actor=ACTOR, now=NOW))


async def _change(database: Database, **rules: object) -> None:
    await database.write(lambda c: policies.change(c, "small", parse_policy(rules), actor=ACTOR, now=NOW))


async def test_the_innermost_policy_speaks_and_each_level_keeps_its_own(database: Database):
    user_id = await make_user(database, "ada", domain="research", project="vision")
    for number, name in enumerate(("of-domain", "of-project", "of-user", "of-keypair"), 1):
        await make(database, name, max_sessions=number)
    async with database.read() as connection:
        access_key = (await keypairs.every(connection, user_id=user_id))[0].access_key

    async def speaking() -> tuple[int | None, list[Scope]]:
        async with database.read() as connection:
            found = await policies.policy_of(connection, access_key)
        return found.effective.max_sessions, list(found.by_scope)

    assert await speaking() == (None, [])
    await database.write(lambda c: domains.change(c, "research", policy="of-domain", actor=ACTOR, now=NOW))
    assert await speaking() == (1, [Scope.DOMAIN])
    await database.write(lambda c: projects.change(c, "research", "vision", policy="of-project", actor=ACTOR, now=NOW))
    assert await speaking() == (2, [Scope.PROJECT, Scope.DOMAIN])
    await database.write(lambda c: users.change(c, "ada", policy="of-user", actor=ACTOR, now=NOW))
    await database.write(lambda c: keypairs.change(c, access_key, policy="of-keypair", actor=ACTOR, now=NOW))
    assert await speaking() == (4, list(Scope))
    await database.write(lambda c: keypairs.change(c, access_key, policy="", actor=ACTOR, now=NOW))
    assert await speaking() == (3, [Scope.USER, Scope.PROJECT, Scope.DOMAIN])


async def test_an_unknown_keypair_has_no_policy(database: Database):
    await make(database, "small", max_sessions=1)
    async with database.read() as connection:
        assert (await policies.policy_of(connection, "MKNONE")).effective == NO_POLICY


async def test_a_policy_that_is_carried_stays(database: Database):
    await make_user(database, "ada")
    await make(database, "small")
    await database.write(lambda c: users.change(c, "ada", policy="small", actor=ACTOR, now=NOW))
    with pytest.raises(Conflict, match="carried by 1 tenant;"):
        await database.write(lambda c: policies.remove(c, "small", actor=ACTOR, now=NOW))
    await database.write(lambda c: users.change(c, "ada", policy="", actor=ACTOR, now=NOW))
    await database.write(lambda c: policies.remove(c, "small", actor=ACTOR, now=NOW))
    async with database.read() as connection:
        assert await policies.every(connection) == []


async def test_a_policy_goes_back_to_any_earlier_version(database: Database):
    await make(database, "small", max_sessions=1)
    for number in (2, 3):
        await _change(database, max_sessions=number)

    async def revert(version: int | None) -> tuple[int, int | None]:
        found = await database.write(lambda c: policies.revert(c, "small", version, actor=ACTOR, now=NOW))
        return found.version, found.policy.max_sessions

    assert await revert(None) == (4, 2)
    assert await revert(1) == (5, 1)
    assert await revert(3) == (6, 3)
    for version in (0, 6, 9):
        with pytest.raises(InvalidInput, match="is at version 6"):
            await revert(version)


async def test_a_new_policy_of_an_old_name_goes_back_to_its_own_versions_only(database: Database):
    await make(database, "small", max_sessions=1)
    await database.write(lambda c: policies.remove(c, "small", actor=ACTOR, now=NOW))
    await make(database, "small", max_sessions=7)
    await _change(database, max_sessions=8)
    found = await database.write(lambda c: policies.revert(c, "small", 1, actor=ACTOR, now=NOW))
    assert found.policy.max_sessions == 7


async def test_every_change_is_recorded_with_actor_address_before_and_after(database: Database):
    await make(database, "small", max_sessions=1)
    await _change(database, max_sessions=2)
    async with database.read() as connection:
        newest, oldest = await admin_actions.page(connection, noun="policy", object="small", limit=5)
    assert (newest.username, newest.address, newest.action, newest.version) == ("root", "192.0.2.7", "change", 2)
    assert newest.before == {"rules": {"max_sessions": 1}}
    assert newest.after == {"rules": {"max_sessions": 2}}
    assert (oldest.action, oldest.before, oldest.version) == ("create", None, 1)


async def test_a_change_that_fails_leaves_no_row(database: Database):
    await make(database, "small")
    with pytest.raises(Conflict):
        await make(database, "small")
    async with database.read() as connection:
        assert len(await admin_actions.page(connection, noun="policy", limit=5)) == 1


@pytest.mark.parametrize(
    "statement", [update(tables.admin_actions).values(username="eve"), delete(tables.admin_actions)]
)
async def test_records_of_admin_actions_cannot_be_changed_or_deleted(database: Database, statement: Executable):
    await make(database, "small")
    with pytest.raises(Exception, match="only ever added"):
        await database.write(lambda c: c.execute(statement))
    async with database.read() as connection:
        assert [action.username for action in await admin_actions.page(connection, limit=5)] == ["root"]
