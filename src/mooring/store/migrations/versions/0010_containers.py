"""Containers: secrets, logins to registries, volumes, revisions of deployments, and what is known of running tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.types import Id, UtcDateTime, json_type

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, key in (("registry_logins", "registry"), ("secrets", "name")):
        username = [sa.Column("username", sa.String(length=255), nullable=False)] if name == "registry_logins" else []
        op.create_table(
            name,
            sa.Column("id", Id(), nullable=False),
            sa.Column("project_id", Id(), nullable=False),
            sa.Column(key, sa.String(length=255 if key == "registry" else 63), nullable=False),
            *username,
            sa.Column("sealed", sa.LargeBinary(), nullable=False),
            sa.Column("key_id", sa.String(length=63), nullable=False),
            sa.Column("created_at", UtcDateTime(), nullable=False),
            sa.Column("updated_at", UtcDateTime(), nullable=False),
            sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f(f"fk_{name}_project_id")),
            sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{name}")),
            sa.UniqueConstraint("project_id", key, name=op.f(f"uq_{name}_project_id_{key}")),
        )
    op.create_table(
        "volumes",
        sa.Column("id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.Column("node_id", Id(), nullable=True),
        sa.Column("node_name", sa.String(length=63), nullable=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("removed_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_volumes_project_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_volumes_pool_id")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_volumes_node_id")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_volumes_created_by")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volumes")),
    )
    alive = sa.text("removed_at IS NULL")
    op.create_index(
        "uq_volumes_name_alive",
        "volumes",
        ["project_id", "name"],
        unique=True,
        sqlite_where=alive,
        postgresql_where=alive,
    )
    op.create_index(op.f("ix_volumes_node_id"), "volumes", ["node_id"])
    op.create_table(
        "workload_volumes",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("volume_id", Id(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workloads.id"], name=op.f("fk_workload_volumes_workload_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name=op.f("fk_workload_volumes_volume_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workload_id", "volume_id", name=op.f("pk_workload_volumes")),
    )
    op.create_index(op.f("ix_workload_volumes_volume_id"), "workload_volumes", ["volume_id"])
    op.create_table(
        "workload_revisions",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("template", json_type(), nullable=False),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("cause", sa.String(length=500), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_workload_revisions_workload_id")),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_workload_revisions_created_by")),
        sa.PrimaryKeyConstraint("workload_id", "number", name=op.f("pk_workload_revisions")),
    )
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
    with op.batch_alter_table("task_usage", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("seconds", sa.Integer(), server_default=sa.text("60"), nullable=False))
    op.create_index("ix_task_usage_measured_at", "task_usage", ["measured_at"])
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("images", json_type(), nullable=True))
        batch_op.add_column(sa.Column("address", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("server_url", sa.String(length=255), nullable=True))
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False))
        batch_op.add_column(sa.Column("rollout", json_type(), nullable=True))
        batch_op.add_column(sa.Column("rolling", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("idle_timeout_seconds", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("idle_warned_at", UtcDateTime(), nullable=True))
    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False))
        batch_op.add_column(sa.Column("ready_at", UtcDateTime(), nullable=True))
        batch_op.add_column(sa.Column("retires_at", UtcDateTime(), nullable=True))
        batch_op.add_column(sa.Column("digests", json_type(), nullable=True))
        batch_op.add_column(sa.Column("address", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("active_at", UtcDateTime(), nullable=True))
    rolling, retiring = sa.text("rolling"), sa.text("retires_at IS NOT NULL AND ended_at IS NULL")
    idling = sa.text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL")
    op.create_index("ix_workloads_idle_timeout", "workloads", ["id"], sqlite_where=idling, postgresql_where=idling)
    op.create_index("ix_workloads_rolling", "workloads", ["id"], sqlite_where=rolling, postgresql_where=rolling)
    op.create_index(
        "ix_tasks_retires_at_alive", "tasks", ["retires_at"], sqlite_where=retiring, postgresql_where=retiring
    )
    # Nothing was asked of what runs so far.
    op.execute("UPDATE tasks SET ready_at = started_at WHERE status = 'RUNNING'")
    # The first pool takes what its nodes can run.
    op.execute("""UPDATE pools SET runtimes = '["container", "process"]' WHERE name = 'default' AND NOT simulated""")


def downgrade() -> None:
    op.execute("""UPDATE pools SET runtimes = '["process"]' WHERE name = 'default' AND NOT simulated""")
    op.drop_index("ix_tasks_retires_at_alive", table_name="tasks")
    op.drop_index("ix_workloads_rolling", table_name="workloads")
    op.drop_index("ix_workloads_idle_timeout", table_name="workloads")
    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        for column in ("active_at", "address", "digests", "retires_at", "ready_at", "revision"):
            batch_op.drop_column(column)
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        for column in ("idle_warned_at", "idle_timeout_seconds", "rolling", "rollout", "revision"):
            batch_op.drop_column(column)
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.drop_column("server_url")
        batch_op.drop_column("address")
        batch_op.drop_column("images")
    op.drop_index("ix_task_usage_measured_at", "task_usage")
    with op.batch_alter_table("task_usage", recreate="never") as batch_op:
        batch_op.drop_column("seconds")
    op.drop_table("measured_buckets")
    op.drop_table("workload_revisions")
    op.drop_table("workload_volumes")
    op.drop_table("volumes")
    op.drop_table("secrets")
    op.drop_table("registry_logins")
