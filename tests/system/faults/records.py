"""The records of a run: the tables, the notes of the tasks themselves, and the running processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psutil

from mooring.agent.runtimes import records
from mooring.agent.runtimes.process.supervisor import record
from mooring.agent.runtimes.records import ExitRecord
from tests.system.faults.cluster import Cluster
from tests.system.faults.plan import AGENTS, SCHEDULERS, named

Row = Mapping[str, Any]

_TABLES = {
    "events": "SELECT revision, noun, object_id, kind, node_id, workload_id, at, term, transaction_id FROM events"
    " WHERE kind <> 'purged' ORDER BY revision",
    "history": "SELECT id, noun, object_id, workload_id, old_status, new_status, actor, reason, at, term"
    " FROM status_history ORDER BY id",
    "tasks": "SELECT t.*, t.reason ->> 'code' AS code FROM tasks t ORDER BY workload_id, task_index, attempt",
    "workloads": "SELECT w.*, w.reason ->> 'code' AS code FROM workloads w ORDER BY created_at, id",
    "nodes": "SELECT * FROM nodes ORDER BY name",
    "resources": "SELECT * FROM node_resources ORDER BY node_id, slot_name",
    "ledger": "SELECT * FROM resource_allocations ORDER BY task_id, slot_name",
    "users": "SELECT id, name FROM users",
    "timeslots": "SELECT * FROM timeslots ORDER BY created_at, id",
    "places": "SELECT * FROM timeslot_places",
}


@dataclass(frozen=True)
class Records:
    """The rows of the tables, oldest first, and the observations outside the database."""

    events: Sequence[Row] = ()
    history: Sequence[Row] = ()
    tasks: Sequence[Row] = ()
    workloads: Sequence[Row] = ()
    nodes: Sequence[Row] = ()
    resources: Sequence[Row] = ()
    ledger: Sequence[Row] = ()
    users: Sequence[Row] = ()
    timeslots: Sequence[Row] = ()
    places: Sequence[Row] = ()
    notes: Mapping[UUID, Sequence[str]] = field(default_factory=dict)
    """The notes of each task: a line at its start, and one at its end."""
    exits: Mapping[str, Mapping[UUID, int | None]] = field(default_factory=dict)
    """By node: the exit code that its agent recorded for each task, or None if there is none."""
    processes: frozenset[UUID] = frozenset()
    """Tasks with running processes."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Of the schedulers."""


def read_records(cluster: Cluster) -> Records:
    """Read the records of an idle cluster."""

    async def read() -> dict[str, list[Row]]:
        connection = await asyncpg.connect(cluster.database_url.replace("+asyncpg", ""))
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return {name: await connection.fetch(question) for name, question in _TABLES.items()}
        finally:
            await connection.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        tables = runner.run(read())
    notes = {UUID(file.name): file.read_text().splitlines() for file in cluster.starts.iterdir()}
    exits = {name: _exits(cluster.folder / name / "agent" / "tasks") for name in named("agent", AGENTS)}
    logs = {name: cluster.parts[name].log for name in named("scheduler", SCHEDULERS)}
    return Records(**tables, notes=notes, exits=exits, processes=running_tasks(cluster.starts), logs=logs)


def _exits(tasks: Path) -> dict[UUID, int | None]:
    """Return the exit codes of tasks that were started. A folder alone shows only the intention to start one."""
    found: dict[UUID, int | None] = {}
    for folder in tasks.iterdir():
        ended = records.read(folder / record.EXIT, ExitRecord)
        if ended is not None or (folder / record.STATE).exists():
            found[UUID(folder.name)] = ended.exit_code if ended is not None else None
    return found


def running_tasks(starts: Path) -> frozenset[UUID]:
    """Return the tasks with running processes, found by their environment."""
    found = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            words = process.cmdline()
        except psutil.Error:
            continue
        # `sleep` has taken the place of the shell that had the folder in its command line.
        if "MOORING_TASK_ID" in environment and (starts / environment["MOORING_TASK_ID"]).exists() and words:
            found.add(UUID(environment["MOORING_TASK_ID"]))
    return frozenset(found)
