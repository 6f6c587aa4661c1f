"""Node templates and requests for more nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "node_templates",
    "scale_requests",
    "scaling_states",
)


def create() -> None:
    op.create_table(
        "node_templates",
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("template", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_node_templates_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", "name", name=op.f("pk_node_templates")),
    )
    op.create_table(
        "scale_requests",
        sa.Column("id", Id(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("template", sa.String(length=63), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("wanted", json_type(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("packing", json_type(), nullable=True),
        sa.Column("joined", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=True),
        sa.Column("delivered_at", UtcDateTime(), nullable=True),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scale_requests_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scale_requests")),
    )
    op.create_index(op.f("ix_scale_requests_pool_id"), "scale_requests", ["pool_id"])
    op.create_table(
        "scaling_states",
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("unmet", json_type(), nullable=False),
        sa.Column("advice", json_type(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scaling_states_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_scaling_states")),
    )
