"""Views under the names and columns of the systems that Mooring descends from, in the schema `origins`.

PostgreSQL only. They let queries written for those systems run unchanged with `SET search_path = origins`.
"""

from __future__ import annotations

from alembic import op


def create() -> None:
    op.execute("CREATE SCHEMA origins")
    for signature, body in _FUNCTIONS.items():
        op.execute(f"CREATE FUNCTION origins.{signature} AS $body${body}$body$")
    for name, query in _VIEWS.items():
        op.execute(f"CREATE VIEW origins.{name} AS {query}")


def drop() -> None:
    for name in reversed(_VIEWS):
        op.execute(f"DROP VIEW origins.{name}")
    for signature in reversed(_FUNCTIONS):
        op.execute(f"DROP FUNCTION origins.{signature.partition(' RETURNS')[0]}")
    op.execute("DROP SCHEMA origins")


def _slot(table: str, name: str, divisor: str) -> str:
    return f"""COALESCE((SELECT r.capacity / {divisor} FROM public.node_resources r
        WHERE r.node_id = {table}.id AND r.slot_name = '{name}'), 0)"""


# `SET origins.slot_names = 'backend.ai'` renames slots; 'backend.ai/shares' counts GPUs as fractions of devices.
_FUNCTIONS = {
    "slot_name(name text) RETURNS text LANGUAGE plpgsql STABLE": """
        DECLARE chosen text := coalesce(current_setting('origins.slot_names', true), '');
        BEGIN
            IF chosen = '' OR chosen = 'mooring' THEN RETURN name; END IF;
            IF chosen NOT IN ('backend.ai', 'backend.ai/shares') THEN
                RAISE EXCEPTION 'origins.slot_names is %, not mooring, backend.ai or backend.ai/shares', chosen;
            END IF;
            RETURN CASE name
                WHEN 'memory' THEN 'mem' WHEN 'tpu' THEN 'tpu.device' WHEN 'rocm' THEN 'rocm.device'
                WHEN 'gpu' THEN CASE chosen WHEN 'backend.ai' THEN 'cuda.device' ELSE 'cuda.shares' END
                ELSE name END;
        END
    """,
    # From base units to the units of those systems: thousandths become ones, bytes stay bytes.
    "amount(slot text, units bigint) RETURNS numeric LANGUAGE sql STABLE": """
        SELECT (CASE (SELECT kind FROM public.slot_types WHERE name = slot) WHEN 'milli' THEN units / 1000.0
                ELSE units END)::numeric(24, 6)
    """,
    "amounts(slots jsonb) RETURNS jsonb LANGUAGE sql STABLE": """
        SELECT coalesce(
            jsonb_object_agg(origins.slot_name(s.key), trim_scale(origins.amount(s.key, s.value::bigint))), '{}'
        ) FROM jsonb_each_text(slots) s
    """,
    # A failed or lost task occupies its node until its agent has confirmed that nothing of it is left there.
    "kernel_status(status text, freed_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE": """
        SELECT CASE WHEN status IN ('LOST', 'FAILED') AND freed_at IS NULL THEN 'TERMINATING'
            WHEN status = 'SUCCEEDED' THEN 'TERMINATED' WHEN status IN ('LOST', 'FAILED') THEN 'ERROR' ELSE status END
    """,
}
_DEPLOYMENT_STATUS = """CASE {status}
    WHEN 'PREPARING' THEN 'scheduled' WHEN 'RESERVED' THEN 'pending' WHEN 'TERMINATING' THEN 'stopped'
    WHEN 'SUCCEEDED' THEN 'stopped' WHEN 'CANCELLED' THEN 'deleted' WHEN 'EXPIRED' THEN 'failed'
    ELSE lower({status}) END"""
_VIEWS = {
    "kernels": """
        SELECT t.id, t.workload_id AS session_id, w.name AS session_name, w.access_key, w.user_id AS user_uuid,
               w.project_id AS group_id, d.name AS domain_name, t.node_name AS agent, p.name AS scaling_group,
               origins.kernel_status(t.status, t.freed_at) AS status,
               origins.amounts(t.requested_slots) AS requested_slots,
               origins.amounts(t.occupied_slots) AS occupied_slots,
               t.task_index AS cluster_idx, t.attempt, t.created_at, t.started_at, t.ended_at AS terminated_at,
               w.type AS session_type, w.private
        FROM public.tasks t
        JOIN public.workloads w ON w.id = t.workload_id
        JOIN public.domains d ON d.id = w.domain_id
        JOIN public.pools p ON p.id = w.pool_id""",
    "resource_allocations": """
        SELECT a.task_id AS kernel_id, origins.slot_name(a.slot_name) AS slot_name,
               origins.amount(a.slot_name, a.requested) AS requested,
               origins.amount(a.slot_name, a.held) AS prereserved,
               origins.amount(a.slot_name, a.reserved) AS reserved,
               CASE WHEN a.used_at IS NOT NULL THEN origins.amount(a.slot_name, a.used)
                    WHEN origins.kernel_status(t.status, t.freed_at) = 'TERMINATING'
                    THEN origins.amount(a.slot_name, a.held + a.reserved) END AS used,
               a.created_at, a.reserved_at, a.used_at, a.freed_at AS free_at
        FROM public.resource_allocations a JOIN public.tasks t ON t.id = a.task_id
        WHERE a.freed_at IS NULL""",
    "sessions": """
        SELECT w.id, w.name, w.type AS session_type, w.private, w.access_key, w.user_id AS user_uuid,
               w.project_id AS group_id, d.name AS domain_name, p.name AS scaling_group_name, w.priority,
               CASE w.status WHEN 'SUCCEEDED' THEN 'TERMINATED' WHEN 'FAILED' THEN 'ERROR'
                    WHEN 'EXPIRED' THEN 'CANCELLED' ELSE w.status END AS status,
               w.reason ->> 'code' AS status_info, w.replicas AS cluster_size,
               CASE WHEN w.single_node THEN 'single-node' ELSE 'multi-node' END AS cluster_mode,
               origins.amounts(w.requested_slots) AS requested_slots, w.starts_at, w.created_at,
               w.ended_at AS terminated_at
        FROM public.workloads w
        JOIN public.domains d ON d.id = w.domain_id
        JOIN public.pools p ON p.id = w.pool_id""",
    "agents": """
        SELECT n.name AS id, CASE n.status WHEN 'LOST' THEN 'LOST' ELSE 'ALIVE' END AS status, n.region,
               p.name AS scaling_group, n.schedulable AND n.status = 'READY' AS schedulable, n.address AS addr,
               n.agent_version AS version, n.architecture, n.created_at AS first_contact,
               r.available_slots, r.occupied_slots
        FROM public.nodes n
        JOIN public.pools p ON p.id = n.pool_id
        LEFT JOIN LATERAL (
            SELECT origins.amounts(coalesce(jsonb_object_agg(slot_name, allocatable), '{}')) AS available_slots,
                   origins.amounts(coalesce(jsonb_object_agg(slot_name, held + reserved + used), '{}'))
                   AS occupied_slots
            FROM public.node_resources WHERE node_id = n.id
        ) AS r ON true""",
    "agent_resources": """
        SELECT n.name AS agent_id, origins.slot_name(r.slot_name) AS slot_name,
               origins.amount(r.slot_name, r.allocatable) AS capacity,
               origins.amount(r.slot_name, r.held) AS prereserved,
               origins.amount(r.slot_name, r.reserved) AS reserved, origins.amount(r.slot_name, r.used) AS used
        FROM public.node_resources r JOIN public.nodes n ON n.id = r.node_id""",
    "resource_slot_types": """
        SELECT origins.slot_name(s.name) AS slot_name,
               CASE s.kind WHEN 'bytes' THEN 'bytes' ELSE 'count' END AS slot_type, s.description
        FROM public.slot_types s""",
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
    "deployment_replicas": """
        SELECT t.id, t.workload_id AS deployment_id, t.node_id,
               CASE WHEN t.status IN ('LOST', 'FAILED') AND t.freed_at IS NULL THEN 'stopping'
                    ELSE CASE t.status
                        WHEN 'SCHEDULED' THEN 'starting' WHEN 'PREPARING' THEN 'starting'
                        WHEN 'RESERVED' THEN 'pending' WHEN 'TERMINATING' THEN 'stopping'
                        WHEN 'SUCCEEDED' THEN 'stopped' WHEN 'CANCELLED' THEN 'stopped'
                        WHEN 'LOST' THEN 'failed' ELSE lower(t.status) END END AS status,
               NULL::varchar(255) AS container_id
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
