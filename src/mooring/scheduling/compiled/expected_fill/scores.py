"""Kernels for the score of a row: the value that its node loses by a placement, and the costs by prices.

The losses of a kind of task are kept per row, and forgotten for the rows that have changed since.
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
    AGE,
    CHANGES,
    CLASS_OF_ROW,
    COSTS,
    COUNTS,
    CPU_LEVEL,
    CPU_LEVELS,
    FIRST_DEVICE,
    KIND_AND_PLAN,
    MOST_CLASSES,
    MOST_GAIN,
    NO_COST,
    NO_STATE,
    NODE,
    PERIOD,
    PLACE,
    PLACE_BITS,
    PLACES,
    POSITION,
    ROW_VALUE,
    UNKNOWN,
    FillArrays,
)
from mooring.scheduling.compiled.expected_fill.prices import renew_prices, write_costs
from mooring.scheduling.compiled.expected_fill.values import value_of
from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import (
    DEVICE_SHARE,
    FILL_KIND,
    FILL_POOL,
    FILL_PRICES,
    ONE,
    WHOLE,
    WHOLE_DEVICES,
    Nodes,
    Number,
    Shapes,
)


@compiled
def begin_workload(nodes: Nodes, fill: FillArrays, pool: Number) -> None:
    """Count a workload that is about to be placed, and renew the prices of its pool if they are due."""
    if fill.prices[pool, AGE] >= fill.prices[pool, PERIOD]:
        fill.prices[pool, AGE] = 0
        level = fill.prices[pool, CPU_LEVEL]
        renew_prices(fill, nodes, pool)
        if level != fill.prices[pool, CPU_LEVEL]:
            nodes.fill[ROW_VALUE, :] = UNKNOWN
    fill.prices[pool, AGE] += 1
    if fill.scratch[COUNTS, 0] * 8 > fill.states.shape[0] * 7:
        fill.scratch[COUNTS, 0] = 0
        fill.state_table[:] = NO_STATE


@compiled
def begin_scores(nodes: Nodes, shapes: Shapes, shape: Number) -> tuple[Number, Number]:
    """Prepare for scores of a shape: forget the losses of rows that changed, and write the costs by prices.

    Return the number of changes of the prices, and whether it was the same at the last use of the shape.
    """
    fill, fields = shapes.fill, shapes.fields
    write_costs(fill, fields[shape, FILL_POOL], fields[shape, WHOLE_DEVICES], fields[shape, DEVICE_SHARE])
    entry, head = loss_entry(shapes, shape), nodes.head[0]
    cached, losses = fill.cached[entry], fill.losses[entry]
    kind_and_plan = fields[shape, FILL_KIND] * (1 << 32) + plan_of(shapes, shape)
    if cached[KIND_AND_PLAN] != kind_and_plan or head - cached[POSITION] > nodes.change_log.shape[0]:
        cached[KIND_AND_PLAN] = kind_and_plan
        losses[:] = 0
    else:
        for change in range(cached[POSITION], head):
            losses[nodes.change_log[change & (nodes.change_log.shape[0] - 1)]] = 0
    cached[POSITION] = head
    changes = fill.prices[fields[shape, FILL_POOL], CHANGES]
    unchanged = fields[shape, FILL_PRICES] == changes
    fields[shape, FILL_PRICES] = changes
    return changes, unchanged


@inlined
def loss_entry(shapes: Shapes, shape: Number) -> Number:
    return shapes.fields[shape, FILL_KIND] & (shapes.fill.losses.shape[0] - 1)


@inlined
def plan_of(shapes: Shapes, shape: Number) -> Number:
    pool = shapes.fields[shape, FILL_POOL]
    return pool * (CPU_LEVELS + 1) + shapes.fill.prices[pool, CPU_LEVEL]


@inlined
def expected_fill_score(nodes: Nodes, shapes: Shapes, shape: Number, entry: Number, row: Number) -> Number:
    """Return NO_COST less the points that a placement costs. `entry`: that of the shape's losses."""
    packed = np.int64(shapes.fill.losses[entry, row])
    if packed == 0:
        packed = loss(nodes, shapes, shape, row)
        shapes.fill.losses[entry, row] = packed
    cost = (packed >> PLACE_BITS) - MOST_GAIN + shapes.fill.scratch[COSTS, packed & (PLACES - 1)]
    return min(max(NO_COST - cost, 0), ONE)


@compiled
def loss(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Return the value that a row loses by a placement, packed with its place."""
    fill, fields = shapes.fill, shapes.fields
    wholes, of_class = fields[shape, WHOLE_DEVICES], np.int64(nodes.fill[CLASS_OF_ROW, row])
    plan, count = plan_of(shapes, shape), fill.states.shape[1] - FIRST_DEVICE
    devices, places = fill.scratch[NODE], count + 1
    if nodes.fill[ROW_VALUE, row] == UNKNOWN:
        gather_devices(nodes, fill, row)
        free = np.int64(0)
        for device in range(count):
            free += devices[device] >= WHOLE
        nodes.fill[PLACE, row] = of_class * places + free
        nodes.fill[ROW_VALUE, row] = value_of(fill, plan, of_class, max(nodes.free_by_row[row, 0], 0))
    value, place = np.int64(nodes.fill[ROW_VALUE, row]), np.int64(nodes.fill[PLACE, row])
    after = max(nodes.free_by_row[row, 0] - shapes.take[shape, 0], 0)
    if fields[shape, DEVICE_SHARE] > 0:
        left, device = best_device(nodes, shapes, shape, row, after)
        place += (nodes.devices[row, device] >= WHOLE) * (MOST_CLASSES * places)
    elif wholes == 0 and value == 0 and nodes.largest_share[row] <= 0:
        left = value
    else:
        gather_devices(nodes, fill, row)
        for at in range(count - 1, -1, -1):
            # The wholly free devices are the last ones.
            devices[at] = devices[at - wholes] if at >= wholes else 0
        left = value_of(fill, plan, of_class, after)
    lost = min(max((value - left) // max(wholes, 1), -MOST_GAIN), NO_COST)
    return ((lost + MOST_GAIN) << PLACE_BITS) + place


@compiled
def best_device(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, after: Number) -> tuple[Number, Number]:
    """Return the highest value that a share can leave, and its device: among equals the tightest, then the first.

    `after`: the free CPU after the placement.
    """
    fill, share, plan = shapes.fill, shapes.fields[shape, DEVICE_SHARE], plan_of(shapes, shape)
    of_class = np.int64(nodes.fill[CLASS_OF_ROW, row])
    highest, chosen, tightest = np.int64(-1), np.int64(0), np.int64(1 << 62)
    for device in range(nodes.devices.shape[1]):
        part = nodes.devices[row, device]
        fits = part >= share
        for earlier in range(device):
            fits &= nodes.devices[row, earlier] != part
        if fits:
            gather_devices(nodes, fill, row)
            devices, at = fill.scratch[NODE], 0
            while devices[at] != part:
                at += 1
            while at > 0 and devices[at - 1] > part - share:
                devices[at] = devices[at - 1]
                at -= 1
            devices[at] = part - share
            value = value_of(fill, plan, of_class, after)
            if value > highest or (value == highest and part < tightest):
                highest, chosen, tightest = value, np.int64(device), part
    return highest, chosen


@inlined
def gather_devices(nodes: Nodes, fill: FillArrays, row: Number) -> None:
    """Write the free parts of a row's devices to `scratch[NODE]`, in ascending order."""
    devices = fill.scratch[NODE]
    for device in range(nodes.devices.shape[1]):
        part = max(nodes.devices[row, device], 0)
        at = device
        while at > 0 and devices[at - 1] > part:
            devices[at] = devices[at - 1]
            at -= 1
        devices[at] = part
