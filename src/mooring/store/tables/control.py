"""Status history, the event feed, leadership and the processes of the control plane."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, String, Table, Text, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import amount, metadata, serial

status_history = Table(
    "status_history",
    metadata,
    Column("id", serial, primary_key=True, autoincrement=True),
    Column("noun", String(16), nullable=False),
    Column("object_id", Id, nullable=False),
    Column("workload_id", Id, index=True),
    Column("old_status", String(50), nullable=False),
    Column("new_status", String(50), nullable=False),
    # A user's id, or a component: `scheduler`, `agent:<node>`, `nodes`, …
    Column("actor", String(100), nullable=False),
    Column("reason", String(500)),
    Column("at", UtcDateTime, nullable=False),
    Column("term", BigInteger),
)

events = Table(
    "events",
    metadata,
    Column("revision", serial, primary_key=True, autoincrement=True),
    Column("noun", String(16), nullable=False),
    Column("object_id", Id, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("node_id", Id),
    Column("workload_id", Id),
    Column("at", UtcDateTime, nullable=False),
    # The term of the leader that committed it; null for changes by agents and users.
    Column("term", BigInteger),
    # Details of the decision, shown on request.
    Column("details", json_type()),
    # The transaction id, set by PostgreSQL: commits do not become visible in the order of revisions.
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
    # The kind of election (`alone`, `database` or `etcd`), and for etcd the cluster and the revision of the key.
    Column("kind", String(16)),
    Column("cluster", String(63)),
    Column("revision", BigInteger),
)

leadership_lease = Table(
    "leadership_lease",
    metadata,
    # Separate from `leadership`: renewals must not wait for the leader's transactions, which lock the term.
    Column("id", Integer, primary_key=True),
    Column("holder", Text),
    Column("until", UtcDateTime, nullable=False),
    # Why the last holder released it.
    Column("reason", Text),
)

servers = Table(
    "servers",
    metadata,
    # The server processes; each updates its row periodically.
    Column("name", String(255), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("url", Text, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("last_seen_at", UtcDateTime, nullable=False),
    # Kind of election: `alone`, `database` or `etcd`; null: it never leads.
    Column("election", String(16)),
    # Why it cannot take part in the election.
    Column("problem", Text),
    Column("problem_since", UtcDateTime),
)

background_tasks = Table(
    "background_tasks",
    metadata,
    # The background tasks of each running server.
    Column("server", String(255), primary_key=True),
    # Those of connected agents are `NODE: NAME`, and only listed once they have failed.
    Column("name", String(255), primary_key=True),
    # `running`, `restarting` after a failure, `failing` after several in a row.
    Column("status", String(16), nullable=False),
    Column("started_at", UtcDateTime),
    amount("failures"),
    Column("error", Text),
    Column("failed_at", UtcDateTime),
)

loops = Table(
    "loops",
    metadata,
    # The last run of each control loop, as reported by the leader.
    Column("name", String(32), primary_key=True),
    Column("server", String(255), nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("last_run_at", UtcDateTime),
    Column("duration_seconds", Float),
    # `ok` or `failed`; null before the first run.
    Column("outcome", String(16)),
    Column("error", Text),
    # When it runs next, unless a signal triggers it earlier.
    Column("next_run_at", UtcDateTime),
    amount("runs"),
    amount("failures"),
    # How often the timer found work without a signal.
    amount("found_by_timer"),
)
