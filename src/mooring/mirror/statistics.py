"""Statistics of pools and nodes, which no event announces: read again when they are old."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.mirror.fair_share import factors
from mooring.model.policy.pools import Expectation
from mooring.model.tenancy.fair_share import Factors
from mooring.scheduling.cluster.typical_requests import MOST_WEIGHT, TypicalRequest
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.profiles import places_by_demand
from mooring.store.core.engine import Connection, Database
from mooring.store.nodes import learned_demand, nodes
from mooring.store.nodes.pools import Pool
from mooring.store.tenancy import fair_share
from mooring.store.workloads.run_times import RunTimes, usual

_log = structlog.get_logger(__name__)
_LOAD_SECONDS = 5.0
_TYPICAL_SECONDS = 60.0
_USUAL_SECONDS = 300.0
_BY_PAST_USE = frozenset({"fair_share", "multi_factor"})
_BY_WEIGHT = frozenset({"fair_queue"})
"""Sequencers that order by weights alone, without recent usage."""


class Statistics:
    def __init__(self, accounting_interval_seconds: float) -> None:
        self._accounting_seconds = accounting_interval_seconds
        self.run_times: dict[UUID, RunTimes] = {}
        """By pool: the usual run times, for pools that expect ends by history."""
        self.factors: dict[str, Factors] = {}
        """Fair-share factors, for pools whose sequencer uses them."""
        self._load_read_at = 0.0
        self._typical_read_at: dict[UUID, float] = {}
        self._usual_read_at: dict[UUID, float] = {}
        self._factors_read_at: dict[tuple[str, str], float] = {}

    def forget(self) -> None:
        """Read everything but the load again at the next opportunity; the factors stay until then."""
        self.run_times, self._usual_read_at, self._typical_read_at = {}, {}, {}
        self.forget_factors()

    def forget_factors(self) -> None:
        """Read the factors again at the next opportunity: weights have changed."""
        self._factors_read_at.clear()

    async def read_load(self, connection: Connection, cluster: Cluster) -> None:
        time = asyncio.get_running_loop().time()
        if time - self._load_read_at < _LOAD_SECONDS:
            return
        self._load_read_at = time
        for node_id, cpu_percent, memory_percent in await nodes.loads(connection):
            cluster.set_load(node_id, cpu_percent, memory_percent)

    async def read_run_times(self, connection: Connection, pools: Iterable[Pool]) -> list[Pool]:
        """Read the usual run times of pools that expect ends by history. Return the pools whose run times changed."""
        time = asyncio.get_running_loop().time()
        changed: list[Pool] = []
        for pool in pools:
            if pool.policy.backfill.expectation is not Expectation.HISTORY:
                run_times: RunTimes = {}
            elif time - self._usual_read_at.get(pool.id, -_USUAL_SECONDS) >= _USUAL_SECONDS:
                self._usual_read_at[pool.id] = time
                run_times = await usual(connection, pool.id, now())
            else:
                continue
            if run_times != self.run_times.get(pool.id, {}):
                self.run_times[pool.id] = run_times
                changed.append(pool)
        return changed

    async def read_typical_requests(self, connection: Connection, pools: Iterable[Pool], cluster: Cluster) -> None:
        """Read the learned demand of pools that place by it; a change invalidates all scores."""
        time = asyncio.get_running_loop().time()
        due = [
            pool
            for pool in pools
            if places_by_demand(pool.policy)
            and time - self._typical_read_at.get(pool.id, -_TYPICAL_SECONDS) >= _TYPICAL_SECONDS
        ]
        stored = await learned_demand.stored(connection) if due else {}
        for pool in due:
            self._typical_read_at[pool.id] = time
            demand = stored.get(pool.id, [])
            # Large gangs must not make the sum too large.
            scale = sum(each.tasks for each in demand) // (MOST_WEIGHT // 2) + 1
            typical = [TypicalRequest(each.request, max(each.tasks // scale, 1), each.models) for each in demand]
            if typical != list(cluster.devices.typical.get(pool.name, ())):
                cluster.set_typical_requests(pool.name, typical)

    async def read_factors(self, database: Database, pools: Mapping[str, Pool]) -> None:
        """Read recent usage and weights once per accounting interval. After a failure the previous factors stay."""
        time = asyncio.get_running_loop().time()
        for name, pool in pools.items():
            sequencer = pool.policy.sequencer
            read_at = self._factors_read_at.get((name, sequencer), -self._accounting_seconds)
            if sequencer not in _BY_PAST_USE | _BY_WEIGHT or time - read_at < self._accounting_seconds:
                continue
            self._factors_read_at[name, sequencer] = time
            try:
                async with database.read() as connection:
                    if sequencer in _BY_PAST_USE:
                        self.factors[name] = await factors(connection, name, pool.policy.fair_share, now())
                    else:
                        self.factors[name] = Factors(weights=await fair_share.weights(connection))
            except Exception:
                _log.exception(f"Use of pool {name} could not be read")
