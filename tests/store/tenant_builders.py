"""Tenants for store tests, created as an admin would create them."""

from uuid import UUID

from mooring import clock
from mooring.model.tenancy.tenants import Role
from mooring.store.core.engine import Connection, Database
from mooring.store.tenancy import (
    domains,
    memberships,
    projects,
    users,
)
from mooring.store.tenancy.admin_actions import Actor

ACTOR = Actor(UUID(int=7), "root", "192.0.2.7")


async def make_user(
    database: Database, name: str, *, role: Role = Role.USER, domain: str = "default", project: str = "default"
) -> UUID:
    async def work(connection: Connection) -> UUID:
        return await users.create(
            connection,
            username=name,
            role=role,
            domain_id=await domains.ensure(connection, domain, clock.now()),
            project=project,
            password_hash=f"hash of {name}",
            now=clock.now(),
            actor=ACTOR,
        )

    return await database.write(work)


async def make_project(database: Database, name: str, *, domain: str = "default") -> UUID:
    async def work(connection: Connection) -> UUID:
        await domains.ensure(connection, domain, clock.now())
        of = await domains.find(connection, domain)
        return (await projects.create(connection, of, name, actor=ACTOR, now=clock.now())).id

    return await database.write(work)


async def add_member(database: Database, project: str, username: str, role: Role = Role.USER) -> None:
    async def work(connection: Connection) -> None:
        user = await users.find(connection, username)
        of = await projects.find(connection, user.domain, project)
        await memberships.add(connection, of, user, role, actor=ACTOR, now=clock.now())

    await database.write(work)


async def remove_member(database: Database, project: str, username: str) -> None:
    async def work(connection: Connection) -> None:
        user = await users.find(connection, username)
        of = await projects.find(connection, user.domain, project)
        await memberships.remove(connection, of, user, actor=ACTOR, now=clock.now())

    await database.write(work)
