-- A cluster in full work, made inside the database: ids come from numbers, checks of foreign keys are left out.
SET session_replication_role = replica;
CREATE FUNCTION pg_temp.id(noun text, number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN md5(noun || ' ' || number)::uuid;

INSERT INTO domains (id, name, created_at)
SELECT pg_temp.id('domain', n), 'domain-' || n, now() FROM generate_series(0, $DOMAINS - 1) n;

INSERT INTO projects (id, domain_id, name, number, created_at)
SELECT pg_temp.id('project', n), pg_temp.id('domain', n % $DOMAINS), 'project-' || n, n, now()
FROM generate_series(0, $PROJECTS - 1) n;

INSERT INTO users (id, name, role, active, domain_id, project_id, created_at)
SELECT pg_temp.id('user', n), 'user-' || n, 'user', true, pg_temp.id('domain', n % $DOMAINS),
    pg_temp.id('project', n % $PROJECTS), now()
FROM generate_series(0, $USERS - 1) n;

INSERT INTO keypairs (access_key, user_id, project_id, active, created_at)
SELECT 'key-' || n, pg_temp.id('user', n), pg_temp.id('project', n % $PROJECTS), true, now()
FROM generate_series(0, $USERS - 1) n;

INSERT INTO pools (id, name, profile, runtimes, simulated, created_at)
SELECT pg_temp.id('pool', n), 'pool-' || n, 'balanced', '[]', true, now() FROM generate_series(0, $POOLS - 1) n;

INSERT INTO nodes (id, name, pool_id, status, schedulable, simulated, architecture, runtimes, labels, taints, enforces,
    created_at)
SELECT pg_temp.id('node', n), 'node-' || n, pg_temp.id('pool', n % $POOLS), 'READY', true, true, 'x86_64', '[]', '{}',
    '[]', '{}', now()
FROM generate_series(0, $NODES - 1) n;

INSERT INTO node_resources (node_id, slot_name, capacity, allocatable)
SELECT pg_temp.id('node', n), s.name, s.amount, s.amount
FROM generate_series(0, $NODES - 1) n,
    (VALUES ('cpu', 256000), ('gpu', 64000), ('memory', 1::bigint << 40)) AS s (name, amount);

INSERT INTO workloads (id, name, kind, type, domain_id, project_id, user_id, access_key, pool_id, status, priority,
    replicas, runtime, gang, spread, on_insufficient, template, requested_slots, labels, constraints, next_index,
    created_at, updated_at)
SELECT pg_temp.id('workload', n), 'job-' || n, 'session', 'batch', u.domain_id, u.project_id, u.id,
    'key-' || n % $USERS, pg_temp.id('pool', n % $POOLS), 'RUNNING', 10, $TASKS, 'process', false, false, 'wait', '{}',
    '{}', '{}', '{}', $TASKS, now(), now()
FROM generate_series(0, $WORKLOADS - 1) n JOIN users u ON u.id = pg_temp.id('user', n % $USERS);

-- One task of each workload is about to start, on some node of its pool, and the others run.
INSERT INTO tasks (id, workload_id, task_index, attempt, current, status, node_id, requested_slots, occupied_slots,
    created_at, scheduled_at, started_at)
SELECT pg_temp.id('task', n * $TASKS + i), pg_temp.id('workload', n), i, 1, true,
    CASE WHEN i = 0 THEN 'SCHEDULED' ELSE 'RUNNING' END,
    pg_temp.id('node', (n * 7919 + i * 613) % ($NODES / $POOLS) * $POOLS + n % $POOLS), '{}', '{}', now(), now(),
    CASE WHEN i > 0 THEN now() - interval '1 hour' END
FROM generate_series(0, $WORKLOADS - 1) n, generate_series(0, $TASKS - 1) i;

INSERT INTO resource_allocations (task_id, slot_name, requested, reserved, used, created_at, reserved_at, used_at)
SELECT pg_temp.id('task', n * $TASKS + i), s.name, s.amount, CASE WHEN i = 0 THEN s.amount ELSE 0 END,
    CASE WHEN i > 0 THEN s.amount ELSE 0 END, now(), now(), CASE WHEN i > 0 THEN now() - interval '1 hour' END
FROM generate_series(0, $WORKLOADS - 1) n, generate_series(0, $TASKS - 1) i,
    LATERAL (VALUES ('cpu', 500 * (1 + n % 4)), ('gpu', 100), ('memory', (1 + n % 8)::bigint << 30)) s (name, amount);

INSERT INTO usage_buckets (starts_at, pool, project_id, user_id, slot_name, amount, seconds)
SELECT date_trunc('day', now(), 'UTC') - d * interval '1 day', 'pool-0', u.project_id, u.id, s.name, s.amount,
    (d * 8191 + s.amount) % 86400 + 1
FROM users u, generate_series(0, $DAYS - 1) d,
    (VALUES ('cpu', 1000), ('cpu', 2000), ('gpu', 500), ('memory', 1::bigint << 30)) AS s (name, amount);

SET session_replication_role = origin;
ANALYZE;
