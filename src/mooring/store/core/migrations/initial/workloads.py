"""Workloads, their tasks and the volumes that they mount."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "submissions",
    "volumes",
    "workloads",
    "attempts",
    "dependencies",
    "tasks",
    "workload_revisions",
    "workload_volumes",
)


def create() -> None:
    op.create_table(
        "submissions",
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=128), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("answer", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_submissions_user_id")),
        sa.PrimaryKeyConstraint("user_id", "idempotency_key", name=op.f("pk_submissions")),
    )
    op.create_index(op.f("ix_submissions_created_at"), "submissions", ["created_at"])
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
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_volumes_created_by")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_volumes_node_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_volumes_pool_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_volumes_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_volumes")),
    )
    op.create_index(op.f("ix_volumes_node_id"), "volumes", ["node_id"])
    op.create_index(
        "uq_volumes_name_alive",
        "volumes",
        ["project_id", "name"],
        unique=True,
        sqlite_where=sa.text("removed_at IS NULL"),
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "workloads",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("type", sa.String(length=63), nullable=False),
        sa.Column("domain_id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stopping", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("runtime", sa.String(length=63), nullable=False),
        sa.Column("architecture", sa.String(length=63), nullable=True),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("gang", sa.Boolean(), nullable=False),
        sa.Column("min_tasks", sa.Integer(), nullable=True),
        sa.Column("single_node", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("pack", json_type(), nullable=True),
        sa.Column("preempts", sa.Boolean(), server_default=sa.text("(true)"), nullable=False),
        sa.Column("preemptible", sa.Boolean(), server_default=sa.text("(true)"), nullable=False),
        sa.Column("min_available", sa.Integer(), nullable=True),
        sa.Column("spread", sa.Boolean(), nullable=False),
        sa.Column("max_per_node", sa.Integer(), nullable=True),
        sa.Column("on_insufficient", sa.String(length=16), nullable=False),
        sa.Column("placed_before", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("template", json_type(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("rollout", json_type(), nullable=True),
        sa.Column("rolling", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("idle_timeout_seconds", sa.Integer(), nullable=True),
        sa.Column("idle_warned_at", UtcDateTime(), nullable=True),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("labels", json_type(), nullable=False),
        sa.Column("constraints", json_type(), nullable=False),
        sa.Column("reason", json_type(), nullable=True),
        sa.Column("next_index", sa.Integer(), nullable=False),
        sa.Column("private", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("starts_at", UtcDateTime(), nullable=True),
        sa.Column("time_limit_seconds", sa.Integer(), nullable=True),
        sa.Column("warning_signal", sa.String(length=16), nullable=True),
        sa.Column("warning_seconds", sa.Integer(), nullable=True),
        sa.Column("array", json_type(), nullable=True),
        sa.Column("parallel", sa.Integer(), nullable=True),
        sa.Column("max_retries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retry_on", json_type(), nullable=True),
        sa.Column("on_dependency_failure", sa.String(length=8), server_default=sa.text("'cancel'"), nullable=False),
        sa.Column("singleton", sa.String(length=63), nullable=True),
        sa.Column("timeslot_id", Id(), nullable=True),
        sa.Column("planned_start_at", UtcDateTime(), nullable=True),
        sa.Column("planned_nodes", json_type(), nullable=True),
        sa.Column("estimated_start_at", UtcDateTime(), nullable=True),
        sa.Column("first_start_at", UtcDateTime(), nullable=True),
        sa.Column("start_moves", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("placed_at", UtcDateTime(), nullable=True),
        sa.Column("admission", json_type(), nullable=True),
        sa.Column("upload_id", Id(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("removed_at", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["access_key"], ["keypairs.access_key"], name=op.f("fk_workloads_access_key")),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_workloads_domain_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_workloads_pool_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_workloads_project_id")),
        sa.ForeignKeyConstraint(
            ["upload_id"], ["uploads.id"], name=op.f("fk_workloads_upload_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_workloads_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
    )
    op.create_index(
        "ix_workloads_ended_at",
        "workloads",
        ["ended_at"],
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workloads_idle_timeout",
        "workloads",
        ["id"],
        sqlite_where=sa.text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=sa.text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
    )
    op.create_index(
        "ix_workloads_placed_at_predicted",
        "workloads",
        ["placed_at"],
        sqlite_where=sa.text("placed_at IS NOT NULL AND first_start_at IS NOT NULL"),
        postgresql_where=sa.text("placed_at IS NOT NULL AND first_start_at IS NOT NULL"),
    )
    op.create_index(
        "ix_workloads_rolling",
        "workloads",
        ["id"],
        sqlite_where=sa.text("rolling"),
        postgresql_where=sa.text("rolling"),
    )
    op.create_index("ix_workloads_status", "workloads", ["status"])
    op.create_index(
        "ix_workloads_timeslot_id",
        "workloads",
        ["timeslot_id"],
        sqlite_where=sa.text("timeslot_id IS NOT NULL"),
        postgresql_where=sa.text("timeslot_id IS NOT NULL"),
    )
    op.create_index(
        "ix_workloads_upload_id",
        "workloads",
        ["upload_id"],
        sqlite_where=sa.text("upload_id IS NOT NULL"),
        postgresql_where=sa.text("upload_id IS NOT NULL"),
    )
    op.create_index("ix_workloads_user_id_created_at", "workloads", ["user_id", "created_at"])
    op.create_index(
        "ix_workloads_user_id_name_alive",
        "workloads",
        ["user_id", "name"],
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "uq_workloads_name_alive",
        "workloads",
        ["project_id", "user_id", "name"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", Id(), nullable=False),
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("task_id", Id(), nullable=True),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=True),
        sa.Column("message", sa.String(length=500), nullable=True),
        sa.Column("number", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("first_at", UtcDateTime(), nullable=False),
        sa.Column("last_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_attempts_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
    )
    op.create_index(op.f("ix_attempts_workload_id"), "attempts", ["workload_id"])
    op.create_table(
        "dependencies",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("depends_on", Id(), nullable=False),
        sa.Column("condition", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["depends_on"], ["workloads.id"], name=op.f("fk_dependencies_depends_on")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_dependencies_workload_id")),
        sa.PrimaryKeyConstraint("workload_id", "depends_on", name=op.f("pk_dependencies")),
    )
    op.create_index(op.f("ix_dependencies_depends_on"), "dependencies", ["depends_on"])
    op.create_table(
        "tasks",
        sa.Column("id", Id(), nullable=False),
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("task_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("node_id", Id(), nullable=True),
        sa.Column("node_name", sa.String(length=63), nullable=True),
        sa.Column("score", sa.Integer(), nullable=True),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("occupied_slots", json_type(), nullable=False),
        sa.Column("ports", json_type(), nullable=True),
        sa.Column("devices", json_type(), nullable=True),
        sa.Column("nominated_node", sa.String(length=63), nullable=True),
        sa.Column("prepared_at", UtcDateTime(), nullable=True),
        sa.Column("preempted_by", Id(), nullable=True),
        sa.Column("requeue", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("ready_at", UtcDateTime(), nullable=True),
        sa.Column("retires_at", UtcDateTime(), nullable=True),
        sa.Column("digests", json_type(), nullable=True),
        sa.Column("address", sa.String(length=63), nullable=True),
        sa.Column("active_at", UtcDateTime(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("restarts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("earlier_crashes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("crashes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_exit_code", sa.Integer(), nullable=True),
        sa.Column("last_reason", json_type(), nullable=True),
        sa.Column("retry_at", UtcDateTime(), nullable=True),
        sa.Column("deadline_at", UtcDateTime(), nullable=True),
        sa.Column("reason", json_type(), nullable=True),
        sa.Column("not_before", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("scheduled_at", UtcDateTime(), nullable=True),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("freed_at", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_tasks_node_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_tasks_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint(
            "workload_id", "task_index", "attempt", name=op.f("uq_tasks_workload_id_task_index_attempt")
        ),
    )
    op.create_index(
        "ix_tasks_deadline_at_alive",
        "tasks",
        ["deadline_at"],
        sqlite_where=sa.text("deadline_at IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=sa.text("deadline_at IS NOT NULL AND ended_at IS NULL"),
    )
    op.create_index(
        "ix_tasks_ended_at",
        "tasks",
        ["ended_at"],
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "ix_tasks_node_id_status",
        "tasks",
        ["node_id", "status"],
        sqlite_where=sa.text("node_id IS NOT NULL"),
        postgresql_where=sa.text("node_id IS NOT NULL"),
    )
    op.create_index(
        "ix_tasks_retires_at_alive",
        "tasks",
        ["retires_at"],
        sqlite_where=sa.text("retires_at IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=sa.text("retires_at IS NOT NULL AND ended_at IS NULL"),
    )
    op.create_index("ix_tasks_status", "tasks", ["status"])
    op.create_index(
        "ix_tasks_workload_id_requeue",
        "tasks",
        ["workload_id"],
        sqlite_where=sa.text("requeue AND current"),
        postgresql_where=sa.text("requeue AND current"),
    )
    op.create_table(
        "workload_revisions",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("template", json_type(), nullable=False),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("cause", sa.String(length=500), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_workload_revisions_created_by")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_workload_revisions_workload_id")),
        sa.PrimaryKeyConstraint("workload_id", "number", name=op.f("pk_workload_revisions")),
    )
    op.create_table(
        "workload_volumes",
        sa.Column("workload_id", Id(), nullable=False),
        sa.Column("volume_id", Id(), nullable=False),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name=op.f("fk_workload_volumes_volume_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workloads.id"], name=op.f("fk_workload_volumes_workload_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("workload_id", "volume_id", name=op.f("pk_workload_volumes")),
    )
    op.create_index(op.f("ix_workload_volumes_volume_id"), "workload_volumes", ["volume_id"])
