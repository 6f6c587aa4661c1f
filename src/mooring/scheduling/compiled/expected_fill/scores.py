"""Kernels for the score of a row: the value that its node loses by a placement, and the costs by prices."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
    AGE,
    CLASS_OF_ROW,
    COSTS,
    COUNTS,
    CPU_LEVEL,
    CPU_LEVELS,
    CPU_STEP,
    CPU_STEPS,
    FIRST_DEVICE,
    KIND_CPU_STEPS,
    NO_COST,
    NO_STATE,
    NODE,
    PLACE,
    RENEWAL,
    STATE,
    FillArrays,
)
from mooring.scheduling.compiled.expected_fill.prices import renew_prices
from mooring.scheduling.compiled.expected_fill.values import state_of, value_of
from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import (
    DEVICE_SHARE,
    FILL_KIND,
    FILL_POOL,
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
    if fill.prices[pool, AGE] % RENEWAL == 0:
        level = fill.prices[pool, CPU_LEVEL]
        renew_prices(fill, nodes, pool)
        if level != fill.prices[pool, CPU_LEVEL]:
            nodes.fill[STATE, :] = NO_STATE
    fill.prices[pool, AGE] += 1
    if fill.scratch[COUNTS, 0] * 8 > fill.states.shape[0] * 7:
        fill.scratch[COUNTS, 0] = 0
        fill.state_table[:] = NO_STATE
        fill.losses[:, -1] = NO_STATE
        nodes.fill[STATE, :] = NO_STATE


@inlined
def expected_fill_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Return NO_COST less the points that a placement costs."""
    fill, fields = shapes.fill, shapes.fields
    state, packed = np.int64(nodes.fill[STATE, row]), np.int64(0)
    kind = fields[shape, FILL_KIND]
    known = state != NO_STATE
    if known:
        after = max(nodes.free_by_row[row, 0] - shapes.take[shape, 0], 0) // CPU_STEP
        beyond = fill.states[state, CPU_STEPS] - after - fill.kinds[kind, KIND_CPU_STEPS]
        known = 0 <= beyond <= 1
        entry = (kind + beyond) & (fill.losses.shape[0] - 1)
        if known and fill.losses[entry, -1] == kind + beyond:
            packed = np.int64(fill.losses[entry, state])
    if packed == 0:
        packed = loss(nodes, shapes, shape, row)
    cost = ((packed >> 1) - 1) // max(fields[shape, WHOLE_DEVICES], 1)
    state = np.int64(nodes.fill[STATE, row])
    if state != NO_STATE:
        place = fill.states[state, PLACE]
    else:
        place = np.int64(0)
        for device in range(nodes.devices.shape[1]):
            place += nodes.devices[row, device] >= WHOLE
        place += nodes.fill[CLASS_OF_ROW, row] * (nodes.devices.shape[1] + 1)
    return min(max(NO_COST - cost - fill.scratch[COSTS + (packed & 1), place], 0), ONE)


@compiled
def loss(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Return the value that a row loses by a placement plus one, doubled, plus whether a share takes a whole device.

    The result is remembered with the state of the row.
    """
    fill, fields = shapes.fill, shapes.fields
    wholes, pool = fields[shape, WHOLE_DEVICES], fields[shape, FILL_POOL]
    plan, of_class = pool * (CPU_LEVELS + 1) + fill.prices[pool, CPU_LEVEL], np.int64(nodes.fill[CLASS_OF_ROW, row])
    steps = max(nodes.free_by_row[row, 0], 0) // CPU_STEP
    after = max(nodes.free_by_row[row, 0] - shapes.take[shape, 0], 0) // CPU_STEP
    gather_devices(nodes, fill, row)
    state = state_of(fill, plan, of_class, steps)
    nodes.fill[STATE, row] = state
    value = value_of(fill, plan, of_class, steps)
    if fields[shape, DEVICE_SHARE] > 0:
        left, device = best_device(nodes, shapes, shape, row, after)
        packed = (value - left + 1) * 2 + (nodes.devices[row, device] >= WHOLE)
    else:
        gather_devices(nodes, fill, row)
        devices, count = fill.scratch[NODE], fill.states.shape[1] - FIRST_DEVICE
        for at in range(count - 1, -1, -1):
            # The wholly free devices are the last ones.
            devices[at] = devices[at - wholes] if at >= wholes else 0
        packed = (value - value_of(fill, plan, of_class, after) + 1) * 2
    if state != NO_STATE:
        kind = fields[shape, FILL_KIND]
        beyond = steps - after - fill.kinds[kind, KIND_CPU_STEPS]
        if 0 <= beyond <= 1:
            entry = (kind + beyond) & (fill.losses.shape[0] - 1)
            if fill.losses[entry, -1] != kind + beyond:
                fill.losses[entry, :] = 0
                fill.losses[entry, -1] = kind + beyond
            fill.losses[entry, state] = packed
    return packed


@compiled
def best_device(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, after: Number) -> tuple[Number, Number]:
    """Return the highest value that a share can leave, and its device: among equals the tightest, then the first."""
    fill, share, pool = shapes.fill, shapes.fields[shape, DEVICE_SHARE], shapes.fields[shape, FILL_POOL]
    plan, of_class = pool * (CPU_LEVELS + 1) + fill.prices[pool, CPU_LEVEL], np.int64(nodes.fill[CLASS_OF_ROW, row])
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
