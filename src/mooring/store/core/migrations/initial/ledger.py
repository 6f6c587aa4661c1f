"""The ledger of allocated resources, and holds on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "device_allocations",
    "holds",
    "port_allocations",
    "resource_allocations",
)


def create() -> None:
    op.create_table(
        "device_allocations",
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("freed_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_device_allocations_node_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_device_allocations_task_id")),
        sa.PrimaryKeyConstraint("task_id", "slot_name", "device_index", name=op.f("pk_device_allocations")),
    )
    op.create_index(op.f("ix_device_allocations_node_id"), "device_allocations", ["node_id"])
    op.create_table(
        "holds",
        sa.Column("id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_holds_node_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_holds_task_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_holds_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
        sa.UniqueConstraint("task_id", name=op.f("uq_holds_task_id")),
    )
    op.create_index(op.f("ix_holds_expires_at"), "holds", ["expires_at"])
    op.create_index(op.f("ix_holds_workload_id"), "holds", ["workload_id"])
    op.create_table(
        "port_allocations",
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("protocol", sa.String(length=8), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_port_allocations_node_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_port_allocations_task_id")),
        sa.PrimaryKeyConstraint("node_id", "protocol", "port", name=op.f("pk_port_allocations")),
    )
    op.create_index(op.f("ix_port_allocations_task_id"), "port_allocations", ["task_id"])
    op.create_table(
        "resource_allocations",
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("requested", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("held_at", UtcDateTime(), nullable=True),
        sa.Column("reserved_at", UtcDateTime(), nullable=True),
        sa.Column("used_at", UtcDateTime(), nullable=True),
        sa.Column("freed_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_resource_allocations_task_id")),
        sa.PrimaryKeyConstraint("task_id", "slot_name", name=op.f("pk_resource_allocations")),
    )
