"""Status history, the event feed, leadership and the processes of the control plane."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from mooring.store.core.types import Id, UtcDateTime, json_type

# In the order of creation: a table follows those that it refers to.
TABLES = (
    "background_tasks",
    "events",
    "leadership",
    "leadership_lease",
    "loops",
    "servers",
    "status_history",
)


def create() -> None:
    op.create_table(
        "background_tasks",
        sa.Column("server", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=True),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("failed_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("server", "name", name=op.f("pk_background_tasks")),
    )
    op.create_table(
        "events",
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object_id", Id(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("node_id", Id(), nullable=True),
        sa.Column("workload_id", Id(), nullable=True),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=True),
        sa.Column("details", json_type(), nullable=True),
        sa.Column("transaction_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_events_transaction_id", "events", ["transaction_id"], sqlite_where=sa.text("transaction_id IS NOT NULL")
    )
    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("taken_at", UtcDateTime(), nullable=True),
        sa.Column("kind", sa.String(length=16), nullable=True),
        sa.Column("cluster", sa.String(length=63), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership")),
    )
    op.create_table(
        "leadership_lease",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("until", UtcDateTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leadership_lease")),
    )
    op.create_table(
        "loops",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("server", sa.String(length=255), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("last_run_at", UtcDateTime(), nullable=True),
        sa.Column("duration_seconds", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("next_run_at", UtcDateTime(), nullable=True),
        sa.Column("runs", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("found_by_timer", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_loops")),
    )
    op.create_table(
        "servers",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("last_seen_at", UtcDateTime(), nullable=False),
        sa.Column("election", sa.String(length=16), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("problem_since", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_servers")),
    )
    op.create_table(
        "status_history",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("noun", sa.String(length=16), nullable=False),
        sa.Column("object_id", Id(), nullable=False),
        sa.Column("workload_id", Id(), nullable=True),
        sa.Column("old_status", sa.String(length=50), nullable=False),
        sa.Column("new_status", sa.String(length=50), nullable=False),
        sa.Column("actor", sa.String(length=100), nullable=False),
        sa.Column("reason", sa.String(length=500), nullable=True),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_status_history")),
    )
    op.create_index(op.f("ix_status_history_workload_id"), "status_history", ["workload_id"])
