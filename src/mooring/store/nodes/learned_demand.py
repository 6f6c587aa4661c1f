"""The demand that a pool has learned: the requests of its newest workloads, kept until other demand replaces them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.resources.slots import slot_type
from mooring.store.core.constraint_columns import decode_constraints
from mooring.store.tables import pools, workloads

MOST_TASKS = 500
"""Maximum tasks of one workload that count."""
MOST_REQUESTS = 512
"""Maximum distinct requests that are stored."""
_LOOKED_AT = 20
"""Workloads that are examined for each one that is read."""


class CommonRequest(NamedTuple):
    """A request of tasks, the device models that they accept (empty: any), and how often it was made."""

    request: Mapping[str, int]
    models: frozenset[str]
    tasks: int
    workloads: int


async def newest(connection: AsyncConnection, pool_id: UUID, limit: int) -> list[CommonRequest]:
    """Return the requests of a pool's newest workloads, the most frequent first; none if none requests devices.

    Work that was withdrawn before it ever ran is no demand. While others submit too, no user has more than half of the
    workloads, and large arrays count for MOST_TASKS: a flood of one tenant must not decide where the work of all goes.
    """
    own = workloads.c
    demand = (own.pool_id == pool_id) & (own.ended_at.is_(None) | own.placed_at.is_not(None))
    looked_at = select(own.id, own.user_id, own.created_at).where(demand).order_by(own.created_at.desc(), own.id)
    recent = looked_at.limit(_LOOKED_AT * limit).subquery()
    of_user = func.row_number().over(partition_by=recent.c.user_id, order_by=(recent.c.created_at.desc(), recent.c.id))
    numbered = select(recent.c.id, of_user.label("number")).subquery()
    rows = await connection.execute(
        select(own.requested_slots, own.replicas, own.constraints)
        .join(numbered, numbered.c.id == own.id)
        .order_by(numbered.c.number > limit // 2, own.created_at.desc(), own.id)
        .limit(limit)
    )
    found: dict[tuple[tuple[tuple[str, int], ...], frozenset[str]], list[int]] = defaultdict(list)
    for request, replicas, constraints in rows:
        models = frozenset[str]().union(*(demand.models for demand in decode_constraints(constraints).devices))
        found[tuple(sorted(request.items())), models].append(min(replicas, MOST_TASKS))
    if not any(amount and slot_type(slot).devices for request, _ in found for slot, amount in request):
        return []
    common = [
        CommonRequest(dict(request), models, sum(tasks), len(tasks)) for (request, models), tasks in found.items()
    ]
    common.sort(key=lambda each: (-each.tasks, sorted(each.request.items()), sorted(each.models)))
    return common[:MOST_REQUESTS]


async def stored(connection: AsyncConnection) -> dict[UUID, list[CommonRequest]]:
    """Return the demand of the pools that have learned some."""
    rows = await connection.execute(
        select(pools.c.id, pools.c.learned_demand).where(pools.c.learned_demand.is_not(None))
    )
    return {id: decoded(demand) for id, demand in rows if demand}


async def store(connection: AsyncConnection, learned: Sequence[tuple[UUID, Sequence[CommonRequest]]]) -> None:
    """Replace the demand of these pools."""
    for pool_id, demand in learned:
        encoded = [{**each._asdict(), "request": dict(each.request), "models": sorted(each.models)} for each in demand]
        await connection.execute(update(pools).where(pools.c.id == pool_id).values(learned_demand=encoded))


def decoded(demand: Sequence[Mapping[str, Any]] | None) -> list[CommonRequest]:
    """Return the value of the column `learned_demand` as requests."""
    return [
        CommonRequest(each["request"], frozenset(each["models"]), each["tasks"], each["workloads"])
        for each in demand or ()
    ]
