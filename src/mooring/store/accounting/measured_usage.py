"""Usage of tasks as measured by agents, in contrast to the ledger's `used`, which is the allocated amount."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.accounting.usage import day_of
from mooring.store.core import batch_sql
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.tables import task_usage, tasks

COUNTED = frozenset({"cpu", "memory"})
"""Slots whose usage is summed up by day."""

# An agent reports only on tasks of its own node. The join also drops tasks that are purged by now.
_OWN = "JOIN tasks t ON t.id = i.task_id AND t.node_id = i.node_id"
_ROWS = {
    "task_id": "uuid",
    "node_id": "uuid",
    "measured_at": "timestamptz",
    "starts_at": "timestamptz",
    "slot_name": "text",
    "amount": "bigint",
    "seconds": "bigint",
}
# Runs before the insert of the rows. An existing row is already summed up, so a repeated write counts once.
_SUM_UP = Statement(
    f"""
    INSERT INTO measured_buckets (starts_at, pool, project_id, user_id, slot_name, amount_minutes)
    SELECT i.starts_at, p.name, w.project_id, w.user_id, i.slot_name, CAST(sum(i.amount * i.seconds) / 60 AS bigint)
    FROM {{rows}} i {_OWN} JOIN workloads w ON w.id = t.workload_id JOIN pools p ON p.id = w.pool_id
    WHERE NOT EXISTS (
        SELECT 1 FROM task_usage u
        WHERE u.task_id = i.task_id AND u.measured_at = i.measured_at AND u.slot_name = i.slot_name
    )
    GROUP BY i.starts_at, p.name, w.project_id, w.user_id, i.slot_name
    ORDER BY i.starts_at, p.name, w.project_id, w.user_id, i.slot_name
    ON CONFLICT (starts_at, pool, project_id, user_id, slot_name)
    DO UPDATE SET amount_minutes = measured_buckets.amount_minutes + excluded.amount_minutes
    """,
    _ROWS,
)
_INSERT = Statement(
    f"""
    INSERT INTO task_usage (task_id, measured_at, slot_name, amount, seconds)
    SELECT i.task_id, i.measured_at, i.slot_name, i.amount, i.seconds FROM {{rows}} i {_OWN}
    WHERE true
    ON CONFLICT DO NOTHING
    """,
    {name: kind for name, kind in _ROWS.items() if name != "starts_at"},
)
_ACTIVE = Statement(
    """
    UPDATE tasks SET active_at = i.active_at
    FROM {rows} i, workloads w
    WHERE tasks.id = i.task_id AND w.id = tasks.workload_id AND w.idle_timeout_seconds IS NOT NULL
        AND (tasks.active_at IS NULL OR tasks.active_at < i.active_at)
    """,
    {"task_id": "uuid", "active_at": "timestamptz"},
)


class Average(NamedTuple):
    """The average amount of a slot that a task on a node used over some seconds."""

    task_id: UUID
    node_id: UUID
    measured_at: datetime
    slot: str
    amount: int
    seconds: int


async def write(connection: AsyncConnection, averages: Sequence[Average], active: Mapping[UUID, datetime]) -> None:
    """Store the averages of tasks, and the last activity of those whose workloads have an idle timeout."""
    writes = Writes.on(connection)
    counted = [(*one[:3], day_of(one.measured_at), *one[3:]) for one in averages if one.slot in COUNTED]
    if counted:
        writes.add(_SUM_UP, counted)
    if averages:
        writes.add(_INSERT, averages)
    if active:
        writes.add(_ACTIVE, sorted(active.items()))
    await writes.execute(connection)


@dataclass(frozen=True, slots=True)
class Newest:
    measured_at: datetime
    amounts: Mapping[str, int]


async def newest(connection: AsyncConnection, task_ids: Collection[UUID], since: datetime) -> dict[UUID, Newest]:
    """Return the newest averages of the given tasks; tasks without any since the given time are absent."""
    own = task_usage.c
    last = (
        select(own.task_id, func.max(own.measured_at, type_=own.measured_at.type).label("at"))
        .where(batch_sql.among(own.task_id, task_ids), own.measured_at >= since)
        .group_by(own.task_id)
        .subquery()
    )
    rows = await connection.execute(
        select(own.task_id, own.measured_at, own.slot_name, own.amount).join(
            last, (last.c.task_id == own.task_id) & (last.c.at == own.measured_at)
        )
    )
    found: dict[UUID, tuple[datetime, dict[str, int]]] = {}
    for task_id, measured_at, slot, amount in rows:
        found.setdefault(task_id, (measured_at, {}))[1][slot] = amount
    return {task_id: Newest(*parts) for task_id, parts in found.items()}


async def last_measured(connection: AsyncConnection, task_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """Return the time of the last measurement of each given task; tasks without any are absent."""
    own = task_usage.c
    newest = func.max(own.measured_at, type_=own.measured_at.type).label("at")
    rows = await connection.execute(
        select(own.task_id, newest).where(batch_sql.among(own.task_id, task_ids)).group_by(own.task_id)
    )
    return {row.task_id: row.at for row in rows}


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete the oldest averages and return the number of rows; the daily sums are retained."""
    key = tuple(task_usage.primary_key.columns)
    oldest = select(*key).where(task_usage.c.measured_at < before).order_by(task_usage.c.measured_at).limit(limit)
    return (await connection.execute(delete(task_usage).where(tuple_(*key).in_(oldest)))).rowcount


_MAX_POINTS = 20_000


async def series(connection: AsyncConnection, workload_id: UUID, since: datetime) -> list[tuple[datetime, str, int]]:
    """Return the amounts of all tasks of a workload by the time of measurement and slot, oldest first.

    Of very many, only the newest.
    """
    own = select(tasks.c.id).where(tasks.c.workload_id == workload_id)
    amount = func.sum(task_usage.c.amount)
    rows = await connection.execute(
        select(task_usage.c.measured_at, task_usage.c.slot_name, amount)
        .where(task_usage.c.task_id.in_(own), task_usage.c.measured_at > since)
        .group_by(task_usage.c.measured_at, task_usage.c.slot_name)
        .order_by(task_usage.c.measured_at.desc(), task_usage.c.slot_name)
        .limit(_MAX_POINTS)
    )
    return [(at, slot, int(total)) for at, slot, total in reversed(rows.all())]
