"""Free capacity: the free amounts on the nodes of each pool, and the largest requests of one task that would start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from mooring.model.nodes.node import Node
from mooring.model.policy.pools import PoolPolicy
from mooring.model.resources.slots import (
    Amounts,
    format_amounts,
    slot_type,
    total,
)
from mooring.model.tenancy.quotas import SESSIONS, Scope, Tenant
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import Effect
from mooring.scheduling.cluster.device_sharing import allocate
from mooring.store.commit.tenant_usage import ALL_POOLS
from mooring.store.core.engine import Connection
from mooring.store.tenancy import quotas
from mooring.wire.tenancy.accounting import PoolFreeCapacity, QuotaLeft

_MAX_BOXES = 5


@dataclass(frozen=True, slots=True)
class QuotaHeadroom:
    """The amounts that a principal's quotas leave at each level, by limited slot."""

    levels: tuple[tuple[Scope, str, Amounts], ...] = ()

    def of(self, slot: str) -> int | None:
        """Return the least that a level leaves; None if no level limits the slot."""
        return min((left[slot] for _, _, left in self.levels if slot in left), default=None)

    def shown(self) -> list[QuotaLeft]:
        return [QuotaLeft(scope=scope, name=name, left=format_amounts(left)) for scope, name, left in self.levels]


async def quota_headroom(connection: Connection, principal: Principal, now: datetime) -> QuotaHeadroom:
    tenants = [
        Tenant(Scope.KEYPAIR, principal.access_key),
        Tenant(Scope.USER, str(principal.user_id)),
        Tenant(Scope.PROJECT, str(principal.project_id)),
        Tenant(Scope.DOMAIN, str(principal.domain_id)),
    ]
    limits = await quotas.limits_of(connection, tenants, now)
    used = await quotas.usage(connection, tenants)
    levels = []
    for tenant in tenants:
        if tenant in limits and limits[tenant].amounts:
            taken = used.get((tenant, ALL_POOLS), {})
            left = {
                slot: max(0, limit - sum(taken.get(slot, quotas.Amount())))
                for slot, limit in sorted(limits[tenant].amounts.items())
            }
            levels.append((tenant.scope, limits[tenant].name, left))
    return QuotaHeadroom(tuple(levels))


def free_in_pool(
    pool: str, policy: PoolPolicy, nodes: Iterable[Node], principal: Principal, left: QuotaHeadroom
) -> PoolFreeCapacity:
    """Return the capacity of a pool that a task without placement constraints could use now."""
    usable = [node for node in nodes if node.pool == pool and _takes_more(node, policy, principal)]
    free = [_free(node, policy) for node in usable]
    allowed = [{slot: _within(amount, left.of(slot)) for slot, amount in box.items()} for box in free]
    if left.of(SESSIONS) == 0:
        allowed = []
    largest = {slot: max(box.get(slot, 0) for box in allowed) for slot in sorted({s for box in allowed for s in box})}
    return PoolFreeCapacity(
        pool=pool,
        nodes=len(usable),
        free=format_amounts(dict(sorted(total(_unused(node) for node in usable).items()))),
        largest=format_amounts(largest),
        boxes=[format_amounts(box) for box in _largest_boxes(allowed, largest)],
    )


def _takes_more(node: Node, policy: PoolPolicy, principal: Principal) -> bool:
    tainted = any(taint.effect is not Effect.PREFER_NO_SCHEDULE for taint in node.taints)
    most = min((most for most in (node.max_tasks, policy.max_tasks_per_node) if most is not None), default=None)
    below_limit = most is None or node.tasks < most
    return not policy.paused and node.ready and not tainted and node.owner in (None, principal.user_id) and below_limit


def _free(node: Node, policy: PoolPolicy) -> dict[str, int]:
    """Return the most of each slot that one more task could get; of devices, what can be allocated as shares."""
    free = _unused(node)
    for slot, devices in node.devices.items():
        if free.get(slot):
            largest = max((device.capacity for device in devices), default=0)
            parts = sorted((device.free for device in devices if device.free > 0), reverse=True)
            free[slot] = min(free[slot], _max_of_devices(slot, parts, largest, fragmentation=policy.fragmentation))
    return free


def _unused(node: Node) -> dict[str, int]:
    """Return the amounts that the fit rule leaves on a node."""
    taken = total((node.held, node.reserved, node.used))
    return {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in node.allocatable.items()}


def _max_of_devices(slot: str, free: Sequence[int], capacity: int, *, fragmentation: bool) -> int:
    """Return the most that one task can get from these devices.

    Its device shares are equal up to a quantum, so the smallest of N devices determines the amount of all N.
    """
    quantum = slot_type(slot).quantum
    amounts = set()
    for number in range(1, len(free) + 1):
        each = free[number - 1] // quantum * quantum
        roomier = sum(part >= each + quantum for part in free[:number])
        amounts.add(number * each + roomier * quantum)
    fitting = (
        amount
        for amount in sorted(amounts, reverse=True)
        if amount and allocate(free, amount, capacity=capacity, quantum=quantum, fragmentation=fragmentation)
    )
    return next(fitting, 0)


def _within(amount: int, left: int | None) -> int:
    return amount if left is None else min(amount, left)


def _largest_boxes(boxes: Sequence[Amounts], largest: Amounts) -> list[dict[str, int]]:
    """Return the largest boxes, none of which is contained in another, the fullest first."""
    slots = list(largest)
    distinct = {tuple(box.get(slot, 0) for slot in slots) for box in boxes}
    best = np.array([max(1, largest[slot]) for slot in slots], dtype=np.float64)
    ordered = sorted(distinct, key=lambda box: (-float((np.array(box) / best).sum()), box))
    maximal = np.empty((0, len(slots)), dtype=np.int64)
    for box in ordered:
        # A later box is smaller in total, so it never contains an earlier one.
        if any(box) and not (maximal >= np.array(box)).all(axis=1).any():
            maximal = np.vstack([maximal, np.array(box, dtype=np.int64)])
    return [
        {slot: amount for slot, amount in zip(slots, box, strict=True) if amount}
        for box in maximal[:_MAX_BOXES].tolist()
    ]
