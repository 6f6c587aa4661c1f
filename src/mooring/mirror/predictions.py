"""Predicted run times of the pools that plan with them: learned from ended runs as the store reports them.

The predictors live in memory only. A new leader learns the newest runs again, in the same order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from mooring.clock import monotonic, now
from mooring.model.policy.pools import Expectation
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.prediction.predictors import (
    Predictor,
    expected_runtime,
    predictor_of,
    with_prediction,
)
from mooring.store.core.chunks import chunks
from mooring.store.core.engine import Connection
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.expected_ends import Predict
from mooring.store.workloads.runs import ended_runs
from mooring.store.workloads.runs.ended_runs import Position

LEARNED_AT_FIRST = 5000
"""Newest runs of a pool that a new leader learns."""
_LEARNED_AT_ONCE = 500
"""Learning more at once would block the event loop, and with it the renewal of the lease."""
_SECONDS = 30.0
"""Time between two reads."""


@dataclass(slots=True)
class _Learner:
    pool: str
    expectation: Expectation
    predictor: Predictor
    read_at: float
    position: Position | None


class Predictions:
    def __init__(self) -> None:
        self._learners: dict[UUID, _Learner] = {}
        self._by_pool: dict[str, Predictor] = {}

    @property
    def by_pool(self) -> Mapping[UUID, Predict]:
        """The predicted run times of running tasks, for the pools that use them."""
        return {id: partial(expected_runtime, learner.predictor) for id, learner in self._learners.items()}

    def predicted(self, workload: Workload) -> Workload:
        """Return a pending workload with its predicted run time, where its pool plans with predictions."""
        return with_prediction(workload, self._by_pool.get(workload.pool))

    async def learn(self, connection: Connection, pools: Iterable[Pool]) -> list[Pool]:
        """Learn the runs that have ended since the last call; return the pools whose option has changed."""
        changed: list[Pool] = []
        pools = list(pools)
        for gone in self._learners.keys() - {pool.id for pool in pools}:
            del self._learners[gone]
        for pool in pools:
            learner, expectation = self._learners.get(pool.id), pool.policy.backfill.expectation
            if learner is None or learner.expectation is not expectation:
                if learner is not None:
                    del self._learners[pool.id]
                predictor = predictor_of(expectation)
                if predictor is not None:
                    await self._begin(connection, pool, predictor)
                if learner is not None or predictor is not None:
                    changed.append(pool)
            elif monotonic() - learner.read_at >= _SECONDS:
                await self._continue(connection, pool.id, learner)
        self._by_pool = {learner.pool: learner.predictor for learner in self._learners.values()}
        return changed

    async def _begin(self, connection: Connection, pool: Pool, predictor: Predictor) -> None:
        runs = await ended_runs.newest(connection, pool.id, now(), LEARNED_AT_FIRST)
        for part in chunks(runs, _LEARNED_AT_ONCE):
            for _, run in part:
                predictor.learn(run)
            await asyncio.sleep(0)
        position = runs[-1][0] if runs else None
        expectation = pool.policy.backfill.expectation
        self._learners[pool.id] = _Learner(pool.name, expectation, predictor, monotonic(), position)

    async def _continue(self, connection: Connection, pool_id: UUID, learner: _Learner) -> None:
        if learner.position is None:
            runs = await ended_runs.newest(connection, pool_id, now(), _LEARNED_AT_ONCE)
        else:
            runs = await ended_runs.after(connection, pool_id, learner.position, _LEARNED_AT_ONCE)
        for position, run in runs:
            learner.predictor.learn(run)
            learner.position = position
        # After a full read there may be more.
        learner.read_at = monotonic() if len(runs) < _LEARNED_AT_ONCE else monotonic() - _SECONDS
