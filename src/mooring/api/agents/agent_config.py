"""Configuration that servers send to agents: the heartbeat interval and the health check of their pool."""

from __future__ import annotations

from uuid import UUID

from mooring import __version__
from mooring.clock import monotonic
from mooring.model.nodes.heartbeats import Pace
from mooring.store.core.engine import Connection
from mooring.store.nodes import nodes, pools
from mooring.wire.agents.agent_protocol import PROTOCOL, HealthProgram, Welcome

_FRESH_SECONDS = 30.0
_MEASURED_BEATS = 2
"""Heartbeats per measurement of the tasks."""


class AgentConfig:
    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._heartbeat_seconds = pace.least_seconds
        self._health: dict[UUID, HealthProgram] = {}
        self.pool_names: dict[UUID, str] = {}
        self._read_at: float | None = None

    @property
    def fresh(self) -> bool:
        return self._read_at is not None and monotonic() - self._read_at < _FRESH_SECONDS

    async def read(self, connection: Connection) -> bool:
        """Return whether something changed. The interval depends on the nodes of the whole cluster, of all servers."""
        before = (self._heartbeat_seconds, self._health)
        self._heartbeat_seconds = self._pace.interval_seconds(await nodes.count_real(connection))
        found = await pools.all_pools(connection)
        self.pool_names = {pool.id: pool.name for pool in found}
        self._health = {
            pool.id: HealthProgram(
                command=list(health.command),
                interval_seconds=health.interval_seconds,
                timeout_seconds=health.timeout_seconds,
            )
            for pool in found
            if (health := pool.policy.health) is not None
        }
        self._read_at = monotonic()
        return before != (self._heartbeat_seconds, self._health)

    def welcome(self, pool_id: UUID) -> Welcome:
        return Welcome(
            protocol=PROTOCOL,
            server_version=__version__,
            heartbeat_seconds=self._heartbeat_seconds,
            measure_seconds=_MEASURED_BEATS * self._heartbeat_seconds,
            health=self._health.get(pool_id),
        )
