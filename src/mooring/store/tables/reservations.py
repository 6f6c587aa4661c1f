"""Capacity reserved for a window of time."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, String, Table, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import ended_index, metadata

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
    # The keypair that is charged.
    Column("access_key", String(40), nullable=False),
    # Free text.
    Column("purpose", String(500)),
    Column("status", String(16), nullable=False, index=True),
    # Why it was refused, is at risk or has expired: a `Reason` of the model, with alternatives in its details.
    Column("reason", json_type()),
    # When its lead time begins; capacity is reserved from then on.
    Column("eligible_at", UtcDateTime, nullable=False),
    Column("starts_at", UtcDateTime, nullable=False, index=True),
    Column("ends_at", UtcDateTime, nullable=False),
    Column("lead_seconds", Integer, nullable=False),
    Column("grace_seconds", Integer, nullable=False),
    # Request of one task; empty for maintenance, which takes whole nodes.
    Column("requested_slots", json_type(), nullable=False),
    Column("count", Integer, nullable=False),
    Column("architecture", String(63)),
    Column("region", String(63)),
    # A `Constraints` of the model.
    Column("constraints", json_type(), nullable=False),
    # Users and projects that may use it, besides the user who booked it.
    Column("users", json_type(), nullable=False),
    Column("projects", json_type(), nullable=False),
    Column("release_after_seconds", Integer),
    Column("series_id", Id, ForeignKey("timeslot_series.id"), index=True),
    # The timeslot that this one changes; it ends when this one is confirmed.
    Column("replaces", Id),
    # The first timeslot of a chain of changes, whose id calendars use; null: itself.
    Column("calendar_uid", Id),
    # When its users were notified that it ends soon.
    Column("noticed_at", UtcDateTime),
    # When a task in it was last on a node.
    Column("used_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("version", Integer, nullable=False, server_default=text("1")),
    ended_index("timeslots"),
    # Finds timeslots that are due, among those that have not ended.
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
    # The node may have been removed; the capacity is then searched elsewhere.
    Column("node_id", Id, primary_key=True, index=True),
    Column("tasks", Integer, nullable=False),
)

timeslot_series = Table(
    "timeslot_series",
    metadata,
    Column("id", Id, primary_key=True),
    # A recurrence rule of RFC 5545, and the time zone that it is evaluated in.
    Column("rule", String(500), nullable=False),
    Column("timezone", String(63), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)
