"""Quotas: limits and usage of tenants across all pools, and guarantees of projects in single pools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Select, Table, func, null, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import Target, not_there
from mooring.model.tenancy.policies import (
    NO_POLICY,
    Policy,
    Unspecified,
    parse_policy,
)
from mooring.model.tenancy.quotas import (
    PRIVATE_SESSIONS,
    SESSIONS,
    Scope,
    Tenant,
)
from mooring.store.commit.tenant_usage import ALL_POOLS
from mooring.store.control import events
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.inserts import insert_or_replace
from mooring.store.tables import (
    domains,
    keypairs,
    node_resources,
    pools,
    projects,
    slot_types,
    tenant_resources,
    users,
)

_ID = {"scope": "text", "tenant_id": "text", "id": "uuid"}
_JOIN_POLICY = "LEFT JOIN policies p ON p.id = t.policy_id"
_CARRIED = Statement(
    f"""
    SELECT i.ordinal, t.access_key, CAST(p.rules AS text) FROM {{rows}} i
    JOIN keypairs t ON i.scope = 'keypair' AND t.access_key = i.tenant_id {_JOIN_POLICY}
    UNION ALL
    SELECT i.ordinal, t.name, CAST(p.rules AS text) FROM {{rows}} i
    JOIN users t ON i.scope = 'user' AND t.id = i.id {_JOIN_POLICY}
    UNION ALL
    SELECT i.ordinal, t.name, CAST(p.rules AS text) FROM {{rows}} i
    JOIN projects t ON i.scope = 'project' AND t.id = i.id {_JOIN_POLICY}
    UNION ALL
    SELECT i.ordinal, t.name, CAST(p.rules AS text) FROM {{rows}} i
    JOIN domains t ON i.scope = 'domain' AND t.id = i.id {_JOIN_POLICY}
    """,
    _ID,
)
_SET = Statement(
    """
    SELECT i.ordinal, r.slot_name, CASE WHEN r.override_until > {now} THEN r.override_limit ELSE r."limit" END
    FROM {rows} i JOIN tenant_resources r ON r.scope = i.scope AND r.tenant_id = i.tenant_id AND r.pool = ''
    WHERE r."limit" IS NOT NULL OR r.override_until > {now}
    """,
    _ID,
    now="timestamptz",
)
_USED = Statement(
    """
    SELECT i.ordinal, r.pool, r.slot_name, r.reserved, r.used
    FROM {rows} i JOIN tenant_resources r ON r.scope = i.scope AND r.tenant_id = i.tenant_id
    """,
    _ID,
)
_COUNTED = frozenset({SESSIONS, PRIVATE_SESSIONS})
_LARGEST = 2**63 - 1
_TABLES = {Scope.KEYPAIR: keypairs, Scope.USER: users, Scope.PROJECT: projects, Scope.DOMAIN: domains}
_rows = tenant_resources.c


@dataclass(slots=True)
class Limits:
    """The display name of a tenant, and its limits by slot."""

    name: str
    amounts: dict[str, int] = field(default_factory=dict)


async def limits_of(connection: AsyncConnection, tenants: Iterable[Tenant], now: datetime) -> dict[Tenant, Limits]:
    """Return the limits on concurrent use of each tenant. Absent slots and absent (removed) tenants are unlimited."""
    requested = list(dict.fromkeys(tenants))
    queries = Writes.on(connection)
    ask_limits(queries, requested, now)
    return await resolve_limits(connection, requested, await queries.execute(connection))


def ask_limits(writes: Writes, tenants: Sequence[Tenant], now: datetime) -> None:
    """Add the queries that `resolve_limits` needs to a batch of writes."""
    if tenants:
        rows = [_row(tenant) for tenant in tenants]
        writes.ask(_CARRIED, rows)
        writes.ask(_SET, rows, now=now)


async def resolve_limits(
    connection: AsyncConnection, tenants: Sequence[Tenant], answers: Sequence[Sequence[Sequence[Any]]]
) -> dict[Tenant, Limits]:
    """Return the limits of the tenants from the results of the queries of `ask_limits`."""
    if not tenants:
        return {}
    of_policies, of_tenants = answers
    carried = {ordinal: (name, _policy(rules)) for ordinal, name, rules in of_policies}
    strict = any(policy.unspecified is Unspecified.LIMITED for _, policy in carried.values())
    every = await _every_slot(connection) if strict else ()
    found = {tenants[ordinal]: Limits(name, _by_policy(policy, every)) for ordinal, (name, policy) in carried.items()}
    for ordinal, slot, limit in of_tenants:
        if limit is not None and tenants[ordinal] in found:
            found[tenants[ordinal]].amounts[slot] = limit
    return found


async def next_end(connection: AsyncConnection, now: datetime) -> datetime | None:
    """Return the end of the override that ends next, at which a tenant's limits change; None if there is none."""
    ends: datetime | None = await connection.scalar(
        select(func.min(_rows.override_until)).where(_rows.override_until > now)
    )
    return ends


class Amount(NamedTuple):
    reserved: int = 0
    used: int = 0


Usage = dict[tuple[Tenant, str], dict[str, Amount]]
"""Amounts by tenant and pool ("" for all pools together), then by slot."""


async def usage(connection: AsyncConnection, tenants: Iterable[Tenant]) -> Usage:
    """Return the amounts that the tenants have reserved and use, without those that are zero."""
    asked = list(dict.fromkeys(tenants))
    found: Usage = defaultdict(dict)
    if asked:
        for ordinal, pool, slot, reserved, used in await _USED.read(connection, [_row(tenant) for tenant in asked]):
            if reserved or used:
                found[asked[ordinal], pool][slot] = Amount(reserved, used)
    return dict(found)


async def guarantees(connection: AsyncConnection) -> dict[str, dict[str, dict[str, int]]]:
    """Return the guarantees of projects by pool, then by the project's id as text, then by slot."""
    rows = await connection.execute(
        select(_rows.tenant_id, _rows.pool, _rows.slot_name, _rows.guaranteed).where(_rows.guaranteed > 0)
    )
    found: dict[str, dict[str, dict[str, int]]] = {}
    for project_id, pool, slot, amount in rows:
        found.setdefault(pool, {}).setdefault(project_id, {})[slot] = amount
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """A tenant found by name or id, with its domain, project and user."""

    tenant: Tenant
    name: str
    """The name; for a project, preceded by its domain's."""
    target: Target


async def find(
    connection: AsyncConnection, scope: Scope, ref: str, *, seen: Callable[[Target], bool] = lambda _: True
) -> Found:
    """Return a keypair by its access key, or another tenant by its id or name, among those that `seen` accepts."""
    rows = await connection.execute(_named(scope, ref)) if ref.isprintable() else ()
    found = [
        Found(Tenant(scope, str(id)), name, Target(domain_id, project_id, user_id))
        for id, name, domain_id, project_id, user_id in rows
        if seen(Target(domain_id, project_id, user_id))
    ]
    if not found:
        raise not_there(f"{scope} {ref[:63]!r}")
    if len(found) > 1:
        raise InvalidInput(f"several domains have a {scope} {ref[:63]!r}: name it by its id", code="ambiguous-name")
    return found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """A change of a quota. Slots that it does not name keep their values; None removes a limit or a guarantee."""

    limits: Mapping[str, int | None] = field(default_factory=dict)
    until: datetime | None = None
    """If given, the limits are overrides of the tenant's limits that end at this time."""
    guaranteed: Mapping[str, int | None] = field(default_factory=dict)
    pool: str = ALL_POOLS
    """The pool of the guarantees."""


State = dict[str, Any]


async def set_quota(
    connection: AsyncConnection, found: Found, change: QuotaChange, now: datetime
) -> tuple[State, State]:
    """Change the limits and guarantees of a tenant and return its quota before and after. Running tasks continue."""
    await _check(connection, found.tenant, change, now)
    before = await _locked_state(connection, found.tenant)
    for slot, limit in sorted(change.limits.items()):
        if change.until is not None:
            values = {"override_limit": limit, "override_until": change.until}
        elif limit is not None:
            values = {"limit": limit}
        else:
            values = {"limit": None, "override_limit": None, "override_until": None}
        await _put(connection, found.tenant, ALL_POOLS, slot, values)
    for slot, amount in sorted(change.guaranteed.items()):
        await _put(connection, found.tenant, change.pool, slot, {"guaranteed": amount or 0})
    return before, await _notify_change(connection, found, before, now)


async def restore(connection: AsyncConnection, found: Found, wanted: State, now: datetime) -> tuple[State, State]:
    """Restore an earlier quota of a tenant without expired overrides, and return its quota before and after."""
    overrides = {
        slot: (_amount(slot, override["limit"]), datetime.fromisoformat(override["until"]))
        for slot, override in wanted["overrides"].items()
    }
    overrides = {slot: override for slot, override in overrides.items() if override[1] > now}
    for pool, amounts in wanted["guaranteed"].items():
        change = QuotaChange(guaranteed={slot: _amount(slot, amount) for slot, amount in amounts.items()}, pool=pool)
        await _check(connection, found.tenant, change, now)
    before = await _locked_state(connection, found.tenant)
    for slot in sorted({*before["limits"], *before["overrides"], *wanted["limits"], *overrides}):
        limit = wanted["limits"].get(slot)
        override_limit, until = overrides.get(slot, (None, None))
        values = {
            "limit": None if limit is None else _amount(slot, limit),
            "override_limit": override_limit,
            "override_until": until,
        }
        await _put(connection, found.tenant, ALL_POOLS, slot, values)
    for pool in sorted({*before["guaranteed"], *wanted["guaranteed"]}):
        given = wanted["guaranteed"].get(pool, {})
        for slot in sorted({*before["guaranteed"].get(pool, {}), *given}):
            await _put(connection, found.tenant, pool, slot, {"guaranteed": _amount(slot, given.get(slot, "0"))})
    return before, await _notify_change(connection, found, before, now)


def _amount(slot: str, written: str) -> int:
    return slot_type(slot).parse(written)


async def _locked_state(connection: AsyncConnection, tenant: Tenant) -> State:
    """Lock the tenant and return its quota, so that each change starts from the result of the previous one."""
    await lock(connection, tenant)
    return await state(connection, tenant)


async def lock(connection: AsyncConnection, tenant: Tenant) -> None:
    """Lock the tenant until the transaction ends, so that others cannot check its usage and add to it meanwhile."""
    table = _TABLES[tenant.scope]
    id = table.c.access_key == tenant.id if tenant.scope is Scope.KEYPAIR else table.c.id == UUID(tenant.id)
    await connection.execute(select(table.c.created_at).where(id).with_for_update(key_share=True))


async def _notify_change(connection: AsyncConnection, found: Found, before: State, now: datetime) -> State:
    """Return the quota after a change, and notify the mirrors with an event if it differs."""
    after = await state(connection, found.tenant)
    if after != before:
        tenant_id = found.target.user_id or found.target.project_id or found.target.domain_id
        assert tenant_id is not None
        await events.append(connection, [events.NewEvent("tenant", tenant_id, 0, events.QUOTA)], now)
    return after


async def state(connection: AsyncConnection, tenant: Tenant) -> State:
    """Return the limits, overrides and guarantees that are set for a tenant, formatted as text."""
    rows = await connection.execute(
        select(tenant_resources)
        .where(
            _rows.scope == tenant.scope,
            _rows.tenant_id == tenant.id,
            or_(_rows.limit.is_not(None), _rows.override_until.is_not(None), _rows.guaranteed > 0),
        )
        .order_by(_rows.pool, _rows.slot_name)
    )
    found: State = {"limits": {}, "overrides": {}, "guaranteed": {}}
    for row in rows:
        written = slot_type(row.slot_name).format
        if row.limit is not None:
            found["limits"][row.slot_name] = written(row.limit)
        if row.override_until is not None:
            until = row.override_until.isoformat()
            found["overrides"][row.slot_name] = {"limit": written(row.override_limit), "until": until}
        if row.guaranteed:
            found["guaranteed"].setdefault(row.pool, {})[row.slot_name] = written(row.guaranteed)
    return found


async def _check(connection: AsyncConnection, tenant: Tenant, change: QuotaChange, now: datetime) -> None:
    if not change.limits and not change.guaranteed:
        raise _refused("name at least one slot with a limit or a guarantee")
    for slot, amount in (*change.limits.items(), *change.guaranteed.items()):
        slot_type(slot)
        if amount is not None and not 0 <= amount <= _LARGEST:
            raise _refused(f"{slot}: an amount is between 0 and 2^63 - 1 units")
    if change.until is not None:
        if change.until <= now:
            raise _refused(f"an override until {change.until.isoformat()} would already be over")
        if not change.limits or None in change.limits.values():
            raise _refused("an override needs a limit; remove the slot's limit to end its override as well")
    if not change.guaranteed:
        return
    if tenant.scope is not Scope.PROJECT:
        raise _refused(f"only projects have guarantees, not a {tenant.scope}")
    if not _COUNTED.isdisjoint(change.guaranteed):
        raise _refused("sessions cannot be guaranteed")
    known = select(pools.c.id).where(pools.c.name == change.pool)
    if (await connection.execute(known)).first() is None:
        raise not_there(f"pool {change.pool[:63]!r}: a guarantee holds in one pool")


def _refused(problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid-quota")


async def _put(connection: AsyncConnection, tenant: Tenant, pool: str, slot: str, values: Mapping[str, Any]) -> None:
    key = {"scope": tenant.scope.value, "tenant_id": tenant.id, "pool": pool, "slot_name": slot}
    await insert_or_replace(connection, tenant_resources, key, values)


def _named(scope: Scope, ref: str) -> Select[Any]:
    """Return a query for the matching tenants: id, name, and the ids of the domain, project and user."""
    nobody = null()
    if scope is Scope.KEYPAIR:
        key = keypairs.c
        return (
            select(key.access_key.label("id"), key.access_key, users.c.domain_id, key.project_id, key.user_id)
            .join(users, users.c.id == key.user_id)
            .where(key.access_key == ref)
        )
    if scope is Scope.USER:
        user = users.c
        return select(user.id, user.name, user.domain_id, nobody, user.id.label("user_id")).where(_is(users, ref))
    if scope is Scope.PROJECT:
        project = projects.c
        path = domains.c.name + "/" + project.name
        return (
            select(project.id, path, project.domain_id, project.id.label("project_id"), nobody)
            .join(domains, domains.c.id == project.domain_id)
            .where(_is(projects, ref))
        )
    domain = domains.c
    return select(domain.id, domain.name, domain.id.label("domain_id"), nobody, nobody).where(_is(domains, ref))


def _is(table: Table, ref: str) -> ColumnElement[bool]:
    try:
        return or_(table.c.name == ref, table.c.id == UUID(ref))
    except ValueError:
        return table.c.name == ref


def _row(tenant: Tenant) -> tuple[str, str, UUID | None]:
    return tenant.scope.value, tenant.id, None if tenant.scope is Scope.KEYPAIR else UUID(tenant.id)


@lru_cache(maxsize=1000)
def _policy(rules: str | None) -> Policy:
    """Parse a policy's rules; cached, because every commit reads the same few policies."""
    return NO_POLICY if rules is None else parse_policy(msgspec.json.decode(rules))


def _by_policy(policy: Policy, every: Collection[str]) -> dict[str, int]:
    """Return the limits of a policy. If it forbids slots that it does not name, those in `every` get the limit 0."""
    found = dict.fromkeys(every, 0) if policy.unspecified is Unspecified.LIMITED else {}
    found |= policy.limits
    for slot, most in ((SESSIONS, policy.max_sessions), (PRIVATE_SESSIONS, policy.max_private_sessions)):
        if most is not None and most > 0:
            found[slot] = most
    return found


async def _every_slot(connection: AsyncConnection) -> list[str]:
    known = select(slot_types.c.name).union(select(node_resources.c.slot_name))
    return [name for (name,) in await connection.execute(known)]
