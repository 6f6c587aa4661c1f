"""Counts of pending workloads by keypair, for limits that apply across servers, and of pending tasks by tenant."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus
from mooring.model.tenancy.quotas import SESSIONS, Scope, Tenant
from mooring.store.core.batch_sql import Statement
from mooring.store.tables import resource_allocations, tasks, workloads
from mooring.store.workloads.arrays import DEFERRED, deferred_count, has_deferred

_KEY = {"access_key": "text"}
_waits = f"t.current AND t.status = '{TaskStatus.PENDING}'"
_deferred = f"w.array IS NOT NULL AND {DEFERRED} > 0"
_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_LOCK = Statement(
    "SELECT 1 FROM {rows} i JOIN keypairs k ON k.access_key = i.access_key ORDER BY k.access_key {lock}",
    _KEY,
    lock="FOR NO KEY UPDATE OF k",
)
# Workloads with pending tasks and no task on a node.
_WAITING = f"""
    {{rows}} i
    JOIN keypairs k ON k.access_key = i.access_key
    JOIN workloads w ON w.user_id = k.user_id AND w.access_key = k.access_key
        AND w.status = '{WorkloadStatus.PENDING}' AND NOT w.private AND w.timeslot_id IS NULL AND NOT w.stopping
        AND ({_deferred} OR EXISTS (SELECT 1 FROM tasks t WHERE t.workload_id = w.id AND {_waits}))
        AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.workload_id = w.id AND t.status IN ({_occupying}))
"""
_NUMBER = Statement(f"SELECT i.ordinal, count(*) FROM {_WAITING} GROUP BY i.ordinal", _KEY)
_AMOUNTS = Statement(
    f"""
    SELECT i.ordinal, a.slot_name, sum(a.requested)
    FROM {_WAITING}
    JOIN tasks t ON t.workload_id = w.id AND {_waits}
    JOIN resource_allocations a ON a.task_id = t.id
    GROUP BY i.ordinal, a.slot_name
    """,
    _KEY,
)
_DEFERRED = Statement(
    f"SELECT i.ordinal, CAST(w.requested_slots AS text), {DEFERRED} FROM {_WAITING} WHERE {_deferred}", _KEY
)


_TENANT_COLUMNS = {
    Scope.KEYPAIR: workloads.c.access_key,
    Scope.USER: workloads.c.user_id,
    Scope.PROJECT: workloads.c.project_id,
    Scope.DOMAIN: workloads.c.domain_id,
}


async def pending_tasks(connection: AsyncConnection, tenant: Tenant) -> int:
    """Return the number of pending tasks of a tenant, deferred array tasks included."""
    own = _TENANT_COLUMNS[tenant.scope] == _id_of(tenant)
    with_rows = (
        select(func.count())
        .select_from(workloads.join(tasks, tasks.c.workload_id == workloads.c.id))
        .where(own, workloads.c.ended_at.is_(None), tasks.c.status == TaskStatus.PENDING, tasks.c.current)
    )
    deferred = select(func.coalesce(func.sum(deferred_count()), 0)).where(own, has_deferred())
    counts = select(with_rows.scalar_subquery() + deferred.scalar_subquery())
    return int((await connection.execute(counts)).scalar_one())


async def pending_amounts(connection: AsyncConnection, tenants: Sequence[Tenant]) -> dict[Tenant, dict[str, int]]:
    """Return the amounts that the pending tasks of each tenant request, by slot, and its pending workloads.

    A workload whose tasks wait counts once for the slot `sessions` if none of them is on a node.
    """
    own = [_TENANT_COLUMNS[tenant.scope] == _id_of(tenant) for tenant in tenants]
    if not own:
        return {}
    levels = list(_TENANT_COLUMNS.values())
    slot, amount = resource_allocations.c.slot_name, resource_allocations.c.requested
    of_tasks = (
        select(*levels, slot, func.sum(amount))
        .select_from(workloads.join(tasks, tasks.c.workload_id == workloads.c.id))
        .join(resource_allocations, resource_allocations.c.task_id == tasks.c.id)
        .where(or_(*own), workloads.c.ended_at.is_(None), tasks.c.status == TaskStatus.PENDING, tasks.c.current)
        .group_by(*levels, slot)
    )
    of_arrays = select(*levels, workloads.c.requested_slots, deferred_count()).where(or_(*own), has_deferred())
    waiting = (
        select(*levels, func.count())
        .where(or_(*own), workloads.c.status == WorkloadStatus.PENDING, workloads.c.timeslot_id.is_(None))
        .group_by(*levels)
    )
    found: list[tuple[Sequence[Any], str, int]] = []
    found += [(row, row[-2], int(row[-1])) for row in await connection.execute(of_tasks)]
    for row in await connection.execute(of_arrays):
        found += [(row, name, amount * int(row[-1])) for name, amount in row[-2].items()]
    found += [(row, SESSIONS, int(row[-1])) for row in await connection.execute(waiting)]
    sums: dict[Tenant, dict[str, int]] = {tenant: {} for tenant in tenants}
    position = {scope: at for at, scope in enumerate(_TENANT_COLUMNS)}
    for tenant, amounts in sums.items():
        for ids, name, number in found:
            if ids[position[tenant.scope]] == _id_of(tenant):
                amounts[name] = amounts.get(name, 0) + number
    return sums


def _id_of(tenant: Tenant) -> str | UUID:
    return tenant.id if tenant.scope is Scope.KEYPAIR else UUID(tenant.id)


async def pending(connection: AsyncConnection, access_keys: Collection[str]) -> dict[str, tuple[int, dict[str, int]]]:
    """Return the number of pending workloads of each keypair and the amounts that they request, by slot.

    Private workloads and workloads in timeslots do not count. The keypairs stay locked until the transaction ends, so
    that two servers cannot both admit the last workload within a limit.
    """
    keys = sorted(access_keys)
    if not keys:
        return {}
    rows = [(key,) for key in keys]
    await _LOCK.read(connection, rows)
    numbers = {keys[ordinal]: int(number) for ordinal, number in await _NUMBER.read(connection, rows)}
    amounts: dict[str, dict[str, int]] = {key: {} for key in keys}
    for ordinal, slot, amount in await _AMOUNTS.read(connection, rows):
        amounts[keys[ordinal]][slot] = int(amount)
    for ordinal, request, number in await _DEFERRED.read(connection, rows):
        own = amounts[keys[ordinal]]
        for slot, amount in msgspec.json.decode(request).items():
            own[slot] = own.get(slot, 0) + amount * number
    return {key: (numbers.get(key, 0), amounts[key]) for key in keys}
