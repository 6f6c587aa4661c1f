"""Node templates and requests for more nodes."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, String, Table, text

from mooring.store.core.types import Id, UtcDateTime, json_type
from mooring.store.tables.base import metadata

node_templates = Table(
    "node_templates",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(63), primary_key=True),
    # A `NodeTemplate` of the model.
    Column("template", json_type(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

scale_requests = Table(
    "scale_requests",
    metadata,
    # The receiver uses the id as an idempotency key.
    Column("id", Id, primary_key=True),
    Column("pool_id", Id, ForeignKey("pools.id"), nullable=False, index=True),
    Column("template", String(63), nullable=False),
    # A `ScaleRequestStatus` of the model.
    Column("status", String(16), nullable=False),
    # For each requested node: the workloads that it is for, and how many of their tasks.
    Column("wanted", json_type(), nullable=False),
    Column("nodes", Integer, nullable=False),
    # The cost of the scale-up's packed nodes and its proven bound: a `PackingCost` of the model.
    Column("packing", json_type()),
    # Number of nodes that have joined.
    Column("joined", Integer, nullable=False, server_default=text("0")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("next_attempt_at", UtcDateTime),
    Column("error", String(500)),
    Column("delivered_at", UtcDateTime),
    # Nodes that have not joined by then are requested again if they are still needed.
    Column("expires_at", UtcDateTime, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("version", Integer, nullable=False, server_default=text("1")),
)

# The scaling state of a pool beyond its requests.
scaling_states = Table(
    "scaling_states",
    metadata,
    Column("pool_id", Id, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    # Workloads that lack capacity but for which no nodes are requested, and why.
    Column("unmet", json_type(), nullable=False),
    # Nodes that the pool does not need, the next step, and since when it is advised.
    Column("advice", json_type(), nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)
