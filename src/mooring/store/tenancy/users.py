"""Users and their identities.

A password is an identity with the issuer `mooring`, the username as subject and the password hash as secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.tenancy.access import Target, not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Role
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    domains,
    identities,
    join_tokens,
    memberships,
    nodes,
    policies,
    submissions,
    timeslots,
    users,
    volumes,
    workloads,
)
from mooring.store.tables import keypairs as keypair_table
from mooring.store.tables import projects as project_table
from mooring.store.tenancy import admin_actions, keypairs, logins, projects
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.policies import id_of, notify
from mooring.store.tenancy.tenant_cleanup import forget

PASSWORD_ISSUER = "mooring"


@dataclass(frozen=True, slots=True)
class User:
    """A user, with the names of its domain, default project and policy."""

    id: UUID
    username: str
    role: Role
    active: bool
    domain_id: UUID
    domain: str
    project_id: UUID
    project: str
    os_user: str | None
    policy: str | None
    created_at: datetime
    version: int

    @property
    def target(self) -> Target:
        return Target(self.domain_id, user_id=self.id, role=self.role)

    @property
    def state(self) -> admin_actions.State:
        return {
            "role": self.role.value,
            "active": self.active,
            "domain": self.domain,
            "project": self.project,
            "os_user": self.os_user,
            "policy": self.policy,
        }


@dataclass(frozen=True, slots=True)
class Credentials:
    """The data that a password login is checked against."""

    user_id: UUID
    active: bool
    token_epoch: int
    password_hash: str | None


async def create(
    connection: AsyncConnection,
    *,
    username: str,
    role: Role,
    domain_id: UUID,
    project: str,
    password_hash: str | None,
    now: datetime,
    os_user: str | None = None,
    actor: Actor = admin_actions.SERVER,
) -> UUID:
    """Create a user with a keypair, and a password if its hash is given; create the project if it does not exist."""
    project_id, _ = await projects.ensure(connection, domain_id, project, now, actor)
    user_id = new_id()
    is_new = await insert_new(
        connection,
        users,
        {
            "id": user_id,
            "name": username,
            "role": role.value,
            "active": True,
            "domain_id": domain_id,
            "project_id": project_id,
            "os_user": os_user,
            "created_at": now,
        },
    )
    if not is_new:
        raise Conflict(f"there is a user {username!r} already", code="user-exists")
    if password_hash is not None:
        await _set_password(connection, user_id, username, password_hash)
    await connection.execute(
        insert(memberships).values(user_id=user_id, project_id=project_id, role=Role.USER.value, created_at=now)
    )
    await keypairs.ensure(connection, user_id, project_id, now)
    await admin_actions.created(connection, actor, "user", username, await find(connection, username), now)
    return user_id


async def credentials(connection: AsyncConnection, username: str) -> Credentials | None:
    """Return the credentials of a user with a password. A user of an inactive domain is inactive."""
    row = (
        await connection.execute(
            select(users.c.id, users.c.active & domains.c.active, users.c.token_epoch, identities.c.secret_hash)
            .join(identities, identities.c.user_id == users.c.id)
            .join(domains, domains.c.id == users.c.domain_id)
            .where(identities.c.issuer == PASSWORD_ISSUER, identities.c.subject == username)
        )
    ).one_or_none()
    return Credentials(*row) if row is not None else None


async def find(connection: AsyncConnection, username: str) -> User:
    row = (await connection.execute(_users().where(users.c.name == username))).one_or_none()
    if row is None:
        raise not_there(f"user {username[:63]!r}")
    return _user(row)


async def find_member(connection: AsyncConnection, project: projects.Project, username: str) -> User:
    """Return a member of the project. The error does not reveal whether a non-member exists."""
    is_member = exists().where(memberships.c.user_id == users.c.id, memberships.c.project_id == project.id)
    row = (await connection.execute(_users().where(users.c.name == username, is_member))).one_or_none()
    if row is None:
        raise not_there(f"member {username[:63]!r} of project {project.name!r}")
    return _user(row)


async def every(connection: AsyncConnection, *, domain_id: UUID | None = None) -> list[User]:
    query = _users().order_by(users.c.name)
    if domain_id is not None:
        query = query.where(users.c.domain_id == domain_id)
    return [_user(row) for row in await connection.execute(query)]


async def change_password(
    connection: AsyncConnection,
    user_id: UUID,
    *,
    old_hash: str | None,
    new_hash: str,
    revoke_keypairs: bool = False,
    actor: Actor,
    now: datetime,
) -> int:
    """Replace the password that was verified as `old_hash`, invalidate all issued tokens and return the new epoch."""
    changed = await connection.execute(
        update(identities)
        .where(
            identities.c.user_id == user_id,
            identities.c.issuer == PASSWORD_ISSUER,
            identities.c.secret_hash == old_hash,
        )
        .values(secret_hash=new_hash)
    )
    if changed.rowcount != 1:
        raise Conflict("the password was changed by someone else at the same time; log in again")
    revoked = await keypairs.revoke_all(connection, user_id, actor=actor, now=now) if revoke_keypairs else 0
    after = {"revoked_keypairs": revoked} if revoke_keypairs else None
    await admin_actions.record(connection, actor, "change-password", "user", actor.username, now=now, after=after)
    return await _end_tokens(connection, user_id)


async def change(
    connection: AsyncConnection,
    username: str,
    *,
    role: Role | None = None,
    active: bool | None = None,
    os_user: str | None = None,
    password_hash: str | None = None,
    project: str | None = None,
    policy: str | None = None,
    revoke_keypairs: bool = False,
    now: datetime,
    actor: Actor = admin_actions.SERVER,
) -> User:
    """Change the given attributes; "" removes `os_user` or `policy`.

    A new password or a deactivation invalidates all issued tokens.
    """
    await _check_admins(connection, username, dismissed=active is False or role not in (None, Role.ADMIN))
    before = await find(connection, username)
    values: dict[str, Any] = {}
    if role is not None:
        values["role"] = role.value
    if active is not None:
        values["active"] = active
    if os_user is not None:
        values["os_user"] = os_user or None
    if project is not None:
        values["project_id"] = await project_of_member(connection, before, project)
    if policy is not None:
        values["policy_id"] = await id_of(connection, policy)
    if values:
        await connection.execute(
            update(users).where(users.c.id == before.id).values(**values, version=users.c.version + 1)
        )
    if password_hash is not None:
        await _set_password(connection, before.id, username, password_hash)
    if password_hash is not None or active is False:
        await _end_tokens(connection, before.id)
    if revoke_keypairs:
        await keypairs.revoke_all(connection, before.id, actor=actor, now=now)
    after = await find(connection, username)
    if values:
        await admin_actions.changed(connection, actor, "user", username, before, after, now)
    if password_hash is not None:
        await admin_actions.record(
            connection, actor, "reset-password", "user", username, now=now, version=after.version
        )
    if policy is not None or active is not None:
        await notify(connection, after.id, after.version, now)
    return after


async def remove(connection: AsyncConnection, username: str, *, actor: Actor, now: datetime) -> None:
    """Remove the user with its keypairs, memberships and identities.

    Raise Conflict if a stored workload, timeslot, node, join token or volume refers to the user.
    """
    await _check_admins(connection, username, dismissed=True)
    found = await find(connection, username)
    for table, column in (
        (workloads, workloads.c.user_id),
        (timeslots, timeslots.c.user_id),
        (nodes, nodes.c.joined_by),
        (nodes, nodes.c.owner_id),
        (join_tokens, join_tokens.c.created_by),
        (volumes, volumes.c.created_by),
    ):
        number = await connection.execute(select(func.count()).select_from(table).where(column == found.id))
        if count := number.scalar_one():
            raise Conflict(
                f"user {username!r} cannot be removed: {count} {table.name.replace('_', ' ')} refer to it;"
                " deactivate it instead",
                code="in-use",
                details={table.name: count},
            )
    own = await keypairs.every(connection, user_id=found.id)
    await forget(
        connection, [Tenant(Scope.USER, str(found.id)), *(Tenant(Scope.KEYPAIR, key.access_key) for key in own)]
    )
    for owned in (submissions, keypair_table, memberships, identities):
        await connection.execute(delete(owned).where(owned.c.user_id == found.id))
    await connection.execute(delete(users).where(users.c.id == found.id))
    await admin_actions.removed(connection, actor, "user", username, found, now)


async def _check_admins(connection: AsyncConnection, username: str, *, dismissed: bool) -> None:
    """Lock the user; raise Conflict if it is the only active admin and is to be dismissed."""
    # Lock every admin first: if two admins dismiss each other, the second transaction sees that its target is the last.
    admins = (
        await connection.execute(
            select(users.c.id)
            .where(users.c.role == Role.ADMIN.value, users.c.active)
            .order_by(users.c.id)
            .with_for_update()
        )
    ).scalars()
    admin_ids = set(admins)
    row = (await connection.execute(select(users.c.id).where(users.c.name == username).with_for_update())).one_or_none()
    if row is not None and admin_ids == {row.id} and dismissed:
        raise Conflict(f"{username!r} is the only active admin; make another user an admin first", code="last-admin")


async def project_of_member(connection: AsyncConnection, user: User, project: str) -> UUID:
    found = await projects.find(connection, user.domain, project)
    this = (memberships.c.user_id == user.id) & (memberships.c.project_id == found.id)
    if (await connection.execute(select(memberships.c.role).where(this))).first() is None:
        raise Conflict(
            f"{user.username!r} is not a member of project {project!r}; add it with `mooring project add-member`",
            code="not-a-member",
        )
    return found.id


async def _set_password(connection: AsyncConnection, user_id: UUID, username: str, password_hash: str) -> None:
    is_new = await insert_new(
        connection,
        identities,
        {
            "id": new_id(),
            "user_id": user_id,
            "issuer": PASSWORD_ISSUER,
            "subject": username,
            "secret_hash": password_hash,
        },
    )
    if not is_new:
        await connection.execute(
            update(identities)
            .where(identities.c.user_id == user_id, identities.c.issuer == PASSWORD_ISSUER)
            .values(secret_hash=password_hash)
        )


async def end_logins(connection: AsyncConnection, user: User, *, actor: Actor, now: datetime) -> int:
    """End all logins of a user; return the number of those that were stored."""
    ended = await logins.end_all(connection, user.id)
    await _end_tokens(connection, user.id)
    before = {"logins": ended}
    await admin_actions.record(connection, actor, "revoke-logins", "user", user.username, now=now, before=before)
    return ended


async def _end_tokens(connection: AsyncConnection, user_id: UUID) -> int:
    await logins.end_all(connection, user_id)
    found = await connection.execute(
        update(users)
        .where(users.c.id == user_id)
        .values(token_epoch=users.c.token_epoch + 1, version=users.c.version + 1)
        .returning(users.c.token_epoch)
    )
    return int(found.scalar_one())


def _users() -> Select[Any]:
    return (
        select(
            users.c.id,
            users.c.name,
            users.c.role,
            users.c.active,
            users.c.domain_id,
            domains.c.name.label("domain"),
            users.c.project_id,
            project_table.c.name.label("project"),
            users.c.os_user,
            policies.c.name.label("policy"),
            users.c.created_at,
            users.c.version,
        )
        .join(domains, domains.c.id == users.c.domain_id)
        .join(project_table, project_table.c.id == users.c.project_id)
        .join(policies, policies.c.id == users.c.policy_id, isouter=True)
    )


def _user(row: AnyRow) -> User:
    return User(row[0], row[1], Role(row.role), *row[3:])
