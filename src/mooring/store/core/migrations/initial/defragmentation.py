"""Plans of automatic defragmentation and their moves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "defragmentation_plans",
    "defragmentation_moves",
)


def create() -> None:
    op.create_table(
        "defragmentation_plans",
        sa.Column("id", Id(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("gain", sa.String(length=16), nullable=False),
        sa.Column("gained", sa.Float(), nullable=False),
        sa.Column("bound", sa.Float(), nullable=True),
        sa.Column("bound_reason", sa.String(length=500), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["pool_id"], ["pools.id"], name=op.f("fk_defragmentation_plans_pool_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_defragmentation_plans")),
    )
    op.create_index(op.f("ix_defragmentation_plans_pool_id"), "defragmentation_plans", ["pool_id"])
    op.create_table(
        "defragmentation_moves",
        sa.Column("plan_id", Id(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("workload", sa.String(length=63), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("replacement_id", Id(), nullable=True),
        sa.Column("source", sa.String(length=63), nullable=False),
        sa.Column("target", sa.String(length=63), nullable=False),
        sa.Column("lost_seconds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("serves", json_type(), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("evicted_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["defragmentation_plans.id"],
            name=op.f("fk_defragmentation_moves_plan_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("plan_id", "number", name=op.f("pk_defragmentation_moves")),
    )
    op.create_index("ix_defragmentation_moves_pool_id_evicted_at", "defragmentation_moves", ["pool_id", "evicted_at"])
