"""Policies: named sets of rules, assigned to keypairs, users, projects and domains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, InvalidInput
from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.policies import (
    Policy,
    effective,
    parse_policy,
    policy_rules,
)
from mooring.model.tenancy.quotas import Scope
from mooring.store.control import events
from mooring.store.core.chunks import chunks
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.core.types import AnyRow
from mooring.store.tables import domains, keypairs, policies, projects, users
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

CARRIERS = {Scope.KEYPAIR: keypairs, Scope.USER: users, Scope.PROJECT: projects, Scope.DOMAIN: domains}
KEEP_NONE = ""
"""Stands for a policy's name and means no policy."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    id: UUID
    name: str
    policy: Policy
    carriers: int
    """Number of tenants that the policy is assigned to."""
    created_at: datetime
    version: int

    @property
    def state(self) -> admin_actions.State:
        return {"rules": policy_rules(self.policy)}


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that apply to the work of a keypair: its own and those of its user, project and domain."""

    by_scope: Mapping[Scope, Policy]

    @property
    def effective(self) -> Policy:
        """Each rule from the innermost policy that sets it."""
        return effective(self.by_scope[scope] for scope in Scope if scope in self.by_scope)


async def policy_of(connection: AsyncConnection, access_key: str) -> Policies:
    return (await policies_of(connection, [access_key])).get(access_key, Policies({}))


async def policies_of(connection: AsyncConnection, access_keys: Collection[str]) -> dict[str, Policies]:
    """Return the policies of the given keypairs; keypairs that no policy applies to are absent."""
    named = {row.id: parse_policy(row.rules) for row in await connection.execute(select(policies))}
    if not named:
        return {}
    found: dict[str, Policies] = {}
    for some in chunks(sorted(access_keys)):
        rows = await connection.execute(_carried().where(keypairs.c.access_key.in_(some)))
        for row in rows:
            by_scope = {scope: named[row[number]] for number, scope in enumerate(Scope, 1) if row[number] in named}
            if by_scope:
                found[row.access_key] = Policies(by_scope)
    return found


async def create(connection: AsyncConnection, name: str, policy: Policy, *, actor: Actor, now: datetime) -> NamedPolicy:
    values = {"id": new_id(), "name": name, "rules": policy_rules(policy), "created_at": now}
    if not await insert_new(connection, policies, values):
        raise Conflict(f"there is a policy {name!r} already", code="policy-exists")
    made = await find(connection, name)
    await admin_actions.created(connection, actor, "policy", name, made, now)
    return made


async def lock(connection: AsyncConnection, name: str) -> None:
    """Lock the policy against changes by others until the transaction ends."""
    await connection.execute(select(policies.c.id).where(policies.c.name == name).with_for_update())


async def find(connection: AsyncConnection, name: str) -> NamedPolicy:
    row = (await connection.execute(_policies().where(policies.c.name == name))).one_or_none()
    if row is None:
        raise not_there(f"policy {name[:63]!r}")
    return _policy(row)


async def every(connection: AsyncConnection) -> list[NamedPolicy]:
    return [_policy(row) for row in await connection.execute(_policies().order_by(policies.c.name))]


async def change(
    connection: AsyncConnection, name: str, policy: Policy, *, actor: Actor, now: datetime, action: str = "change"
) -> NamedPolicy:
    """Replace the rules of a policy. A lower limit does not stop running tasks."""
    await lock(connection, name)
    before = await find(connection, name)
    await connection.execute(
        update(policies)
        .where(policies.c.id == before.id)
        .values(rules=policy_rules(policy), version=policies.c.version + 1)
    )
    after = await find(connection, name)
    await admin_actions.changed(connection, actor, "policy", name, before, after, now, action)
    await notify(connection, after.id, after.version, now)
    return after


async def revert(
    connection: AsyncConnection, name: str, version: int | None, *, actor: Actor, now: datetime
) -> NamedPolicy:
    """Restore the rules of an earlier version, by default the previous one; this creates a new version."""
    await lock(connection, name)
    present = await find(connection, name)
    wanted = earlier(version, present.version, f"policy {name!r}")
    state = await admin_actions.state_at(connection, "policy", name, wanted)
    if state is None:
        raise not_there(f"record of version {wanted} of policy {name!r}")
    return await change(connection, name, parse_policy(state["rules"]), actor=actor, now=now, action="revert")


async def remove(connection: AsyncConnection, name: str, *, actor: Actor, now: datetime) -> None:
    found = await find(connection, name)
    if found.carriers:
        raise Conflict(
            f"policy {name!r} is carried by {found.carriers} tenant{'s' if found.carriers > 1 else ''};"
            " unassign it first",
            code="in-use",
            details={"carriers": found.carriers},
        )
    await connection.execute(delete(policies).where(policies.c.id == found.id))
    await admin_actions.removed(connection, actor, "policy", name, found, now)


async def id_of(connection: AsyncConnection, name: str) -> UUID | None:
    """Return the `policy_id` for a policy's name, None for `KEEP_NONE`."""
    return None if name == KEEP_NONE else (await find(connection, name)).id


async def notify(connection: AsyncConnection, tenant_id: UUID, version: int, now: datetime) -> None:
    """Append an event that makes readers of the tenant's limits and of its active flag reload them."""
    await events.append(connection, [events.NewEvent("tenant", tenant_id, version, "policy")], now)


def earlier(version: int | None, present: int, what: str) -> int:
    """Return the version to restore, by default the previous one; raise InvalidInput if it is not an earlier one."""
    wanted = present - 1 if version is None else version
    if not 1 <= wanted < present:
        raise InvalidInput(f"{what} is at version {present}: name an earlier one", code="invalid-version")
    return wanted


def _carried() -> Select[Any]:
    return (
        select(
            keypairs.c.access_key,
            keypairs.c.policy_id,
            users.c.policy_id,
            projects.c.policy_id,
            domains.c.policy_id,
        )
        .join(users, users.c.id == keypairs.c.user_id)
        .join(projects, projects.c.id == keypairs.c.project_id)
        .join(domains, domains.c.id == users.c.domain_id)
    )


def _policies() -> Select[Any]:
    counts: list[ColumnElement[int]] = [
        select(func.count())
        .select_from(table)
        .where(table.c.policy_id == policies.c.id)
        .correlate(policies)
        .scalar_subquery()
        for table in CARRIERS.values()
    ]
    return select(policies, sum(counts[1:], counts[0]).label("carriers"))


def _policy(row: AnyRow) -> NamedPolicy:
    return NamedPolicy(row.id, row.name, parse_policy(row.rules), row.carriers, row.created_at, row.version)
