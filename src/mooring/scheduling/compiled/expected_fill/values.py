"""Kernels for the value of a node: the device capacity that sampled sequences of requests are expected to fill."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import (
    CLASS,
    CLASSES,
    COUNTS,
    CPU,
    CPU_LEVELS,
    CPU_STEP,
    CPU_STEPS,
    DEVICES,
    FILLED,
    FIRST_DEVICE,
    HORIZON,
    LEAST_CPU,
    NO_STATE,
    NODE,
    PLACE,
    PLAN,
    POINTS,
    REQUESTS,
    SHARE,
    SMALLEST_SHARE,
    UNKNOWN,
    USABLE,
    VALUE,
    FillArrays,
)
from mooring.scheduling.compiled.kernel_cache import compiled
from mooring.scheduling.compiled.layout import WHOLE, Number


@compiled
def state_of(fill: FillArrays, plan: Number, of_class: Number, steps: Number) -> Number:
    """Return the state of a node with the devices in `scratch[NODE]`; NO_STATE if there is no space for another."""
    devices, states = fill.scratch[NODE], fill.states
    count, mask = states.shape[1] - FIRST_DEVICE, fill.state_table.shape[0] - 1
    mixed = (plan * 1_000_003 + of_class) * 1_000_003 + steps
    for device in range(count):
        mixed = mixed * 1_000_003 + devices[device]
        mixed ^= mixed >> 29
    slot = (mixed ^ (mixed >> 15)) & mask
    while fill.state_table[slot] != NO_STATE:
        state = np.int64(fill.state_table[slot])
        same = (states[state, PLAN] == plan) & (states[state, CLASS] == of_class) & (states[state, CPU_STEPS] == steps)
        if same:
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
    wholes = np.int64(0)
    for device in range(count):
        states[state, FIRST_DEVICE + device] = devices[device]
        wholes += devices[device] >= WHOLE
    states[state, PLAN] = plan
    states[state, CLASS] = of_class
    states[state, CPU_STEPS] = steps
    states[state, PLACE] = of_class * (count + 1) + wholes
    states[state, VALUE] = UNKNOWN
    return state


@compiled
def value_of(fill: FillArrays, plan: Number, of_class: Number, steps: Number) -> Number:
    """Return the value of a node with the devices in `scratch[NODE]`, which may be lost. It is computed once."""
    state = state_of(fill, plan, of_class, steps)
    if state != NO_STATE and fill.states[state, VALUE] != UNKNOWN:
        return fill.states[state, VALUE]
    pool, cpu = plan // (CPU_LEVELS + 1), steps * CPU_STEP
    requests, devices, work, usable = (
        fill.requests[pool],
        fill.scratch[NODE],
        fill.scratch[FILLED],
        fill.scratch[USABLE],
    )
    smallest, least_cpu = fill.demand[pool, SMALLEST_SHARE], fill.demand[pool, LEAST_CPU]
    count, free = fill.states.shape[1] - FIRST_DEVICE, np.int64(0)
    for device in range(count):
        if devices[device] < smallest:
            devices[device] = 0
        free += devices[device]
    horizon, total = free * HORIZON, np.int64(0)
    sequences = fill.sequences.shape[1] if free > 0 and smallest > 0 and cpu >= least_cpu else 0
    fitting = np.int64(0)
    for number in range(fill.demand[pool, REQUESTS] if sequences > 0 else 0):
        needed = requests[number, DEVICES]
        fits = needed <= count and (requests[number, CLASSES] >> of_class) & 1 == 1
        fits = fits and devices[count - needed] >= requests[number, SHARE]
        usable[number] = requests[number, CPU] <= cpu and (needed == 0 or fits)
        fitting += usable[number] != 0 and needed > 0
    for sequence in range(sequences if fitting > 0 else 0):
        for device in range(count):
            work[device] = devices[device]
        left = cpu
        for position in range(fill.sequences.shape[2]):
            asked = np.int64(fill.sequences[plan, sequence, position, 1])
            if asked >= horizon:
                break
            number = fill.sequences[plan, sequence, position, 0]
            if usable[number] == 0 or requests[number, CPU] > left:
                continue
            needed, share = requests[number, DEVICES], requests[number, SHARE]
            if needed > 0:
                first = count - needed
                if work[first] < share:
                    continue
                while first > 0 and work[first - 1] >= share:
                    first -= 1
                for device in range(first, first + needed):
                    part, at = work[device] - share, device
                    while at > 0 and work[at - 1] > part:
                        work[at] = work[at - 1]
                        at -= 1
                    work[at] = part
                total += needed * share * (horizon - asked)
            left -= requests[number, CPU]
            if left < least_cpu or work[count - 1] < smallest:
                break
    value = total * POINTS // (sequences * horizon) if sequences > 0 else np.int64(0)
    if state != NO_STATE:
        fill.states[state, VALUE] = value
    return value
