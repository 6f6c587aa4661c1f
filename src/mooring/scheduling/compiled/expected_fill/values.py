"""Kernels for the value of a node: the device capacity that sampled sequences of requests are expected to fill."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
    ASKED,
    CLASS,
    CLASSES,
    COUNTS,
    CPU,
    CPU_LEVELS,
    CPU_POINTS,
    DEVICES,
    FILLED,
    FINE_CPU,
    FINE_STEP,
    FIRST_DEVICE,
    FIRST_SMALLER,
    FIRST_VALUE,
    HORIZON,
    LEAST_CPU,
    NO_STATE,
    NODE,
    PLAN,
    POINTS,
    REQUEST,
    SHARE,
    SMALLER,
    SMALLEST_SHARE,
    STEPS_PER_DOUBLING,
    UNKNOWN,
    FillArrays,
)
from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import Number


@compiled
def value_of(fill: FillArrays, plan: Number, of_class: Number, cpu: Number) -> Number:
    """Return the value of a node with the devices in `scratch[NODE]`, ascending."""
    pool, devices, count = plan // (CPU_LEVELS + 1), fill.scratch[NODE], fill.states.shape[1] - FIRST_DEVICE
    smallest = fill.demand[pool, SMALLEST_SHARE]
    if smallest == 0 or devices[count - 1] < smallest:
        return np.int64(0)
    for device in range(count):
        if devices[device] < smallest:
            devices[device] = 0
    state = state_of(fill, plan, of_class)
    if cpu < FINE_CPU:
        return value_at(fill, plan, of_class, state, cpu // FINE_STEP, cpu // FINE_STEP * FINE_STEP)
    start, point = np.int64(FINE_CPU), np.int64(FINE_CPU // FINE_STEP)
    while cpu >= 2 * start and point < CPU_POINTS - 1:
        start *= 2
        point += STEPS_PER_DOUBLING
    if point == CPU_POINTS - 1:
        return value_at(fill, plan, of_class, state, point, start)
    width = start // STEPS_PER_DOUBLING
    steps, beyond = (cpu - start) // width, (cpu - start) % width
    value = value_at(fill, plan, of_class, state, point + steps, start + steps * width)
    if beyond > 0:
        above = value_at(fill, plan, of_class, state, point + steps + 1, start + (steps + 1) * width)
        value += (above - value) * beyond // width
    return value


@compiled
def state_of(fill: FillArrays, plan: Number, of_class: Number) -> Number:
    """Return the state of a node with the devices in `scratch[NODE]`; NO_STATE if there is no space for another."""
    devices, states = fill.scratch[NODE], fill.states
    count, mask = states.shape[1] - FIRST_DEVICE, fill.state_table.shape[0] - 1
    mixed = plan * 1_000_003 + of_class
    for device in range(count):
        mixed = mixed * 1_000_003 + devices[device]
        mixed ^= mixed >> 29
    slot = (mixed ^ (mixed >> 15)) & mask
    while fill.state_table[slot] != NO_STATE:
        state = np.int64(fill.state_table[slot])
        same = (states[state, PLAN] == plan) & (states[state, CLASS] == of_class)
        for device in range(count):
            same &= states[state, FIRST_DEVICE + device] == devices[device]
        if same:
            return state
        slot = (slot + 1) & mask
    state = fill.scratch[COUNTS, 0]
    if state == states.shape[0]:
        return np.int64(NO_STATE)
    fill.scratch[COUNTS, 0] = state + 1
    fill.state_table[slot] = state
    states[state, PLAN] = plan
    states[state, CLASS] = of_class
    for point in range(CPU_POINTS):
        states[state, FIRST_VALUE + point] = UNKNOWN
    for device in range(count):
        states[state, FIRST_DEVICE + device] = devices[device]
    return state


@inlined
def value_at(fill: FillArrays, plan: Number, of_class: Number, state: Number, point: Number, cpu: Number) -> Number:
    """Return the value at a point of free CPU. It is computed once."""
    if state != NO_STATE and fill.states[state, FIRST_VALUE + point] != UNKNOWN:
        return fill.states[state, FIRST_VALUE + point]
    return expected_fill(fill, plan, of_class, state, point, cpu)


@compiled
def expected_fill(
    fill: FillArrays, plan: Number, of_class: Number, state: Number, point: Number, cpu: Number
) -> Number:
    """Walk the sequences. If no request lacks CPU, the value is the same at all higher points."""
    pool = plan // (CPU_LEVELS + 1)
    requests, devices, work = fill.requests[pool], fill.scratch[NODE], fill.scratch[FILLED]
    smallest, least_cpu = fill.demand[pool, SMALLEST_SHARE], fill.demand[pool, LEAST_CPU]
    count, free = fill.states.shape[1] - FIRST_DEVICE, np.int64(0)
    for device in range(count):
        free += devices[device]
    horizon, total = free * HORIZON, np.int64(0)
    lacking = cpu < least_cpu
    sequences, length = fill.sequences.shape[1], fill.sequences.shape[2]
    for sequence in range(0 if lacking else sequences):
        for device in range(count):
            work[device] = devices[device]
        walk = fill.sequences[plan, sequence]
        left, largest, position = cpu, devices[count - 1], np.int64(0)
        while position < length:
            if largest < SMALLER[0]:
                # Skip requests that are too large.
                field = FIRST_SMALLER + (largest < SMALLER[1]) + (largest < SMALLER[2])
                position = np.int64(walk[position, field])
                if position >= length:
                    break
            asked = np.int64(walk[position, ASKED])
            if asked >= horizon:
                break
            request = requests[walk[position, REQUEST]]
            position += 1
            share, needed = request[SHARE], request[DEVICES]
            if share > largest or needed > count or (request[CLASSES] >> of_class) & 1 == 0:
                continue
            first = count - needed
            if needed > 1 and work[first] < share:
                continue
            if request[CPU] > left:
                lacking = True
                continue
            left -= request[CPU]
            if needed > 0:
                while first > 0 and work[first - 1] >= share:
                    first -= 1
                for device in range(first, first + needed):
                    part, at = work[device] - share, device
                    while at > 0 and work[at - 1] > part:
                        work[at] = work[at - 1]
                        at -= 1
                    work[at] = part
                total += needed * share * (horizon - asked)
                largest = work[count - 1]
                if largest < smallest:
                    break
            if left < least_cpu:
                lacking = True
                break
    value = total * POINTS // (sequences * horizon)
    if state != NO_STATE:
        fill.states[state, FIRST_VALUE + point] = value
        if not lacking:
            for higher in range(point + 1, CPU_POINTS):
                fill.states[state, FIRST_VALUE + higher] = value
    return value
