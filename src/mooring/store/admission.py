"""What admission is decided by, read for keypairs: their policies, and what of theirs waits."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus
from mooring.model.policies import Policy, parse_policy
from mooring.store.sets import Statement

_KEY = {"access_key": "text"}
_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
# Innermost first: the policy that the keypair carries, or else its user, project or domain.
_POLICIES = Statement(
    """
    SELECT i.ordinal, CAST(r.rules AS text)
    FROM {rows} i
    JOIN keypairs k ON k.access_key = i.access_key
    JOIN users u ON u.id = k.user_id
    JOIN projects p ON p.id = k.project_id
    JOIN domains d ON d.id = u.domain_id
    JOIN policies r ON r.id = COALESCE(k.policy_id, u.policy_id, p.policy_id, d.policy_id)
    """,
    _KEY,
)
_LOCK = Statement(
    "SELECT 1 FROM {rows} i JOIN keypairs k ON k.access_key = i.access_key ORDER BY k.access_key",
    _KEY,
    lock="FOR NO KEY UPDATE OF k",
)
# Workloads of which something waits, and nothing is on a node.
_WAITING = f"""
    {{rows}} i
    JOIN keypairs k ON k.access_key = i.access_key
    JOIN workloads w ON w.user_id = k.user_id AND w.access_key = k.access_key
        AND w.status = '{WorkloadStatus.PENDING}' AND NOT w.private AND NOT w.stopping
        AND EXISTS (
            SELECT 1 FROM tasks o WHERE o.workload_id = w.id AND o.status = '{TaskStatus.PENDING}' AND o.current
        )
        AND NOT EXISTS (SELECT 1 FROM tasks o WHERE o.workload_id = w.id AND o.status IN ({_occupying}))
"""
_NUMBER = Statement(f"SELECT i.ordinal, count(*) FROM {_WAITING} GROUP BY i.ordinal", _KEY)
_AMOUNTS = Statement(
    f"""
    SELECT i.ordinal, a.slot_name, sum(a.requested)
    FROM {_WAITING}
    JOIN tasks t ON t.workload_id = w.id AND t.current AND t.status = '{TaskStatus.PENDING}'
    JOIN resource_allocations a ON a.task_id = t.id
    GROUP BY i.ordinal, a.slot_name
    """,
    _KEY,
)


async def policies_of(connection: AsyncConnection, access_keys: Collection[str]) -> dict[str, Policy]:
    """The policy that speaks for the workloads of each keypair; those without one are not among them."""
    keys = sorted(access_keys)
    if not keys:
        return {}
    rows = await _POLICIES.read(connection, [(key,) for key in keys])
    return {keys[ordinal]: _policy(rules) for ordinal, rules in rows}


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


@lru_cache(maxsize=1000)
def _policy(rules: str) -> Policy:
    return parse_policy(msgspec.json.decode(rules))
