"""The tenants of a first start, and the current accounts of users with their memberships."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Principal, Role
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import domains as domain_table
from mooring.store.tables import logins, memberships, signing_keys
from mooring.store.tables import projects as project_table
from mooring.store.tables import users as user_table
from mooring.store.tenancy import domains, keypairs, users
from mooring.store.tenancy.keypairs import Keypair

DEFAULT_DOMAIN = "default"
DEFAULT_PROJECT = "default"
FIRST_ADMIN = "admin"


_ACCOUNTS = (
    select(
        user_table.c.id,
        user_table.c.name,
        user_table.c.role,
        user_table.c.domain_id,
        user_table.c.project_id,
        (user_table.c.active & domain_table.c.active).label("active"),
        user_table.c.token_epoch,
        keypairs.oldest_keypair(user_table.c.id, user_table.c.project_id)
        .correlate(user_table)
        .scalar_subquery()
        .label("access_key"),
        memberships.c.project_id.label("member_of"),
        memberships.c.role.label("as_what"),
    )
    .join(domain_table, domain_table.c.id == user_table.c.domain_id)
    .join(memberships, memberships.c.user_id == user_table.c.id, isouter=True)
)
_ACCOUNT = _ACCOUNTS.where(user_table.c.id == bindparam("user_id"))
_OF_TOKEN = _ACCOUNT.add_columns(
    select(signing_keys.c.revoked_at)
    .where(signing_keys.c.id == bindparam("key_id"))
    .scalar_subquery()
    .label("revoked"),
    select(logins.c.last_used_at)
    .where(logins.c.id == bindparam("login_id"), logins.c.user_id == bindparam("user_id"))
    .scalar_subquery()
    .label("login_used_at"),
)
"""Built once, because every request with a token runs it."""


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A user's current principal, whether the user is active, and the epoch that its valid tokens carry."""

    principal: Principal
    active: bool
    token_epoch: int

    def by(self, keypair: Keypair) -> Principal:
        """Return the principal of a keypair: the user, restricted to the keypair's project and scope."""
        return replace(
            self.principal,
            project_id=keypair.project_id,
            projects=self.principal.projects & {keypair.project_id},
            administers=self.principal.administers & {keypair.project_id},
            access_key=keypair.access_key,
            scope=keypair.scope,
            by_keypair=True,
        )


async def has_admin(connection: AsyncConnection) -> bool:
    """Return whether the first start has completed."""
    found = await connection.execute(select(user_table.c.id).where(user_table.c.name == FIRST_ADMIN))
    return found.first() is not None


async def bootstrap(connection: AsyncConnection, *, password_hash: str, now: datetime) -> bool:
    """Create the tenants of a first start (domain and project `default`, user `admin`); return whether admin is new.

    If two servers start at once, one creates them; the other blocks on the domain's unique name and then finds them.
    """
    domain_id = await domains.ensure(connection, DEFAULT_DOMAIN, now)
    if await has_admin(connection):
        return False
    await users.create(
        connection,
        username=FIRST_ADMIN,
        role=Role.ADMIN,
        domain_id=domain_id,
        project=DEFAULT_PROJECT,
        password_hash=password_hash,
        now=now,
    )
    return True


async def account(connection: AsyncConnection, user_id: UUID) -> UserAccount | None:
    """Return the user's account in its default project, with all memberships; active only if its domain is active too.

    Its workloads are charged to its oldest active keypair there without an expiry; without one the access key is "".
    """
    rows = (await connection.execute(_ACCOUNT, {"user_id": user_id})).all()
    return _account(rows) if rows else None


class TokenState(NamedTuple):
    """The account of a token, None if the user is gone, and what else decides whether the token is valid."""

    account: UserAccount | None
    key_revoked: bool = False
    login_used_at: datetime | None = None
    """The noted last use of its login; None: it has ended."""


async def account_of_token(
    connection: AsyncConnection, user_id: UUID, key_id: str, login_id: UUID | None
) -> TokenState:
    values = {"user_id": user_id, "key_id": key_id, "login_id": login_id}
    rows = (await connection.execute(_OF_TOKEN, values)).all()
    return TokenState(_account(rows), rows[0].revoked is not None, rows[0].login_used_at) if rows else TokenState(None)


async def accounts(connection: AsyncConnection, user_ids: Collection[UUID]) -> dict[UUID, UserAccount]:
    """Return the accounts of several users; removed users are absent."""
    rows: dict[UUID, list[AnyRow]] = {}
    for row in await connection.execute(_ACCOUNTS.where(among(user_table.c.id, user_ids))):
        rows.setdefault(row.id, []).append(row)
    return {user_id: _account(own) for user_id, own in rows.items()}


async def inactive(connection: AsyncConnection, tenants: Collection[Tenant]) -> dict[Tenant, str]:
    """Return those of the given users, projects and domains that are inactive, with their names."""
    found: dict[Tenant, str] = {}
    for scope, table in ((Scope.USER, user_table), (Scope.PROJECT, project_table), (Scope.DOMAIN, domain_table)):
        ids = [UUID(tenant.id) for tenant in tenants if tenant.scope is scope]
        if ids:
            rows = await connection.execute(
                select(table.c.id, table.c.name).where(among(table.c.id, ids), table.c.active.is_(False))
            )
            found |= {Tenant(scope, str(row.id)): row.name for row in rows}
    return found


def _account(rows: Sequence[AnyRow]) -> UserAccount:
    """Return the account from its rows, one per membership."""
    row = rows[0]
    principal = Principal(
        row.id,
        row.name,
        Role(row.role),
        row.domain_id,
        row.project_id,
        row.access_key or "",
        administers=frozenset(each.member_of for each in rows if each.as_what == Role.PROJECT_ADMIN),
        projects=frozenset(each.member_of for each in rows if each.member_of is not None),
    )
    return UserAccount(principal, row.active, row.token_epoch)
