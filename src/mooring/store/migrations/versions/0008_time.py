"""Time: timeslots with their places and series, templates of nodes, requests for them, and planned starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.types import Id, UtcDateTime, json_type

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Both were there for what is to come; nothing was ever written to them.
    op.drop_table("scale_requests")
    op.drop_table("timeslots")
    op.create_table(
        "timeslot_series",
        sa.Column("id", Id(), nullable=False),
        sa.Column("rule", sa.String(length=500), nullable=False),
        sa.Column("timezone", sa.String(length=63), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_timeslot_series")),
    )
    op.create_table(
        "timeslots",
        sa.Column("id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("domain_id", Id(), nullable=False),
        sa.Column("project_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("access_key", sa.String(length=40), nullable=False),
        sa.Column("purpose", sa.String(length=500), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", json_type(), nullable=True),
        sa.Column("eligible_at", UtcDateTime(), nullable=False),
        sa.Column("starts_at", UtcDateTime(), nullable=False),
        sa.Column("ends_at", UtcDateTime(), nullable=False),
        sa.Column("lead_seconds", sa.Integer(), nullable=False),
        sa.Column("grace_seconds", sa.Integer(), nullable=False),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("architecture", sa.String(length=63), nullable=True),
        sa.Column("region", sa.String(length=63), nullable=True),
        sa.Column("constraints", json_type(), nullable=False),
        sa.Column("users", json_type(), nullable=False),
        sa.Column("projects", json_type(), nullable=False),
        sa.Column("release_after_seconds", sa.Integer(), nullable=True),
        sa.Column("series_id", Id(), nullable=True),
        sa.Column("replaces", Id(), nullable=True),
        sa.Column("noticed_at", UtcDateTime(), nullable=True),
        sa.Column("used_at", UtcDateTime(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["domain_id"], ["domains.id"], name=op.f("fk_timeslots_domain_id")),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_timeslots_pool_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_timeslots_project_id")),
        sa.ForeignKeyConstraint(["series_id"], ["timeslot_series.id"], name=op.f("fk_timeslots_series_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_timeslots_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_timeslots")),
    )
    for column in ("pool_id", "series_id", "starts_at", "status", "user_id"):
        op.create_index(op.f(f"ix_timeslots_{column}"), "timeslots", [column])
    ended = sa.text("ended_at IS NOT NULL")
    live = sa.text("ended_at IS NULL")
    op.create_index("ix_timeslots_live", "timeslots", ["eligible_at"], sqlite_where=live, postgresql_where=live)
    op.create_index("ix_timeslots_ended_at", "timeslots", ["ended_at"], sqlite_where=ended, postgresql_where=ended)
    op.create_table(
        "timeslot_places",
        sa.Column("timeslot_id", Id(), nullable=False),
        sa.Column("node_id", Id(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["timeslot_id"], ["timeslots.id"], name=op.f("fk_timeslot_places_timeslot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("timeslot_id", "node_id", name=op.f("pk_timeslot_places")),
    )
    op.create_index(op.f("ix_timeslot_places_node_id"), "timeslot_places", ["node_id"])
    op.create_table(
        "node_templates",
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("template", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_node_templates_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", "name", name=op.f("pk_node_templates")),
    )
    op.create_table(
        "scale_requests",
        sa.Column("id", Id(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("template", sa.String(length=63), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("wanted", json_type(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("joined", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", UtcDateTime(), nullable=True),
        sa.Column("error", sa.String(length=500), nullable=True),
        sa.Column("delivered_at", UtcDateTime(), nullable=True),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scale_requests_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scale_requests")),
    )
    op.create_index(op.f("ix_scale_requests_pool_id"), "scale_requests", ["pool_id"])
    op.create_table(
        "scaling_states",
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("unmet", json_type(), nullable=False),
        sa.Column("advice", json_type(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scaling_states_pool_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", name=op.f("pk_scaling_states")),
    )
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("template", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("scale_request_id", Id(), nullable=True))
        batch_op.add_column(sa.Column("licence", sa.String(length=63), nullable=True))
        batch_op.add_column(sa.Column("machine_image", sa.String(length=255), nullable=True))
        batch_op.add_column(sa.Column("machine_image_version", sa.String(length=63), nullable=True))
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.add_column(sa.Column("timeslot_id", Id(), nullable=True))
        batch_op.add_column(sa.Column("planned_start_at", UtcDateTime(), nullable=True))
    inside = sa.text("timeslot_id IS NOT NULL")
    op.create_index(
        "ix_workloads_timeslot_id", "workloads", ["timeslot_id"], sqlite_where=inside, postgresql_where=inside
    )
    _keep_options({"head_of_line": "skip"})


def downgrade() -> None:
    op.drop_index("ix_workloads_timeslot_id", table_name="workloads")
    with op.batch_alter_table("workloads", recreate="never") as batch_op:
        batch_op.drop_column("planned_start_at")
        batch_op.drop_column("timeslot_id")
    with op.batch_alter_table("nodes", recreate="never") as batch_op:
        batch_op.drop_column("machine_image_version")
        batch_op.drop_column("machine_image")
        batch_op.drop_column("licence")
        batch_op.drop_column("scale_request_id")
        batch_op.drop_column("template")
    op.drop_table("scaling_states")
    op.drop_table("scale_requests")
    op.drop_table("node_templates")
    op.drop_table("timeslot_places")
    op.drop_table("timeslots")
    op.drop_table("timeslot_series")
    op.create_table(
        "timeslots",
        sa.Column("id", Id(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("user_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("starts_at", UtcDateTime(), nullable=False),
        sa.Column("ends_at", UtcDateTime(), nullable=False),
        sa.Column("lead_seconds", sa.Integer(), nullable=False),
        sa.Column("requested_slots", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_timeslots_pool_id")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_timeslots_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_timeslots")),
    )
    op.create_index(op.f("ix_timeslots_starts_at"), "timeslots", ["starts_at"])
    op.create_table(
        "scale_requests",
        sa.Column("id", Id(), nullable=False),
        sa.Column("pool_id", Id(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("wanted", json_type(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_scale_requests_pool_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scale_requests")),
    )


def _keep_options(before: dict[str, str]) -> None:
    """Options are stored where they are not the default: what was the default so far stays so for pools that exist."""
    pools = sa.table("pools", sa.column("id", Id()), sa.column("options", json_type()))
    connection = op.get_bind()
    for id, options in connection.execute(sa.select(pools.c.id, pools.c.options)).all():
        connection.execute(sa.update(pools).where(pools.c.id == id).values(options=before | options))
