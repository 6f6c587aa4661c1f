"""Stray tasks: those that live on a node although the database does not know them. They are quarantined, not ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.agent_text import printable
from mooring.clock import now
from mooring.store.core.engine import (
    Connection,
)
from mooring.store.nodes import (
    nodes,
    quarantine,
)
from mooring.telemetry import metrics
from mooring.wire.agents.agent_protocol import LivingTask

_log = structlog.get_logger(__name__)


async def quarantine_strays(
    connection: Connection, session: AgentSession, living: Sequence[LivingTask], *, grace: timedelta
) -> list[UUID]:
    """Quarantine the tasks that the database does not know, and close the node for new ones; return the new ones."""
    at = now()
    await nodes.lock(connection, session.node_id)
    names = {task.task_id: printable(task.workload_name) for task in living}
    new = await quarantine.take(connection, session.node_id, names, grace=grace, now=at)
    if await quarantine.reasons(connection, [session.node_id]):
        await nodes.close(connection, session.node_id, quarantine.REASON, now=at)
    return new


def log_quarantined(task_ids: Iterable[UUID], session: AgentSession) -> None:
    for task_id in task_ids:
        metrics.quarantined.inc()
        _log.warning(f"Task {task_id} runs on node {session.node_name}, but the database does not know it")
