"""The ledger of allocated resources, and holds on them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, Table

from mooring.store.core.types import Id, UtcDateTime
from mooring.store.tables.base import amount, metadata

resource_allocations = Table(
    "resource_allocations",
    metadata,
    Column("task_id", Id, ForeignKey("tasks.id"), primary_key=True),
    Column("slot_name", String(64), primary_key=True),
    Column("requested", BigInteger, nullable=False),
    amount("held"),
    amount("reserved"),
    amount("used"),
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
