"""Domains, projects and memberships: made, changed, and removed only where nothing depends on them."""

import pytest

from mooring import clock
from mooring.model.errors import Conflict, NotFound
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Role
from mooring.store.core.engine import Database
from mooring.store.nodes import pool_access
from mooring.store.tenancy import (
    domains,
    keypairs,
    memberships,
    projects,
    tenants,
    users,
)
from tests.store.harness import Harness
from tests.store.tenant_builders import ACTOR, add_member, make_project, make_user, remove_member

NOW = clock.now()


async def test_a_domain_that_is_not_active_lets_none_of_its_users_in(database: Database):
    user_id = await make_user(database, "ada", domain="research")
    await database.write(lambda c: domains.change(c, "research", active=False, actor=ACTOR, now=NOW))
    async with database.read() as connection:
        found = await users.credentials(connection, "ada")
        account = await tenants.account(connection, user_id)
        domain = await domains.find(connection, "research")
    assert found is not None
    assert account is not None
    assert (found.active, account.active) == (False, False)
    assert (domain.active, domain.version) == (False, 2)


async def test_a_domain_with_users_or_projects_stays(database: Database):
    await make_user(database, "ada", domain="research")
    await make_project(database, "vision", domain="lab")
    with pytest.raises(Conflict, match="1 users"):
        await database.write(lambda c: domains.remove(c, "research", actor=ACTOR, now=NOW))
    with pytest.raises(Conflict, match="1 projects"):
        await database.write(lambda c: domains.remove(c, "lab", actor=ACTOR, now=NOW))
    await database.write(lambda c: projects.remove(c, "lab", "vision", actor=ACTOR, now=NOW))
    await database.write(lambda c: domains.remove(c, "lab", actor=ACTOR, now=NOW))
    async with database.read() as connection:
        with pytest.raises(NotFound):
            await domains.find(connection, "lab")


async def test_the_data_of_a_project_is_deleted_with_it(harness: Harness):
    database = harness.database
    vision = Tenant(Scope.PROJECT, str(await make_project(database, "vision")))
    await database.write(lambda c: pool_access.grant(c, "default", vision, "vision", actor=ACTOR, now=NOW))
    await database.write(lambda c: projects.remove(c, "default", "vision", actor=ACTOR, now=NOW))
    async with database.read() as connection:
        assert await pool_access.of_pool(connection, "default") == []


async def test_projects_of_two_domains_may_have_the_same_name_and_those_of_one_may_not(database: Database):
    await make_project(database, "vision", domain="research")
    await make_project(database, "vision", domain="lab")
    with pytest.raises(Conflict, match="has a project 'vision' already"):
        await make_project(database, "vision", domain="lab")


async def test_a_project_with_work_or_as_a_default_stays(harness: Harness):
    database = harness.database
    await harness.submit("web")
    with pytest.raises(Conflict, match="users have it as their default"):
        await database.write(lambda c: projects.remove(c, "default", "default", actor=ACTOR, now=NOW))
    await make_project(database, "vision")
    await add_member(database, "vision", "admin")
    await database.write(lambda c: users.change(c, "admin", project="vision", now=NOW))
    with pytest.raises(Conflict, match="recorded workloads belong"):
        await database.write(lambda c: projects.remove(c, "default", "default", actor=ACTOR, now=NOW))


async def test_a_member_of_several_projects_is_admin_of_some(database: Database):
    user_id = await make_user(database, "ada")
    vision = await make_project(database, "vision")
    speech = await make_project(database, "speech")
    await add_member(database, "vision", "ada", Role.PROJECT_ADMIN)
    await add_member(database, "speech", "ada")
    async with database.read() as connection:
        account = await tenants.account(connection, user_id)
        members = await memberships.of_project(connection, vision)
    assert account is not None
    assert account.principal.administers == {vision}
    assert account.principal.projects == {vision, speech, account.principal.project_id}
    assert [(member.username, member.role) for member in members] == [("ada", Role.PROJECT_ADMIN)]
    await add_member(database, "vision", "ada", Role.USER)
    async with database.read() as connection:
        account = await tenants.account(connection, user_id)
    assert account is not None
    assert account.principal.administers == frozenset()


async def test_a_user_of_another_domain_cannot_be_a_member(database: Database):
    await make_user(database, "ada", domain="research")
    await make_project(database, "vision", domain="lab")
    async with database.read() as connection:
        lab = await projects.find(connection, "lab", "vision")
        ada = await users.find(connection, "ada")
    with pytest.raises(NotFound, match="there is no user 'ada'"):
        await database.write(lambda c: memberships.add(c, lab, ada, Role.USER, actor=ACTOR, now=NOW))


async def test_the_end_of_a_membership_ends_its_keypairs(database: Database):
    user_id = await make_user(database, "ada")
    speech = await make_project(database, "speech")
    await add_member(database, "speech", "ada")
    access_key = await database.write(lambda c: keypairs.ensure(c, user_id, speech, NOW))
    with pytest.raises(Conflict, match="is the default project"):
        await remove_member(database, "default", "ada")
    await remove_member(database, "speech", "ada")
    async with database.read() as connection:
        assert not (await keypairs.find(connection, access_key)).active
        account = await tenants.account(connection, user_id)
    assert account is not None
    assert speech not in account.principal.projects
    with pytest.raises(NotFound):
        await remove_member(database, "speech", "ada")


async def test_a_default_project_is_one_of_a_members(database: Database):
    await make_user(database, "ada")
    await make_project(database, "speech")
    with pytest.raises(Conflict, match="is not a member of project 'speech'"):
        await database.write(lambda c: users.change(c, "ada", project="speech", now=NOW))


async def test_a_user_that_worked_stays_and_one_that_did_not_can_go(harness: Harness):
    database = harness.database
    await harness.submit("web")
    await make_user(database, "ada", role=Role.ADMIN)
    with pytest.raises(Conflict, match="1 workloads refer to it"):
        await database.write(lambda c: users.remove(c, "admin", actor=ACTOR, now=NOW))
    await database.write(lambda c: users.remove(c, "ada", actor=ACTOR, now=NOW))
    with pytest.raises(Conflict, match="only active admin"):
        await database.write(lambda c: users.remove(c, "admin", actor=ACTOR, now=NOW))
    async with database.read() as connection:
        assert [user.username for user in await users.every(connection)] == ["admin"]
