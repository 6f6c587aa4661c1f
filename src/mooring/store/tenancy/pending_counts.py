"""What of keypairs waits: limits on it hold for all servers together."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus
from mooring.store.sets import Statement

_KEY = {"access_key": "text"}
_waits = f"t.current AND t.status = '{TaskStatus.PENDING}'"
_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_LOCK = Statement(
    "SELECT 1 FROM {rows} i JOIN keypairs k ON k.access_key = i.access_key ORDER BY k.access_key {lock}",
    _KEY,
    lock="FOR NO KEY UPDATE OF k",
)
# Workloads of which something waits, and nothing is on a node.
_WAITING = f"""
    {{rows}} i
    JOIN keypairs k ON k.access_key = i.access_key
    JOIN workloads w ON w.user_id = k.user_id AND w.access_key = k.access_key
        AND w.status = '{WorkloadStatus.PENDING}' AND NOT w.private AND w.timeslot_id IS NULL AND NOT w.stopping
        AND EXISTS (SELECT 1 FROM tasks t WHERE t.workload_id = w.id AND {_waits})
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


async def pending(connection: AsyncConnection, access_keys: Collection[str]) -> dict[str, tuple[int, dict[str, int]]]:
    """How many workloads of each keypair wait and what they ask for, private ones excepted.

    The keypairs are locked until the transaction ends, so that two servers do not both take the last place.
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
    return {key: (numbers.get(key, 0), amounts[key]) for key in keys}
