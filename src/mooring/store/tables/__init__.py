"""Table definitions, one module per subject. Names and columns are public: people query them.

Amounts are int64 in the slot's base unit. Statuses are the values of `model.lifecycle`.
"""

from __future__ import annotations

from mooring.store.tables.accounting import measured_buckets, settled_days, task_usage, usage_buckets, workload_records
from mooring.store.tables.base import metadata
from mooring.store.tables.control import (
    background_tasks,
    events,
    leadership,
    leadership_lease,
    loops,
    servers,
    status_history,
)
from mooring.store.tables.defragmentation import defragmentation_moves, defragmentation_plans
from mooring.store.tables.ledger import device_allocations, holds, port_allocations, resource_allocations
from mooring.store.tables.nodes import (
    join_tokens,
    node_devices,
    node_resources,
    nodes,
    pool_access,
    pools,
    quarantined_tasks,
    slot_types,
)
from mooring.store.tables.reservations import timeslot_places, timeslot_series, timeslots
from mooring.store.tables.scaling import node_templates, scale_requests, scaling_states
from mooring.store.tables.tenancy import (
    admin_actions,
    domains,
    fair_share_weights,
    identities,
    keypairs,
    login_codes,
    logins,
    memberships,
    policies,
    projects,
    registry_logins,
    secrets,
    signing_keys,
    tenant_resources,
    users,
)
from mooring.store.tables.uploads import upload_chunks, uploads
from mooring.store.tables.workloads import (
    attempts,
    dependencies,
    submissions,
    tasks,
    volumes,
    workload_revisions,
    workload_volumes,
    workloads,
)

__all__ = [
    "admin_actions",
    "attempts",
    "background_tasks",
    "defragmentation_moves",
    "defragmentation_plans",
    "dependencies",
    "device_allocations",
    "domains",
    "events",
    "fair_share_weights",
    "holds",
    "identities",
    "join_tokens",
    "keypairs",
    "leadership",
    "leadership_lease",
    "login_codes",
    "logins",
    "loops",
    "measured_buckets",
    "memberships",
    "metadata",
    "node_devices",
    "node_resources",
    "node_templates",
    "nodes",
    "policies",
    "pool_access",
    "pools",
    "port_allocations",
    "projects",
    "quarantined_tasks",
    "registry_logins",
    "resource_allocations",
    "scale_requests",
    "scaling_states",
    "secrets",
    "servers",
    "settled_days",
    "signing_keys",
    "slot_types",
    "status_history",
    "submissions",
    "task_usage",
    "tasks",
    "tenant_resources",
    "timeslot_places",
    "timeslot_series",
    "timeslots",
    "upload_chunks",
    "uploads",
    "usage_buckets",
    "users",
    "volumes",
    "workload_records",
    "workload_revisions",
    "workload_volumes",
    "workloads",
]
