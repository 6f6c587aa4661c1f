"""What decisions commit: devices, holds, gangs, preemption, attempts, submissions that may be repeated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _node_devices() -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_node_devices_node_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "slot_name", "device_index", name=op.f("pk_node_devices")),
    ]


def upgrade() -> None:
    op.create_table(
        "submissions",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=128), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("answer", _json, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_submissions_user_id")),
        sa.PrimaryKeyConstraint("user_id", "idempotency_key", name=op.f("pk_submissions")),
    )
    with op.batch_alter_table("submissions", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_submissions_created_at"), ["created_at"], unique=False)

    op.create_table(
        "attempts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=True),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("message", sa.String(length=500), nullable=True),
        sa.Column("number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_attempts_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    with op.batch_alter_table("attempts", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_attempts_workload_id"), ["workload_id"], unique=False)

    with op.batch_alter_table("events", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("term", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("details", _json, nullable=True))

    # Nothing wrote these two so far.
    op.drop_table("holds")
    op.create_table(
        "holds",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_holds_node_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_holds_task_id")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_holds_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
        sa.UniqueConstraint("task_id", name=op.f("uq_holds_task_id")),
    )
    op.create_index(op.f("ix_holds_expires_at"), "holds", ["expires_at"], unique=False)
    op.create_index(op.f("ix_holds_workload_id"), "holds", ["workload_id"], unique=False)
    op.drop_table("node_devices")
    op.create_table(
        "node_devices",
        *_node_devices(),
        sa.Column("memory", sa.BigInteger(), nullable=True),
        sa.Column("capacity", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("taken", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("taken >= 0", name=op.f("ck_node_devices_not_negative")),
    )

    with op.batch_alter_table("pools", recreate="never") as batch_op:
        batch_op.add_column(
            sa.Column("binding", sa.String(length=16), server_default=sa.text("'optimistic'"), nullable=False)
        )
        batch_op.add_column(sa.Column("hold_seconds", sa.Integer(), server_default=sa.text("60"), nullable=False))
        batch_op.add_column(sa.Column("fragmentation", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("preemption", _json, nullable=True))
        batch_op.add_column(
            sa.Column("placement_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
        )
        batch_op.add_column(sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False))

    if op.get_bind().dialect.name == "postgresql":
        # Their rows are updated in place, without new entries in the index, as long as there is room in the page.
        for table in ("resource_allocations", "node_resources", "node_devices"):
            op.execute(f"ALTER TABLE {table} SET (fillfactor = 50)")

    with op.batch_alter_table("slot_types", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("devices", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("quantum", sa.BigInteger(), server_default=sa.text("1"), nullable=False))

    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("devices", _json, nullable=True))
        batch_op.add_column(sa.Column("prepared_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("preempted_by", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("requeue", sa.Boolean(), server_default=sa.text("false"), nullable=False))

    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("min_tasks", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("single_node", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("pack", _json, nullable=True))
        batch_op.add_column(sa.Column("preempts", sa.Boolean(), server_default=sa.text("true"), nullable=False))
        batch_op.add_column(sa.Column("preemptible", sa.Boolean(), server_default=sa.text("true"), nullable=False))
        batch_op.add_column(sa.Column("min_available", sa.Integer(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.drop_column("min_available")
        batch_op.drop_column("preemptible")
        batch_op.drop_column("preempts")
        batch_op.drop_column("pack")
        batch_op.drop_column("single_node")
        batch_op.drop_column("min_tasks")

    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        batch_op.drop_column("requeue")
        batch_op.drop_column("preempted_by")
        batch_op.drop_column("prepared_at")
        batch_op.drop_column("devices")

    if op.get_bind().dialect.name == "postgresql":
        for table in ("resource_allocations", "node_resources", "node_devices"):
            op.execute(f"ALTER TABLE {table} RESET (fillfactor)")

    with op.batch_alter_table("slot_types", recreate="never") as batch_op:
        batch_op.drop_column("quantum")
        batch_op.drop_column("devices")

    with op.batch_alter_table("pools", recreate="never") as batch_op:
        batch_op.drop_column("turn")
        batch_op.drop_column("placement_revision")
        batch_op.drop_column("preemption")
        batch_op.drop_column("fragmentation")
        batch_op.drop_column("hold_seconds")
        batch_op.drop_column("binding")

    op.drop_table("node_devices")
    op.create_table("node_devices", *_node_devices())
    op.drop_table("holds")
    op.create_table(
        "holds",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_holds_node_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_holds_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_holds")),
    )
    op.create_index(op.f("ix_holds_expires_at"), "holds", ["expires_at"], unique=False)
    op.create_index(op.f("ix_holds_task_id"), "holds", ["task_id"], unique=False)

    with op.batch_alter_table("events", recreate="never") as batch_op:
        batch_op.drop_column("details")
        batch_op.drop_column("term")

    with op.batch_alter_table("attempts", recreate="never") as batch_op:
        batch_op.drop_index(batch_op.f("ix_attempts_workload_id"))

    op.drop_table("attempts")
    with op.batch_alter_table("submissions", recreate="never") as batch_op:
        batch_op.drop_index(batch_op.f("ix_submissions_created_at"))

    op.drop_table("submissions")
