"""Pools, nodes and their resources."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Float, ForeignKey, Integer, String, Table, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import amount, metadata

slot_types = Table(
    "slot_types",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("description", String(255), nullable=False, server_default=text("''")),
    # Consists of devices, allocated whole or as device shares in multiples of the quantum.
    Column("devices", Boolean, nullable=False, server_default=text("false")),
    Column("quantum", BigInteger, nullable=False, server_default=text("1")),
)

pools = Table(
    "pools",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("profile", String(63), nullable=False),
    # Scorers and their weights, instead of those of the profile.
    Column("weights", json_type()),
    Column("runtimes", json_type(), nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("binding", String(16), nullable=False, server_default=text("'optimistic'")),
    Column("hold_seconds", Integer, nullable=False, server_default=text("60")),
    Column("fragmentation", Boolean, nullable=False, server_default=text("false")),
    # A `Preemption` of the model; null: no preemption.
    Column("preemption", json_type()),
    # The other fields of a `PoolPolicy` that differ from the defaults.
    Column("options", json_type(), nullable=False, server_default=text("'{}'")),
    # Increased by every commit that places tasks, for constraints between tasks.
    Column("placement_revision", BigInteger, nullable=False, server_default=text("0")),
    # The requests that are expected to come, for profiles that place by them; null: not known yet.
    Column("learned_demand", json_type()),
    # The next position of the round-robin selector.
    Column("turn", BigInteger, nullable=False, server_default=text("0")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

pool_access = Table(
    "pool_access",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("scope", String(16), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False, index=True),
    Column("status", String(16), nullable=False),
    Column("schedulable", Boolean, nullable=False),
    # Requested by an admin; it persists when the node is lost.
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("drain_reason", String(500)),
    # The user or control loop that started the drain.
    Column("drained_by", String(100)),
    # When the remaining tasks of a draining node are stopped; null: never.
    Column("drain_until", UtcDateTime),
    # When its last task had left.
    Column("drained_at", UtcDateTime),
    # Failures before this time do not count against the node.
    Column("trusted_since", UtcDateTime),
    Column("reason", String(500)),
    Column("simulated", Boolean, nullable=False),
    Column("region", String(63)),
    Column("architecture", String(63), nullable=False),
    Column("runtimes", json_type(), nullable=False),
    # Container images on the node: bytes by name.
    Column("images", json_type()),
    # Ports in use by other programs than its tasks, as reported by its agent: [protocol, number] each.
    Column("occupied_ports", json_type()),
    # Its address for other nodes, as reported by its agent.
    Column("address", String(63)),
    # The URL of the server that its agent is connected to.
    Column("server_url", String(255)),
    Column("labels", json_type(), nullable=False),
    Column("taints", json_type(), nullable=False),
    Column("enforces", json_type(), nullable=False),
    # The isolation level of its process tasks, as detected by its agent, and why it is not higher.
    Column("isolation", String(16), nullable=False, server_default=text("'none'")),
    Column("isolation_reason", String(500), nullable=False, server_default=text("''")),
    # Readable copy of `node_resources.capacity` by slot; a repair restores missing rows from it.
    Column("capacity", json_type()),
    Column("joined_by", Id, ForeignKey("users.id")),
    # Set while the agent can run only tasks of the user who let it join.
    Column("owner_id", Id, ForeignKey("users.id")),
    Column("max_tasks", Integer),
    # Increased by every change that placement depends on, except heartbeats and counters.
    Column("generation", BigInteger, nullable=False, server_default=text("1")),
    Column("cpu_percent", Float, nullable=False, server_default=text("0")),
    Column("memory_percent", Float, nullable=False, server_default=text("0")),
    Column("disk_percent", Float, nullable=False, server_default=text("0")),
    Column("last_seen_at", UtcDateTime),
    Column("credential_hash", String(64), index=True),
    Column("boot_id", String(64)),
    Column("agent_version", String(32)),
    # The node template and the scale request that it was created by.
    Column("template", String(63)),
    Column("scale_request_id", Id),
    Column("licence", String(63)),
    Column("machine_image", String(255)),
    Column("machine_image_version", String(63)),
    Column("created_at", UtcDateTime, nullable=False),
)

node_resources = Table(
    "node_resources",
    metadata,
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    amount("capacity"),
    amount("system_reserved"),
    # (capacity - system_reserved) x overcommit, written once per node and slot.
    amount("allocatable"),
    amount("held"),
    amount("reserved"),
    amount("used"),
    amount("leaving"),
    CheckConstraint("held >= 0 AND reserved >= 0 AND used >= 0 AND leaving >= 0", name="not_negative"),
)

node_devices = Table(
    "node_devices",
    metadata,
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("device_index", Integer, primary_key=True),
    Column("model", String(255)),
    Column("memory", BigInteger),
    amount("capacity"),
    # The sum of the live rows of `device_allocations`.
    amount("taken"),
    CheckConstraint("taken >= 0", name="not_negative"),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("node_name", String(63), nullable=False),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False),
    Column("region", String(63)),
    Column("labels", json_type(), nullable=False),
    Column("taints", json_type(), nullable=False),
    Column("created_by", Id, ForeignKey("users.id"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("used_at", UtcDateTime),
)

quarantined_tasks = Table(
    "quarantined_tasks",
    metadata,
    # Tasks that run on a node but are not in the database, for example after a restore from a backup.
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("task_id", Id, primary_key=True),
    Column("workload_name", String(63), nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    # It is stopped at this time, or earlier if a user confirms it.
    Column("ends_at", UtcDateTime, nullable=False),
    Column("confirmed_by", String(63)),
)
