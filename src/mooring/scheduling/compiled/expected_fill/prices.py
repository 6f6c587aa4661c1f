"""Kernels for the prices of a pool: the loads of device models, the scarcity of whole devices, and the CPU level."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
    AVAILABLE,
    CAPACITY,
    CHANGES,
    CLASS_OF_ROW,
    COSTS,
    CPU_LEVEL,
    CPU_LEVELS,
    CPU_PER_DEVICE,
    DEMAND_CLASSES,
    FIRST_DEVICE,
    FIRST_LOAD,
    FIRST_SCARCITY,
    GROUP_CLASSES,
    GROUP_DEVICES,
    GROUP_SHARE,
    GROUPS,
    HISTOGRAM,
    MODEL_SETS,
    MODEL_WEIGHT,
    MOST_CLASSES,
    MOST_GROUPS,
    MOST_LOAD,
    NODES_PER_WORKLOAD,
    PERIOD,
    POINTS,
    POOL,
    RENEWAL,
    WANTED,
    FillArrays,
)
from mooring.scheduling.compiled.kernel_cache import compiled
from mooring.scheduling.compiled.layout import WHOLE, Nodes, Number


@compiled
def renew_prices(fill: FillArrays, nodes: Nodes, pool: Number) -> None:
    """Compute the prices of a pool by the free capacity of its nodes."""
    capacity, histogram, prices = fill.scratch[CAPACITY], fill.scratch[HISTOGRAM], fill.prices[pool]
    classes, width = fill.demand[pool, DEMAND_CLASSES], nodes.devices.shape[1]
    capacity[:] = 0
    histogram[:] = 0
    total, cpu = np.int64(0), np.int64(0)
    members: Number = np.int64(0)
    for row in range(nodes.fill.shape[1]):
        members += nodes.fill[POOL, row] == pool
        if nodes.fill[POOL, row] == pool and nodes.largest_share[row] > 0:
            free, wholes = np.int64(0), np.int64(0)
            for device in range(width):
                part = max(nodes.devices[row, device], 0)
                free += part
                wholes += part >= WHOLE
            of_class = nodes.fill[CLASS_OF_ROW, row]
            capacity[of_class] += free
            histogram[of_class * (width + 1) + wholes] += 1
            total += free
            cpu += max(nodes.free_by_slot[0, row], 0)
    prices[PERIOD] = max(members // NODES_PER_WORKLOAD, RENEWAL)
    needed = total * fill.demand[pool, CPU_PER_DEVICE] // max(cpu, 1)
    level = min(max(((needed - 870) * CPU_LEVELS + 102) // 205, 0), CPU_LEVELS)
    changed = level != prices[CPU_LEVEL]
    prices[CPU_LEVEL] = level
    left = np.int64(0)
    for number in range(classes):
        if capacity[number] > 0:
            left |= np.int64(1) << number
        elif prices[FIRST_LOAD + number] != 0:
            prices[FIRST_LOAD + number] = 0
            changed = True
    sets, wanted, available = 1 << classes, fill.scratch[WANTED], fill.scratch[AVAILABLE]
    available[0] = 0
    for number in range(classes):
        for earlier in range(np.int64(1) << number):
            available[earlier + (np.int64(1) << number)] = available[earlier] + capacity[number]
    while left:
        wanted[:sets] = 0
        for at in range(MOST_GROUPS, MOST_GROUPS + fill.demand[pool, MODEL_SETS]):
            wanted[fill.groups[pool, at, GROUP_CLASSES] & left] += fill.groups[pool, at, GROUP_SHARE]
        wanted[0] = 0
        # Sum up over the subsets of each set.
        for number in range(classes):
            for superset in range(sets):
                if superset >> number & 1:
                    wanted[superset] += wanted[superset - (np.int64(1) << number)]
        highest: Number = np.int64(-1)
        chosen, subset = left, left
        while subset:
            load = wanted[subset] * total // (available[subset] * 64)
            if load > highest:
                chosen, highest = subset, load
            subset = (subset - 1) & left
        highest = min(highest, MOST_LOAD)
        for number in range(classes):
            if chosen >> number & 1 and prices[FIRST_LOAD + number] != highest:
                prices[FIRST_LOAD + number] = highest
                changed = True
        left &= ~chosen
    for at in range(fill.demand[pool, GROUPS]):
        group = fill.groups[pool, at]
        count = group[GROUP_DEVICES]
        places: Number = np.int64(0)
        for number in range(classes):
            if group[GROUP_CLASSES] >> number & 1:
                for held in range(count, width + 1):
                    places += histogram[number * (width + 1) + held] * (held // count) * count
        scarcity: Number = np.int64(0)
        if places > 0:
            scarcity = min(group[GROUP_SHARE] * total // (64 * WHOLE * places) * 5 // 4, 1024)
            for _ in range(3):
                scarcity = scarcity * scarcity >> 10
        if scarcity != prices[FIRST_SCARCITY + at]:
            prices[FIRST_SCARCITY + at] = scarcity
            changed = True
    prices[CHANGES] += changed


@compiled
def write_costs(fill: FillArrays, pool: Number, wholes: Number, share: Number) -> None:
    """Write the costs by prices of a task, by the place of a node and whether a share takes a wholly free device."""
    prices, costs, places = fill.prices[pool], fill.scratch[COSTS], fill.states.shape[1] - FIRST_DEVICE + 1
    amount, scale = wholes * WHOLE + share, 1024 * max(wholes, 1)
    taken = wholes if share == 0 else 1
    renew_lost_capacity(fill, pool, taken)
    lost = fill.lost[taken if taken < places else 0]
    for number in range(fill.demand[pool, DEMAND_CLASSES]):
        of_model = MODEL_WEIGHT * amount * POINTS * prices[FIRST_LOAD + number] // scale
        for place in range(number * places, (number + 1) * places):
            costs[place] = of_model if share > 0 else of_model + lost[place]
            costs[MOST_CLASSES * places + place] = of_model + lost[place]


@compiled
def renew_lost_capacity(fill: FillArrays, pool: Number, taken: Number) -> None:
    """Write the costs, by place, of the capacity for several devices that a task with this many devices takes."""
    groups, prices, places = fill.groups[pool], fill.prices[pool], fill.states.shape[1] - FIRST_DEVICE + 1
    lost, stamp = fill.lost[taken if taken < places else 0], prices[CHANGES] * (1 << 20) + pool
    if lost[-1] == stamp:
        return
    lost[-1] = stamp
    for number in range(fill.demand[pool, DEMAND_CLASSES]):
        for free in range(places):
            most: Number = np.int64(0)
            for at in range(fill.demand[pool, GROUPS] if 0 < taken <= free else 0):
                if groups[at, GROUP_CLASSES] >> number & 1 and prices[FIRST_SCARCITY + at] > 0:
                    count = groups[at, GROUP_DEVICES]
                    less = (free // count - (free - taken) // count) * count
                    most = max(most, less * prices[FIRST_SCARCITY + at])
            lost[number * places + free] = most * WHOLE * POINTS // (1024 * max(taken, 1))
