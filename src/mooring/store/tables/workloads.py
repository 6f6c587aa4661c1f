"""Workloads, their tasks and the volumes that they mount."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, UniqueConstraint, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import ended_index, metadata

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
    # At least this many tasks start at the same time, or none.
    Column("min_tasks", Integer),
    Column("single_node", Boolean, nullable=False, server_default=text("false")),
    # Label keys of nested topology domains, widest first.
    Column("pack", json_type()),
    Column("preempts", Boolean, nullable=False, server_default=text("true")),
    Column("preemptible", Boolean, nullable=False, server_default=text("true")),
    # Preemption spares this many of its tasks, if possible.
    Column("min_available", Integer),
    Column("spread", Boolean, nullable=False),
    Column("max_per_node", Integer),
    Column("on_insufficient", String(16), nullable=False),
    # A task of it has been on a node, so that `fail` on insufficient capacity no longer applies.
    Column("placed_before", Boolean, nullable=False, server_default=text("false")),
    # The `TaskTemplate` of its tasks.
    Column("template", json_type(), nullable=False),
    # Of a deployment: the number of its current template.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    # Of a deployment: the strategy and progress of rolling updates, a `Rollout` of the model.
    Column("rollout", json_type()),
    # A rolling update is in progress or paused.
    Column("rolling", Boolean, nullable=False, server_default=text("false")),
    # It is stopped when its tasks have been idle for this long.
    Column("idle_timeout_seconds", Integer),
    # Set from the idle warning until its tasks are active again.
    Column("idle_warned_at", UtcDateTime),
    Column("requested_slots", json_type(), nullable=False),
    Column("labels", json_type(), nullable=False),
    # Placement constraints: a `Constraints` of the model.
    Column("constraints", json_type(), nullable=False),
    # Why it is pending or failed: a `Reason` of the model.
    Column("reason", json_type()),
    Column("next_index", Integer, nullable=False),
    Column("private", Boolean, nullable=False, server_default=text("false")),
    Column("starts_at", UtcDateTime),
    # Each task is stopped this long after its start.
    Column("time_limit_seconds", Integer),
    # A signal that tasks get `warning_seconds` before that.
    Column("warning_signal", String(16)),
    Column("warning_seconds", Integer),
    # Indexes of an array: {first, step}; the index of a task is first + step × task_index.
    Column("array", json_type()),
    # Maximum number of its tasks on nodes at the same time.
    Column("parallel", Integer),
    # How often a failed task is retried, and after which exit codes (null: any).
    Column("max_retries", Integer, nullable=False, server_default=text("0")),
    Column("retry_on", json_type()),
    Column("on_dependency_failure", String(8), nullable=False, server_default=text("'cancel'")),
    # Workloads of one user with the same value run one after another.
    Column("singleton", String(63)),
    # The timeslot that it runs in; it starts and ends with it.
    Column("timeslot_id", Id),
    # Planned start as of the last scheduling pass.
    Column("planned_start_at", UtcDateTime),
    # The nodes of the tasks that start then, by name with their numbers.
    Column("planned_nodes", json_type()),
    # Estimated start as of the last scheduling pass; no guarantee.
    Column("estimated_start_at", UtcDateTime),
    # The first planned or estimated start, and how often a stored start was replaced by a later one.
    Column("first_start_at", UtcDateTime),
    Column("start_moves", Integer, nullable=False, server_default=text("0")),
    # When its first task got a node.
    Column("placed_at", UtcDateTime),
    # The last admission check: its time, the validators that it passed, and those that it failed with reasons.
    Column("admission", json_type()),
    # The uploaded folder that its tasks find in their working folder.
    Column("upload_id", Id, ForeignKey("uploads.id", ondelete="SET NULL")),
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
    # Checked for every submission, in all projects of its user.
    Index(
        "ix_workloads_user_id_name_alive",
        "user_id",
        "name",
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
        "ix_workloads_upload_id",
        "upload_id",
        sqlite_where=text("upload_id IS NOT NULL"),
        postgresql_where=text("upload_id IS NOT NULL"),
    ),
    Index(
        "ix_workloads_idle_timeout",
        "id",
        sqlite_where=text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
        postgresql_where=text("idle_timeout_seconds IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "ix_workloads_placed_at_predicted",
        "placed_at",
        sqlite_where=text("placed_at IS NOT NULL AND first_start_at IS NOT NULL"),
        postgresql_where=text("placed_at IS NOT NULL AND first_start_at IS NOT NULL"),
    ),
    Index("ix_workloads_rolling", "id", sqlite_where=text("rolling"), postgresql_where=text("rolling")),
    ended_index("workloads"),
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
    # The newest attempt of a task that the workload still wants; the status of the workload is derived from these.
    Column("current", Boolean, nullable=False),
    Column("status", String(16), nullable=False),
    Column("node_id", Id, ForeignKey("nodes.id", ondelete="SET NULL")),
    # Remains when the node is removed.
    Column("node_name", String(63)),
    Column("score", Integer),
    Column("requested_slots", json_type(), nullable=False),
    Column("occupied_slots", json_type(), nullable=False),
    # Ports of its node: [protocol, number] each; the copy of `port_allocations`.
    Column("ports", json_type()),
    # Node that its replacement, or a pending task itself, prefers: it was moved there.
    Column("nominated_node", String(63)),
    # Devices of its node by slot: [index, amount] each; the copy of `device_allocations`.
    Column("devices", json_type()),
    # When its agent was ready to start it: the first phase of a two-phase bind.
    Column("prepared_at", UtcDateTime),
    # The preemptor; until the task is freed, its amounts count as `leaving`.
    Column("preempted_by", Id),
    # It is replaced when it has ended, whatever the kind of its workload.
    Column("requeue", Boolean, nullable=False, server_default=text("false")),
    # The revision of its workload's template.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    # Since when it has been running and ready by its readiness probes, if it has any; null: not ready.
    Column("ready_at", UtcDateTime),
    # It gets no more traffic, and is stopped at this time.
    Column("retires_at", UtcDateTime),
    # Image digests by container, as started.
    Column("digests", json_type()),
    # Its address for peers.
    Column("address", String(63)),
    # Last measured activity.
    Column("active_at", UtcDateTime),
    Column("exit_code", Integer),
    Column("restarts", Integer, nullable=False, server_default=text("0")),
    # Failures of earlier attempts, which use up retries; losses of nodes do not count.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    # Ends soon after a start, in a row: of the attempts before this one, and of this one.
    Column("earlier_crashes", Integer, nullable=False, server_default=text("0")),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    # The last end of one of its containers, or of the attempt before it: {code, message}.
    Column("last_exit_code", Integer),
    Column("last_reason", json_type()),
    # When its agent restarts it; null: it does not wait for a restart.
    Column("retry_at", UtcDateTime),
    # When its time limit ends; set at its start.
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
    ended_index("tasks"),
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

volumes = Table(
    "volumes",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, ForeignKey("projects.id"), nullable=False),
    Column("name", String(63), nullable=False),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False),
    # On all nodes of the pool, in a directory that the pool configures.
    Column("shared", Boolean, nullable=False),
    # The node with its content; null until the first task that mounts it is placed.
    Column("node_id", Id, ForeignKey("nodes.id"), index=True),
    # Remains when the node is removed.
    Column("node_name", String(63)),
    # Bytes of storage that it is charged for.
    Column("size", BigInteger, nullable=False),
    Column("created_by", Id, ForeignKey("users.id"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # Deletion was requested; the row goes when its node has deleted the content.
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
    # The request in readable form: `--image nginx:2`, `back to revision 3`.
    Column("cause", String(500), nullable=False),
    Column("created_by", Id, ForeignKey("users.id"), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workload_id", Id, ForeignKey("workloads.id"), nullable=False, index=True),
    Column("task_id", Id),
    # The phase that was attempted: `place`, `bind`, `prepare` or `start`.
    Column("phase", String(32), nullable=False),
    Column("result", String(16), nullable=False),
    Column("code", String(64)),
    Column("message", String(500)),
    # Equal attempts in a row are counted in one record.
    Column("number", Integer, nullable=False, server_default=text("1")),
    Column("first_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
)

submissions = Table(
    "submissions",
    metadata,
    # A repeated request with the same idempotency key gets the stored answer.
    Column("user_id", Id, ForeignKey("users.id"), primary_key=True),
    Column("idempotency_key", String(128), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("answer", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False, index=True),
)
