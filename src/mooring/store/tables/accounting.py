"""Allocated and measured usage over time, and records of ended workloads."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Table, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import metadata

usage_buckets = Table(
    "usage_buckets",
    metadata,
    # The day in UTC. Amount and seconds are separate columns: their product may exceed 64 bits.
    Column("starts_at", UtcDateTime, primary_key=True),
    Column("pool", String(63), primary_key=True),
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("amount", BigInteger, primary_key=True),
    # Total seconds for which this amount was used.
    Column("seconds", BigInteger, nullable=False),
)

measured_buckets = Table(
    "measured_buckets",
    metadata,
    # As `usage_buckets`, for measured usage. Amounts are added as they are measured and never recomputed.
    Column("starts_at", UtcDateTime, primary_key=True),
    Column("pool", String(63), primary_key=True),
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    # Base units × minutes; with seconds it might exceed 64 bits.
    Column("amount_minutes", BigInteger, nullable=False),
)

settled_days = Table(
    "settled_days",
    metadata,
    # Days whose buckets are final: they are not recomputed, and their ledger rows may be purged.
    Column("starts_at", UtcDateTime, primary_key=True),
)

workload_records = Table(
    "workload_records",
    metadata,
    # One row per ended workload; it remains when the workload and its history are purged.
    Column("workload_id", Id, primary_key=True),
    Column("name", String(63), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("type", String(63), nullable=False),
    Column("domain", String(63), nullable=False),
    Column("project", String(63), nullable=False),
    Column("username", String(63), nullable=False),
    Column("access_key", String(40), nullable=False),
    Column("pool", String(63), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    # Request of one task.
    Column("requested_slots", json_type(), nullable=False),
    # The maximum that all its tasks had at one time.
    Column("peak_slots", json_type(), nullable=False),
    Column("nodes", json_type(), nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", json_type()),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime, nullable=False, index=True),
    # From creation to first start, and from first start to end.
    Column("wait_seconds", BigInteger, nullable=False),
    Column("run_seconds", BigInteger, nullable=False),
)

task_usage = Table(
    "task_usage",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True),
    Column("measured_at", UtcDateTime, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    # Average over the preceding `seconds`; bytes per second for `read`, `written`, `received` and `sent`.
    Column("amount", BigInteger, nullable=False),
    Column("seconds", Integer, nullable=False, server_default=text("60")),
    Index("ix_task_usage_measured_at", "measured_at"),
)
