"""Estimated starts: stored for all pending work, computed between passes in small portions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import ceil
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import structlog

from mooring.clock import monotonic, now
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.mirror.mirror import Mirror
from mooring.mirror.schedulers import Schedulers
from mooring.model.errors import InvalidInput
from mooring.model.workloads.workload import Workload
from mooring.scheduling.admission import Admission
from mooring.scheduling.calendar.queue_estimates import Estimate, ExpectedEnd, QueueEstimates
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import NO_FACTORS
from mooring.store.workloads import pending, run_times
from mooring.store.workloads.run_times import History, Kind

PORTION_BUDGET_SECONDS = 0.025
"""Time budget of one portion, which may delay a pass; a single step may exceed it."""
PORTION_SECONDS = 0.25
"""Pause between two portions of a round."""
_ROUND_SECONDS = 15.0
"""Minimum time between two rounds."""
_RENEWED_SECONDS = 600.0
"""Interval after which a round runs even if nothing changed."""
_HISTORY_SECONDS = 300.0
"""Time for which the run times that were read stay valid."""
_TOLERANCE = timedelta(seconds=30)
"""Error up to which a stored estimate stays; 1/`_TOLERATED_PART` of the time until the start if that is more."""
_TOLERATED_PART = 20
_log = structlog.get_logger(__name__)
_NO_HISTORY: History = MappingProxyType({})


class _Expected(NamedTuple):
    """The expected run times in a pool, based on earlier runs of the same user, type and time limit."""

    history: History = _NO_HISTORY
    ends: Mapping[UUID, ExpectedEnd] = MappingProxyType({})

    def run_seconds(self, workload: Workload) -> int | None:
        limit = workload.time_limit_seconds
        if workload.predicted_seconds is not None:
            return workload.predicted_seconds
        times = self.history.get(Kind.of(workload.user_id, workload.type, limit))
        usually = None if times is None else run_times.expected(times)
        if usually is None:
            return limit
        seconds = ceil(usually.total_seconds())
        return seconds if limit is None else min(seconds, limit)


class EstimatesLoop:
    """Estimates the queues of all pools in rounds; every portion stores its estimates."""

    def __init__(self, database: FencedDatabase, scheduling: SchedulingLoop) -> None:
        self._database = database
        self._scheduling = scheduling
        self._cluster: Cluster | None = None
        """The cluster of the round; a different one means that the leader has reloaded its state."""
        self._round: list[QueueEstimates] = []
        self._began_at = -_RENEWED_SECONDS
        self._seen: object = None
        self._stored: dict[UUID, datetime | None] = {}
        self._history: dict[UUID, tuple[float, History]] = {}
        """By pool: the time of the last read, and the run times that it found."""

    def wait_seconds(self, max_seconds: float) -> float:
        return PORTION_SECONDS if self._round else min(max_seconds, _ROUND_SECONDS)

    async def once(self) -> bool:
        if not self._round:
            await self._begin_round()
            return False
        found = await self._scheduling.between_passes(self._portion)
        changed = {each.workload_id: each.start for each in found or () if self._is_new(each, now())}
        if not changed:
            return False

        await self._database.write(lambda connection, _: pending.note_estimated(connection, changed))
        self._scheduling.note_first_starts(changed)
        self._stored |= changed
        return False

    async def _begin_round(self) -> None:
        pools = await self._scheduling.between_passes(self._due)
        if pools:
            expected = {name: await self._read_expected(pool_id) for name, pool_id in pools.items()}
            await self._scheduling.between_passes(partial(self._begin, expected))

    def _due(self, mirror: Mirror, schedulers: Schedulers, admission: Admission) -> Mapping[str, UUID]:
        """Return the pools with pending work, by name, if a round is due."""
        del schedulers, admission
        if mirror.cluster is not self._cluster:
            self._cluster, self._seen = mirror.cluster, None
        seen = (mirror.cluster.changes.revision, frozenset((each.id, each.priority) for each in mirror.queue.values()))
        if monotonic() - self._began_at < (_ROUND_SECONDS if seen != self._seen else _RENEWED_SECONDS):
            return {}
        self._began_at, self._seen = monotonic(), seen
        self._stored = {id: start for id, start in self._stored.items() if id in mirror.queue}
        names = sorted({workload.pool for workload in mirror.queue.values()})
        return {name: mirror.pools[name].id for name in names if name in mirror.pools}

    async def _read_expected(self, pool_id: UUID) -> _Expected:
        read_at, history = self._history.get(pool_id, (-_HISTORY_SECONDS, _NO_HISTORY))
        async with self._database.read() as connection:
            if monotonic() - read_at >= _HISTORY_SECONDS:
                history = await run_times.last_runs(connection, pool_id, now())
                self._history[pool_id] = monotonic(), history
            running = await run_times.running(connection, pool_id, history) if history else []
        ends: dict[UUID, ExpectedEnd] = {}
        for task in running:
            seconds = run_times.expected(history[task.kind], now() - task.started_at)
            if seconds is not None:
                ends[task.task_id] = ExpectedEnd(task.node_id, task.started_at + seconds, task.request, task.devices)
        return _Expected(history, ends)

    def _begin(
        self, expected: Mapping[str, _Expected], mirror: Mirror, schedulers: Schedulers, admission: Admission
    ) -> None:
        """Begin a round. This and all portions run in the thread of the passes."""
        for name in sorted(expected.keys() & mirror.pools.keys()):
            try:
                scheduler = schedulers.of(mirror.pools[name])
            except InvalidInput:
                continue
            factors, at = mirror.factors.get(name, NO_FACTORS), now()
            queue = scheduler.queue_order(name, mirror.queue.values(), at, admission=admission, factors=factors)
            run_seconds, ends = expected[name].run_seconds, expected[name].ends
            self._round.append(QueueEstimates(scheduler, name, queue, at, run_seconds=run_seconds, ends=ends))

    def _portion(self, mirror: Mirror, schedulers: Schedulers, admission: Admission) -> Sequence[Estimate]:
        """Continue the round for one portion, and return its estimates."""
        del schedulers, admission
        if mirror.cluster is not self._cluster:
            self._round = []
            return ()
        found: list[Estimate] = []
        until = perf_counter() + PORTION_BUDGET_SECONDS
        while self._round and perf_counter() < until:
            try:
                found += self._round[0].advance(1)
            except Exception:
                # Estimates only read the view, so it stays valid whatever fails.
                _log.exception("Starts could not be estimated; retrying in the next round")
                self._round = []
                break
            if self._round[0].done:
                del self._round[0]
        queue = mirror.queue
        return [each for each in found if each.workload_id in queue and queue[each.workload_id].planned_start is None]

    def _is_new(self, estimate: Estimate, at: datetime) -> bool:
        """Return whether an estimate differs enough from the stored one to be written."""
        if estimate.workload_id not in self._stored:
            return True
        before, start = self._stored[estimate.workload_id], estimate.start
        if before is None or start is None:
            return before is not start
        return abs(start - before) > max(_TOLERANCE, (start - at) / _TOLERATED_PART)
