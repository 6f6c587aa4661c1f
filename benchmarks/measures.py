"""The cost of usage measurements: a minute of 1,000 tasks, on the node and on the server.

On the server, 100 agents report ten tasks each, six times; the minute is then written. The figures are CPU time of this
process in milliseconds per minute, without that of PostgreSQL.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks.population import REQUEST, add_nodes, bind, decide, move, seed, submit
from mooring import clock
from mooring.agent.node import usage_counters
from mooring.agent.node.measurement import Meter
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.measured_usage import MeasuredUse
from mooring.model.lifecycle import TaskStatus
from mooring.store.core import schema
from mooring.store.core.engine import Database
from mooring.store.tables import workloads
from mooring.store.workloads import idleness
from mooring.wire.agents.agent_protocol import Desired, Measures, TaskMeasure, decode_from_agent, encode
from mooring.wire.agents.desired_tasks import DesiredTask, Owner
from tests.servers import running_postgres

TASKS, AGENTS = 1000, 100
PROCESSES = 100
MEASURES = 6
MINUTES = 5


def run() -> dict[str, float]:
    figures = _node()
    with running_postgres() as server:
        figures |= asyncio.run(_server("postgresql", server.url(server.create_database())))
    with tempfile.TemporaryDirectory() as folder:
        figures |= asyncio.run(_server("sqlite", f"sqlite+aiosqlite:///{Path(folder) / 'mooring.db'}"))
    return figures


def _node() -> dict[str, float]:
    """Measured by processes, the most expensive way; cgroups need three files per task."""
    sleeping = [subprocess.Popen(["sh", "-c", "sleep 600 & wait"]) for _ in range(PROCESSES)]
    try:
        meter = Meter()
        began = time.process_time()
        for number in range(MEASURES):
            machine = usage_counters.Processes()
            meter.measures({UUID(int=each.pid): machine.from_on(each.pid) for each in sleeping}, float(number))
        return {"node_ms_per_minute_of_100_tasks": (time.process_time() - began) * 1000}
    finally:
        for each in sleeping:
            each.kill()
            each.wait()


async def _server(name: str, url: str) -> dict[str, float]:
    database = Database(url)
    hands = _Hands()
    try:
        await schema.upgrade(database.engine)
        sessions = await _running(database)
        await database.write(lambda c: c.execute(workloads.update().values(idle_timeout_seconds=3600)))
        found = MeasuredUse()
        with hands.in_place():
            taken = written = 0.0
            for _ in range(MINUTES):
                for _ in range(MEASURES):
                    hands.at += timedelta(seconds=10)
                    messages = [_measures(session, hands.at) for session in sessions]
                    began = time.process_time()
                    for session, message in zip(sessions, messages, strict=True):
                        measures = decode_from_agent(message)
                        assert isinstance(measures, Measures)
                        found.take(session, measures)
                    taken += time.process_time() - began
                    began = time.process_time()
                    await found.write(database, averages=False)
                    written += time.process_time() - began
                began = time.process_time()
                await found.write(database)
                written += time.process_time() - began
        began = time.process_time()
        async with database.read() as connection:
            await idleness.due(connection, hands.at)
        looked = time.process_time() - began
    finally:
        await database.close()
    per_minute = 1000 / MINUTES
    return {
        f"{name}_take_ms_per_minute": taken * per_minute,
        f"{name}_write_ms_per_minute": written * per_minute,
        f"{name}_idleness_ms_per_minute": looked * 1000 * MEASURES,
    }


async def _running(database: Database) -> list[AgentSession]:
    """The agents of a cluster whose tasks all run."""
    principal, pool, term = await seed(database)
    nodes = await add_nodes(database, pool.id, AGENTS)
    await submit(database, principal, pool.id, TASKS, REQUEST)
    decisions = await decide(database, nodes)
    await bind(database, decisions, term, pool)
    await move(database, decisions, TaskStatus.RUNNING)
    own: dict[UUID, list[UUID]] = {node_id: [] for node_id, _ in nodes}
    for decision in decisions:
        for placement in decision.placements:
            own[placement.node_id].append(placement.task_id)
    return [_session(node_id, node, own[node_id]) for node_id, node in nodes]


def _session(node_id: UUID, name: str, task_ids: list[UUID]) -> AgentSession:
    async def send(_: object) -> None:
        await asyncio.sleep(0)

    session = AgentSession(node_id, name, uuid4(), "", send)
    owner = Owner(user_id=uuid4(), project_id=uuid4(), project_number=1)
    session.last_desired = Desired(
        term=1,
        tasks=[
            DesiredTask(
                task_id=task_id,
                workload_id=uuid4(),
                workload_name="job",
                index=0,
                attempt=1,
                action="run",
                owner=owner,
                containers=[],
                restart="never",
                max_restarts=0,
                grace_seconds=10,
            )
            for task_id in task_ids
        ],
    )
    return session


def _measures(session: AgentSession, at: datetime) -> str:
    assert session.last_desired is not None
    read = int(at.timestamp()) * 5000
    return encode(
        Measures(
            at=at.timestamp(),
            tasks=[
                TaskMeasure(task_id=task.task_id, cpu_millicores=300, memory_bytes=1 << 28, read_bytes=read)
                for task in session.last_desired.tasks
            ],
        )
    )


class _Hands:
    """A clock that is moved by the benchmark."""

    def __init__(self) -> None:
        self.at = clock.now()

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        before, clock.source = clock.source, self
        try:
            yield
        finally:
            clock.source = before
