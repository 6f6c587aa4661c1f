"""Every table. Names and columns are public: people query them.

Amounts are int64 in the slot's base unit. Statuses are the words of `model.lifecycle`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from mooring.store.types import Id, UtcDateTime, json_type

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite counts rows only in a column that is exactly INTEGER.
_serial = BigInteger().with_variant(Integer, "sqlite")


def _amount(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def _ended_index(table: str) -> Index:
    """Finds what ended when; what is alive has no place in it, and so no cost."""
    ended = text("ended_at IS NOT NULL")
    return Index(f"ix_{table}_ended_at", "ended_at", sqlite_where=ended, postgresql_where=ended)


# --- tenants ------------------------------------------------------------------------------------------------------

domains = Table(
    "domains",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("policy_id", Id),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

projects = Table(
    "projects",
    metadata,
    Column("id", Id, primary_key=True),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("name", String(63), nullable=False),
    # Picks the uid of the project's processes from an agent's reserved range.
    Column("number", Integer, nullable=False, unique=True),
    Column("active", Boolean, nullable=False, server_default=text("true")),
    Column("policy_id", Id),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
    UniqueConstraint("domain_id", "name"),
)

users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("role", String(16), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("os_user", String(255)),
    Column("policy_id", Id),
    # Tokens carry it; raising it revokes every token that was given out before.
    Column("token_epoch", Integer, nullable=False, server_default=text("1")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

memberships = Table(
    "memberships",
    metadata,
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    Column("project_id", Id, ForeignKey("projects.id"), primary_key=True, index=True),
    # `user`, or `project-admin`.
    Column("role", String(16), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

identities = Table(
    "identities",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Id, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("issuer", String(255), nullable=False),
    Column("subject", String(255), nullable=False),
    Column("secret_hash", String(255)),
    UniqueConstraint("issuer", "subject"),
)

keypairs = Table(
    "keypairs",
    metadata,
    Column("access_key", String(40), primary_key=True),
    Column("secret_hash", String(255)),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("name", String(63)),
    # What it is good for: `all`, `work`, `read`.
    Column("scope", String(16), nullable=False, server_default=text("'all'")),
    Column("expires_at", UtcDateTime),
    Column("last_used_at", UtcDateTime),
    Column("policy_id", Id),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

policies = Table(
    "policies",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    # A `model.policies.Policy`.
    Column("rules", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

tenant_resources = Table(
    "tenant_resources",
    metadata,
    Column("scope", String(16), primary_key=True),
    # A keypair's access key, otherwise the id as text.
    Column("tenant_id", String(63), primary_key=True),
    # Empty for all pools together, which is what limits are about.
    Column("pool", String(63), primary_key=True, server_default=text("''")),
    # `sessions` and `private-sessions` count workloads that have something on a node.
    Column("slot_name", String(64), primary_key=True),
    # Of a project in a pool: what it does not use of it is lent to the pool's other projects.
    _amount("guaranteed"),
    Column("limit", BigInteger),
    # In place of the limit until its time is over.
    Column("override_limit", BigInteger),
    Column("override_until", UtcDateTime),
    # What its tasks hold or have reserved, and what the running ones use: guarded sums of the ledger.
    _amount("reserved"),
    _amount("used"),
    CheckConstraint("reserved >= 0 AND used >= 0", name="not_negative"),
)

pool_access = Table(
    "pool_access",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("scope", String(16), primary_key=True),
    Column("tenant_id", String(63), primary_key=True),
)

admin_actions = Table(
    "admin_actions",
    metadata,
    # Rows are only ever added: the database refuses to change or delete one.
    Column("id", _serial, primary_key=True, autoincrement=True),
    Column("at", UtcDateTime, nullable=False, index=True),
    Column("user_id", Id),
    Column("username", String(63), nullable=False),
    Column("address", String(63)),
    Column("action", String(63), nullable=False),
    # What it was done to: `pool`, `policy`, `user`, `quota`, …, by the name that people use.
    Column("noun", String(16), nullable=False),
    Column("object", String(255), nullable=False),
    # Of the object after the change, where it has versions.
    Column("version", Integer),
    Column("before", json_type()),
    Column("after", json_type()),
    Index("ix_admin_actions_noun_object", "noun", "object"),
    sqlite_autoincrement=True,
)

signing_keys = Table(
    "signing_keys",
    metadata,
    # The key itself never enters the database: its id is enough to tell whether a replica shares it.
    Column("id", String(32), primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
)

# --- pools and nodes ------------------------------------------------------------------------------------------------


def _sealed_table(name: str, key: Column[str], *told: Column[str]) -> Table:
    """What a project keeps sealed, one row by key: with the key of that id, which is not in the database."""
    return Table(
        name,
        metadata,
        Column("id", Id, primary_key=True),
        Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
        key,
        *told,
        Column("sealed", LargeBinary, nullable=False),
        Column("key_id", String(63), nullable=False),
        Column("created_at", UtcDateTime, nullable=False),
        Column("updated_at", UtcDateTime, nullable=False),
        UniqueConstraint("project_id", key.name),
    )


registry_logins = _sealed_table(
    "registry_logins",
    Column("registry", String(255), nullable=False),
    Column("username", String(255), nullable=False),
)

secrets = _sealed_table("secrets", Column("name", String(63), nullable=False))

volumes = Table(
    "volumes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("name", String(63), nullable=False),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False),
    # All nodes of the pool have it, in the folder that the pool says.
    Column("shared", Boolean, nullable=False),
    # Where its content is; null until the first task that mounts it is placed.
    Column("node_id", Id, ForeignKey("nodes.id"), index=True),
    # It stays when the node is removed, and the content with it.
    Column("node_name", String(63)),
    # Bytes of storage that it counts with.
    Column("size", BigInteger, nullable=False),
    Column("created_by", Id, ForeignKey("users.id"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # It is to go; its node says when nothing is left of it.
    Column("removed_at", UtcDateTime),
    Index(
        "uq_volumes_name_alive",
        "project_id",
        "name",
        unique=True,
        sqlite_where=text("removed_at IS NULL"),
        postgresql_where=text("removed_at IS NULL"),
    ),
)

slot_types = Table(
    "slot_types",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("description", String(255), nullable=False, server_default=text("''")),
    # Made of single devices, given out as wholes or shares in multiples of the quantum.
    Column("devices", Boolean, nullable=False, server_default=text("false")),
    Column("quantum", BigInteger, nullable=False, server_default=text("1")),
)

pools = Table(
    "pools",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("profile", String(63), nullable=False),
    # Scorers and their weights in place of the profile's own.
    Column("weights", json_type()),
    Column("runtimes", json_type(), nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("binding", String(16), nullable=False, server_default=text("'optimistic'")),
    Column("hold_seconds", Integer, nullable=False, server_default=text("60")),
    Column("fragmentation", Boolean, nullable=False, server_default=text("false")),
    # A `model.preemption.Preemption`; null where nobody has to leave for anybody.
    Column("preemption", json_type()),
    # The rest of a `model.pools.PoolPolicy`, where it is not the default.
    Column("options", json_type(), nullable=False, server_default=text("'{}'")),
    # Raised by every commit that moves what constraints between tasks depend on.
    Column("placement_revision", BigInteger, nullable=False, server_default=text("0")),
    # Where round robin goes on.
    Column("turn", BigInteger, nullable=False, server_default=text("0")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

nodes = Table(
    "nodes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False, index=True),
    Column("status", String(16), nullable=False),
    Column("schedulable", Boolean, nullable=False),
    # An admin's wish, which outlives a loss of the node.
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("drain_reason", String(500)),
    # When what has not left a draining node by itself is ended; null: never.
    Column("drain_until", UtcDateTime),
    # When nothing was left on it.
    Column("drained_at", UtcDateTime),
    # What went wrong on it before does not speak against it.
    Column("trusted_since", UtcDateTime),
    Column("reason", String(500)),
    Column("simulated", Boolean, nullable=False),
    Column("region", String(63)),
    Column("architecture", String(63), nullable=False),
    Column("runtimes", json_type(), nullable=False),
    # Container images that are present: bytes by name.
    Column("images", json_type()),
    # Where other nodes reach it, as its agent says.
    Column("address", String(63)),
    # Where other servers reach the one that its agent is connected to.
    Column("server_url", String(255)),
    Column("labels", json_type(), nullable=False),
    Column("taints", json_type(), nullable=False),
    Column("enforces", json_type(), nullable=False),
    Column("joined_by", Id, ForeignKey("users.id")),
    # Set while the agent can run only the tasks of the one who let it join.
    Column("owner_id", Id, ForeignKey("users.id")),
    Column("max_tasks", Integer),
    # Raised by every change that placement depends on, heartbeats and counters excepted.
    Column("generation", BigInteger, nullable=False, server_default=text("1")),
    Column("cpu_percent", Float, nullable=False, server_default=text("0")),
    Column("memory_percent", Float, nullable=False, server_default=text("0")),
    Column("disk_percent", Float, nullable=False, server_default=text("0")),
    Column("last_seen_at", UtcDateTime),
    Column("credential_hash", String(64), index=True),
    Column("boot_id", String(64)),
    Column("agent_version", String(32)),
    # The template that it was asked for by, and the request.
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
    _amount("capacity"),
    _amount("system_reserved"),
    # (capacity - system_reserved) x overcommit, written once per node and slot.
    _amount("allocatable"),
    _amount("held"),
    _amount("reserved"),
    _amount("used"),
    _amount("leaving"),
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
    _amount("capacity"),
    # The sum of the live rows of `device_allocations`, as the counters of a node are of the ledger.
    _amount("taken"),
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

# --- work -----------------------------------------------------------------------------------------------------------

workloads = Table(
    "workloads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("type", String(63), nullable=False),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False),
    Column("access_key", String(40), ForeignKey("keypairs.access_key"), nullable=False),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False),
    Column("status", String(16), nullable=False),
    Column("stopping", Boolean, nullable=False, server_default=text("false")),
    Column("priority", Integer, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("runtime", String(63), nullable=False),
    Column("architecture", String(63)),
    Column("region", String(63)),
    Column("gang", Boolean, nullable=False),
    # So many tasks start together or none.
    Column("min_tasks", Integer),
    Column("single_node", Boolean, nullable=False, server_default=text("false")),
    # Label keys of nested domains, the widest first.
    Column("pack", json_type()),
    Column("preempts", Boolean, nullable=False, server_default=text("true")),
    Column("preemptible", Boolean, nullable=False, server_default=text("true")),
    # Preemption leaves so many of its tasks alone, if it can.
    Column("min_available", Integer),
    Column("spread", Boolean, nullable=False),
    Column("max_per_node", Integer),
    Column("on_insufficient", String(16), nullable=False),
    # Some task of it had a node once: failing at once is over.
    Column("placed_before", Boolean, nullable=False, server_default=text("false")),
    # What every task is made from: a `model.containers.TaskTemplate`.
    Column("template", json_type(), nullable=False),
    # Of a deployment: counts the templates that it had; the present one is the last of them.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    # Of a deployment: how its tasks are replaced, and how far that is: a `model.rollouts.Rollout`.
    Column("rollout", json_type()),
    # Its tasks are being replaced, or that rests.
    Column("rolling", Boolean, nullable=False, server_default=text("false")),
    # It ends when its tasks have used next to nothing for so long.
    Column("idle_timeout_seconds", Integer),
    # Set from its warning on until its tasks do something again.
    Column("idle_warned_at", UtcDateTime),
    Column("requested_slots", json_type(), nullable=False),
    Column("labels", json_type(), nullable=False),
    # What its tasks demand of their place: a `model.constraints.Constraints`.
    Column("constraints", json_type(), nullable=False),
    # Why it waits or failed: a `model.reasons.Reason`.
    Column("reason", json_type()),
    Column("next_index", Integer, nullable=False),
    Column("private", Boolean, nullable=False, server_default=text("false")),
    Column("starts_at", UtcDateTime),
    # Each of its tasks ends so long after its start.
    Column("time_limit_seconds", Integer),
    # What a task is sent so many seconds before that.
    Column("warning_signal", String(16)),
    Column("warning_seconds", Integer),
    # An array's indexes: {first, step}; the index of a task is first + step x task_index.
    Column("array", json_type()),
    # So many of its tasks have a node at the same time.
    Column("parallel", Integer),
    # How often a task that failed is tried again, and after which exit codes (null: after any).
    Column("max_retries", Integer, nullable=False, server_default=text("0")),
    Column("retry_on", json_type()),
    Column("on_dependency_failure", String(8), nullable=False, server_default=text("'cancel'")),
    # Workloads of one user with the same word run one after the other.
    Column("singleton", String(63)),
    # The room that it runs in; it starts and ends with that.
    Column("timeslot_id", Id),
    # When it is to start by the leader's plan, as of the last pass.
    Column("planned_start_at", UtcDateTime),
    # The last look: when, the validators that it passed, and those that it failed with their records.
    Column("admission", json_type()),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("removed_at", UtcDateTime),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Index(
        "uq_workloads_name_alive",
        "project_id",
        "user_id",
        "name",
        unique=True,
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
    Index("ix_workloads_user_id_created_at", "user_id", "created_at"),
    Index(
        "ix_workloads_timeslot_id",
        "timeslot_id",
        sqlite_where=text("timeslot_id IS NOT NULL"),
        postgresql_where=text("timeslot_id IS NOT NULL"),
    ),
    Index("ix_workloads_status", "status"),
    Index(
        "ix_workloads_idle_timeout",
        "id",
        sqlite_where=text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
    ),
    Index("ix_workloads_rolling", "id", sqlite_where=text("rolling"), postgresql_where=text("rolling")),
    _ended_index("workloads"),
)

dependencies = Table(
    "dependencies",
    metadata,
    Column("workload_id", Id, ForeignKey("workloads.id"), primary_key=True),
    Column("depends_on", Id, ForeignKey("workloads.id"), primary_key=True, index=True),
    # `after-ok`, `after-any` or `after-fail`.
    Column("condition", String(16), nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workload_id", Id, ForeignKey("workloads.id"), nullable=False),
    Column("task_index", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    # The newest attempt at a task that the workload still wants; the workload's status is derived from these.
    Column("current", Boolean, nullable=False),
    Column("status", String(16), nullable=False),
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="SET NULL")),
    # Kept when the node is removed.
    Column("node_name", String(63)),
    Column("score", Integer),
    Column("requested_slots", json_type(), nullable=False),
    Column("occupied_slots", json_type(), nullable=False),
    # Ports of its node that are its own: [protocol, number] each; `port_allocations` is what guards them.
    Column("ports", json_type()),
    # Devices of its node that are its own: slot to [index, amount] each; the copy of `device_allocations`.
    Column("devices", json_type()),
    # Its agent is ready to start it: the first phase of a two-phase bind.
    Column("prepared_at", UtcDateTime),
    # The workload that its leaving makes room for: until it is gone, what it occupies counts as `leaving`.
    Column("preempted_by", Id),
    # When it has ended, a successor takes its place, whatever the kind of its workload.
    Column("requeue", Boolean, nullable=False, server_default=text("false")),
    # The template of its workload that it was made from.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    # Since when it runs and its readiness probes say yes, if it has any; null while that is not so.
    Column("ready_at", UtcDateTime),
    # Nobody is sent to it any more, and then it is stopped.
    Column("retires_at", UtcDateTime),
    # By container: what its image was when it was started.
    Column("digests", json_type()),
    # Where its peers reach it.
    Column("address", String(63)),
    # When it was last seen to do something.
    Column("active_at", UtcDateTime),
    Column("exit_code", Integer),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    # Failures of its own that earlier attempts had: they use up retries, a lost node does not.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    # When its time limit is over, known from its start on.
    Column("deadline_at", UtcDateTime),
    Column("reason", json_type()),
    Column("not_before", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("scheduled_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    # When nothing of it was left on its node; its ledger rows count until then.
    Column("freed_at", UtcDateTime),
    Column("version", Integer, nullable=False, server_default=text("1")),
    UniqueConstraint("workload_id", "task_index", "attempt"),
    Index(
        "ix_tasks_node_id_status",
        "node_id",
        "status",
        sqlite_where=text("node_id IS NOT NULL"),
        postgresql_where=text("node_id IS NOT NULL"),
    ),
    Index("ix_tasks_status", "status"),
    _ended_index("tasks"),
    Index(
        "ix_tasks_deadline_at_alive",
        "deadline_at",
        sqlite_where=text("deadline_at IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=text("deadline_at IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "ix_tasks_retires_at_alive",
        "retires_at",
        sqlite_where=text("retires_at IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=text("retires_at IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "ix_tasks_workload_id_requeue",
        "workload_id",
        sqlite_where=text("requeue AND current"),
        postgresql_where=text("requeue AND current"),
    ),
)

workload_volumes = Table(
    "workload_volumes",
    metadata,
    Column("workload_id", Id, ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True),
    Column("volume_id", Id, ForeignKey("volumes.id", ondelete="CASCADE"), primary_key=True, index=True),
)

workload_revisions = Table(
    "workload_revisions",
    metadata,
    Column("workload_id", Id, ForeignKey("workloads.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("template", json_type(), nullable=False),
    Column("requested_slots", json_type(), nullable=False),
    # What was asked for, in the words that people read: `--image nginx:2`, `back to revision 3`.
    Column("cause", String(500), nullable=False),
    Column("created_by", Id, ForeignKey("users.id"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

resource_allocations = Table(
    "resource_allocations",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("requested", BigInteger, nullable=False),
    _amount("held"),
    _amount("reserved"),
    _amount("used"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("held_at", UtcDateTime),
    Column("reserved_at", UtcDateTime),
    Column("used_at", UtcDateTime),
    Column("freed_at", UtcDateTime),
)

device_allocations = Table(
    "device_allocations",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("device_index", Integer, primary_key=True),
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("amount", BigInteger, nullable=False),
    Column("freed_at", UtcDateTime),
)

port_allocations = Table(
    "port_allocations",
    metadata,
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("protocol", String(8), primary_key=True),
    Column("port", Integer, primary_key=True),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False, index=True),
)

holds = Table(
    "holds",
    metadata,
    Column("id", Id, primary_key=True),
    Column("task_id", Id, ForeignKey("tasks.id"), nullable=False, unique=True),
    Column("workload_id", Id, ForeignKey("workloads.id"), nullable=False, index=True),
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), nullable=False),
    # `prepare`: until the agents are ready; `preempt`: until the victims have left.
    Column("purpose", String(16), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False, index=True),
)

timeslots = Table(
    "timeslots",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String(63), nullable=False),
    # `lab`, `booking` or `maintenance`.
    Column("kind", String(16), nullable=False),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False, index=True),
    Column("domain_id", Id, ForeignKey("domains.id"), nullable=False),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("user_id", Id, ForeignKey("users.id"), nullable=False, index=True),
    # That it is charged to.
    Column("access_key", String(40), nullable=False),
    # What people say that it is for.
    Column("purpose", String(500)),
    Column("status", String(16), nullable=False, index=True),
    # Why it was refused, is at risk or has expired: a `model.reasons.Reason`, with alternatives in its details.
    Column("reason", json_type()),
    # When its lead begins, and with that its room is kept.
    Column("eligible_at", UtcDateTime, nullable=False),
    Column("starts_at", UtcDateTime, nullable=False, index=True),
    Column("ends_at", UtcDateTime, nullable=False),
    Column("lead_seconds", Integer, nullable=False),
    Column("grace_seconds", Integer, nullable=False),
    # Of one task; of maintenance nothing, since it takes whole nodes.
    Column("requested_slots", json_type(), nullable=False),
    Column("count", Integer, nullable=False),
    Column("architecture", String(63)),
    Column("region", String(63)),
    # A `model.constraints.Constraints`.
    Column("constraints", json_type(), nullable=False),
    # Who may use it besides its booker.
    Column("users", json_type(), nullable=False),
    Column("projects", json_type(), nullable=False),
    Column("release_after_seconds", Integer),
    Column("series_id", Id, ForeignKey("timeslot_series.id"), index=True),
    # The one that ends when this one is confirmed: a change of it.
    Column("replaces", Id),
    # When its users were told that it ends soon.
    Column("noticed_at", UtcDateTime),
    # When something of it was last seen on a node.
    Column("used_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("version", Integer, nullable=False, server_default=text("1")),
    _ended_index("timeslots"),
    # What is due by time is looked for among those that are not over.
    Index(
        "ix_timeslots_live",
        "eligible_at",
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
)

timeslot_places = Table(
    "timeslot_places",
    metadata,
    Column("timeslot_id", Id, ForeignKey("timeslots.id", ondelete="CASCADE"), primary_key=True),
    # The node may be gone: the room is then to be found elsewhere.
    Column("node_id", Id, primary_key=True, index=True),
    Column("tasks", Integer, nullable=False),
)

timeslot_series = Table(
    "timeslot_series",
    metadata,
    Column("id", Id, primary_key=True),
    # As in RFC 5545, and the zone of its wall clock.
    Column("rule", String(500), nullable=False),
    Column("timezone", String(63), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

node_templates = Table(
    "node_templates",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(63), primary_key=True),
    # A `model.templates.NodeTemplate`.
    Column("template", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

scale_requests = Table(
    "scale_requests",
    metadata,
    # The id is the key by which whoever is asked tells a repetition.
    Column("id", Id, primary_key=True),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False, index=True),
    Column("template", String(63), nullable=False),
    # A `model.templates.ScaleRequestStatus`.
    Column("status", String(16), nullable=False),
    # Per node that is asked for, how many tasks of which workloads it is for.
    Column("wanted", json_type(), nullable=False),
    Column("nodes", Integer, nullable=False),
    # How many of them have joined.
    Column("joined", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("next_attempt_at", UtcDateTime),
    Column("error", String(500)),
    Column("delivered_at", UtcDateTime),
    # What has not joined by then is asked for again if it is still needed.
    Column("expires_at", UtcDateTime, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

# What the leader has to say about a pool beyond its requests.
scaling_states = Table(
    "scaling_states",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    # Work for which no more nodes are asked although it lacks room, and why.
    Column("unmet", json_type(), nullable=False),
    # Nodes that the pool can do without, the next step and since when it is advised.
    Column("advice", json_type(), nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

usage_buckets = Table(
    "usage_buckets",
    metadata,
    # The day in UTC. Amount and seconds are kept apart: their product may be larger than a number of 64 bits.
    Column("starts_at", UtcDateTime, primary_key=True),
    Column("pool", String(63), primary_key=True),
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("amount", BigInteger, primary_key=True),
    # So many seconds in all did somebody use this amount.
    Column("seconds", BigInteger, nullable=False),
)

measured_buckets = Table(
    "measured_buckets",
    metadata,
    # As `usage_buckets`, but what was really used. Added to as it is measured, never counted again.
    Column("starts_at", UtcDateTime, primary_key=True),
    Column("pool", String(63), primary_key=True),
    Column("project_id", Id, primary_key=True),
    Column("user_id", Id, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    # Base units times minutes: times seconds it may be larger than a number of 64 bits.
    Column("amount_minutes", BigInteger, nullable=False),
)

settled_days = Table(
    "settled_days",
    metadata,
    # Days whose buckets are final: they are never counted again, and the ledger rows behind them may go.
    Column("starts_at", UtcDateTime, primary_key=True),
)

workload_records = Table(
    "workload_records",
    metadata,
    # One for each workload that ended; it stays when workload and history are gone.
    Column("workload_id", Id, primary_key=True),
    Column("name", String(63), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("type", String(63), nullable=False),
    Column("domain", String(63), nullable=False),
    Column("project", String(63), nullable=False),
    Column("username", String(63), nullable=False),
    Column("access_key", String(40), nullable=False),
    Column("pool", String(63), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    # Of one task.
    Column("requested_slots", json_type(), nullable=False),
    # The most that all its tasks together had at the same time.
    Column("peak_slots", json_type(), nullable=False),
    Column("nodes", json_type(), nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", json_type()),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime, nullable=False, index=True),
    # From its creation to its first start, and from then to its end.
    Column("wait_seconds", BigInteger, nullable=False),
    Column("run_seconds", BigInteger, nullable=False),
)

task_usage = Table(
    "task_usage",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True),
    Column("measured_at", UtcDateTime, primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    # On average over so many seconds before; bytes per second of `read`, `written`, `received` and `sent`.
    Column("amount", BigInteger, nullable=False),
    Column("seconds", Integer, nullable=False, server_default=text("60")),
    Index("ix_task_usage_measured_at", "measured_at"),
)

# --- what happened ----------------------------------------------------------------------------------------------------

status_history = Table(
    "status_history",
    metadata,
    Column("id", _serial, primary_key=True, autoincrement=True),
    Column("noun", String(16), nullable=False),
    Column("object_id", Id, nullable=False),
    Column("workload_id", Id, index=True),
    Column("old_status", String(50), nullable=False),
    Column("new_status", String(50), nullable=False),
    # A user's id, or the part of Mooring that acted: `scheduler`, `agent:<node>`, `nodes`, …
    Column("actor", String(100), nullable=False),
    Column("reason", String(500)),
    Column("at", UtcDateTime, nullable=False),
    Column("term", BigInteger),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workload_id", Id, ForeignKey("workloads.id"), nullable=False, index=True),
    Column("task_id", Id),
    # What was tried: `place`, `bind`, `prepare`, `start`.
    Column("phase", String(32), nullable=False),
    Column("result", String(16), nullable=False),
    Column("code", String(64)),
    Column("message", String(500)),
    # Equal ones in a row are one record.
    Column("number", Integer, nullable=False, server_default=text("1")),
    Column("first_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
)

submissions = Table(
    "submissions",
    metadata,
    # A client's own word for one request: the same word again gets the same answer.
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True),
    Column("idempotency_key", String(128), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("answer", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False, index=True),
)

events = Table(
    "events",
    metadata,
    Column("revision", _serial, primary_key=True, autoincrement=True),
    Column("noun", String(16), nullable=False),
    Column("object_id", Id, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("node_id", Id),
    Column("workload_id", Id),
    Column("at", UtcDateTime, nullable=False),
    # Of the leader that committed it; null for what agents and users did.
    Column("term", BigInteger),
    # What the decision saw and chose, shown on request.
    Column("details", json_type()),
    # PostgreSQL fills it with the transaction's number: commits become visible out of the order of revisions.
    Column("transaction_id", BigInteger),
    Index("ix_events_transaction_id", "transaction_id", sqlite_where=text("transaction_id IS NOT NULL")),
    sqlite_autoincrement=True,
)

leadership = Table(
    "leadership",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("term", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_at", UtcDateTime),
    # What the seat was won with: `alone`, `database` or `etcd`, and etcd's cluster and the revision of its key.
    Column("kind", String(16)),
    Column("cluster", String(63)),
    Column("revision", BigInteger),
)

leadership_lease = Table(
    "leadership_lease",
    metadata,
    # A row of its own: renewing it must not wait for the leader's transactions, which lock its term.
    Column("id", Integer, primary_key=True),
    Column("holder", Text),
    Column("until", UtcDateTime, nullable=False),
)

servers = Table(
    "servers",
    metadata,
    # The processes of the control plane: each says now and then that it is there.
    Column("name", String(255), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("url", Text, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("last_seen_at", UtcDateTime, nullable=False),
)

loops = Table(
    "loops",
    metadata,
    # What each loop of the leader did last, as that leader tells it.
    Column("name", String(32), primary_key=True),
    Column("server", String(255), nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("last_run_at", UtcDateTime),
    Column("duration_seconds", Float),
    # `ok` or `failed`; null before the first run.
    Column("outcome", String(16)),
    Column("error", Text),
    # When it turns next, unless a signal wakes it before.
    Column("next_run_at", UtcDateTime),
    _amount("runs"),
    _amount("failures"),
    # How often the timer found work that no signal had announced.
    _amount("found_by_timer"),
)

quarantined_tasks = Table(
    "quarantined_tasks",
    metadata,
    # What runs on a node without the database knowing it: it may be work that a restored backup has forgotten.
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="CASCADE"), primary_key=True),
    Column("task_id", Id, primary_key=True),
    Column("workload_name", String(63), nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    # From then on it is ended, unless somebody says so before.
    Column("ends_at", UtcDateTime, nullable=False),
    Column("confirmed_by", String(63)),
)
