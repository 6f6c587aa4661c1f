"""Kernels that score rows: the key of a row for a shape, computed as the built-in filters and scorers define it.

A key is one int64: (tier, weighted sum of scores, precedence) from the highest bits to the lowest, so that the highest
key names the best row. `INFEASIBLE` is below every key. Terms over domains are not part of it (`add_domain_terms`).
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.scores import expected_fill_score, loss_entry
from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.layout import (
    AFFINITY,
    ANTI_AFFINITY,
    BALANCED,
    BASE,
    CLASS,
    COUNTER,
    DEVICE_SHARE,
    EVENLY_WEIGHTED,
    EXPECTED_FILL,
    FEWER_TASKS,
    FIRST,
    FIRST_TERM,
    FIRST_THRESHOLD,
    FRAGMENTATION,
    HOST,
    HOST_TERMS,
    INFEASIBLE,
    KEY_SHIFT,
    KIND,
    LAST,
    LAST_TERM,
    LAST_THRESHOLD,
    LEAST_ALLOCATED,
    LEAST_ALLOCATED_CPU,
    LEAST_ALLOCATED_MEMORY,
    LEVEL,
    LIMIT,
    MIN_DOMAINS,
    MOST_ALLOCATED,
    MOST_ALLOCATED_CPU,
    MOST_ALLOCATED_MEMORY,
    NORMALISED,
    NOT_REQUESTED,
    ONE,
    OWN_SHIFT,
    PLUGIN,
    POINT,
    POINTS_BALANCED,
    POINTS_LEAST_ALLOCATED,
    PREFERRED_NODES,
    REQUEST_TABLE,
    RESOURCES_ONLY,
    SELF,
    SHARE_NEEDED,
    SPREAD,
    TAINTS,
    TOTAL_WEIGHT,
    TYPICAL_CPU,
    TYPICAL_DEVICES,
    TYPICAL_MEMORY,
    UNKNOWN,
    UNUSED_CAPABILITY,
    VIEW,
    WEIGHT,
    WHOLE,
    WHOLE_DEVICES,
    Counters,
    Floats,
    Int64s,
    KeyCache,
    Nodes,
    Number,
    RowScore,
    Shapes,
)


@inlined
def score_rows(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    cache: KeyCache,
    shape: Number,
    entry: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
    count: Number,
) -> None:
    """Compute the keys of the first rows in `cache.changed_rows` into `cache.changed_keys`, without terms over domains.

    One loop per rule, so that what depends on the shape alone is read once, and reads of scattered rows overlap. The
    counts over the cluster are those of the cache entry, which are current.
    """
    fields, profile = shapes.fields, shapes.profile
    rows, keys = cache.changed_rows, cache.changed_keys
    static, need, take = shapes.static[fields[shape, CLASS]], shapes.need[shape], shapes.take[shape]
    cpu_take, memory_take, shift = take[0], take[1], profile[KEY_SHIFT]
    evenly = profile[EVENLY_WEIGHTED] != 0
    for at in range(count):
        row = rows[at]
        key = static[row]
        possible = key >= 0
        for slot in range(need.shape[0]):
            possible &= nodes.free_by_row[row, slot] >= need[slot]
        cpu_inverse, memory_inverse = nodes.inverse_by_row[row, 0], nodes.inverse_by_row[row, 1]
        cpu = free_fraction(nodes.free_by_row[row, 0], cpu_take, cpu_inverse)
        memory = free_fraction(nodes.free_by_row[row, 1], memory_take, memory_inverse)
        if evenly:
            score = evenly_weighted_score(profile, cpu, memory)
        else:
            score = resource_score(profile, cpu, memory, cpu_inverse, memory_inverse)
        keys[at] = key + (score << shift) if possible else INFEASIBLE
    if depends_on_resources_only(shapes, shape, limit, spread):
        return
    wholes, devices_share = fields[shape, WHOLE_DEVICES], fields[shape, DEVICE_SHARE]
    if wholes + devices_share > 0:
        for at in range(count):
            row = rows[at]
            possible = (nodes.free_devices[row] >= wholes) & (nodes.largest_share[row] >= devices_share)
            keys[at] = keys[at] if possible else INFEASIBLE
    if not profile[RESOURCES_ONLY]:
        for at in range(count):
            row = rows[at]
            if keys[at] == INFEASIBLE:
                continue
            score = np.int64(0)
            if profile[UNUSED_CAPABILITY] > 0:
                score += unused_capability_score(nodes, shapes, shape, row)
            if profile[PLUGIN] > 0:
                score += profile[PLUGIN] * plugin_score(nodes, shapes, shape, row, plugin)
            if profile[FRAGMENTATION] > 0:
                score += profile[FRAGMENTATION] * fragmentation_score(nodes, shapes, shape, row)
            if profile[EXPECTED_FILL] > 0:
                loss = loss_entry(shapes, shape)
                score += profile[EXPECTED_FILL] * expected_fill_score(nodes, shapes, shape, loss, row)
            if profile[NORMALISED]:
                score += normalised_score(nodes, shapes, cache, shape, row, entry)
            keys[at] += score << shift
    if fields[shape, HOST_TERMS] > 0:
        number = 0
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                counts, codes = counters.rows[shapes.terms[term, COUNTER]], counters.codes[shapes.terms[term, LEVEL]]
                mask = counters.masks[counters.view_mask[shapes.terms[term, VIEW]]]
                cluster_wide = cache.cluster_wide_counts[entry, number]
                for at in range(count):
                    row = rows[at]
                    counted = np.int64(counts[row]) * mask[row]
                    added = kernel_term_key(shapes.terms, term, codes[row] < 0, counted, cluster_wide, shift)
                    possible = (keys[at] != INFEASIBLE) & (added != INFEASIBLE)
                    keys[at] = keys[at] + added if possible else INFEASIBLE
                number += 1
    if limit > 0 or spread:
        for at in range(count):
            own = nodes.own_tasks[rows[at]]
            if limit > 0 and own >= limit:
                keys[at] = INFEASIBLE
            elif spread and keys[at] != INFEASIBLE:
                keys[at] -= np.int64(own) << profile[OWN_SHIFT]


@compiled
def score_all(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    shape: Number,
    limit: Number,
    spread: bool,
    keys: Int64s,
    plugin: RowScore,
) -> None:
    """Compute the keys of all rows that hold nodes, without the terms over domains."""
    fields, profile = shapes.fields, shapes.profile
    rows = nodes.used_rows[0]
    shift = profile[KEY_SHIFT]
    static = shapes.static[fields[shape, CLASS]]
    tasks = nodes.free_by_slot.shape[0] - 1
    cpu_need, memory_need, tasks_need = shapes.need[shape, 0], shapes.need[shape, 1], shapes.need[shape, tasks]
    cpu_take, memory_take = shapes.take[shape, 0], shapes.take[shape, 1]
    cpu_free, memory_free, task_capacity = nodes.free_by_slot[0], nodes.free_by_slot[1], nodes.free_by_slot[tasks]
    cpu_inverse, memory_inverse = nodes.inverse_by_slot[0], nodes.inverse_by_slot[1]
    if profile[EVENLY_WEIGHTED]:
        for row in range(rows):
            cpu = free_fraction(cpu_free[row], cpu_take, cpu_inverse[row])
            memory = free_fraction(memory_free[row], memory_take, memory_inverse[row])
            possible = (
                (static[row] >= 0)
                & (cpu_free[row] >= cpu_need)
                & (memory_free[row] >= memory_need)
                & (task_capacity[row] >= tasks_need)
            )
            score = evenly_weighted_score(profile, cpu, memory)
            keys[row] = static[row] + (score << shift) if possible else INFEASIBLE
    else:
        for row in range(rows):
            cpu = free_fraction(cpu_free[row], cpu_take, cpu_inverse[row])
            memory = free_fraction(memory_free[row], memory_take, memory_inverse[row])
            possible = (
                (static[row] >= 0)
                & (cpu_free[row] >= cpu_need)
                & (memory_free[row] >= memory_need)
                & (task_capacity[row] >= tasks_need)
            )
            score = resource_score(profile, cpu, memory, cpu_inverse[row], memory_inverse[row])
            keys[row] = static[row] + (score << shift) if possible else INFEASIBLE
    if profile[UNUSED_CAPABILITY] > 0:
        for row in range(rows):
            if keys[row] != INFEASIBLE:
                keys[row] += unused_capability_score(nodes, shapes, shape, row) << shift
    if profile[PLUGIN] > 0:
        for row in range(rows):
            if keys[row] != INFEASIBLE:
                keys[row] += profile[PLUGIN] * plugin_score(nodes, shapes, shape, row, plugin) << shift
    for slot in range(2, tasks):
        need = shapes.need[shape, slot]
        if need != NOT_REQUESTED:
            free = nodes.free_by_slot[slot]
            for row in range(rows):
                keys[row] = keys[row] if free[row] >= need else INFEASIBLE
    wholes, devices_share = fields[shape, WHOLE_DEVICES], fields[shape, DEVICE_SHARE]
    if wholes + devices_share > 0:
        for row in range(rows):
            possible = (nodes.free_devices[row] >= wholes) & (nodes.largest_share[row] >= devices_share)
            keys[row] = keys[row] if possible else INFEASIBLE
    if profile[FRAGMENTATION] > 0:
        for row in range(rows):
            if keys[row] != INFEASIBLE:
                keys[row] += profile[FRAGMENTATION] * fragmentation_score(nodes, shapes, shape, row) << shift
    if profile[EXPECTED_FILL] > 0:
        entry = loss_entry(shapes, shape)
        for row in range(rows):
            if keys[row] != INFEASIBLE:
                keys[row] += profile[EXPECTED_FILL] * expected_fill_score(nodes, shapes, shape, entry, row) << shift
    if fields[shape, HOST_TERMS] > 0:
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                number = cluster_wide_count(counters, shapes, shape, term)
                counts, codes = counters.rows[shapes.terms[term, COUNTER]], counters.codes[shapes.terms[term, LEVEL]]
                mask = counters.masks[counters.view_mask[shapes.terms[term, VIEW]]]
                for row in range(rows):
                    if keys[row] != INFEASIBLE:
                        count = np.int64(counts[row]) * mask[row]
                        added = kernel_term_key(shapes.terms, term, codes[row] < 0, count, number, shift)
                        keys[row] = keys[row] + added if added != INFEASIBLE else INFEASIBLE
    if limit > 0 or spread:
        own_shift = profile[OWN_SHIFT]
        for row in range(rows):
            own = nodes.own_tasks[row]
            if own > 0 and keys[row] != INFEASIBLE:
                keys[row] -= np.int64(own) << own_shift if spread else np.int64(0)
                if limit > 0 and own >= limit:
                    keys[row] = INFEASIBLE


@inlined
def depends_on_resources_only(shapes: Shapes, shape: Number, limit: Number, spread: bool) -> bool:
    """Return whether the keys of the shape depend on nothing but static answers and free amounts of slots."""
    fields = shapes.fields
    devices = fields[shape, WHOLE_DEVICES] + fields[shape, DEVICE_SHARE] > 0
    return (
        shapes.profile[RESOURCES_ONLY] and not devices and fields[shape, HOST_TERMS] == 0 and limit == 0 and not spread
    )


@inlined
def requests_first_slots_only(shapes: Shapes, shape: Number) -> bool:
    """Return whether the shape requests CPU, memory and the number of tasks, and no other slot."""
    others = 0
    for slot in range(2, shapes.need.shape[1] - 1):
        others += shapes.need[shape, slot] != NOT_REQUESTED
    return others == 0


@compiled
def highest_key(
    free: Int64s, inverse: Floats, static: Int64s, need: Int64s, take: Int64s, profile: Int64s, rows: Number
) -> tuple[Number, Number]:
    """Return the highest key and the number of feasible rows, for a shape of which both functions above are true.

    It takes few arrays, since passing all of them costs nearly as much as the scan.
    """
    tasks, shift = free.shape[0] - 1, profile[KEY_SHIFT]
    cpu_need, memory_need, tasks_need = need[0], need[1], need[tasks]
    cpu_take, memory_take = take[0], take[1]
    cpu_free, memory_free, task_capacity = free[0], free[1], free[tasks]
    cpu_inverse, memory_inverse = inverse[0], inverse[1]
    best, feasible = np.int64(INFEASIBLE), np.int64(0)
    for row in range(rows):
        cpu = free_fraction(cpu_free[row], cpu_take, cpu_inverse[row])
        memory = free_fraction(memory_free[row], memory_take, memory_inverse[row])
        possible = (
            (static[row] >= 0)
            & (cpu_free[row] >= cpu_need)
            & (memory_free[row] >= memory_need)
            & (task_capacity[row] >= tasks_need)
        )
        key = static[row] + (evenly_weighted_score(profile, cpu, memory) << shift)
        best = max(best, key if possible else np.int64(INFEASIBLE))
        feasible += np.int64(possible)
    return best, np.int32(feasible)


@inlined
def evenly_weighted_score(profile: Int64s, cpu: Number, memory: Number) -> Number:
    """Return what `resource_score` does under a profile with the flag EVENLY_WEIGHTED, without branches."""
    return profile[LEAST_ALLOCATED] * ((cpu + memory) >> 1) + profile[BALANCED] * (ONE - abs(cpu - memory))


@inlined
def free_fraction(free: Number, request: Number, inverse: Number) -> Number:
    """Return the fraction of a slot that stays free after a request, in fixed point, rounded as the scorers round."""
    return np.int64(np.rint(np.float64(max(free - request, 0)) * inverse * ONE))


@inlined
def resource_score(profile: Int64s, cpu: Number, memory: Number, cpu_inverse: Number, memory_inverse: Number) -> Number:
    score = np.int64(0)
    if profile[LEAST_ALLOCATED] > 0:
        mean = profile[LEAST_ALLOCATED_CPU] * cpu + profile[LEAST_ALLOCATED_MEMORY] * memory
        score += profile[LEAST_ALLOCATED] * (mean // (profile[LEAST_ALLOCATED_CPU] + profile[LEAST_ALLOCATED_MEMORY]))
    if profile[MOST_ALLOCATED] > 0:
        mean = profile[MOST_ALLOCATED_CPU] * (ONE - cpu if cpu_inverse > 0 else 0)
        mean += profile[MOST_ALLOCATED_MEMORY] * (ONE - memory if memory_inverse > 0 else 0)
        score += profile[MOST_ALLOCATED] * (mean // (profile[MOST_ALLOCATED_CPU] + profile[MOST_ALLOCATED_MEMORY]))
    if profile[BALANCED] > 0:
        score += profile[BALANCED] * (ONE - abs(cpu - memory))
    return score


@inlined
def unused_capability_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Prefer rows with few free slots that the shape does not request."""
    unused = 0
    for slot in range(nodes.free_by_row.shape[1] - 1):
        unused += shapes.take[shape, slot] == 0 and nodes.free_by_row[row, slot] > 0
    return shapes.profile[UNUSED_CAPABILITY] * (ONE // (1 + unused))


@inlined
def plugin_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, plugin: RowScore) -> Number:
    return min(max(plugin(nodes.free_by_row, nodes.inverse_by_row, shapes.take[shape], row), 0), ONE)


@compiled
def fragmentation_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Return half of ONE if a placement leaves the fragmentation as it is, more if it lowers it."""
    table, wholes = shapes.fields[shape, REQUEST_TABLE], shapes.fields[shape, WHOLE_DEVICES]
    total = np.int64(0)
    for device in range(nodes.device_scratch.shape[0]):
        nodes.device_scratch[device] = max(nodes.devices[row, device], 0)
        total += nodes.device_scratch[device]
    if total == 0:
        return np.int64(ONE // 2)
    cpu, memory = nodes.free_by_row[row, 0], nodes.free_by_row[row, 1]
    before = nodes.fragmentation[row]
    if before == UNKNOWN:
        before = fragmentation(nodes, shapes, table, row, cpu, memory)
        nodes.fragmentation[row] = before
    cpu, memory = cpu - shapes.take[shape, 0], memory - shapes.take[shape, 1]
    if shapes.fields[shape, DEVICE_SHARE] > 0:
        after, _ = lowest_fragmentation(nodes, shapes, shape, row, cpu, memory)
    else:
        for device in range(nodes.device_scratch.shape[0]):
            if wholes > 0 and nodes.device_scratch[device] >= WHOLE:
                nodes.device_scratch[device] -= WHOLE
                wholes -= 1
        after = fragmentation(nodes, shapes, table, row, cpu, memory)
    change = abs(before - after)
    part = ONE // 2 * change // (WHOLE * shapes.request_tables[table, TOTAL_WEIGHT] + change)
    return (ONE // 2 + part if after <= before else ONE // 2 - part) // POINT * POINT


@compiled
def lowest_fragmentation(
    nodes: Nodes, shapes: Shapes, shape: Number, row: Number, cpu: Number, memory: Number
) -> tuple[Number, Number]:
    """Return the lowest fragmentation after taking a share of one device in `nodes.device_scratch`, and that device."""
    free, share, table = nodes.device_scratch, shapes.fields[shape, DEVICE_SHARE], shapes.fields[shape, REQUEST_TABLE]
    least, chosen = np.int64(1 << 62), np.int64(0)
    for device in range(free.shape[0]):
        fits = free[device] >= share
        for earlier in range(device):
            fits &= free[earlier] != free[device]
        if fits:
            free[device] -= share
            result = fragmentation(nodes, shapes, table, row, cpu, memory)
            free[device] += share
            if result < least:
                least, chosen = result, np.int64(device)
    return least, chosen


@compiled
def fragmentation(nodes: Nodes, shapes: Shapes, table: Number, row: Number, cpu: Number, memory: Number) -> Number:
    """Return the device capacity in `nodes.device_scratch` that typical requests cannot use, weighted and summed.

    Requests that need the same device share are adjacent, so that the capacity that all of them waste is summed once.
    """
    free, typical, allowed = nodes.device_scratch, shapes.typical, shapes.allowed[nodes.models[row]]
    total = np.int64(0)
    for device in range(free.shape[0]):
        total += free[device]
    result = total * shapes.request_tables[table, TOTAL_WEIGHT]
    for at in range(shapes.request_tables[table, FIRST_THRESHOLD], shapes.request_tables[table, LAST_THRESHOLD]):
        share, wasted, enough = shapes.thresholds[at, SHARE_NEEDED], np.int64(0), np.int64(0)
        for device in range(free.shape[0]):
            suffices = free[device] >= share
            enough += suffices
            wasted += 0 if suffices else free[device]
        if enough > 0:
            useful = np.int64(0)
            for number in range(shapes.thresholds[at, FIRST], shapes.thresholds[at, LAST]):
                usable = (
                    (cpu >= typical[TYPICAL_CPU, number])
                    & (memory >= typical[TYPICAL_MEMORY, number])
                    & (enough >= typical[TYPICAL_DEVICES, number])
                )
                useful += allowed[number] if usable else 0
            result -= useful * (total - wasted)
    return result


@compiled
def normalised_score(
    nodes: Nodes, shapes: Shapes, cache: KeyCache, shape: Number, row: Number, entry: Number
) -> Number:
    """Return the points of Kubernetes' scorers: least allocated, balanced, soft taints, preferred nodes."""
    profile, fields = shapes.profile, shapes.fields
    left, present, most, fewest = np.int64(0), np.int64(0), 0.0, 1.0
    for resource in range(2):
        taken = nodes.taken[resource, row]
        allocatable = nodes.free_by_row[row, resource] + taken
        if allocatable > 0:
            requested = taken + shapes.take[shape, resource]
            counted = requested + nodes.uncounted[resource, row] + shapes.uncounted[shape, resource]
            left += max(allocatable - counted, 0) * 100 // allocatable
            used = min(requested / allocatable, 1.0)
            most, fewest = max(most, used), min(fewest, used)
            present += 1
    score = profile[POINTS_LEAST_ALLOCATED] * (left // (present if present > 0 else 1))
    uneven = abs(most - fewest) / 2 if present == 2 else 0.0
    score += profile[POINTS_BALANCED] * np.int64((1 - uneven) * 100)
    if fields[shape, TAINTS] > 0:
        score += fields[shape, TAINTS] * (100 - points(shapes, shape, 0, row, cache.highest_levels[entry, 0]))
    if fields[shape, PREFERRED_NODES] > 0:
        score += fields[shape, PREFERRED_NODES] * points(shapes, shape, 1, row, cache.highest_levels[entry, 1])
    return score * POINT


@inlined
def points(shapes: Shapes, shape: Number, kind: Number, row: Number, largest: Number) -> Number:
    """Return a raw score as points of 100 relative to the highest raw score among the feasible rows."""
    values, of_class = shapes.values, shapes.fields[shape, CLASS]
    value, top = values[kind, of_class, shapes.levels[kind, of_class, row]], values[kind, of_class, largest]
    return value * 100 // top if top > 0 else value


@inlined
def kernel_term_key(terms: Int64s, term: Number, outside: bool, count: Number, number: Number, shift: Number) -> Number:
    """Return what a term adds to the key, or INFEASIBLE. `number` is its cluster-wide count."""
    kind = terms[term, KIND]
    if kind == SPREAD:
        if outside or count + terms[term, SELF] - number > terms[term, LIMIT]:
            return np.int64(INFEASIBLE)
        return np.int64(0)
    if kind == AFFINITY:
        if outside or (count == 0 and number == 0):
            return np.int64(INFEASIBLE)
        return np.int64(0)
    if kind == ANTI_AFFINITY:
        if count > 0 and not outside:
            return np.int64(INFEASIBLE)
        return np.int64(0)
    score = np.int64(0)
    if kind == FEWER_TASKS:
        if not outside:
            score = terms[term, BASE] * terms[term, LIMIT] // (terms[term, LIMIT] + count)
    elif (count > 0 and not outside) == (terms[term, LIMIT] == 1):
        score = terms[term, BASE]
    return (terms[term, WEIGHT] * score) << shift


@inlined
def cluster_wide_count(counters: Counters, shapes: Shapes, shape: Number, term: Number) -> Number:
    """Return the cluster-wide number that a term depends on."""
    kind = shapes.terms[term, KIND]
    if kind == SPREAD:
        return lowest_count(counters, shapes.terms, term)
    if kind == AFFINITY:
        return matches_nowhere(counters, shapes, shape)
    return np.int64(0)


@inlined
def lowest_count(counters: Counters, terms: Int64s, term: Number) -> Number:
    """Return the lowest count over the domains of a spread term; 0 if there are fewer domains than it demands."""
    view = terms[term, VIEW]
    if counters.domains[view] < max(terms[term, MIN_DOMAINS], 1):
        return np.int64(0)
    least = np.int64(1 << 40)
    if terms[term, HOST]:
        if counters.lowest[view] != counters.histogram.shape[1] - 1:
            return counters.lowest[view]
        for row in range(counters.rows.shape[1]):
            if counters.masks[counters.view_mask[view], row] and counters.codes[terms[term, LEVEL], row] >= 0:
                least = min(least, np.int64(counters.rows[terms[term, COUNTER], row]))
        return least
    for domain in range(counters.sizes[terms[term, LEVEL]]):
        if counters.present[view, domain]:
            least = min(least, np.int64(counters.domain[view, domain]))
    return least


@inlined
def matches_nowhere(counters: Counters, shapes: Shapes, shape: Number) -> Number:
    """Return whether no task matches the shape's affinity in any domain: the first of a group may go anywhere."""
    fields = shapes.fields
    for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
        if shapes.terms[term, KIND] == AFFINITY and (
            counters.total[shapes.terms[term, VIEW]] > 0 or shapes.terms[term, SELF] == 0
        ):
            return np.int64(0)
    return np.int64(1)
