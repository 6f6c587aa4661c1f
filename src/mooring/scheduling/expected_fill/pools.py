"""The demand and the prices of all pools of a cluster, shared by the definition and the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.columns import ClusterColumns
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT, TypicalRequest
from mooring.scheduling.expected_fill.demand import MOST_CLASSES, MOST_GROUPS, Demand, ModelSet, demand_of
from mooring.scheduling.expected_fill.learning import ArrivedRequests
from mooring.scheduling.expected_fill.node_value import NodeValues
from mooring.scheduling.expected_fill.prices import Prices, free_capacity, prices, renewal_period

_NO_MODELS: ModelSet = frozenset({None})


CPU_LEVEL, AGE, PERIOD, CHANGES, FIRST_LOAD = range(5)
FIRST_SCARCITY = FIRST_LOAD + MOST_CLASSES
"""Fields of `ExpectedFill.prices`."""
_PRICE_FIELDS = FIRST_SCARCITY + MOST_GROUPS


class PoolFill:
    """One pool: the demand to come, the values of nodes, and the number of the pool."""

    def __init__(self, number: int, pool: str, typical: tuple[TypicalRequest, ...], on_nodes: tuple[ModelSet, ...]):
        self.number = number
        self.pool = pool
        self.typical = typical
        self.on_nodes = on_nodes
        self.demand: Demand = demand_of(typical, on_nodes)
        self.values = NodeValues(self.demand)
        self.classes: NDArray[np.int32] = np.array([self.demand.class_of[each] for each in on_nodes], dtype=np.int32)
        """By the code of a node's set of models."""


class ExpectedFill:
    """Everything that the rule knows about a cluster beyond its columns."""

    def __init__(self, cluster: ClusterColumns) -> None:
        self._cluster = cluster
        self._pools: dict[str, PoolFill] = {}
        self._arrived: dict[str, ArrivedRequests] = {}
        self.prices: NDArray[np.int64] = np.zeros((1, _PRICE_FIELDS), dtype=np.int64)
        """[pool, field]: the prices, the number of workloads decided since their renewal, the number between renewals,
        and the number of changes of the prices. The kernels write them too."""
        self.version = 0
        """Incremented when a pool is added or its demand changes."""

    def of(self, pool: str) -> PoolFill:
        """Return a pool with its present demand."""
        devices = self._cluster.devices
        column = devices.columns.get(DEVICE_SLOT)
        on_nodes = (_NO_MODELS,) if column is None else tuple(column.model_sets.values)
        typical = tuple(devices.typical_of(pool))
        known = self._pools.get(pool)
        if known is None or (known.typical is not typical and known.typical != typical) or known.on_nodes != on_nodes:
            known = self._renewed(known, pool, typical, on_nodes)
        return known

    def pools(self) -> list[PoolFill]:
        """Return all pools by number, with their present demand."""
        return [self.of(pool) for pool in list(self._pools)]

    def begin(self) -> None:
        """Begin a batch: the next workload of each pool renews its prices."""
        self.prices[:, PERIOD] = 0

    def portions(self, workloads: Sequence[Workload]) -> Iterator[Sequence[Workload]]:
        """Yield the workloads of a batch in portions. Between them the learned demand of a pool is renewed."""
        self.begin()
        first = 0
        learners: dict[str, ArrivedRequests | None] = {}
        for at, workload in enumerate(workloads):
            pool = workload.pool
            if pool not in learners:
                learners[pool] = self._learner(pool)
            learner = learners[pool]
            learned = None if learner is None else learner.note(workload)
            if learned is not None:
                if at > first:
                    yield workloads[first:at]
                self._cluster.set_learned_requests(pool, learned)
                first = at
        yield workloads[first:] if first else workloads

    def _learner(self, pool: str) -> ArrivedRequests | None:
        """Return the arrivals of a pool whose demand is learned; None if its typical requests are set."""
        if self._cluster.devices.typical.get(pool):
            return None
        learner = self._arrived.get(pool)
        if learner is None:
            learner = self._arrived[pool] = ArrivedRequests()
        return learner

    def count_workload(self, pool: str) -> None:
        """Count a workload that is about to be placed, and renew the prices of its pool if they are due."""
        fill = self.of(pool)
        fields = self.prices[fill.number]
        if fields[AGE] >= fields[PERIOD]:
            fields[AGE] = 0
            rows = np.flatnonzero(self.member_rows(fill.pool))
            fields[PERIOD] = renewal_period(len(rows))
            before, found = self.prices_of(fill), self._current_prices(fill, rows)
            fields[CPU_LEVEL] = found.cpu_level
            fields[FIRST_LOAD : FIRST_LOAD + len(found.loads)] = found.loads
            fields[FIRST_SCARCITY : FIRST_SCARCITY + len(found.scarcities)] = found.scarcities
            fields[CHANGES] += before != found
        fields[AGE] += 1

    def prices_of(self, fill: PoolFill) -> Prices:
        """Return the prices of a pool as of their last renewal."""
        fields, demand = self.prices[fill.number], fill.demand
        return Prices(
            int(fields[CPU_LEVEL]),
            tuple(fields[FIRST_LOAD : FIRST_LOAD + demand.classes].tolist()),
            tuple(fields[FIRST_SCARCITY : FIRST_SCARCITY + len(demand.groups)].tolist()),
        )

    def _current_prices(self, fill: PoolFill, rows: NDArray[np.intp]) -> Prices:
        cluster = self._cluster
        column = cluster.devices.columns.get(DEVICE_SLOT)
        if column is None:
            rows = rows[:0]
        devices = np.zeros((0, 1), dtype=np.int64) if column is None else column.free[rows]
        classes = np.zeros(0, dtype=np.int32) if column is None else fill.classes[column.models_on[rows]]
        cpu = cluster.allocatable[0, rows] - cluster.taken[0, rows]
        return prices(fill.demand, free_capacity(fill.demand, classes, cpu, devices))

    def member_rows(self, pool: str) -> NDArray[np.bool_]:
        """Return the rows of a pool that take new tasks."""
        cluster = self._cluster
        members: NDArray[np.bool_] = (cluster.pool == cluster.pools.code(pool)) & cluster.ready & ~cluster.cordoned
        return members

    def _renewed(
        self, known: PoolFill | None, pool: str, typical: tuple[TypicalRequest, ...], on_nodes: tuple[ModelSet, ...]
    ) -> PoolFill:
        number = len(self._pools) if known is None else known.number
        fill = self._pools[pool] = PoolFill(number, pool, typical, on_nodes)
        if number == len(self.prices):
            self.prices = np.concatenate((self.prices, np.zeros_like(self.prices)))
        changes = int(self.prices[number, CHANGES])
        self.prices[number] = 0
        self.prices[number, CHANGES] = changes + 1
        self.version += 1
        return fill
