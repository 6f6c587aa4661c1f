"""The demand and the prices of all pools as arrays for the kernels, and space for what they remember."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled.expected_fill import arrays
from mooring.scheduling.compiled.expected_fill.arrays import FillArrays
from mooring.scheduling.expected_fill import demand, node_value, pools, prices
from mooring.scheduling.expected_fill.pools import PoolFill

_STATES = 1 << 14
_STATES_PER_ROW = 2
_LOSS_BYTES = 1 << 26
_FEWEST_ENTRIES, _MOST_ENTRIES = 16, 1024
"""Kinds of tasks whose losses are kept per row; untouched pages cost nothing."""
_SHARED = (
    (arrays.POINTS, node_value.POINTS),
    (arrays.FINE_STEP, node_value.FINE_STEP),
    (arrays.FINE_CPU, node_value.FINE_CPU),
    (arrays.STEPS_PER_DOUBLING, node_value.STEPS_PER_DOUBLING),
    (arrays.CPU_POINTS, node_value.CPU_POINTS),
    (arrays.HORIZON, demand.HORIZON),
    (arrays.CPU_LEVELS, demand.CPU_LEVELS),
    (arrays.MOST_CLASSES, demand.MOST_CLASSES),
    (arrays.MOST_GROUPS, demand.MOST_GROUPS),
    (arrays.RENEWAL, prices.RENEWAL),
    (arrays.NODES_PER_WORKLOAD, prices.NODES_PER_WORKLOAD),
    (arrays.MODEL_WEIGHT, prices.MODEL_WEIGHT),
    (arrays.MOST_LOAD, prices.MOST_LOAD),
    (arrays.CPU_LEVEL, pools.CPU_LEVEL),
    (arrays.AGE, pools.AGE),
    (arrays.PERIOD, pools.PERIOD),
    (arrays.CHANGES, pools.CHANGES),
    (arrays.FIRST_LOAD, pools.FIRST_LOAD),
    (arrays.FIRST_SCARCITY, pools.FIRST_SCARCITY),
)
if any(in_kernels != defined for in_kernels, defined in _SHARED):
    raise AssertionError("the kernels were written for another definition of expected fill")


class FillTables:
    """The arrays of one engine."""

    def __init__(self, cluster: Cluster, *, used: bool, devices: int) -> None:
        """`used`: whether the profile scores by expected fill; the arrays are empty otherwise."""
        self._cluster = cluster
        self._used = used
        self._devices = devices
        self._version = -1
        self._kind_of: dict[tuple[str, int, int, int], int] = {}
        self.arrays: FillArrays = self._space()

    def sync(self) -> bool:
        """Take over the demand of all pools. Return whether anything changed."""
        if not self._used:
            return False
        found = self._cluster.expected_fill.pools()
        if self._version == self._cluster.expected_fill.version:
            return False
        self._version = self._cluster.expected_fill.version
        self.arrays = self._with_demand(self.arrays, found)
        return True

    def number_of(self, pool: str) -> int:
        """Return the number of a pool; a new pool takes effect at the next `sync`."""
        return self._cluster.expected_fill.of(pool).number if self._used else 0

    def kind(self, pool: str, cpu: int, wholes: int, share: int) -> int:
        """Return the number of the kind of tasks with this request."""
        return self._kind_of.setdefault((pool, cpu, wholes, share), len(self._kind_of))

    def write_rows(self, rows: NDArray[np.intp], fill: NDArray[np.int32]) -> None:
        """Write the number of the pool, or -1, and the class of models of these rows."""
        fill[arrays.ROW_VALUE, rows] = arrays.UNKNOWN
        fill[arrays.POOL, rows] = -1
        if not self._used:
            return
        cluster = self._cluster
        column = cluster.devices.columns.get(DEVICE_SLOT)
        for pool in cluster.expected_fill.pools():
            own = rows[cluster.pool[rows] == cluster.pools.code(pool.pool)]
            if column is not None:
                fill[arrays.CLASS_OF_ROW, own] = pool.classes[column.models_on[own]]
            fill[arrays.POOL, own[cluster.ready[own] & ~cluster.cordoned[own]]] = pool.number

    def _with_demand(self, space: FillArrays, found: list[PoolFill]) -> FillArrays:
        """Return the arrays with this demand, and nothing remembered."""
        space.cached[:] = arrays.UNKNOWN
        space.lost[:, -1] = arrays.UNKNOWN
        space.state_table[:] = arrays.NO_STATE
        space.scratch[arrays.COUNTS] = 0
        return space._replace(
            requests=_padded([_table(pool.demand.requests, 4) for pool in found], (1, 4)),
            sequences=_sequences(found),
            demand=np.array([_fields(pool) for pool in found], dtype=np.int64).reshape(-1, arrays.DEMAND_FIELDS),
            groups=_padded([_groups(pool) for pool in found], (arrays.MOST_GROUPS, 3)),
            prices=self._cluster.expected_fill.prices,
        )

    def _space(self) -> FillArrays:
        """Return arrays without demand, with the space for what the kernels remember."""
        used, devices, rows = self._used, self._devices, self._cluster.capacity
        states = max(_STATES, _STATES_PER_ROW * rows) if used else 1
        entries = min(max(_LOSS_BYTES // (4 * rows), _FEWEST_ENTRIES), _MOST_ENTRIES) if used else 1
        entries = 1 << (entries.bit_length() - 1)
        places = demand.MOST_CLASSES * (devices + 1)
        return FillArrays(
            requests=_padded([], (1, 4)),
            sequences=_sequences([]),
            demand=np.zeros((0, arrays.DEMAND_FIELDS), dtype=np.int64),
            groups=_padded([], (arrays.MOST_GROUPS, 3)),
            prices=self._cluster.expected_fill.prices,
            states=np.zeros((states, arrays.FIRST_DEVICE + devices), dtype=np.int64),
            state_table=np.full(1 << (2 * states - 1).bit_length(), arrays.NO_STATE, dtype=np.int32),
            cached=np.full((entries, 2), arrays.UNKNOWN, dtype=np.int64),
            losses=np.zeros((entries, rows if used else 1), dtype=np.int32),
            lost=np.full((devices + 1, places + 1), arrays.UNKNOWN, dtype=np.int64),
            scratch=np.zeros((arrays.SCRATCH_ROWS, arrays.PLACES if used else 1), dtype=np.int64),
        )


def _fields(fill: PoolFill) -> tuple[int, ...]:
    """Return the fields of a pool's demand in the order of `arrays.REQUESTS` and those after it."""
    each = fill.demand
    counts = len(each.groups), len(each.by_models), each.classes
    return len(each.requests), each.smallest_share, each.least_cpu, each.cpu_per_device, *counts


def _groups(pool: PoolFill) -> NDArray[np.int64]:
    """Return the groups of requests for several devices, then the demand for sets of models."""
    result = np.zeros((arrays.MOST_GROUPS + len(pool.demand.by_models), 3), dtype=np.int64)
    result[: len(pool.demand.groups)] = _table(pool.demand.groups, 3)
    result[arrays.MOST_GROUPS :, 1:] = _table(pool.demand.by_models, 2)
    return result


def _sequences(found: Sequence[PoolFill]) -> NDArray[np.int32]:
    """Return the sequences of all plans; those of a pool without demand for devices are never walked."""
    plans = len(found) * (arrays.CPU_LEVELS + 1)
    length = demand.LENGTH if plans else 1
    result = np.zeros((max(plans, 1), demand.SEQUENCES, length, arrays.SEQUENCE_FIELDS), dtype=np.int32)
    for number, pool in enumerate(found):
        shares = np.array([each.share for each in pool.demand.requests], dtype=np.int64)
        last_first = np.arange(length - 1, -1, -1, dtype=np.int32)
        for level, numbers in enumerate(pool.demand.sequences):
            if not numbers.shape[1]:
                continue
            plan = result[number * (arrays.CPU_LEVELS + 1) + level]
            plan[:, :, arrays.REQUEST] = numbers
            plan[:, :, arrays.ASKED] = pool.demand.asked(level)
            backwards = np.ascontiguousarray(numbers[:, ::-1])
            for at, smaller in enumerate(arrays.SMALLER):
                positions = np.where((shares < smaller)[backwards], last_first, np.int32(length))
                plan[:, :, arrays.FIRST_SMALLER + at] = np.minimum.accumulate(positions, axis=1)[:, ::-1]
    return result


def _table(records: Sequence[tuple[int, ...]], fields: int) -> NDArray[np.int64]:
    return np.array(records, dtype=np.int64).reshape(-1, fields)


def _padded(tables: Sequence[NDArray[np.int64]], least: tuple[int, int]) -> NDArray[np.int64]:
    """Return tables of different lengths as one array, padded with zeros."""
    rows = max([least[0], *(len(table) for table in tables)])
    result = np.zeros((max(len(tables), 1), rows, least[1]), dtype=np.int64)
    for number, table in enumerate(tables):
        result[number, : len(table)] = table
    return result
