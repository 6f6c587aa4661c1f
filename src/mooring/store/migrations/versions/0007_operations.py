"""Operations: who is there, what the loops did, nodes that are drained by a time, and tasks that nobody knows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.types import Id, UtcDateTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "servers",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("last_seen_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_servers")),
    )
    op.create_table(
        "loops",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("server", sa.String(length=255), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("last_run_at", UtcDateTime(), nullable=True),
        sa.Column("duration_seconds", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("next_run_at", UtcDateTime(), nullable=True),
        sa.Column("runs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("found_by_timer", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_loops")),
    )
    op.create_table(
        "quarantined_tasks",
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=False),
        sa.Column("workload_name", sa.String(length=63), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("ends_at", UtcDateTime(), nullable=False),
        sa.Column("confirmed_by", sa.String(length=63), nullable=True),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_quarantined_tasks_node_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_id", "task_id", name=op.f("pk_quarantined_tasks")),
    )
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("drain_reason", sa.String(length=500), nullable=True))
        batch_op.add_column(sa.Column("drain_until", UtcDateTime(), nullable=True))
        batch_op.add_column(sa.Column("drained_at", UtcDateTime(), nullable=True))
        batch_op.add_column(sa.Column("trusted_since", UtcDateTime(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.drop_column("trusted_since")
        batch_op.drop_column("drained_at")
        batch_op.drop_column("drain_until")
        batch_op.drop_column("drain_reason")
    op.drop_table("quarantined_tasks")
    op.drop_table("loops")
    op.drop_table("servers")
