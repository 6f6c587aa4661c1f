"""Heartbeats of agents, written together once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

import structlog
from fastapi import WebSocketDisconnect

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.agent_text import printable, printable_task
from mooring.clock import now
from mooring.coordination.outage import Outage
from mooring.model.nodes.node import MAX_REPORTED_PORTS
from mooring.model.workloads.constraints import PROTOCOLS
from mooring.store.core.engine import (
    DISK_FULL,
    Connection,
    Database,
    is_disk_full,
    is_temporary,
)
from mooring.store.nodes import (
    heartbeats,
)
from mooring.wire.agents.agent_protocol import Heartbeat, Refused

_log = structlog.get_logger(__name__)
_WRITE_SECONDS = 1.0
_MAX_BACKGROUND_TASKS = 32


class HeartbeatWriter:
    """Collects the newest heartbeat of each node between two writes."""

    def __init__(self, database: Database, sessions: Mapping[UUID, Sequence[AgentSession]]) -> None:
        """`sessions`: those of the agents connected to this process, by node, the newest last."""
        self._database = database
        self._sessions = sessions
        self._beats: dict[UUID, heartbeats.Beat] = {}

    def add(self, session: AgentSession, message: Heartbeat) -> None:
        self._beats[session.node_id] = heartbeats.Beat(
            session.node_id,
            session.credential_hash,
            message.cpu_percent,
            message.memory_percent,
            message.disk_percent,
            printable(message.problem) if message.problem else None,
            tuple(sorted(set(filter(_is_port, message.occupied_ports[:MAX_REPORTED_PORTS])))),
        )
        session.background = tuple(map(printable_task, message.background[:_MAX_BACKGROUND_TASKS]))

    async def run(self) -> None:
        """Write the heartbeats of all agents together, once a second, indefinitely. Few of them are worth a signal."""
        outage = Outage("The database", "heartbeats of agents are not recorded")
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            beats, self._beats = list(self._beats.values()), {}
            if not beats:
                continue
            try:
                taken = await self._database.write(partial(_write_beats, beats), notify=False)
                if taken.changed:
                    self._database.notify()
                for beat in beats:
                    if beat.node_id in taken.over:
                        await self._dismiss(beat)
                outage.over()
            except Exception as error:
                if is_disk_full(error):
                    _log.error(f"Cannot write heartbeats: {DISK_FULL}; trying again with the next ones")
                    continue
                outage.failed(error)
                if not is_temporary(error):
                    _log.exception("Cannot write heartbeats; trying again with the next ones")

    async def _dismiss(self, beat: heartbeats.Beat) -> None:
        """Tell the agent of a node that was removed, or joined again elsewhere, to end its tasks and stop."""
        for session in reversed(self._sessions.get(beat.node_id, ())):
            if session.credential_hash == beat.credential_hash:
                message = (
                    f"node {session.node_name} was removed or has joined again with another credential; "
                    "this agent stops, and joins again only with a new join token"
                )
                with suppress(WebSocketDisconnect):  # it has gone by itself
                    await session.send(Refused(code="credential-refused", message=message))


def _is_port(port: tuple[str, int]) -> bool:
    return port[0] in PROTOCOLS and 1 <= port[1] <= 65_535


async def _write_beats(beats: list[heartbeats.Beat], connection: Connection) -> heartbeats.HeartbeatResult:
    return await heartbeats.record_beats(connection, beats, now())
