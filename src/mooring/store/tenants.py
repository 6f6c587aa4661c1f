"""Tenants as a whole: those of a first start, and who a user is at this moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenants import Principal, Role
from mooring.store import domains, keypairs, users
from mooring.store.keypairs import Keypair
from mooring.store.tables import domains as domain_table
from mooring.store.tables import memberships
from mooring.store.tables import users as user_table

DEFAULT_DOMAIN = "default"
DEFAULT_PROJECT = "default"
FIRST_ADMIN = "admin"


_STANDING = (
    select(
        user_table.c.name,
        user_table.c.role,
        user_table.c.domain_id,
        user_table.c.project_id,
        (user_table.c.active & domain_table.c.active).label("active"),
        user_table.c.token_epoch,
        keypairs.carrying(user_table.c.id, user_table.c.project_id)
        .correlate(user_table)
        .scalar_subquery()
        .label("access_key"),
        memberships.c.project_id.label("member_of"),
        memberships.c.role.label("as_what"),
    )
    .join(domain_table, domain_table.c.id == user_table.c.domain_id)
    .join(memberships, memberships.c.user_id == user_table.c.id, isouter=True)
    .where(user_table.c.id == bindparam("user_id"))
)
"""Asked by every request: made once."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Who a user is at this moment, and which tokens of it still count."""

    principal: Principal
    active: bool
    token_epoch: int

    def by(self, keypair: Keypair) -> Principal:
        """The user as one of its keypairs lets it act: in the keypair's project, within its scope."""
        return replace(
            self.principal,
            project_id=keypair.project_id,
            access_key=keypair.access_key,
            scope=keypair.scope,
            by_keypair=True,
        )


async def has_admin(connection: AsyncConnection) -> bool:
    """Whether the first start is over."""
    found = await connection.execute(select(user_table.c.id).where(user_table.c.name == FIRST_ADMIN))
    return found.first() is not None


async def bootstrap(connection: AsyncConnection, *, password_hash: str, now: datetime) -> bool:
    """The tenants of a first start: domain and project `default`, and the user `admin`. True if the admin is new.

    Of two servers that start at once one makes them; the other waits at the domain's name and then finds them.
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


async def standing(connection: AsyncConnection, user_id: UUID) -> Standing | None:
    """The user as a principal of its default project, with all its memberships; its domain has to be active too.

    Its workloads carry its oldest keypair there that does not end by itself; the access key is "" where it has none.
    """
    rows = (await connection.execute(_STANDING, {"user_id": user_id})).all()
    if not rows:
        return None
    row = rows[0]
    principal = Principal(
        user_id,
        row.name,
        Role(row.role),
        row.domain_id,
        row.project_id,
        row.access_key or "",
        administers=frozenset(each.member_of for each in rows if each.as_what == Role.PROJECT_ADMIN),
        projects=frozenset(each.member_of for each in rows if each.member_of is not None),
    )
    return Standing(principal, row.active, row.token_epoch)
