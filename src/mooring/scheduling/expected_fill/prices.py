"""Prices of a pool's capacity: what a placement takes from others beyond the value of its own node.

They are renewed every RENEWAL workloads, less often in large pools, and depend on the free capacity at that moment and
on the demand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.devices import WHOLE
from mooring.scheduling.expected_fill.demand import CPU_LEVELS, Demand
from mooring.scheduling.expected_fill.node_value import POINTS

RENEWAL = 20
"""Fewest workloads decided between two renewals."""
NODES_PER_WORKLOAD = 50
"""Nodes per additional workload between two renewals: in a larger pool one workload changes less."""
MODEL_WEIGHT = 3
"""Points for the load of a model, relative to those for lost value."""
MOST_LOAD = 2048
"""In 1024ths, like loads and scarcities."""


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """The free capacity of the nodes of a pool that have free devices."""

    cpu: int
    devices: Sequence[int]
    """By class of models: the sum of the free parts."""
    wholes: Sequence[Sequence[int]]
    """By class, the number of nodes by their number of wholly free devices."""


@dataclass(frozen=True, slots=True)
class Prices:
    cpu_level: int
    loads: tuple[int, ...]
    """By class, in 1024ths: the demand that competes for the models over their free capacity."""
    scarcities: tuple[int, ...]
    """By group, in 1024ths: near 0 until its capacity gets scarce."""


def renewal_period(nodes: int) -> int:
    """Return the number of workloads decided between two renewals, by the number of nodes in the pool."""
    return max(nodes // NODES_PER_WORKLOAD, RENEWAL)


def free_capacity(
    demand: Demand, of_class: NDArray[np.int32], cpu: NDArray[np.int64], devices: NDArray[np.int64]
) -> FreeCapacity:
    """Add up the free capacity of nodes, given by row."""
    parts = np.maximum(devices, 0)
    free = parts.sum(axis=1)
    wholes = (parts >= WHOLE).sum(axis=1)
    having = free > 0
    counts = np.zeros((demand.classes, devices.shape[1] + 1), dtype=np.int64)
    np.add.at(counts, (of_class[having], wholes[having]), 1)
    by_class = np.zeros(demand.classes, dtype=np.int64)
    np.add.at(by_class, of_class[having], free[having])
    return FreeCapacity(int(np.maximum(cpu[having], 0).sum()), by_class.tolist(), counts.tolist())


def prices(demand: Demand, free: FreeCapacity) -> Prices:
    return Prices(_cpu_level(demand, free), _loads(demand, free), _scarcities(demand, free))


def placement_cost(
    demand: Demand, current: Prices, of_class: int, amount: int, wholes_before: int, wholes_after: int
) -> int:
    """Return the points that a placement of `amount` costs by prices: by the load of the models that it uses, and by
    the largest loss of scarce capacity for several devices, which follows from the wholly free devices of the node.
    """
    lost = max(
        (
            (wholes_before // group.devices - wholes_after // group.devices) * group.devices * scarcity
            for group, scarcity in zip(demand.groups, current.scarcities, strict=True)
            if group.classes >> of_class & 1
        ),
        default=0,
    )
    scale = 1024 * max(amount // WHOLE, 1)
    of_model = MODEL_WEIGHT * amount * POINTS * current.loads[of_class] // scale
    return of_model + lost * WHOLE * POINTS // scale


def _cpu_level(demand: Demand, free: FreeCapacity) -> int:
    """Return the weight of requests without devices: none while the CPU suffices for all devices, all if it does not.

    It grows while the CPU that the demand for the free devices needs is between 85 % and 105 % of the free CPU.
    """
    needed = sum(free.devices) * demand.cpu_per_device // max(free.cpu, 1)
    return min(max(((needed - 870) * CPU_LEVELS + 102) // 205, 0), CPU_LEVELS)


def _loads(demand: Demand, free: FreeCapacity) -> tuple[int, ...]:
    """Return the loads of models: the classes with the highest load first, with the demand that only they can serve.

    The demand is expected to be as large as the free capacity in total.
    """
    total = sum(free.devices)
    loads = [0] * demand.classes
    left = sum(1 << number for number, capacity in enumerate(free.devices) if capacity)
    while left:
        chosen, highest = left, -1
        subset = left
        while subset:
            capacity = sum(free.devices[number] for number in range(demand.classes) if subset >> number & 1)
            wanted = sum(
                each.share for each in demand.by_models if each.classes & left and not each.classes & left & ~subset
            )
            load = wanted * total // (capacity * 64)
            if load > highest:
                chosen, highest = subset, load
            subset = (subset - 1) & left
        for number in range(demand.classes):
            if chosen >> number & 1:
                loads[number] = min(highest, MOST_LOAD)
        left &= ~chosen
    return tuple(loads)


def _scarcities(demand: Demand, free: FreeCapacity) -> tuple[int, ...]:
    """Return how scarce the capacity for groups is: (1.25 times the demand over the capacity) to the eighth power."""
    total = sum(free.devices)
    scarcities: list[int] = []
    for group in demand.groups:
        places = sum(
            nodes * (wholes // group.devices) * group.devices
            for number in range(demand.classes)
            if group.classes >> number & 1
            for wholes, nodes in enumerate(free.wholes[number])
        )
        scarcity = min(group.share * total // (64 * WHOLE * places) * 5 // 4, 1024) if places else 0
        for _ in range(3):
            scarcity = scarcity * scarcity >> 10
        scarcities.append(scarcity)
    return tuple(scarcities)
