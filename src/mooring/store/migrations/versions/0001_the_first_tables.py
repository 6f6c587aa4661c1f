"""The first tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "domains",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_domains")),
        sa.UniqueConstraint("name", name=op.f("uq_domains_name")),
    )
    op.create_table(
        "events",
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.Uuid(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=True),
        sa.Column("workload_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("transaction_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_transaction_id"), ["transaction_id"], unique=False)

    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership")),
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("rules", _json, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("name", name=op.f("uq_policies_name")),
    )
    op.create_table(
        "pools",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("profile", sa.String(length=63), nullable=False),
        sa.Column("weights", _json, nullable=True),
        sa.Column("runtimes", _json, nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("name", name=op.f("uq_pools_name")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "slot_types",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("description", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_slot_types")),
    )
    op.create_table(
        "status_history",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.Uuid(), nullable=False),
        sa.Column("workload_id", sa.Uuid(), nullable=True),
        sa.Column("old_status", sa.String(length=50), nullable=False),
        sa.Column("new_status", sa.String(length=50), nullable=False),
        sa.Column("actor", sa.String(length=100), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_status_history")),
    )
    with op.batch_alter_table("status_history", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_status_history_workload_id"), ["workload_id"], unique=False)

    op.create_table(
        "tenant_resources",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("guaranteed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "slot_name", name=op.f("pk_tenant_resources")),
    )
    op.create_table(
        "usage_buckets",
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Integer(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "slot_name", "starts_at", name=op.f("pk_usage_buckets")),
    )
    op.create_table(
        "projects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_projects_domain_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("domain_id", "name", name=op.f("uq_projects_domain_id_name")),
        sa.UniqueConstraint("number", name=op.f("uq_projects_number")),
    )
    op.create_table(
        "scale_requests",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("wanted", _json, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scale_requests_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scale_requests")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("os_user", sa.String(length=255), nullable=True),
        sa.Column("token_epoch", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_users_domain_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_users_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
    )
    op.create_table(
        "identities",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("issuer", sa.String(length=255), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("secret_hash", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_identities_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identities")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_identities_issuer_subject")),
    )
    with op.batch_alter_table("identities", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_identities_user_id"), ["user_id"], unique=False)

    op.create_table(
        "join_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("node_name", sa.String(length=63), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("labels", _json, nullable=False),
        sa.Column("taints", _json, nullable=False),
        sa.Column("created_by", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_join_tokens_created_by")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_join_tokens_pool_id")),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_join_tokens")),
    )
    op.create_table(
        "keypairs",
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("secret_hash", sa.String(length=255), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_keypairs_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_keypairs_user_id")),
        sa.PrimaryKeyConstraint("access_key", name=op.f("pk_keypairs")),
    )
    with op.batch_alter_table("keypairs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_keypairs_user_id"), ["user_id"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("schedulable", sa.Boolean(), nullable=False),
        sa.Column("draining", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("architecture", sa.String(length=63), nullable=False),
        sa.Column("runtimes", _json, nullable=False),
        sa.Column("labels", _json, nullable=False),
        sa.Column("taints", _json, nullable=False),
        sa.Column("enforces", _json, nullable=False),
        sa.Column("joined_by", sa.Uuid(), nullable=True),
        sa.Column("owner_id", sa.Uuid(), nullable=True),
        sa.Column("max_tasks", sa.Integer(), nullable=True),
        sa.Column("generation", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("cpu_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("memory_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("disk_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("credential_hash", sa.String(length=64), nullable=True),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.Column("agent_version", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["joined_by"], ["users.id"], name=op.f("fk_nodes_joined_by")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_nodes_owner_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_nodes_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("name", name=op.f("uq_nodes_name")),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nodes_credential_hash"), ["credential_hash"], unique=False)
        batch_op.create_index(batch_op.f("ix_nodes_pool_id"), ["pool_id"], unique=False)

    op.create_table(
        "timeslots",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lead_seconds", sa.Integer(), nullable=False),
        sa.Column("requested_slots", _json, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_timeslots_pool_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_timeslots_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_timeslots")),
    )
    with op.batch_alter_table("timeslots", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_timeslots_starts_at"), ["starts_at"], unique=False)

    op.create_table(
        "node_devices",
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=True),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_node_devices_node_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "slot_name", "device_index", name=op.f("pk_node_devices")),
    )
    op.create_table(
        "node_resources",
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("capacity", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("system_reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("allocatable", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("held", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("leaving", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "held >= 0 AND reserved >= 0 AND used >= 0 AND leaving >= 0", name=op.f("ck_node_resources_not_negative")
        ),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_node_resources_node_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "slot_name", name=op.f("pk_node_resources")),
    )
    op.create_table(
        "workloads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("type", sa.String(length=63), nullable=False),
        sa.Column("domain_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stopping", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("runtime", sa.String(length=63), nullable=False),
        sa.Column("architecture", sa.String(length=63), nullable=True),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("gang", sa.Boolean(), nullable=False),
        sa.Column("spread", sa.Boolean(), nullable=False),
        sa.Column("max_per_node", sa.Integer(), nullable=True),
        sa.Column("on_insufficient", sa.String(length=16), nullable=False),
        sa.Column("placed_before", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("template", _json, nullable=False),
        sa.Column("requested_slots", _json, nullable=False),
        sa.Column("labels", _json, nullable=False),
        sa.Column("constraints", _json, nullable=False),
        sa.Column("reason", _json, nullable=True),
        sa.Column("next_index", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["access_key"], ["keypairs.access_key"], name=op.f("fk_workloads_access_key")),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_workloads_domain_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_workloads_pool_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_workloads_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_workloads_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workloads")),
    )
    with op.batch_alter_table("workloads", schema=None) as batch_op:
        batch_op.create_index("ix_workloads_status", ["status"], unique=False)
        batch_op.create_index("ix_workloads_user_id_created_at", ["user_id", "created_at"], unique=False)
        batch_op.create_index(
            "uq_workloads_name_alive",
            ["project_id", "user_id", "name"],
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )

    op.create_table(
        "tasks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("task_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=True),
        sa.Column("node_name", sa.String(length=63), nullable=True),
        sa.Column("score", sa.Integer(), nullable=True),
        sa.Column("requested_slots", _json, nullable=False),
        sa.Column("occupied_slots", _json, nullable=False),
        sa.Column("ports", _json, nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("restarts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reason", _json, nullable=True),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("scheduled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_tasks_node_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_tasks_workload_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint(
            "workload_id", "task_index", "attempt", name=op.f("uq_tasks_workload_id_task_index_attempt")
        ),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index("ix_tasks_node_id_status", ["node_id", "status"], unique=False)
        batch_op.create_index("ix_tasks_status", ["status"], unique=False)

    op.create_table(
        "device_allocations",
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_device_allocations_node_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_device_allocations_task_id")),
        sa.PrimaryKeyConstraint("task_id", "slot_name", "device_index", name=op.f("pk_device_allocations")),
    )
    with op.batch_alter_table("device_allocations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_device_allocations_node_id"), ["node_id"], unique=False)

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
    with op.batch_alter_table("holds", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_holds_expires_at"), ["expires_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_holds_task_id"), ["task_id"], unique=False)

    op.create_table(
        "port_allocations",
        sa.Column("node_id", sa.Uuid(), nullable=False),
        sa.Column("protocol", sa.String(length=8), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_id"], ["nodes.id"], name=op.f("fk_port_allocations_node_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_port_allocations_task_id")),
        sa.PrimaryKeyConstraint("node_id", "protocol", "port", name=op.f("pk_port_allocations")),
    )
    with op.batch_alter_table("port_allocations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_port_allocations_task_id"), ["task_id"], unique=False)

    op.create_table(
        "resource_allocations",
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("requested", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("held_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_resource_allocations_task_id")),
        sa.PrimaryKeyConstraint("task_id", "slot_name", name=op.f("pk_resource_allocations")),
    )
    op.create_table(
        "task_usage",
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_task_usage_task_id")),
        sa.PrimaryKeyConstraint("task_id", "measured_at", "slot_name", name=op.f("pk_task_usage")),
    )


def downgrade() -> None:
    op.drop_table("task_usage")
    op.drop_table("resource_allocations")
    with op.batch_alter_table("port_allocations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_port_allocations_task_id"))

    op.drop_table("port_allocations")
    with op.batch_alter_table("holds", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_holds_task_id"))
        batch_op.drop_index(batch_op.f("ix_holds_expires_at"))

    op.drop_table("holds")
    with op.batch_alter_table("device_allocations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_device_allocations_node_id"))

    op.drop_table("device_allocations")
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index("ix_tasks_status")
        batch_op.drop_index("ix_tasks_node_id_status")

    op.drop_table("tasks")
    with op.batch_alter_table("workloads", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_workloads_name_alive",
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )
        batch_op.drop_index("ix_workloads_user_id_created_at")
        batch_op.drop_index("ix_workloads_status")

    op.drop_table("workloads")
    op.drop_table("node_resources")
    op.drop_table("node_devices")
    with op.batch_alter_table("timeslots", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_timeslots_starts_at"))

    op.drop_table("timeslots")
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_nodes_pool_id"))
        batch_op.drop_index(batch_op.f("ix_nodes_credential_hash"))

    op.drop_table("nodes")
    with op.batch_alter_table("keypairs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_keypairs_user_id"))

    op.drop_table("keypairs")
    op.drop_table("join_tokens")
    with op.batch_alter_table("identities", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_identities_user_id"))

    op.drop_table("identities")
    op.drop_table("users")
    op.drop_table("scale_requests")
    op.drop_table("projects")
    op.drop_table("usage_buckets")
    op.drop_table("tenant_resources")
    with op.batch_alter_table("status_history", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_status_history_workload_id"))

    op.drop_table("status_history")
    op.drop_table("slot_types")
    op.drop_table("signing_keys")
    op.drop_table("pools")
    op.drop_table("policies")
    op.drop_table("leadership")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_transaction_id"))

    op.drop_table("events")
    op.drop_table("domains")
