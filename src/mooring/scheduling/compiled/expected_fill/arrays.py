"""The arrays of the expected-fill kernels: the demand of each pool, its prices, and the states of nodes seen so far.

A *plan* is one pool's demand at one CPU level. A *state* is what the value of a node depends on: the plan, the class of
its models, its free CPU in steps and the free parts of its devices in ascending order. A *kind* is what a task takes of
a state. There are few arrays, since each of them lengthens the compilation of every kernel.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]

CPU_STEP = 500
POINTS = 50
HORIZON = 16
CPU_LEVELS = 4
RENEWAL = 20
MODEL_WEIGHT = 3
MOST_LOAD = 2048
MOST_CLASSES = 8
MOST_GROUPS = 16
NO_COST = 950_000
CPU_LEVEL, AGE, CHANGES, FIRST_LOAD = range(4)
FIRST_SCARCITY = FIRST_LOAD + MOST_CLASSES
"""Constants of the definition, here so that the hash of this package's sources covers them."""

UNKNOWN = -1
NO_STATE = -1

# Fields of a request, of a pool's demand, of a group, of the demand for a set of models, of a state and of a kind.
CPU, DEVICES, SHARE, CLASSES = range(4)
REQUESTS, SMALLEST_SHARE, LEAST_CPU, CPU_PER_DEVICE, GROUPS, MODEL_SETS, DEMAND_CLASSES = range(7)
DEMAND_FIELDS = 7
GROUP_DEVICES, GROUP_CLASSES, GROUP_SHARE = range(3)
PLAN, CLASS, CPU_STEPS, PLACE, VALUE, FIRST_DEVICE = range(6)
KIND_CPU_STEPS, KIND_WHOLES, KIND_SHARE = range(3)

# Rows of the scratch array, and fields of a row of nodes.
NODE, FILLED, CAPACITY, HISTOGRAM, COSTS, COSTS_WITH_WHOLE, USABLE, COUNTS = range(8)
SCRATCH_ROWS = 8
STATE, POOL, CLASS_OF_ROW = range(3)


class FillArrays(NamedTuple):
    requests: Int64s
    """[pool, request, field]"""
    sequences: Int32s
    """[plan, sequence, position, 0 for the number of the request or 1 for the device capacity asked for before]"""
    demand: Int64s
    """[pool, field]"""
    groups: Int64s
    """[pool, group, field]; from MOST_GROUPS on, the demand for sets of models."""
    prices: Int64s
    """[pool, field]: the CPU level, the workloads decided since the beginning of the batch, the number of changes, the
    loads of the classes of models and the scarcities of the groups."""
    states: Int64s
    """[state, field]. PLACE is the class and the number of wholly free devices in one number, VALUE may be UNKNOWN."""
    state_table: Int32s
    """Open addressing from the fields and devices of a state to its number."""
    kinds: Int64s
    """[kind, field]"""
    losses: Int32s
    """[entry, state]: the loss of value by a kind plus one, doubled, plus whether a share takes a whole device; 0 if
    unknown. The last column is the kind in the entry."""
    scratch: Int64s
    """NODE: the free parts of the devices of a node, ascending. FILLED: those of a node that a sequence fills.
    CAPACITY by class and HISTOGRAM by place, of a pool. COSTS by place: what the task that is being placed costs by
    prices. USABLE by request. COUNTS: the number of states."""
