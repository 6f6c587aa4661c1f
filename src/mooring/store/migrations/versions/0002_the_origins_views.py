"""The event feed's transaction numbers, and the views under the origins' names (PostgreSQL only)."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KERNEL_STATUS = """CASE {status}
    WHEN 'SUCCEEDED' THEN 'TERMINATED' WHEN 'FAILED' THEN 'ERROR' WHEN 'LOST' THEN 'ERROR' ELSE {status} END"""
_DEPLOYMENT_STATUS = """CASE {status}
    WHEN 'PREPARING' THEN 'scheduled' WHEN 'RESERVED' THEN 'pending' WHEN 'TERMINATING' THEN 'stopped'
    WHEN 'SUCCEEDED' THEN 'stopped' WHEN 'CANCELLED' THEN 'deleted' WHEN 'EXPIRED' THEN 'failed'
    ELSE lower({status}) END"""
_REPLICA_STATUS = """CASE {status}
    WHEN 'SCHEDULED' THEN 'starting' WHEN 'PREPARING' THEN 'starting' WHEN 'RESERVED' THEN 'pending'
    WHEN 'TERMINATING' THEN 'stopping' WHEN 'SUCCEEDED' THEN 'stopped' WHEN 'CANCELLED' THEN 'stopped'
    WHEN 'LOST' THEN 'failed' ELSE lower({status}) END"""
# Base units to what the origins count in: thousandths become ones, bytes stay bytes.
_AMOUNT = """(CASE WHEN t.kind = 'milli' THEN {amount} / 1000.0 ELSE {amount} END)::numeric(24, 6)"""


def _slot(table: str, name: str, divisor: str) -> str:
    return f"""COALESCE((SELECT r.capacity / {divisor} FROM public.node_resources r
        WHERE r.node_id = {table}.id AND r.slot_name = '{name}'), 0)"""


_VIEWS = {
    "kernels": f"""
        SELECT t.id, t.workload_id AS session_id, w.name AS session_name, w.access_key, w.user_id AS user_uuid,
               w.project_id AS group_id, d.name AS domain_name, t.node_name AS agent, p.name AS scaling_group,
               {_KERNEL_STATUS.format(status="t.status")} AS status, t.requested_slots, t.occupied_slots,
               t.task_index AS cluster_idx, t.attempt, t.created_at, t.started_at, t.ended_at AS terminated_at
        FROM public.tasks t
        JOIN public.workloads w ON w.id = t.workload_id
        JOIN public.domains d ON d.id = w.domain_id
        JOIN public.pools p ON p.id = w.pool_id""",
    "resource_allocations": f"""
        SELECT a.task_id AS kernel_id, a.slot_name, {_AMOUNT.format(amount="a.requested")} AS requested,
               {_AMOUNT.format(amount="a.held")} AS prereserved, {_AMOUNT.format(amount="a.reserved")} AS reserved,
               CASE WHEN a.used_at IS NOT NULL THEN {_AMOUNT.format(amount="a.used")} END AS used,
               a.created_at, a.reserved_at, a.used_at, a.freed_at AS free_at
        FROM public.resource_allocations a
        LEFT JOIN public.slot_types t ON t.name = a.slot_name
        WHERE a.freed_at IS NULL""",
    "nodes": f"""
        SELECT n.id, n.name AS node_id, n.region,
               CASE WHEN n.status = 'LOST' THEN 'offline' WHEN n.status = 'DRAINING' OR NOT n.schedulable
                    THEN 'maintenance'
                    WHEN EXISTS (SELECT 1 FROM public.node_resources r
                                 WHERE r.node_id = n.id AND r.held + r.reserved + r.used > 0) THEN 'active'
                    ELSE 'idle' END AS status,
               ({_slot("n", "cpu", "1000.0")})::float8 AS cpu_cores, {_slot("n", "memory", "1048576")} AS memory_mb,
               {_slot("n", "storage", "1073741824")} AS storage_gb, {_slot("n", "gpu", "1000")} > 0 AS gpu_available,
               n.cpu_percent AS cpu_usage_percent, n.memory_percent AS memory_usage_percent
        FROM public.nodes n""",
    "deployments": f"""
        SELECT w.id, w.name, w.user_id, w.template #>> '{{containers,0,image}}' AS container_image,
               CASE WHEN w.removed_at IS NOT NULL THEN 'deleted'
                    ELSE {_DEPLOYMENT_STATUS.format(status="w.status")} END AS status,
               w.replicas AS target_replicas, w.created_at, w.updated_at
        FROM public.workloads w WHERE w.kind = 'deployment'""",
    "deployment_replicas": f"""
        SELECT t.id, t.workload_id AS deployment_id, t.node_id,
               {_REPLICA_STATUS.format(status="t.status")} AS status, NULL::varchar(255) AS container_id
        FROM public.tasks t JOIN public.workloads w ON w.id = t.workload_id
        WHERE w.kind = 'deployment' AND t.current""",
    "deployment_resources": """
        SELECT w.id, w.id AS deployment_id,
               (COALESCE((w.requested_slots ->> 'cpu')::bigint, 0) / 1000.0)::float8 AS cpu_cores,
               COALESCE((w.requested_slots ->> 'memory')::bigint, 0) / 1048576 AS memory_mb,
               COALESCE((w.requested_slots ->> 'gpu')::bigint, 0) / 1000 AS gpu_units,
               COALESCE((w.requested_slots ->> 'storage')::bigint, 0) / 1073741824 AS storage_gb
        FROM public.workloads w WHERE w.kind = 'deployment'""",
    "deployment_status_history": f"""
        SELECT id, deployment_id, old_status, new_status, changed_by, changed_at, reason FROM (
            SELECT h.id, h.object_id AS deployment_id, {_DEPLOYMENT_STATUS.format(status="h.old_status")} AS old_status,
                   {_DEPLOYMENT_STATUS.format(status="h.new_status")} AS new_status, w.user_id AS changed_by,
                   h.at AS changed_at, h.reason
            FROM public.status_history h JOIN public.workloads w ON w.id = h.object_id
            WHERE h.noun = 'workload' AND w.kind = 'deployment') AS rows
        WHERE old_status <> new_status""",
}


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE events ALTER COLUMN transaction_id SET DEFAULT (pg_current_xact_id()::text::bigint)")
    op.execute("CREATE SCHEMA origins")
    for name, query in _VIEWS.items():
        op.execute(f"CREATE VIEW origins.{name} AS {query}")


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for name in reversed(_VIEWS):
        op.execute(f"DROP VIEW origins.{name}")
    op.execute("DROP SCHEMA origins")
    op.execute("ALTER TABLE events ALTER COLUMN transaction_id DROP DEFAULT")
