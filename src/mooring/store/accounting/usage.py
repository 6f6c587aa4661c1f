"""Daily usage by pool, project, user and slot, counted from the ledger for reports and fair share.

A day is counted as a whole and its buckets are replaced, so counting is idempotent. The usage of a task lasts from its
start to its end. A lost task costs its tenant nothing more, although its node stays charged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import USING
from mooring.store.core import batch_sql
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.engine import allow_long_statements
from mooring.store.core.types import EPOCH, as_uuid
from mooring.store.tables import (
    domains,
    measured_buckets,
    node_resources,
    nodes,
    pools,
    projects,
    settled_days,
    usage_buckets,
)

DAY = timedelta(days=1)
_SETTLED_AFTER = timedelta(hours=1)
"""Delay after midnight that exceeds both open transactions of the day before and clock skew."""
_MAX_DAYS = 31
"""Maximum days counted at once, after a long outage."""

_SINCE = "CASE WHEN a.used_at > i.starts_at THEN a.used_at ELSE i.starts_at END"
_UNTIL = "CASE WHEN u.until < i.ends_at THEN u.until ELSE i.ends_at END"
_using = ", ".join(f"'{status}'" for status in sorted(USING))


def _count(epoch: str) -> Statement:
    # Both ends are truncated to whole seconds, so that the parts of usage across midnight add up exactly.
    return Statement(
        f"""
        SELECT i.ordinal, p.name, w.project_id, w.user_id, a.slot_name, a.used,
            CAST(sum({epoch.format(_UNTIL)} - {epoch.format(_SINCE)}) AS bigint) AS seconds
        FROM (
            SELECT t.id, t.workload_id, coalesce(t.ended_at, {{now}}) AS until FROM tasks t
            WHERE t.status IN ({_using}) OR t.ended_at > {{since}}
        ) u
        JOIN resource_allocations a ON a.task_id = u.id AND a.used > 0
        JOIN {{rows}} i ON a.used_at < i.ends_at AND u.until > i.starts_at AND u.until > a.used_at
        JOIN workloads w ON w.id = u.workload_id
        JOIN pools p ON p.id = w.pool_id
        GROUP BY i.ordinal, p.name, w.project_id, w.user_id, a.slot_name, a.used
        """,
        {"starts_at": "timestamptz", "ends_at": "timestamptz"},
        now="timestamptz",
        since="timestamptz",
    )


_COUNT = {dialect: _count(epoch) for dialect, epoch in EPOCH.items()}
_DECAYED = Statement(
    """
    SELECT b.project_id, b.user_id, b.slot_name,
        sum(CAST(b.amount AS double precision) * CAST(b.seconds AS double precision) * i.share)
    FROM {rows} i JOIN usage_buckets b ON b.starts_at = i.starts_at
    WHERE b.pool = {pool}
    GROUP BY b.project_id, b.user_id, b.slot_name
    """,
    {"starts_at": "timestamptz", "share": "double precision"},
    pool="text",
)


class Bucket(NamedTuple):
    """The total seconds for which a user in a project used an amount of a slot in a pool on a day."""

    day: datetime
    pool: str
    project_id: UUID
    user_id: UUID
    slot: str
    amount: int
    seconds: int


def day_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


async def open_days(connection: AsyncConnection, now: datetime) -> list[datetime]:
    """Return the days to count, oldest first: those after the last settled day, with today, at most `_MAX_DAYS`."""
    first = await settled_until(connection)
    if first is None:
        founded = (await connection.execute(select(func.min(domains.c.created_at)))).scalar_one()
        first = day_of(founded or now)
    number = (day_of(now) - first) // DAY + 1
    return [first + DAY * count for count in range(min(number, _MAX_DAYS))]


async def settled_until(connection: AsyncConnection) -> datetime | None:
    """Return the end of the last day whose buckets are final; None if there is none."""
    last = (await connection.execute(select(func.max(settled_days.c.starts_at)))).scalar_one()
    return None if last is None else last + DAY


async def count(connection: AsyncConnection, days: Sequence[datetime], now: datetime) -> list[Bucket]:
    """Return the buckets of the given days from the ledger, up to `now` for the current day."""
    await allow_long_statements(connection)
    rows = await _COUNT[connection.dialect.name].read(
        connection, [(day, day + DAY) for day in days], now=now, since=days[0]
    )
    return [
        Bucket(days[ordinal], pool, as_uuid(project), as_uuid(user), slot, amount, seconds)
        for ordinal, pool, project, user, slot, amount, seconds in rows
        if seconds
    ]


async def replace(
    connection: AsyncConnection, days: Sequence[datetime], buckets: Sequence[Bucket], now: datetime
) -> None:
    """Replace the buckets of the given days by those counted at `now`, and settle the days that are final."""
    await connection.execute(delete(usage_buckets).where(usage_buckets.c.starts_at.in_(days)))
    columns = [column.name for column in usage_buckets.columns]
    settled = [{"starts_at": day} for day in days if day + DAY + _SETTLED_AFTER <= now]
    writes = Writes.on(connection)
    batch_sql.insert(writes, usage_buckets, [dict(zip(columns, bucket, strict=True)) for bucket in buckets])
    batch_sql.insert(writes, settled_days, settled)
    await writes.execute(connection)


async def decayed(
    connection: AsyncConnection, pool: str, shares: Mapping[datetime, float]
) -> dict[tuple[UUID, UUID], dict[str, float]]:
    """Return amount times seconds by (project, user) and slot, with each day weighted by its factor in `shares`."""
    found: dict[tuple[UUID, UUID], dict[str, float]] = defaultdict(dict)
    for project_id, user_id, slot, used in await _DECAYED.read(connection, list(shares.items()), pool=pool):
        found[as_uuid(project_id), as_uuid(user_id)][slot] = used
    return dict(found)


async def capacity(connection: AsyncConnection, pool: str) -> dict[str, int]:
    """Return the allocatable amounts of the nodes of a pool, whether allocated or not."""
    rows = await connection.execute(
        select(node_resources.c.slot_name, func.sum(node_resources.c.allocatable))
        .join(nodes, nodes.c.id == node_resources.c.node_id)
        .join(pools, pools.c.id == nodes.c.pool_id)
        .where(pools.c.name == pool)
        .group_by(node_resources.c.slot_name)
    )
    return {slot: int(amount) for slot, amount in rows}


async def domains_of_projects(connection: AsyncConnection) -> dict[UUID, UUID]:
    return {row.id: row.domain_id for row in await connection.execute(select(projects.c.id, projects.c.domain_id))}


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete the buckets of the oldest days that ended before the given time, and return the number of days.

    The last settled day is retained, because counting continues after it.
    """
    day = settled_days.c.starts_at
    last = select(func.max(day)).scalar_subquery()
    oldest = select(day).where(day <= before - DAY, day < last).order_by(day).limit(limit)
    gone = list((await connection.execute(oldest)).scalars())
    for table in (usage_buckets, measured_buckets, settled_days):
        await connection.execute(delete(table).where(table.c.starts_at.in_(gone)))
    return len(gone)
