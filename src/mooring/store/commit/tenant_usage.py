"""What tenants are charged with: the sums of what their tasks occupy, moved in the transaction that moves the tasks.

A tenant is charged with what a task requested from the moment that a node is kept for it until it has ended: `used`
once it ran, `reserved` before. A lost task is charged to its node alone. Private work counts by its number only.
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
from mooring.model.quotas import PRIVATE_SESSIONS, SESSIONS, Scope, Tenant
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.store import events
from mooring.store.history import Journal
from mooring.store.loading import Loaded, LoadedTask, LoadedWorkload
from mooring.store.sets import Statement, Writes
from mooring.store.types import as_uuid

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
)
_MOVE = Statement(
    f"""
    UPDATE tenant_resources AS r SET reserved = r.reserved + i.reserved, used = r.used + i.used
    FROM {{rows}} i WHERE {_SAME}
    """,
    _DELTAS,
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
    """Everybody who is charged with a workload, and the pool that it runs in; ids as the database gave them."""

    access_key: str
    user_id: Any
    project_id: Any
    domain_id: Any
    pool: str


_owner = attrgetter(*Owner._fields)


def owner_of(workload: LoadedWorkload) -> Owner:
    return Owner(*_owner(workload))


def owners_of(workloads: Iterable[LoadedWorkload | Workload]) -> list[Owner]:
    """Each once."""
    return [Owner(*owner) for owner in set(map(_owner, workloads))]


@lru_cache(maxsize=10_000)
def tenants_of(owner: Owner) -> tuple[Tenant, ...]:
    """The innermost first."""
    return (
        Tenant(Scope.KEYPAIR, owner.access_key),
        Tenant(Scope.USER, str(as_uuid(owner.user_id))),
        Tenant(Scope.PROJECT, str(as_uuid(owner.project_id))),
        Tenant(Scope.DOMAIN, str(as_uuid(owner.domain_id))),
    )


@lru_cache(maxsize=10_000)
def _counters_of(owner: Owner) -> tuple[tuple[str, str, str], ...]:
    """Where the owner's charges are counted: limits hold over all pools, fairness and guarantees are about one."""
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
    """Where what a project has in a pool counts that is no single user's."""
    project, domain = (Scope.PROJECT.value, str(project_id)), (Scope.DOMAIN.value, str(domain_id))
    return (*project, ALL_POOLS), (*project, pool), (*domain, ALL_POOLS)


def sessions_slot(workload: LoadedWorkload) -> str:
    return PRIVATE_SESSIONS if workload.private else SESSIONS


async def lock(connection: AsyncConnection, charged: Iterable[tuple[Owner, str]]) -> dict[Row, tuple[int, int]]:
    """Every counter of these owners and slots, locked in order until the transaction ends: (reserved, used).

    Whoever reads counters to decide on a charge locks all that the charge will move: nodes come before, nothing after.
    """
    return await lock_rows(connection, {(*counter, slot) for owner, slot in charged for counter in _counters_of(owner)})


async def lock_rows(connection: AsyncConnection, rows: Collection[Row]) -> dict[Row, tuple[int, int]]:
    """As `lock`, by the keys of the counters."""
    if not rows:
        return {}
    found = await _LOCK_OR_MAKE.read(connection, sorted(rows))
    return {(row[0], row[1], row[2], row[3]): (row[4], row[5]) for row in found}


@dataclass(slots=True)
class Charges:
    """The charges of one transaction: told of each task before it changes, written when all have."""

    _before: list[tuple[LoadedTask, str | None]] = field(default_factory=list)

    def begin(self, task: LoadedTask) -> None:
        """The task is about to change; its charge is still what it was."""
        self._before.append((task, _column(task)))

    def write(self, writes: Writes, loaded: Loaded, journal: Journal) -> None:
        """One statement for all tenants (more only where sums shrink), the last that locks."""
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
            self._tell(journal, by_owner)

    def _by_owner(self, loaded: Loaded) -> dict[Owner, dict[str, list[int]]]:
        """What comes to (reserved, used) by owner and slot."""
        # Most tasks of a batch ask for the same and go the same way: they are counted first, and summed once.
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

    def _tell(self, journal: Journal, owners: Iterable[Owner]) -> None:
        """Who follows what tenants use reads it again."""
        ids = {as_uuid(id) for owner in owners for id in (owner.user_id, owner.project_id, owner.domain_id)}
        for id in sorted(ids):
            journal.tell(events.NewEvent("tenant", id, 0, events.USAGE))


def _sessions(occupying: Mapping[UUID, int], loaded: Loaded) -> Counter[tuple[tuple[Any, ...], str]]:
    """By owner and counter: how many workloads come onto nodes, less those that leave them."""
    found: Counter[tuple[tuple[Any, ...], str]] = Counter()
    changed = [(workload_id, number) for workload_id, number in occupying.items() if number]
    if changed:
        present = Counter(task.workload_id for task in loaded.tasks.values() if task.status in OCCUPYING)
        for workload_id, number in changed:
            workload, after_all = loaded.workloads[workload_id], present[workload_id]
            found[_owner(workload), sessions_slot(workload)] += (after_all > 0) - (after_all - number > 0)
    return found


def write_rows(writes: Writes, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add to counters: their keys, and what comes to `reserved` and `used`; sorted."""
    # No row may be inserted with less than nothing; one that shrinks is there already.
    shrinking = [row for row in rows if row[4] < 0 or row[5] < 0]
    growing = [row for row in rows if row[4] >= 0 and row[5] >= 0]
    if shrinking:
        if writes.dialect == "postgresql":
            writes.add(_LOCK, [row[:4] for row in rows])
        writes.add(_MOVE, shrinking)
    if growing:
        writes.add(_ADD, growing)


def _column(task: LoadedTask) -> str | None:
    """Where its tenants are charged with a task: what a node keeps for it counts as reserved."""
    if task.status not in OCCUPYING:
        return None
    return "used" if task.column == "used" else "reserved"
