"""Nodes: a silent one is suspect, then lost with its tasks. Silence is not proof of an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from mooring import metrics
from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.model.heartbeats import Pace
from mooring.model.lifecycle import SILENT, NodeStatus, TaskStatus
from mooring.model.reasons import Reason
from mooring.store import agents, heartbeats, leadership, nodes, transitions, workloads
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate

_log = structlog.get_logger(__name__)
_LOST_AT_ONCE = 100
"""Nodes whose tasks are lost in one transaction."""


class NodesLoop:
    """Made anew with every term: agents of a server that died with its leader get the time to come back."""

    def __init__(self, database: Database, office: Office, pace: Pace) -> None:
        self._database = database
        self._office = office
        self._pace = pace
        self._nodes = 0
        self._began_at = self._next_look_at = now()
        self._looked_at: datetime | None = None
        """By a clock that may be put back."""

    async def once(self) -> bool:
        await self._look_for_silence()
        return False

    async def _look_for_silence(self) -> None:
        at = now()
        if self._looked_at is not None and self._looked_at <= at < self._next_look_at:
            return
        async with self._database.read() as connection:
            # A leader with nothing to write learns here that its office is over.
            await leadership.check_term(connection, self._office.term)
            counts = await nodes.count_by_status(connection)
            number = await nodes.count_real(connection)
            # Agents go on at the pace of a larger cluster until they are told of the smaller one.
            self._nodes = max(number, self._nodes * 9 // 10)
            suspect = timedelta(seconds=self._pace.suspect_seconds(self._nodes))
            lost = timedelta(seconds=self._pace.lost_seconds(self._nodes))
            silent = await heartbeats.silent(connection, at - min(suspect, lost))
        for status in NodeStatus:
            metrics.nodes.labels(status.value).set(counts.get(status, 0))
        self._next_look_at = at + min(suspect, lost) / 5
        if self._looked_at is not None and not timedelta() <= at - self._looked_at <= lost / 2:
            # While the database or this process stood still, nobody could be heard; nor do times before and after a
            # clock was put back tell how long anybody is silent.
            self._began_at = at
        self._looked_at = at
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

        async def work(connection: Connection) -> set[UUID]:
            await leadership.check_term(connection, self._office.term)
            return await heartbeats.fall_silent(
                connection, names, at - after, NodeStatus.SUSPECT, reason=silence, now=at, term=self._office.term
            )

        for node_id in await self._database.write(work):
            _log.warning(f"Node {names[node_id]} is suspect: {silence}")

    async def _lose(self, silent: Sequence[Any], at: datetime, after: timedelta) -> None:
        silence = _silence(after)
        names = {node.id: node.name for node in silent}

        async def work(connection: Connection) -> tuple[set[UUID], Applied]:
            await leadership.check_term(connection, self._office.term)
            tasks = await agents.on_nodes(connection, list(names))
            # Workloads are locked before nodes, as everywhere.
            await lock_workloads(connection, {task.workload_id for task in tasks})
            lost = await heartbeats.fall_silent(
                connection, names, at - after, NodeStatus.LOST, reason=silence, now=at, term=self._office.term
            )
            changes = [
                workloads.losing(task.id, TaskStatus(task.status), _reason(names[task.node_id], silence), freed=False)
                for task in tasks
                if task.node_id in lost
            ]
            return lost, await transitions.apply(connection, changes, actor="nodes", now=at, term=self._office.term)

        lost, applied = await self._database.write(work)
        for node_id in lost:
            _log.warning(f"Node {names[node_id]} is lost: {silence}")
        narrate(applied)


def _silence(after: timedelta) -> str:
    return f"no heartbeat for {after.total_seconds():g} s"


def _reason(node_name: str, silence: str) -> Reason:
    return Reason("node-lost", f"Node {node_name} was lost: {silence}", "nodes", "change")
