"""Allocated and measured usage over time, and records of ended workloads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "measured_buckets",
    "settled_days",
    "usage_buckets",
    "workload_records",
    "task_usage",
)


def create() -> None:
    op.create_table(
        "measured_buckets",
        sa.Column("starts_at", UtcDateTime(), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("amount_minutes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "starts_at", "pool", "project_id", "user_id", "slot_name", name=op.f("pk_measured_buckets")
        ),
    )
    op.create_table(
        "settled_days",
        sa.Column("starts_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("starts_at", name=op.f("pk_settled_days")),
    )
    op.create_table(
        "usage_buckets",
        sa.Column("starts_at", UtcDateTime(), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "starts_at", "pool", "project_id", "user_id", "slot_name", "amount", name=op.f("pk_usage_buckets")
        ),
    )
    op.create_table(
        "workload_records",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("type", sa.String(length=63), nullable=False),
        sa.Column("domain", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("username", sa.String(length=63), nullable=False),
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("peak_slots", json_type(), nullable=False),
        sa.Column("nodes", json_type(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", json_type(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("wait_seconds", sa.BigInteger(), nullable=False),
        sa.Column("run_seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workload_id", name=op.f("pk_workload_records")),
    )
    op.create_index(op.f("ix_workload_records_ended_at"), "workload_records", ["ended_at"])
    op.create_table(
        "task_usage",
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("measured_at", UtcDateTime(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Integer(), server_default=sa.text("(60)"), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_task_usage_task_id")),
        sa.PrimaryKeyConstraint("task_id", "measured_at", "slot_name", name=op.f("pk_task_usage")),
    )
    op.create_index("ix_task_usage_measured_at", "task_usage", ["measured_at"])
