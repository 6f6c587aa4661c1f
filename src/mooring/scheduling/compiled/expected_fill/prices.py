"""Kernels for the prices of a pool: the loads of device models, the scarcity of whole devices, and the CPU level."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
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
    MOST_GROUPS,
    MOST_LOAD,
    POINTS,
    POOL,
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
    for row in range(nodes.fill.shape[1]):
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
    while left:
        highest: Number = np.int64(-1)
        chosen, subset = left, left
        while subset:
            free, wanted = np.int64(0), np.int64(0)
            for number in range(classes):
                if subset >> number & 1:
                    free += capacity[number]
            for at in range(MOST_GROUPS, MOST_GROUPS + fill.demand[pool, MODEL_SETS]):
                among = fill.groups[pool, at, GROUP_CLASSES] & left
                if among != 0 and among & ~subset == 0:
                    wanted += fill.groups[pool, at, GROUP_SHARE]
            load = wanted * total // (free * 64)
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
    """Write the costs by prices of a task, by the class and the wholly free devices of a node."""
    groups, prices, places = fill.groups[pool], fill.prices[pool], fill.states.shape[1] - FIRST_DEVICE + 1
    amount, scale = wholes * WHOLE + share, 1024 * max(wholes, 1)
    for number in range(fill.demand[pool, DEMAND_CLASSES]):
        of_model = MODEL_WEIGHT * amount * POINTS * prices[FIRST_LOAD + number] // scale
        for free in range(places):
            for takes_whole in range(2):
                taken = wholes if share == 0 else takes_whole
                lost: Number = np.int64(0)
                for at in range(fill.demand[pool, GROUPS] if taken > 0 else 0):
                    if groups[at, GROUP_CLASSES] >> number & 1 and taken <= free and prices[FIRST_SCARCITY + at] > 0:
                        count = groups[at, GROUP_DEVICES]
                        less = (free // count - (free - taken) // count) * count
                        lost = max(lost, less * prices[FIRST_SCARCITY + at])
                cost = of_model + lost * WHOLE * POINTS // scale
                fill.scratch[COSTS + takes_whole, number * places + free] = cost
