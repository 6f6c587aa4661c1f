"""Policies: named rules that keypairs, users, projects and domains carry."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import not_there
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.policies import NO_POLICY, Policy, parse_policy, policy_rules
from mooring.model.quotas import Scope
from mooring.store import actions, events
from mooring.store.actions import Actor
from mooring.store.chunks import chunks
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import domains, keypairs, policies, projects, users
from mooring.store.types import AnyRow

CARRIERS = {Scope.KEYPAIR: keypairs, Scope.USER: users, Scope.PROJECT: projects, Scope.DOMAIN: domains}
KEEP_NONE = ""
"""Instead of a policy's name: carry none."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    id: UUID
    name: str
    policy: Policy
    carriers: int
    """How many tenants carry it."""
    created_at: datetime
    version: int

    @property
    def state(self) -> actions.State:
        return {"rules": policy_rules(self.policy)}


@dataclass(frozen=True, slots=True)
class Policies:
    """What holds for the work of a keypair: the policies that it and its user, project and domain carry."""

    by_scope: Mapping[Scope, Policy]

    @property
    def innermost(self) -> Policy:
        return next((self.by_scope[scope] for scope in Scope if scope in self.by_scope), NO_POLICY)


async def policy_of(connection: AsyncConnection, access_key: str) -> Policies:
    return (await policies_of(connection, [access_key])).get(access_key, Policies({}))


async def policies_of(connection: AsyncConnection, access_keys: Collection[str]) -> dict[str, Policies]:
    """Of many keypairs at once; those that nobody gave a policy to are not among them."""
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
    await actions.created(connection, actor, "policy", name, made, now)
    return made


async def lock(connection: AsyncConnection, name: str) -> None:
    """From here on the policy is changed by this transaction alone."""
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
    """Other rules in place of what was. Lowering a limit stops nothing that runs."""
    await lock(connection, name)
    before = await find(connection, name)
    await connection.execute(
        update(policies)
        .where(policies.c.id == before.id)
        .values(rules=policy_rules(policy), version=policies.c.version + 1)
    )
    after = await find(connection, name)
    await actions.changed(connection, actor, "policy", name, before, after, now, action)
    await tell(connection, after.id, after.version, now)
    return after


async def revert(
    connection: AsyncConnection, name: str, version: int | None, *, actor: Actor, now: datetime
) -> NamedPolicy:
    """Back to the rules of an earlier version, the one before if none is named; that is a change of its own."""
    await lock(connection, name)
    present = await find(connection, name)
    wanted = earlier(version, present.version, f"policy {name!r}")
    state = await actions.state_at(connection, "policy", name, wanted)
    if state is None:
        raise not_there(f"record of version {wanted} of policy {name!r}")
    return await change(connection, name, parse_policy(state["rules"]), actor=actor, now=now, action="revert")


async def remove(connection: AsyncConnection, name: str, *, actor: Actor, now: datetime) -> None:
    found = await find(connection, name)
    if found.carriers:
        raise Conflict(
            f"policy {name!r} is carried by {found.carriers} tenant{'s' if found.carriers > 1 else ''};"
            " take it away there first",
            code="in-use",
            details={"carriers": found.carriers},
        )
    await connection.execute(delete(policies).where(policies.c.id == found.id))
    await actions.removed(connection, actor, "policy", name, found, now)


async def id_of(connection: AsyncConnection, name: str) -> UUID | None:
    """What a tenant's `policy_id` is to be."""
    return None if name == KEEP_NONE else (await find(connection, name)).id


async def tell(connection: AsyncConnection, tenant_id: UUID, version: int, now: datetime) -> None:
    """Readers of limits look again."""
    await events.append(connection, [events.NewEvent("tenant", tenant_id, version, "policy")], now)


def earlier(version: int | None, present: int, what: str) -> int:
    """The version to go back to."""
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
