"""Accounting on PostgreSQL: occupancy with a million live ledger rows, and fair share over 10,000 users.

Each question is asked of the database, whose plan is printed, and answered a second time by a loop in Python over the
rows, which must find the same. 5,000 nodes, 10,000 users with a keypair each in 200 projects of 20 domains.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import event, text

from mooring.clock import now
from mooring.mirror.fair_share import factors
from mooring.model.fair_share import factor, normalised, shares_of_days
from mooring.model.pools import FairShare
from mooring.store import occupancy, schema, usage
from mooring.store.engine import Connection, Database
from tests.servers import running_postgres

NODES = 5000
DOMAINS, PROJECTS, USERS = 20, 200, 10_000
WORKLOADS, TASKS_EACH = 41_667, 8
SLOTS = ("cpu", "gpu", "memory")
DAYS = 28
TIMES = 5
SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB", "work_mem=64MB")

R = TypeVar("R")

# The ids come from numbers, so that every part is made by one statement inside the database.
_ID = "md5('{} ' || {})::uuid"
_LOAD = f"""
    SET session_replication_role = replica;
    INSERT INTO domains (id, name, created_at)
    SELECT {_ID.format("domain", "n")}, 'domain-' || n, {{at}} FROM generate_series(0, {DOMAINS - 1}) n;
    INSERT INTO projects (id, domain_id, name, number, created_at)
    SELECT {_ID.format("project", "n")}, {_ID.format("domain", f"n % {DOMAINS}")}, 'project-' || n, n, {{at}}
    FROM generate_series(0, {PROJECTS - 1}) n;
    INSERT INTO users (id, name, role, active, domain_id, project_id, created_at)
    SELECT {_ID.format("user", "n")}, 'user-' || n, 'user', true, {_ID.format("domain", f"n % {DOMAINS}")},
        {_ID.format("project", f"n % {PROJECTS}")}, {{at}}
    FROM generate_series(0, {USERS - 1}) n;
    INSERT INTO keypairs (access_key, user_id, project_id, active, created_at)
    SELECT 'key-' || n, {_ID.format("user", "n")}, {_ID.format("project", f"n % {PROJECTS}")}, true, {{at}}
    FROM generate_series(0, {USERS - 1}) n;
    INSERT INTO pools (id, name, profile, runtimes, simulated, created_at)
    SELECT {_ID.format("pool", "n")}, 'pool-' || n, 'balanced', '[]', true, {{at}} FROM generate_series(0, 3) n;
    INSERT INTO nodes (id, name, pool_id, status, schedulable, simulated, architecture, runtimes, labels, taints,
        enforces, created_at)
    SELECT {_ID.format("node", "n")}, 'node-' || n, {_ID.format("pool", "n % 4")}, 'READY', true, true, 'x86_64', '[]',
        '{{{{}}}}', '[]', '{{{{}}}}', {{at}}
    FROM generate_series(0, {NODES - 1}) n;
    INSERT INTO node_resources (node_id, slot_name, capacity, allocatable)
    SELECT {_ID.format("node", "n")}, s.name, s.amount, s.amount
    FROM generate_series(0, {NODES - 1}) n,
        (VALUES ('cpu', 256000), ('gpu', 64000), ('memory', 1::bigint << 40)) AS s (name, amount);
    INSERT INTO workloads (id, name, kind, type, domain_id, project_id, user_id, access_key, pool_id, status, priority,
        replicas, runtime, gang, spread, on_insufficient, template, requested_slots, labels, constraints, next_index,
        created_at, updated_at)
    SELECT {_ID.format("workload", "n")}, 'job-' || n, 'session', 'batch',
        {_ID.format("domain", f"n % {USERS} % {DOMAINS}")}, {_ID.format("project", f"n % {USERS} % {PROJECTS}")},
        {_ID.format("user", f"n % {USERS}")}, 'key-' || n % {USERS}, {_ID.format("pool", "n % 4")}, 'RUNNING', 10,
        {TASKS_EACH}, 'process', false, false, 'wait', '{{{{}}}}', '{{{{}}}}', '{{{{}}}}', '{{{{}}}}', {TASKS_EACH},
        {{at}}, {{at}}
    FROM generate_series(0, {WORKLOADS - 1}) n;
    INSERT INTO tasks (id, workload_id, task_index, attempt, current, status, node_id, requested_slots, occupied_slots,
        created_at, scheduled_at, started_at)
    SELECT {_ID.format("task", f"n * {TASKS_EACH} + i")}, {_ID.format("workload", "n")}, i, 1, true,
        CASE WHEN i = 0 THEN 'SCHEDULED' ELSE 'RUNNING' END,
        {_ID.format("node", f"(n * 7919 + i * 613) % {NODES} / 4 * 4 + n % 4")}, '{{{{}}}}', '{{{{}}}}', {{at}}, {{at}},
        CASE WHEN i > 0 THEN {{at}}::timestamptz END
    FROM generate_series(0, {WORKLOADS - 1}) n, generate_series(0, {TASKS_EACH - 1}) i;
    INSERT INTO resource_allocations (task_id, slot_name, requested, reserved, used, created_at, reserved_at, used_at)
    SELECT {_ID.format("task", f"n * {TASKS_EACH} + i")}, s.name, s.amount, CASE WHEN i = 0 THEN s.amount ELSE 0 END,
        CASE WHEN i > 0 THEN s.amount ELSE 0 END, {{at}}, {{at}}, CASE WHEN i > 0 THEN {{at}}::timestamptz END
    FROM generate_series(0, {WORKLOADS - 1}) n, generate_series(0, {TASKS_EACH - 1}) i,
        LATERAL (VALUES ('cpu', 500 * (1 + n % 4)), ('gpu', 100), ('memory', (1 + n % 8)::bigint << 30))
            AS s (name, amount);
    INSERT INTO usage_buckets (starts_at, pool, project_id, user_id, slot_name, amount, seconds)
    SELECT {{today}}::timestamptz - d * interval '1 day', 'pool-' || u % 4, {_ID.format("project", f"u % {PROJECTS}")},
        {_ID.format("user", "u")}, s.name, s.amount, (u * 31 + d * 17) % 86400 + 1
    FROM generate_series(0, {USERS - 1}) u, generate_series(0, {DAYS - 1}) d,
        LATERAL (VALUES ('cpu', 1000), ('cpu', 2000), ('gpu', 500), ('memory', 1::bigint << 30)) AS s (name, amount);
    SET session_replication_role = origin;
    ANALYZE
"""
