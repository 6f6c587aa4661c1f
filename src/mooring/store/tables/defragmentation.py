"""Plans of automatic defragmentation and their moves."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, String, Table, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import metadata

defragmentation_plans = Table(
    "defragmentation_plans",
    metadata,
    Column("id", Id, primary_key=True),
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), nullable=False, index=True),
    # A `PlanStatus` of the model.
    Column("status", String(16), nullable=False),
    Column("gain", String(16), nullable=False),
    Column("gained", Float, nullable=False),
    # Proven: no number of moves gains more; null: not computed, for the reason beside it.
    Column("bound", Float),
    Column("bound_reason", String(500)),
    # Why it stopped.
    Column("reason", String(500)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
)

defragmentation_moves = Table(
    "defragmentation_moves",
    metadata,
    Column("plan_id", Id, ForeignKey("defragmentation_plans.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("pool_id", Id, nullable=False),
    # A `MoveStatus` of the model.
    Column("status", String(16), nullable=False),
    Column("workload_id", Id, nullable=False),
    Column("workload", String(63), nullable=False),
    Column("task_id", Id, nullable=False),
    # The task on the target.
    Column("replacement_id", Id),
    Column("source", String(63), nullable=False),
    Column("target", String(63), nullable=False),
    Column("lost_seconds", Integer, nullable=False, server_default=text("0")),
    # The pending workloads that its step lets start; empty: other gains.
    Column("serves", json_type(), nullable=False),
    Column("reason", String(500)),
    # When the task was evicted: the budget of a pool counts the moves of the last hour by it.
    Column("evicted_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Index("ix_defragmentation_moves_pool_id_evicted_at", "pool_id", "evicted_at"),
)
