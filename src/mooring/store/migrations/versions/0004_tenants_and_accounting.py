"""Tenants, quotas and accounting: memberships, policies, sessions with dependencies, usage, records, admin actions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _tenant_resources() -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("guaranteed", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("limit", sa.BigInteger(), nullable=True),
        sa.Column("reserved", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
    ]


def _append_only() -> None:
    """What an admin did stays as it was written."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            """
            CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME; END $$
            """
        )
        op.execute(
            "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON admin_actions"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change()"
        )
        return
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER append_only_{change.lower()} BEFORE {change} ON admin_actions"
            " BEGIN SELECT RAISE(ABORT, 'rows of admin_actions are only ever added'); END"
        )


def upgrade() -> None:
    op.create_table(
        "admin_actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("username", sa.String(length=63), nullable=False),
        sa.Column("address", sa.String(length=63), nullable=True),
        sa.Column("action", sa.String(length=63), nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object", sa.String(length=255), nullable=False),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("before", _json, nullable=True),
        sa.Column("after", _json, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admin_actions")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("admin_actions", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_admin_actions_at"), ["at"], unique=False)
        batch_op.create_index("ix_admin_actions_noun_object", ["noun", "object"], unique=False)

    op.create_table(
        "workload_records",
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("type", sa.String(length=63), nullable=False),
        sa.Column("domain", sa.String(length=63), nullable=False),
        sa.Column("project", sa.String(length=63), nullable=False),
        sa.Column("username", sa.String(length=63), nullable=False),
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("requested_slots", _json, nullable=False),
        sa.Column("peak_slots", _json, nullable=False),
        sa.Column("nodes", _json, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", _json, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wait_seconds", sa.BigInteger(), nullable=False),
        sa.Column("run_seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workload_id", name=op.f("pk_workload_records")),
    )
    with op.batch_alter_table("workload_records", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_workload_records_ended_at"), ["ended_at"], unique=False)

    op.create_table(
        "pool_access",
        sa.Column("pool_id", sa.Uuid(), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=63), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_pool_access_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", "scope", "tenant_id", name=op.f("pk_pool_access")),
    )
    op.create_table(
        "memberships",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_memberships_project_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_memberships_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "project_id", name=op.f("pk_memberships")),
    )
    with op.batch_alter_table("memberships", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_memberships_project_id"), ["project_id"], unique=False)

    op.create_table(
        "dependencies",
        sa.Column("workload_id", sa.Uuid(), nullable=False),
        sa.Column("depends_on", sa.Uuid(), nullable=False),
        sa.Column("condition", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["depends_on"], ["workloads.id"], name=op.f("fk_dependencies_depends_on")),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name=op.f("fk_dependencies_workload_id")),
        sa.PrimaryKeyConstraint("workload_id", "depends_on", name=op.f("pk_dependencies")),
    )
    with op.batch_alter_table("dependencies", recreate="never") as batch_op:
        batch_op.create_index(batch_op.f("ix_dependencies_depends_on"), ["depends_on"], unique=False)

    with op.batch_alter_table("domains", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False))
        batch_op.add_column(sa.Column("policy_id", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False))

    with op.batch_alter_table("keypairs", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("name", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("scope", sa.String(length=16), server_default=sa.text("'all'"), nullable=False))
        batch_op.add_column(sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("policy_id", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False))

    with op.batch_alter_table("pools", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("options", _json, server_default=sa.text("'{}'"), nullable=False))

    with op.batch_alter_table("projects", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False))
        batch_op.add_column(sa.Column("policy_id", sa.Uuid(), nullable=True))
        batch_op.add_column(sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False))

    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False))
        batch_op.add_column(sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.create_index(
            "ix_tasks_deadline_at_alive",
            ["deadline_at"],
            unique=False,
            sqlite_where=sa.text("deadline_at IS NOT NULL AND ended_at IS NULL"),
            postgresql_where=sa.text("deadline_at IS NOT NULL AND ended_at IS NULL"),
        )

    # Nothing wrote these two so far.
    op.drop_table("tenant_resources")
    op.create_table(
        "tenant_resources",
        *_tenant_resources(),
        sa.Column("pool", sa.String(length=63), server_default=sa.text("''"), nullable=False),
        sa.Column("override_limit", sa.BigInteger(), nullable=True),
        sa.Column("override_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("reserved >= 0 AND used >= 0", name=op.f("ck_tenant_resources_not_negative")),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "pool", "slot_name", name=op.f("pk_tenant_resources")),
    )
    op.drop_table("usage_buckets")
    op.create_table(
        "usage_buckets",
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pool", sa.String(length=63), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("slot_name", sa.String(length=64), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "starts_at", "pool", "project_id", "user_id", "slot_name", "amount", name=op.f("pk_usage_buckets")
        ),
    )
    op.create_table(
        "settled_days",
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("starts_at", name=op.f("pk_settled_days")),
    )
    _append_only()
    op.execute(
        "INSERT INTO memberships (user_id, project_id, role, created_at)"
        " SELECT id, project_id, 'user', created_at FROM users"
    )
    with op.batch_alter_table("users", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("policy_id", sa.Uuid(), nullable=True))

    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("private", sa.Boolean(), server_default=sa.text("false"), nullable=False))
        batch_op.add_column(sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column("time_limit_seconds", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("warning_signal", sa.String(length=16), nullable=True))
        batch_op.add_column(sa.Column("warning_seconds", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("array", _json, nullable=True))
        batch_op.add_column(sa.Column("parallel", sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column("max_retries", sa.Integer(), server_default=sa.text("0"), nullable=False))
        batch_op.add_column(sa.Column("retry_on", _json, nullable=True))
        batch_op.add_column(
            sa.Column("on_dependency_failure", sa.String(length=8), server_default=sa.text("'cancel'"), nullable=False)
        )
        batch_op.add_column(sa.Column("singleton", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("admission", _json, nullable=True))
    _charge()


def _charge() -> None:
    """Tenants are charged with what is placed already."""
    postgresql = op.get_bind().dialect.name == "postgresql"
    occupying = "'RESERVED', 'SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING'"
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))

    def written(column: str) -> str:
        if postgresql:
            return f"CAST({column} AS text)"
        return " || '-' || ".join(f"substr({column}, {start}, {length})" for start, length in parts)

    for scope, tenant_id, pools in (
        ("keypair", "w.access_key", ("''",)),
        ("user", written("w.user_id"), ("''", "p.name")),
        ("project", written("w.project_id"), ("''", "p.name")),
        ("domain", written("w.domain_id"), ("''",)),
    ):
        for pool in pools:
            op.execute(
                f"""
                INSERT INTO tenant_resources (scope, tenant_id, pool, slot_name, reserved, used)
                SELECT '{scope}', {tenant_id}, {pool}, a.slot_name,
                    sum(CASE WHEN a.used_at IS NULL THEN a.held + a.reserved ELSE 0 END), sum(a.used)
                FROM tasks t JOIN workloads w ON w.id = t.workload_id JOIN pools p ON p.id = w.pool_id
                JOIN resource_allocations a ON a.task_id = t.id
                WHERE t.status IN ({occupying}) GROUP BY 2, 3, 4
                UNION ALL
                SELECT '{scope}', {tenant_id}, {pool}, 'sessions', 0, count(DISTINCT w.id)
                FROM tasks t JOIN workloads w ON w.id = t.workload_id JOIN pools p ON p.id = w.pool_id
                WHERE t.status IN ({occupying}) GROUP BY 2, 3
                """
            )

    ended = sa.text("ended_at IS NOT NULL")
    for table in ("tasks", "workloads"):
        op.create_index(f"ix_{table}_ended_at", table, ["ended_at"], sqlite_where=ended, postgresql_where=ended)


def downgrade() -> None:
    for table in ("tasks", "workloads"):
        op.drop_index(f"ix_{table}_ended_at", table)
    op.drop_table("settled_days")
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.drop_column("admission")
        batch_op.drop_column("singleton")
        batch_op.drop_column("on_dependency_failure")
        batch_op.drop_column("retry_on")
        batch_op.drop_column("max_retries")
        batch_op.drop_column("parallel")
        batch_op.drop_column("array")
        batch_op.drop_column("warning_seconds")
        batch_op.drop_column("warning_signal")
        batch_op.drop_column("time_limit_seconds")
        batch_op.drop_column("starts_at")
        batch_op.drop_column("private")

    with op.batch_alter_table("users", recreate="never") as batch_op:
        batch_op.drop_column("policy_id")

    op.drop_table("usage_buckets")
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
    op.drop_table("tenant_resources")
    op.create_table(
        "tenant_resources",
        *_tenant_resources(),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "slot_name", name=op.f("pk_tenant_resources")),
    )
    with op.batch_alter_table("tasks", recreate="never") as batch_op:
        batch_op.drop_index("ix_tasks_deadline_at_alive")
        batch_op.drop_column("deadline_at")
        batch_op.drop_column("failures")

    with op.batch_alter_table("projects", recreate="never") as batch_op:
        batch_op.drop_column("version")
        batch_op.drop_column("policy_id")
        batch_op.drop_column("active")

    with op.batch_alter_table("pools", recreate="never") as batch_op:
        batch_op.drop_column("options")

    with op.batch_alter_table("keypairs", recreate="never") as batch_op:
        batch_op.drop_column("version")
        batch_op.drop_column("policy_id")
        batch_op.drop_column("last_used_at")
        batch_op.drop_column("expires_at")
        batch_op.drop_column("scope")
        batch_op.drop_column("name")

    with op.batch_alter_table("domains", recreate="never") as batch_op:
        batch_op.drop_column("version")
        batch_op.drop_column("policy_id")
        batch_op.drop_column("active")

    with op.batch_alter_table("dependencies", recreate="never") as batch_op:
        batch_op.drop_index(batch_op.f("ix_dependencies_depends_on"))

    op.drop_table("dependencies")
    with op.batch_alter_table("memberships", recreate="never") as batch_op:
        batch_op.drop_index(batch_op.f("ix_memberships_project_id"))

    op.drop_table("memberships")
    op.drop_table("pool_access")
    with op.batch_alter_table("workload_records", recreate="never") as batch_op:
        batch_op.drop_index(batch_op.f("ix_workload_records_ended_at"))

    op.drop_table("workload_records")
    with op.batch_alter_table("admin_actions", recreate="never") as batch_op:
        batch_op.drop_index("ix_admin_actions_noun_object")
        batch_op.drop_index(batch_op.f("ix_admin_actions_at"))

    op.drop_table("admin_actions")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION refuse_change()")
