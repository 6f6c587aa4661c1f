"""Capacity reserved for a window of time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "timeslot_series",
    "timeslots",
    "timeslot_places",
)


def create() -> None:
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
        sa.Column("calendar_uid", Id(), nullable=True),
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
    op.create_index(
        "ix_timeslots_ended_at",
        "timeslots",
        ["ended_at"],
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "ix_timeslots_live",
        "timeslots",
        ["eligible_at"],
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(op.f("ix_timeslots_pool_id"), "timeslots", ["pool_id"])
    op.create_index(op.f("ix_timeslots_series_id"), "timeslots", ["series_id"])
    op.create_index(op.f("ix_timeslots_starts_at"), "timeslots", ["starts_at"])
    op.create_index(op.f("ix_timeslots_status"), "timeslots", ["status"])
    op.create_index(op.f("ix_timeslots_user_id"), "timeslots", ["user_id"])
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
