"""Node health: a silent node becomes suspect, then lost with its tasks. Silence does not prove that its tasks ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.lifecycle import SILENT, NodeStatus, TaskStatus
from mooring.model.nodes.heartbeats import Pace
from mooring.model.reasons import Reason
from mooring.store.commit import transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.nodes import desired_tasks, heartbeats, nodes
from mooring.store.workloads import stopping
from mooring.telemetry import metrics

_log = structlog.get_logger(__name__)
_LOST_AT_ONCE = 100
"""Maximum number of nodes whose tasks are marked lost in one transaction."""


class NodeHealthLoop:
    """Created again in every term, so that agents connected to the failed leader's server have time to reconnect."""

    def __init__(self, database: FencedDatabase, pace: Pace) -> None:
        self._database = database
        self._pace = pace
        self._nodes = 0
        self._began_at = self._next_check_at = now()
        self._checked_at: datetime | None = None
        """Wall-clock time, so it may lie in the future after the clock was set back."""

    async def once(self) -> bool:
        await self._check_silence()
        return False

    async def _check_silence(self) -> None:
        at = now()
        if self._checked_at is not None and self._checked_at <= at < self._next_check_at:
            return
        # Fenced, so that a leader with nothing to write detects here that its term is over.
        async with self._database.fenced_read() as connection:
            counts = await nodes.count_by_status(connection)
            number = await nodes.count_real(connection)
            # Agents keep the heartbeat interval of the larger cluster until they receive the new one.
            self._nodes = max(number, self._nodes * 9 // 10)
            suspect = timedelta(seconds=self._pace.suspect_seconds(self._nodes))
            lost = timedelta(seconds=self._pace.lost_seconds(self._nodes))
            silent = await heartbeats.silent(connection, at - min(suspect, lost))
        for status in NodeStatus:
            metrics.nodes.labels(status.value).set(counts.get(status, 0))
        self._next_check_at = at + min(suspect, lost) / 5
        if self._checked_at is not None and not timedelta() <= at - self._checked_at <= lost / 2:
            # No heartbeat could arrive while the database or this process was stalled, and times on both sides of a
            # clock change do not measure silence. The grace period starts again.
            self._began_at = at
        self._checked_at = at
        if at < self._began_at + lost:
            return
        gone = [node for node in silent if node.last_seen_at < at - lost]
        doubtful = [node for node in silent if node.status not in SILENT and node.last_seen_at >= at - lost]
        if doubtful:
            await self._suspect(doubtful, at, suspect)
        for first in range(0, len(gone), _LOST_AT_ONCE):
            await self._lose(gone[first : first + _LOST_AT_ONCE], at, lost)

    async def _suspect(self, silent: Sequence[Any], at: datetime, after: timedelta) -> None:
        silence = _silence(after)
        names = {node.id: node.name for node in silent}

        async def work(connection: Connection, term: int) -> set[UUID]:
            return await heartbeats.fall_silent(
                connection, names, at - after, NodeStatus.SUSPECT, reason=silence, now=at, term=term
            )

        for node_id in await self._database.write(work):
            _log.warning(f"Node {names[node_id]} is suspect: {silence}")

    async def _lose(self, silent: Sequence[Any], at: datetime, after: timedelta) -> None:
        silence = _silence(after)
        names = {node.id: node.name for node in silent}

        async def work(connection: Connection, term: int) -> tuple[set[UUID], Applied]:
            tasks = await desired_tasks.on_nodes(connection, list(names))
            # Lock order: workloads before nodes.
            await lock_workloads(connection, {task.workload_id for task in tasks})
            lost = await heartbeats.fall_silent(
                connection, names, at - after, NodeStatus.LOST, reason=silence, now=at, term=term
            )
            changes = [
                stopping.mark_lost(task.id, TaskStatus(task.status), _reason(names[task.node_id], silence), freed=False)
                for task in tasks
                if task.node_id in lost
            ]
            return lost, await transitions.apply(connection, changes, actor="nodes", now=at, term=term)

        lost, applied = await self._database.write(work)
        for node_id in lost:
            _log.warning(f"Node {names[node_id]} is lost: {silence}")
        log_applied(applied)


def _silence(after: timedelta) -> str:
    return f"no heartbeat for {after.total_seconds():g} s"


def _reason(node_name: str, silence: str) -> Reason:
    return Reason("node-lost", f"Node {node_name} was lost: {silence}", "nodes", "change")
