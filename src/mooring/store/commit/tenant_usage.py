"""Usage of tenants: sums over their tasks, updated in the transaction that changes the tasks.

A tenant is charged for the request of a task from the moment that a node is reserved for it until it has ended: as
`used` once it has run, as `reserved` before. A lost task is charged to its node alone. A private workload is charged
only as one session.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING
from mooring.model.resources.slots import Amounts
from mooring.model.tenancy.quotas import (
    PRIVATE_SESSIONS,
    SESSIONS,
    Scope,
    Tenant,
)
from mooring.model.workloads.workload import Workload
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import Loaded, LoadedTask, LoadedWorkload
from mooring.store.control import events
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.types import as_uuid

_KEY = {"scope": "text", "tenant_id": "text", "pool": "text", "slot_name": "text"}
_SAME = "r.scope = i.scope AND r.tenant_id = i.tenant_id AND r.pool = i.pool AND r.slot_name = i.slot_name"
_DELTAS = _KEY | {"reserved": "bigint", "used": "bigint"}
# Rows are locked in the order in which they are written: that of their keys, which the sets are sorted by.
_ADD = Statement(
    """
    INSERT INTO tenant_resources (scope, tenant_id, pool, slot_name, reserved, used)
    SELECT i.scope, i.tenant_id, i.pool, i.slot_name, i.reserved, i.used FROM {rows} i WHERE true ORDER BY i.ordinal
    ON CONFLICT (scope, tenant_id, pool, slot_name)
    DO UPDATE SET reserved = tenant_resources.reserved + excluded.reserved, used = tenant_resources.used + excluded.used
    """,
    _DELTAS,
    only="tenant_resources",
)
_UPDATE = Statement(
    f"""
    UPDATE tenant_resources AS r SET reserved = r.reserved + i.reserved, used = r.used + i.used
    FROM {{rows}} i WHERE {_SAME}
    """,
    _DELTAS,
    only="tenant_resources",
)
_LOCK = Statement(
    f"SELECT 1 FROM {{rows}} i JOIN tenant_resources r ON {_SAME} ORDER BY i.ordinal {{lock}}",
    _KEY,
    lock="FOR NO KEY UPDATE OF r",
)
_LOCK_OR_MAKE = Statement(
    """
    INSERT INTO tenant_resources (scope, tenant_id, pool, slot_name)
    SELECT i.scope, i.tenant_id, i.pool, i.slot_name FROM {rows} i WHERE true ORDER BY i.ordinal
    ON CONFLICT (scope, tenant_id, pool, slot_name) DO UPDATE SET used = tenant_resources.used
    RETURNING scope, tenant_id, pool, slot_name, reserved, used
    """,
    _KEY,
)

ALL_POOLS = ""

Row = tuple[str, str, str, str]
"""The key of a counter: scope, tenant, pool ("" for all together), slot."""


class Owner(NamedTuple):
    """All tenants that are charged for a workload, and its pool. Ids are as the driver returned them."""

    access_key: str
    user_id: Any
    project_id: Any
    domain_id: Any
    pool: str


_owner = attrgetter(*Owner._fields)


def owner_of(workload: LoadedWorkload) -> Owner:
    return Owner(*_owner(workload))


def owners_of(workloads: Iterable[LoadedWorkload | Workload]) -> list[Owner]:
    """Return each distinct owner once."""
    return [Owner(*owner) for owner in set(map(_owner, workloads))]


@lru_cache(maxsize=10_000)
def tenants_of(owner: Owner) -> tuple[Tenant, ...]:
    """Return the tenants of an owner, innermost first."""
    return (
        Tenant(Scope.KEYPAIR, owner.access_key),
        Tenant(Scope.USER, str(as_uuid(owner.user_id))),
        Tenant(Scope.PROJECT, str(as_uuid(owner.project_id))),
        Tenant(Scope.DOMAIN, str(as_uuid(owner.domain_id))),
    )


@lru_cache(maxsize=10_000)
def _counters_of(owner: Owner) -> tuple[tuple[str, str, str], ...]:
    """Return the counters of an owner: limits apply over all pools, fair share and guarantees to one."""
    keypair, user, project, domain = ((tenant.scope.value, tenant.id) for tenant in tenants_of(owner))
    return (
        (*keypair, ALL_POOLS),
        (*user, ALL_POOLS),
        (*user, owner.pool),
        (*project, ALL_POOLS),
        (*project, owner.pool),
        (*domain, ALL_POOLS),
    )


def counters_of_project(project_id: UUID, domain_id: UUID, pool: str) -> tuple[tuple[str, str, str], ...]:
    """Return the counters of what a project has in a pool and that no single user is charged for."""
    project, domain = (Scope.PROJECT.value, str(project_id)), (Scope.DOMAIN.value, str(domain_id))
    return (*project, ALL_POOLS), (*project, pool), (*domain, ALL_POOLS)


def sessions_slot(workload: LoadedWorkload) -> str:
    return PRIVATE_SESSIONS if workload.private else SESSIONS


async def lock(connection: AsyncConnection, charged: Iterable[tuple[Owner, str]]) -> dict[Row, tuple[int, int]]:
    """Lock every counter of these owners and slots, in order, and return their (reserved, used).

    A transaction that reads counters to decide locks all counters that it will change: after nodes, before nothing.
    """
    return await lock_rows(connection, {(*counter, slot) for owner, slot in charged for counter in _counters_of(owner)})


async def lock_rows(connection: AsyncConnection, rows: Collection[Row]) -> dict[Row, tuple[int, int]]:
    """As `lock`, by the keys of the counters."""
    if not rows:
        return {}
    found = await _LOCK_OR_MAKE.read(connection, sorted(rows))
    return {(row[0], row[1], row[2], row[3]): (row[4], row[5]) for row in found}


@dataclass(slots=True)
class TenantUsage:
    """The changes of usage in one transaction: `begin` is called for each task before it changes, `write` after all."""

    _before: list[tuple[LoadedTask, str | None]] = field(default_factory=list)

    def begin(self, task: LoadedTask) -> None:
        """Remember where a task is charged before it changes."""
        self._before.append((task, _column(task)))

    def write(self, writes: Writes, loaded: Loaded, log: ChangeLog) -> None:
        """Add one statement for all tenants (more only if sums shrink); it takes the last locks of the transaction."""
        by_owner = self._by_owner(loaded)
        deltas: dict[Row, list[int]] = {}
        for owner, slots in by_owner.items():
            for slot, (reserved, used) in slots.items():
                if reserved or used:
                    for counter in _counters_of(owner):
                        delta = deltas.setdefault((*counter, slot), [0, 0])
                        delta[0] += reserved
                        delta[1] += used
        rows = sorted((*key, *delta) for key, delta in deltas.items() if any(delta))
        if rows:
            write_rows(writes, rows)
            self._notify(log, by_owner)

    def _by_owner(self, loaded: Loaded) -> dict[Owner, dict[str, list[int]]]:
        """Return the changes of (reserved, used) by owner and slot."""
        # Most tasks of a batch have the same request and the same change: count them first, then multiply once.
        ways: dict[tuple[tuple[Any, ...], str | None, str | None, int], int] = {}
        requests: dict[int, Amounts] = {}
        occupying: dict[UUID, int] = {}
        for task, before in self._before:
            after = _column(task)
            if after == before:
                continue
            workload = loaded.workloads[task.workload_id]
            occupying[workload.id] = occupying.get(workload.id, 0) + (after is not None) - (before is not None)
            if not workload.exempt:
                request = task.request
                requests[id(request)] = request
                way = (_owner(workload), before, after, id(request))
                ways[way] = ways.get(way, 0) + 1
        found: dict[Owner, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for (owner, before, after, request_id), number in ways.items():
            slots = found[Owner(*owner)]
            for slot, amount in requests[request_id].items():
                delta = slots[slot]
                if before is not None:
                    delta[before == "used"] -= number * amount
                if after is not None:
                    delta[after == "used"] += number * amount
        for (owner, slot), number in _sessions(occupying, loaded).items():
            found[Owner(*owner)][slot][1] += number
        return found

    def _notify(self, log: ChangeLog, owners: Iterable[Owner]) -> None:
        """Announce that the usage of these owners has changed."""
        ids = {as_uuid(id) for owner in owners for id in (owner.user_id, owner.project_id, owner.domain_id)}
        for id in sorted(ids):
            log.add_event(events.NewEvent("tenant", id, 0, events.USAGE))


def _sessions(occupying: Mapping[UUID, int], loaded: Loaded) -> Counter[tuple[tuple[Any, ...], str]]:
    """Return by owner and slot the number of workloads that now occupy nodes, less those that no longer do."""
    found: Counter[tuple[tuple[Any, ...], str]] = Counter()
    changed = [(workload_id, number) for workload_id, number in occupying.items() if number]
    if changed:
        present = Counter(task.workload_id for task in loaded.tasks.values() if task.status in OCCUPYING)
        for workload_id, number in changed:
            workload, after_all = loaded.workloads[workload_id], present[workload_id]
            found[_owner(workload), sessions_slot(workload)] += (after_all > 0) - (after_all - number > 0)
    return found


def write_rows(writes: Writes, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add to counters. A row is the key and the changes of `reserved` and `used`; rows are sorted."""
    # A row that shrinks exists already; an insert with a negative amount would violate the check constraint.
    decreases = [row for row in rows if row[4] < 0 or row[5] < 0]
    increases = [row for row in rows if row[4] >= 0 and row[5] >= 0]
    if decreases:
        if writes.dialect == "postgresql":
            writes.add(_LOCK, [row[:4] for row in rows])
        writes.add(_UPDATE, decreases)
    if increases:
        writes.add(_ADD, increases)


def _column(task: LoadedTask) -> str | None:
    """Return the column in which tenants are charged for a task: a hold counts as reserved."""
    if task.status not in OCCUPYING:
        return None
    return "used" if task.column == "used" else "reserved"
