"""The arrays of the expected-fill kernels: the demand of each pool, its prices, and the states of nodes seen so far.

A *plan* is one pool's demand at one CPU level. A *state* is what the value of a node depends on, apart from its free
CPU: the plan, the class of its models and the free parts of its devices in ascending order. A *kind* is what the loss
of a node by a task depends on: its pool, CPU and devices. There are few arrays, since each of them lengthens the
compilation of every kernel.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]

POINTS = 50
FINE_STEP = 500
FINE_CPU = 4_000
STEPS_PER_DOUBLING = 16
CPU_POINTS = 137
HORIZON = 16
CPU_LEVELS = 4
RENEWAL = 20
NODES_PER_WORKLOAD = 50
MODEL_WEIGHT = 3
MOST_LOAD = 2048
MOST_CLASSES = 8
MOST_GROUPS = 16
NO_COST = 950_000
MOST_GAIN = 500_000
CPU_LEVEL, AGE, PERIOD, CHANGES, FIRST_LOAD = range(5)
FIRST_SCARCITY = FIRST_LOAD + MOST_CLASSES
"""Constants of the definition, here so that the hash of this package's sources covers them."""

UNKNOWN = -1
NO_STATE = -1

# Fields of a request, of a pool's demand, of a group, of the demand for a set of models, of a state and of a cached
# kind.
CPU, DEVICES, SHARE, CLASSES = range(4)
REQUESTS, SMALLEST_SHARE, LEAST_CPU, CPU_PER_DEVICE, GROUPS, MODEL_SETS, DEMAND_CLASSES = range(7)
DEMAND_FIELDS = 7
GROUP_DEVICES, GROUP_CLASSES, GROUP_SHARE = range(3)
PLAN, CLASS, FIRST_VALUE = range(3)
FIRST_DEVICE = FIRST_VALUE + CPU_POINTS
POSITION, KIND_AND_PLAN = range(2)

# Fields of a position in a sequence: the request there, and the device capacity that was asked for before.
REQUEST, ASKED, FIRST_SMALLER = range(3)
SMALLER = (1000, 500, 250)
SEQUENCE_FIELDS = FIRST_SMALLER + len(SMALLER)

# Rows of the scratch array, and fields of a row of nodes.
NODE, FILLED, CAPACITY, HISTOGRAM, COSTS, WANTED, AVAILABLE, COUNTS = range(8)
SCRATCH_ROWS = 8
ROW_VALUE, POOL, CLASS_OF_ROW, PLACE = range(4)
ROW_FIELDS = 4

PLACE_BITS = 10
PLACES = 1 << PLACE_BITS
"""A loss is packed with the place of its row: the class, the number of wholly free devices, and whether a share takes
one of these."""


class FillArrays(NamedTuple):
    requests: Int64s
    """[pool, request, field]"""
    sequences: Int32s
    """[plan, sequence, position, field]; FIRST_SMALLER is the next position, from this one on, with a share below the
    first of SMALLER, and so on."""
    demand: Int64s
    """[pool, field]"""
    groups: Int64s
    """[pool, group, field]; from MOST_GROUPS on, the demand for sets of models."""
    prices: Int64s
    """[pool, field]: the CPU level, the workloads decided since the renewal, the number between two renewals, the
    number of changes, the loads of the classes of models and the scarcities of the groups."""
    states: Int64s
    """[state, field]: the values at the points of free CPU from FIRST_VALUE on, each may be UNKNOWN."""
    state_table: Int32s
    """Open addressing from the plan, the class and the devices of a state to its number."""
    cached: Int64s
    """[entry, field]: the position in the change log up to which the losses of an entry are current, and their kind."""
    losses: Int32s
    """[entry, row]: the loss of value plus MOST_GAIN, packed with the place; 0 if unknown."""
    lost: Int64s
    """[wholly free devices taken, place]: the cost of the capacity for several devices that is lost. The last column
    says for which prices."""
    scratch: Int64s
    """NODE: the free parts of the devices of a node, ascending. FILLED: those of a node that a sequence fills.
    CAPACITY by class and HISTOGRAM by place, of a pool. COSTS by place: what the task that is being placed costs by
    prices. WANTED and AVAILABLE by set of classes. COUNTS: the number of states."""
