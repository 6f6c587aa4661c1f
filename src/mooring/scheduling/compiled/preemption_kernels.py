"""Kernels that plan preemption: the victims on a row for a task of a shape, and the row whose victims cost least.

Costs are kept per kind of preemptor and follow the same change log as the key cache. The root of a tournament tree over
the rows is the choice.
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import (
    AGE,
    ANTI_AFFINITY,
    CLASS,
    COUNTER,
    DEVICE_SHARE,
    FIRST_TERM,
    HIGHEST,
    HOST,
    INFEASIBLE,
    KIND,
    LAST_TERM,
    LEAVING,
    LEVEL,
    NEWEST,
    NO_BUDGET,
    NO_VICTIMS,
    NOT_REQUESTED,
    NOWHERE,
    TOTAL,
    UNDECIDED,
    UNSHARED,
    VICTIMS,
    VIEW,
    VIOLATIONS,
    WHOLE,
    WHOLE_DEVICES,
    Counters,
    Nodes,
    Number,
    PreemptionPlans,
    RunningTaskArrays,
    Shapes,
    VictimCosts,
)
from mooring.scheduling.compiled.placement_kernels import (
    choose_devices,
    commit,
    log_change,
    move_devices,
)
from mooring.scheduling.compiled.scoring_kernels import cluster_wide_count, kernel_term_key


@compiled
def preempt(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    running: RunningTaskArrays,
    costs: VictimCosts,
    plans: PreemptionPlans,
    now: Number,
) -> Number:
    """Plan preemption for workloads in order. Return the number of workloads that were decided.

    A planned workload is counted on its row at once. Its victims stay there, but are not candidates any more.
    """
    chosen, preemptors = np.int64(0), plans.kind.shape[0]
    outdated_counts = False
    for preemptor in range(preemptors):
        plans.start[preemptor] = chosen
        kind = plans.kind[preemptor]
        shape = costs.shape[kind]
        refresh_costs(nodes, shapes, running, costs, kind, now)
        row = costs.tree[kind, 1]
        if is_filtered_by_counts(shapes, shape):
            if outdated_counts:
                return preemptor
            row = cheapest_accepted_row(nodes, shapes, counters, running, costs, kind, now)
            if row == UNDECIDED:
                return preemptor
        plans.row[preemptor] = row
        if row != NOWHERE:
            victims = find_victims(nodes, shapes, running, costs, kind, row, now)
            for number in range(victims):
                index = costs.victims[number]
                plans.victims[chosen] = index
                plans.violating[chosen] = costs.violating[index]
                chosen += 1
                # Some counts exclude leaving tasks. The engine counts these rows again.
                outdated_counts |= running.counted[running.labels[row, index]] > 0
                take_victim(nodes, running, row, index)
            plans.devices[preemptor] = place_on(nodes, shapes, counters, running, shape, row)
    plans.start[preemptors] = chosen
    return preemptors


@inlined
def is_filtered_by_counts(shapes: Shapes, shape: Number) -> bool:
    filtered = False
    for term in range(shapes.fields[shape, FIRST_TERM], shapes.fields[shape, LAST_TERM]):
        filtered |= shapes.terms[term, KIND] <= ANTI_AFFINITY
    return filtered


@compiled
def cheapest_accepted_row(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    running: RunningTaskArrays,
    costs: VictimCosts,
    kind: Number,
    now: Number,
) -> Number:
    """Return the row whose victims cost least among those that the counts of tasks accept.

    A row that they reject cannot be cured by victims on it, unless these are counted: UNDECIDED then.
    """
    rows, shape = nodes.last_change.shape[0], costs.shape[kind]
    rejected, counted, tree = costs.rejected, costs.counted, costs.tree[kind]
    for row in range(rows):
        rejected[row] = counted[row] = 0
    for term in range(shapes.fields[shape, FIRST_TERM], shapes.fields[shape, LAST_TERM]):
        if shapes.terms[term, KIND] > ANTI_AFFINITY:
            continue
        number = cluster_wide_count(counters, shapes, shape, term)
        view, level, host = shapes.terms[term, VIEW], shapes.terms[term, LEVEL], shapes.terms[term, HOST]
        mask = counters.view_mask[view]
        for row in range(rows):
            here = np.int64(counters.rows[shapes.terms[term, COUNTER], row])
            code = counters.codes[level, row]
            count = here * counters.masks[mask, row] if host else np.int64(counters.domain[view, max(code, 0)])
            rejected[row] |= kernel_term_key(shapes.terms, term, code < 0, count, number, 0) == INFEASIBLE
            counted[row] |= here > 0
    best = np.int32(NOWHERE)
    for row in range(rows):
        if not rejected[row]:
            best = cheaper(nodes, costs, kind, best, tree[rows + row])
        elif counted[row] and shapes.static[shapes.fields[shape, CLASS], row] >= 0:
            for index in range(running.units[row]):
                if running.counted[running.labels[row, index]] and (
                    running.priority[row, index] == LEAVING
                    or is_candidate(running, row, index, costs.priority[kind], costs.owner[kind], now)
                ):
                    return np.int32(UNDECIDED)
    return best


@inlined
def take_victim(nodes: Nodes, running: RunningTaskArrays, row: Number, index: Number) -> None:
    """Mark a unit as leaving, on all its rows, and log every row whose costs this changes."""
    workload = running.workload[row, index]
    if workload == UNSHARED:
        mark_leaving(running, row, index)
        return
    gang, allowed = running.gang[workload], running.allowed[workload]
    if allowed != NO_BUDGET:
        running.allowed[workload] -= running.size[row, index]
    if not gang:
        mark_leaving(running, row, index)
        if allowed <= 0:
            # Every further victim violated the budget before, too.
            return
    at_row, at_index = row, index
    while True:
        if gang:
            mark_leaving(running, at_row, at_index)
        log_change(nodes, at_row)
        at_row, at_index = running.next_row[at_row, at_index], running.next_index[at_row, at_index]
        if at_row == row and at_index == index:
            return


@inlined
def mark_leaving(running: RunningTaskArrays, row: Number, index: Number) -> None:
    running.priority[row, index] = LEAVING
    for slot in range(running.leaving.shape[1]):
        running.leaving[row, slot] += running.take[row, index, slot]
    for device in range(running.leaving_devices.shape[1]):
        running.leaving_devices[row, device] += running.devices[row, index, device]


@inlined
def place_on(
    nodes: Nodes, shapes: Shapes, counters: Counters, running: RunningTaskArrays, shape: Number, row: Number
) -> Number:
    """Count a task of the shape on a row. Return its devices as bits, chosen as if the leaving tasks were gone."""
    commit(nodes, shapes, counters, shape, row, 1)
    if shapes.fields[shape, WHOLE_DEVICES] + shapes.fields[shape, DEVICE_SHARE] == 0:
        return np.int64(0)
    for slot in range(running.leaving.shape[1]):
        nodes.free_by_row[row, slot] += running.leaving[row, slot]
    for device in range(running.leaving_devices.shape[1]):
        nodes.devices[row, device] += running.leaving_devices[row, device]
    given = choose_devices(nodes, shapes, shape, row)
    for slot in range(running.leaving.shape[1]):
        nodes.free_by_row[row, slot] -= running.leaving[row, slot]
    for device in range(running.leaving_devices.shape[1]):
        nodes.devices[row, device] -= running.leaving_devices[row, device]
    move_devices(nodes, shapes, shape, row, given, 1)
    return given


@compiled
def refresh_costs(
    nodes: Nodes, shapes: Shapes, running: RunningTaskArrays, costs: VictimCosts, kind: Number, now: Number
) -> None:
    """Search victims again on the rows that changed, or on all rows if many changed."""
    rows, head, tree = nodes.last_change.shape[0], nodes.head[0], costs.tree[kind]
    behind = head - costs.position[kind]
    if behind * 2 > rows:
        for row in range(rows):
            possible = find_victims(nodes, shapes, running, costs, kind, row, now) >= 0
            tree[rows + row] = row if possible else NOWHERE
        for node in range(rows - 1, 0, -1):
            tree[node] = cheaper(nodes, costs, kind, tree[2 * node], tree[2 * node + 1])
    else:
        newest = nodes.change_log.shape[0] - 1
        for change in range(costs.position[kind], head):
            row = nodes.change_log[change & newest]
            if nodes.last_change[row] == change:
                possible = find_victims(nodes, shapes, running, costs, kind, row, now) >= 0
                tree[rows + row] = row if possible else NOWHERE
                node = (rows + row) >> 1
                while node >= 1:
                    before = tree[node]
                    tree[node] = cheaper(nodes, costs, kind, tree[2 * node], tree[2 * node + 1])
                    if tree[node] == before and before != row:
                        # The row won neither before nor now, so that it changes nothing further up.
                        break
                    node >>= 1
    costs.position[kind] = head


@inlined
def cheaper(nodes: Nodes, costs: VictimCosts, kind: Number, one: Number, other: Number) -> Number:
    """Return the row of the two whose victims cost less."""
    if one == NOWHERE or other == NOWHERE:
        return max(one, other)
    for part in range(AGE + 1):
        difference = costs.cost[kind, one, part] - costs.cost[kind, other, part]
        if difference != 0:
            return one if difference < 0 else other
    return one if nodes.precedence[one] > nodes.precedence[other] else other


@compiled
def find_victims(
    nodes: Nodes, shapes: Shapes, running: RunningTaskArrays, costs: VictimCosts, kind: Number, row: Number, now: Number
) -> Number:
    """Return the number of victims on a row and record their cost; NOWHERE if none are needed or none suffice."""
    shape, priority, owner = costs.shape[kind], costs.priority[kind], costs.owner[kind]
    if shapes.static[shapes.fields[shape, CLASS], row] < 0:
        return NOWHERE
    wholes, share = shapes.fields[shape, WHOLE_DEVICES], shapes.fields[shape, DEVICE_SHARE]
    slots, fits = np.int64(0), True
    for slot in range(nodes.free_by_row.shape[1]):
        need = shapes.need[shape, slot]
        if need != NOT_REQUESTED:
            fits &= nodes.free_by_row[row, slot] >= need
            costs.slack[slots] = nodes.free_by_row[row, slot] + running.leaving[row, slot] - need
            costs.requested_slots[slots] = slot
            slots += 1
    if wholes + share > 0:
        fits &= nodes.free_devices[row] >= wholes and nodes.largest_share[row] >= share
        for device in range(costs.devices.shape[0]):
            costs.devices[device] = nodes.devices[row, device] + running.leaving_devices[row, device]
    if fits:
        return NOWHERE
    candidates, shared = np.int64(0), False
    for index in range(running.units[row]):
        if is_candidate(running, row, index, priority, owner, now):
            costs.candidates[candidates] = index
            costs.violating[index] = 0
            candidates += 1
            shared |= running.workload[row, index] != UNSHARED
            move_unit(running, costs, row, index, slots, wholes + share > 0, 1)
    if not fits_now(costs, slots, wholes, share):
        return NOWHERE
    violating = shared and count_violations(running, costs, row, candidates)
    victims, violations, tasks, total = np.int32(0), np.int64(0), np.int64(0), np.int64(0)
    highest, age = np.int64(NO_VICTIMS), np.int64(-NEWEST)
    # Units whose preemption violates a budget are reprieved first.
    for round_ in range(0 if violating else 1, 2):
        for number in range(candidates):
            index = costs.candidates[number]
            if violating and (costs.violating[index] > 0) != (round_ == 0):
                continue
            if reprieve(running, costs, row, index, slots, wholes, share):
                continue
            if running.priority[row, index] > highest:
                highest, age = running.priority[row, index], -running.started[row, index]
            elif running.priority[row, index] == highest:
                age = max(age, -running.started[row, index])
            violations += costs.violating[index]
            tasks += running.size[row, index]
            total += running.total[row, index]
            costs.victims[victims] = index
            victims += np.int32(1)
    cost = costs.cost[kind, row]
    cost[VIOLATIONS], cost[HIGHEST], cost[TOTAL], cost[VICTIMS], cost[AGE] = violations, highest, total, tasks, age
    return victims


@inlined
def is_candidate(
    running: RunningTaskArrays, row: Number, index: Number, priority: Number, owner: Number, now: Number
) -> bool:
    lower = running.priority[row, index] < priority
    return bool(lower and running.owner[row, index] == owner and running.preemptible_from[row, index] <= now)


@inlined
def move_unit(
    running: RunningTaskArrays,
    costs: VictimCosts,
    row: Number,
    index: Number,
    slots: Number,
    devices: bool,
    sign: Number,
) -> None:
    """Add the amounts of a unit to those that remain on its row (1), or subtract them (-1)."""
    for at in range(slots):
        costs.slack[at] += sign * running.take[row, index, costs.requested_slots[at]]
    if devices:
        for device in range(costs.devices.shape[0]):
            costs.devices[device] += sign * running.devices[row, index, device]


@inlined
def reprieve(
    running: RunningTaskArrays,
    costs: VictimCosts,
    row: Number,
    index: Number,
    slots: Number,
    wholes: Number,
    share: Number,
) -> bool:
    """Subtract a unit from the remaining amounts if they still suffice without it. Return whether they do."""
    suffices = True
    for at in range(slots):
        suffices &= costs.slack[at] >= running.take[row, index, costs.requested_slots[at]]
    if not suffices:
        return False
    move_unit(running, costs, row, index, slots, wholes + share > 0, -1)
    if wholes + share == 0 or fits_now(costs, slots, wholes, share):
        return True
    move_unit(running, costs, row, index, slots, True, 1)
    return False


@inlined
def fits_now(costs: VictimCosts, slots: Number, wholes: Number, share: Number) -> bool:
    """Return whether the remaining amounts and devices suffice."""
    fits = True
    for at in range(slots):
        fits &= costs.slack[at] >= 0
    if wholes + share > 0:
        free, largest = np.int64(0), np.int64(0)
        for device in range(costs.devices.shape[0]):
            free += costs.devices[device] >= WHOLE
            largest = max(largest, costs.devices[device])
        fits &= free >= wholes and largest >= share
    return fits


@inlined
def count_violations(running: RunningTaskArrays, costs: VictimCosts, row: Number, candidates: Number) -> bool:
    """Count the tasks of each candidate that violate their budget, spent from the most important task on.

    Return whether any does.
    """
    violating = False
    for number in range(candidates):
        index = costs.candidates[number]
        workload = running.workload[row, index]
        if workload != UNSHARED and running.allowed[workload] != NO_BUDGET:
            size = np.int64(running.size[row, index])
            costs.spent[workload] += size
            above = min(max(costs.spent[workload] - running.allowed[workload], 0), size)
            costs.violating[index] = above
            violating |= above > 0
    for number in range(candidates):
        workload = running.workload[row, costs.candidates[number]]
        if workload != UNSHARED:
            costs.spent[workload] = 0
    return violating
