"""Pools, nodes and their resources."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "pools",
    "slot_types",
    "pool_access",
    "join_tokens",
    "nodes",
    "node_devices",
    "node_resources",
    "quarantined_tasks",
)


def create() -> None:
    op.create_table(
        "pools",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("profile", sa.String(length=63), nullable=False),
        sa.Column("weights", json_type(), nullable=True),
        sa.Column("runtimes", json_type(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("binding", sa.String(length=16), server_default=sa.text("'optimistic'"), nullable=False),
        sa.Column("hold_seconds", sa.Integer(), server_default=sa.text("(60)"), nullable=False),
        sa.Column("fragmentation", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("preemption", json_type(), nullable=True),
        sa.Column("options", json_type(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("placement_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("learned_demand", json_type(), nullable=True),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
        sa.UniqueConstraint("name", name=op.f("uq_pools_name")),
    )
    op.create_table(
        "slot_types",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("description", sa.String(length=255), server_default=sa.text("('')"), nullable=False),
        sa.Column("devices", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("quantum", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_slot_types")),
    )
    op.create_table(
        "pool_access",
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_access_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", "scope", "tenant_id", name=op.f("pk_pool_access")),
    )
    op.create_table(
        "join_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("node_name", sa.String(length=63), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("labels", json_type(), nullable=False),
        sa.Column("taints", json_type(), nullable=False),
        sa.Column("created_by", Id(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("used_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=op.f("fk_join_tokens_created_by")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_join_tokens_pool_id")),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_join_tokens")),
    )
    op.create_table(
        "nodes",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("schedulable", sa.Boolean(), nullable=False),
        sa.Column("draining", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("drain_reason", sa.String(length=500), nullable=True),
        sa.Column("drained_by", sa.String(length=100), nullable=True),
        sa.Column("drain_until", UtcDateTime(), nullable=True),
        sa.Column("drained_at", UtcDateTime(), nullable=True),
        sa.Column("trusted_since", UtcDateTime(), nullable=True),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("architecture", sa.String(length=63), nullable=False),
        sa.Column("runtimes", json_type(), nullable=False),
        sa.Column("images", json_type(), nullable=True),
        sa.Column("occupied_ports", json_type(), nullable=True),
        sa.Column("address", sa.String(length=63), nullable=True),
        sa.Column("server_url", sa.String(length=255), nullable=True),
        sa.Column("labels", json_type(), nullable=False),
        sa.Column("taints", json_type(), nullable=False),
        sa.Column("enforces", json_type(), nullable=False),
        sa.Column("isolation", sa.String(length=16), server_default=sa.text("'none'"), nullable=False),
        sa.Column("isolation_reason", sa.String(length=500), server_default=sa.text("('')"), nullable=False),
        sa.Column("capacity", json_type(), nullable=True),
        sa.Column("joined_by", Id(), nullable=True),
        sa.Column("owner_id", Id(), nullable=True),
        sa.Column("max_tasks", sa.Integer(), nullable=True),
        sa.Column("generation", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("cpu_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("memory_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("disk_percent", sa.Float(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_seen_at", UtcDateTime(), nullable=True),
        sa.Column("credential_hash", sa.String(length=64), nullable=True),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.Column("agent_version", sa.String(length=32), nullable=True),
        sa.Column("template", sa.String(length=63), nullable=True),
        sa.Column("scale_request_id", Id(), nullable=True),
        sa.Column("licence", sa.String(length=63), nullable=True),
        sa.Column("machine_image", sa.String(length=255), nullable=True),
        sa.Column("machine_image_version", sa.String(length=63), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["joined_by"], ["users.id"], name=op.f("fk_nodes_joined_by")),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_nodes_owner_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_nodes_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
        sa.UniqueConstraint("name", name=op.f("uq_nodes_name")),
    )
    op.create_index(op.f("ix_nodes_credential_hash"), "nodes", ["credential_hash"])
    op.create_index(op.f("ix_nodes_pool_id"), "nodes", ["pool_id"])
    op.create_table(
        "node_devices",
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("device_index", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=255), nullable=True),
        sa.Column("memory", sa.BigInteger(), nullable=True),
        sa.Column("capacity", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("taken", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("taken >= 0", name=op.f("ck_node_devices_not_negative")),
        sa.ForeignKeyConstraint(["node_id"], ["nodes.id"], name=op.f("fk_node_devices_node_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node_id", "slot_name", "device_index", name=op.f("pk_node_devices")),
    )
    op.create_table(
        "node_resources",
        sa.Column("node_id", Id(), nullable=False),
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
