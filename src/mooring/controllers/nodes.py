"""Nodes: a silent one is lost with its tasks. Silence is not proof of an end."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import structlog

from mooring import metrics
from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.reasons import Reason
from mooring.store import agents, leadership, nodes, transitions, workloads
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate

_log = structlog.get_logger(__name__)


class NodesLoop:
    def __init__(self, database: Database, office: Office, timeout_seconds: float) -> None:
        self._database = database
        self._office = office
        self._timeout = timedelta(seconds=timeout_seconds)
        # After a start, agents get the time to come back before their silence counts.
        self._next_look_at = now() + self._timeout

    async def once(self) -> bool:
        await self._lose_silent()
        return False

    async def _lose_silent(self) -> None:
        if now() < self._next_look_at:
            return
        self._next_look_at = now() + self._timeout / 5
        async with self._database.read() as connection:
            # A leader with nothing to write learns here that its office is over.
            await leadership.check_term(connection, self._office.term)
            counts = await nodes.count_by_status(connection)
            silent = await nodes.silent(connection, now() - self._timeout)
        for status in NodeStatus:
            metrics.nodes.labels(status.value).set(counts.get(status, 0))
        for node in silent:
            await self._lose(node.id, node.name)

    async def _lose(self, node_id: UUID, name: str) -> None:
        silence = f"no heartbeat for {self._timeout.total_seconds():g} s"
        reason = Reason("node-lost", f"Node {name} was lost: {silence}", "nodes", "change")

        async def work(connection: Connection) -> Applied | None:
            await leadership.check_term(connection, self._office.term)
            at = now()
            tasks = await agents.on_nodes(connection, [node_id])
            # Workloads are locked before nodes, as everywhere.
            await lock_workloads(connection, {task.workload_id for task in tasks})
            if not await nodes.lose(connection, node_id, at - self._timeout, reason=silence, now=at):
                return None
            changes = [workloads.losing(task.id, TaskStatus(task.status), reason, freed=False) for task in tasks]
            return await transitions.apply(connection, changes, actor="nodes", now=at, term=self._office.term)

        applied = await self._database.write(work)
        if applied is not None:
            _log.warning(f"Node {name} is lost: {silence}")
            narrate(applied)
