"""Kernels that place a queue of workloads in one call, over arrays that the engine owns.

Per shape a cache entry keeps one key per row as the leaves of tournament trees, one tree per group of rows that share
all domains which the shape's terms name. Every change of a row goes to a log, and an entry scores only the rows again
that were logged since it was used. Terms over domains are added per group when a row is picked, so that a change of a
domain's count never makes its rows stale.
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import CHANGES, ROW_VALUE
from mooring.scheduling.compiled.expected_fill.scores import begin_scores, begin_workload, best_device
from mooring.scheduling.compiled.kernel_cache import compiled, inlined, merged
from mooring.scheduling.compiled.layout import (
    ALWAYS_REBUILD,
    ALWAYS_REFRESH,
    ALWAYS_SCAN,
    CLASS,
    DEVICE_SHARE,
    DOMAIN_TERMS,
    DOMINATED,
    ENTRY,
    EXPECTED_FILL,
    FILL_POOL,
    FIRST_TERM,
    FRAGMENTATION,
    HOST,
    HOST_TERMS,
    INFEASIBLE,
    KEY_SHIFT,
    KNOWN_TO_FAIL,
    LABELS,
    LAST_TERM,
    LEVEL,
    LEVELS,
    MAX_FAILED_REQUESTS,
    MODE,
    NEVER,
    NO_CAPACITY_FOR,
    NO_CAPACITY_SINCE,
    NORMALISED,
    PARTITION,
    REBUILDS,
    REFRESHED_ROWS,
    ROW_COST,
    SCANS,
    UNKNOWN,
    USED,
    VIEW,
    WHOLE,
    WHOLE_DEVICES,
    Counters,
    Int64s,
    KeyCache,
    Nodes,
    Number,
    Partitions,
    Queue,
    Results,
    RowScore,
    Shapes,
)
from mooring.scheduling.compiled.scoring_kernels import (
    cluster_wide_count,
    kernel_term_key,
    lowest_fragmentation,
    normalised_score,
    score_all,
    score_row,
)


@compiled
def place(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    cache: KeyCache,
    queue: Queue,
    results: Results,
    first: Number,
    last: Number,
    plugin: RowScore,
    stop: bool,
) -> Number:
    """Place the workloads `first` to `last` of a queue, in order. Return the first that was not decided.

    `stop`: end after the first workload that finds fewer placements than it has tasks.
    """
    precedence_mask = nodes.row_of.shape[0] - 1
    for workload in range(first, last):
        shape, start = queue.shape[workload], queue.start[workload]
        min_tasks, task_shape = queue.min_tasks[workload], queue.task_shape[workload]
        limit, spread = queue.limit[workload], queue.spread[workload] != 0
        limited = limit > 0 or spread
        own_first, own_last = queue.own_start[workload], queue.own_start[workload + 1]
        if limited:
            for at in range(own_first, own_last):
                nodes.own_tasks[queue.own_rows[at]] = queue.own_counts[at]
                log_change(nodes, queue.own_rows[at])
        plain = shapes.fields[shape, FIRST_TERM] == shapes.fields[shape, LAST_TERM] and not limited
        found = np.int32(0)
        count = queue.tasks[workload]
        tasks_at_once = count if task_shape >= 0 else np.int32(1)
        results.feasible[workload] = 0
        if shapes.profile[EXPECTED_FILL] > 0:
            begin_workload(nodes, shapes.fill, shapes.fields[shape, FILL_POOL])
        while found < count:
            if plain and known_to_fail(shapes, shape):
                cache.statistics[DOMINATED] += 1
                break
            key, feasible = pick(nodes, shapes, counters, partitions, cache, shape, limit, spread, plugin)
            if found == 0:
                results.feasible[workload] = feasible
            if key == INFEASIBLE:
                # Placements that will be undone prove nothing.
                if plain and (found == 0 or found >= min_tasks):
                    remember_failure(shapes, shape)
                break
            if (
                found == 0
                and min_tasks > 1
                and task_shape < 0
                and not has_capacity_for(nodes, shapes, shape, min_tasks, limit)
            ):
                break
            row = nodes.row_of[key & precedence_mask]
            for _ in range(tasks_at_once):
                results.keys[start + found] = key
                found += 1
            if limited:
                nodes.own_tasks[row] += 1
            commit(nodes, shapes, counters, task_shape if task_shape >= 0 else shape, row, tasks_at_once)
            if shapes.fields[shape, WHOLE_DEVICES] + shapes.fields[shape, DEVICE_SHARE] > 0:
                given = choose_devices(nodes, shapes, shape, row)
                move_devices(nodes, shapes, shape, row, given, 1)
                results.devices[start + found - 1] = given
        results.found[workload] = found
        if limited:
            for at in range(own_first, own_last):
                nodes.own_tasks[queue.own_rows[at]] = 0
                log_change(nodes, queue.own_rows[at])
            for at in range(found):
                row = nodes.row_of[results.keys[start + at] & precedence_mask]
                nodes.own_tasks[row] = 0
                log_change(nodes, row)
        if found < min_tasks:
            for at in range(found - 1, -1, -1):
                row = nodes.row_of[results.keys[start + at] & precedence_mask]
                commit(nodes, shapes, counters, shape, row, -1)
                if results.devices[start + at]:
                    move_devices(nodes, shapes, shape, row, results.devices[start + at], -1)
        if stop and found < count:
            return workload + 1
    return last


@merged
def pick(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    cache: KeyCache,
    shape: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> tuple[Number, Number]:
    """Return the best key for a task and the number of feasible rows: cached if few rows changed, else by a scan."""
    fields = shapes.fields
    mode = shapes.profile[MODE]
    rows, head = cache.scratch.shape[0], nodes.head[0]
    entry, gap = fields[shape, ENTRY], head - fields[shape, USED]
    fields[shape, USED] = head
    recent = gap * ROW_COST * 2 <= rows
    near = entry >= 0 and (head - cache.position[entry]) * ROW_COST <= rows
    if shapes.profile[EXPECTED_FILL] > 0:
        changes, unchanged = begin_scores(nodes, shapes, shape)
        near = near and cache.price_changes[entry] == changes
        recent = recent and unchanged
    cached = near or recent or mode in (ALWAYS_REFRESH, ALWAYS_REBUILD)
    if (cached and mode != ALWAYS_SCAN) or shapes.profile[NORMALISED]:
        if entry < 0:
            entry = new_entry(shapes, cache, shape)
        cache.used[entry] = head
        refresh_entry(nodes, shapes, counters, partitions, cache, shape, entry, limit, spread, plugin)
        return pick_from_entry(shapes, counters, partitions, cache, shape, entry)
    cache.statistics[SCANS] += 1
    return pick_by_scan(nodes, shapes, counters, partitions, cache, shape, limit, spread, plugin)


@inlined
def new_entry(shapes: Shapes, cache: KeyCache, shape: Number) -> Number:
    """Return a cache entry for a shape that has none: of the next eight, the least recently used one."""
    fields = shapes.fields
    total = cache.position.shape[0]
    chosen = cache.clock_hand[0] % total
    for step in range(8):
        candidate = (cache.clock_hand[0] + step) % total
        if cache.used[candidate] < cache.used[chosen]:
            chosen = candidate
    cache.clock_hand[0] = (cache.clock_hand[0] + 1) % total
    if cache.shape[chosen] >= 0:
        fields[cache.shape[chosen], ENTRY] = -1
    cache.shape[chosen] = shape
    cache.position[chosen] = NEVER
    cache.used[chosen] = NEVER
    fields[shape, ENTRY] = chosen
    return chosen


@merged
def refresh_entry(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    cache: KeyCache,
    shape: Number,
    entry: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> None:
    """Score the rows again that changed since the cache entry was current."""
    fields = shapes.fields
    partition, head = fields[shape, PARTITION], nodes.head[0]
    mode = shapes.profile[MODE]
    behind = head - cache.position[entry]
    stale = behind > nodes.change_log.shape[0] if mode == ALWAYS_REFRESH else behind * ROW_COST > cache.scratch.shape[0]
    stale |= mode == ALWAYS_REBUILD
    if shapes.profile[EXPECTED_FILL] > 0:
        stale |= cache.price_changes[entry] != shapes.fill.prices[fields[shape, FILL_POOL], CHANGES]
    if fields[shape, HOST_TERMS] > 0:
        number = 0
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                stale |= cache.cluster_wide_counts[entry, number] != cluster_wide_count(counters, shapes, shape, term)
                number += 1
    if stale:
        rebuild_entry(nodes, shapes, counters, partitions, cache, shape, entry, limit, spread, plugin)
        cache.statistics[REBUILDS] += 1
        return
    tree = cache.tree[entry]
    newest = nodes.change_log.shape[0] - 1
    grouped = fields[shape, DOMAIN_TERMS] > 0
    for change in range(cache.position[entry], head):
        row = nodes.change_log[change & newest]
        if nodes.last_change[row] == change:
            start, group = np.int64(0), np.int64(0)
            leaf = np.int64(cache.scratch.shape[0] + row)
            if grouped:
                leaf = np.int64(partitions.leaf[partition, row])
                if leaf < 0:
                    continue
                group = np.int64(partitions.group[partition, row])
                start = np.int64(partitions.start[partition, group])
            key = score_row(nodes, shapes, counters, cache, shape, row, limit, spread, plugin)
            before = tree[leaf]
            if before != key:
                came = np.int32(key != INFEASIBLE) - np.int32(before != INFEASIBLE)
                cache.feasible[entry, group] += came
                if shapes.profile[NORMALISED]:
                    for kind in range(2):
                        cache.level_counts[entry, kind, shapes.levels[kind, fields[shape, CLASS], row]] += came
                set_leaf(tree, start, leaf - start, key)
            cache.statistics[REFRESHED_ROWS] += 1
    cache.position[entry] = head
    if shapes.profile[NORMALISED] and (
        highest_level(cache, entry, 0) != cache.highest_levels[entry, 0]
        or highest_level(cache, entry, 1) != cache.highest_levels[entry, 1]
    ):
        rebuild_entry(nodes, shapes, counters, partitions, cache, shape, entry, limit, spread, plugin)
        cache.statistics[REBUILDS] += 1


@inlined
def set_leaf(tree: Int64s, start: Number, leaf: Number, key: Number) -> None:
    """Set leaf `leaf` of the tree at `start`, and its ancestors as far as they change."""
    tree[start + leaf] = key
    node = leaf >> 1
    while node >= 1:
        best = max(tree[start + 2 * node], tree[start + 2 * node + 1])
        if tree[start + node] == best:
            break
        tree[start + node] = best
        node >>= 1


@compiled
def rebuild_entry(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    cache: KeyCache,
    shape: Number,
    entry: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> None:
    """Score all rows into a cache entry."""
    fields, scratch = shapes.fields, cache.scratch
    partition = fields[shape, PARTITION]
    tree = cache.tree[entry]
    score_all(nodes, shapes, counters, shape, limit, spread, scratch, plugin)
    if shapes.profile[NORMALISED]:
        normalise(nodes, shapes, cache, shape, entry)
    if fields[shape, DOMAIN_TERMS] == 0:
        rows = scratch.shape[0]
        feasible = 0
        for row in range(rows):
            tree[rows + row] = scratch[row]
            feasible += scratch[row] != INFEASIBLE
        cache.feasible[entry, 0] = feasible
        half = rows >> 1
        while half > 0:
            for node in range(half, 2 * half):
                tree[node] = max(tree[2 * node], tree[2 * node + 1])
            half >>= 1
    else:
        for group in range(partitions.groups[partition]):
            cache.feasible[entry, group] = 0
        for row in range(scratch.shape[0]):
            leaf = partitions.leaf[partition, row]
            if leaf >= 0:
                tree[leaf] = scratch[row]
                cache.feasible[entry, partitions.group[partition, row]] += scratch[row] != INFEASIBLE
        for group in range(partitions.groups[partition]):
            start = partitions.start[partition, group]
            for node in range(partitions.size[partition, group] - 1, 0, -1):
                tree[start + node] = max(tree[start + 2 * node], tree[start + 2 * node + 1])
    number = 0
    if fields[shape, HOST_TERMS] > 0:
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                cache.cluster_wide_counts[entry, number] = cluster_wide_count(counters, shapes, shape, term)
                number += 1
    cache.position[entry] = nodes.head[0]
    cache.price_changes[entry] = shapes.fill.prices[fields[shape, FILL_POOL], CHANGES]


@compiled
def normalise(nodes: Nodes, shapes: Shapes, cache: KeyCache, shape: Number, entry: Number) -> None:
    """Add the scores relative to the highest among the feasible rows of `cache.scratch`."""
    keys, of_class = cache.scratch, shapes.fields[shape, CLASS]
    for kind in range(2):
        for level in range(LEVELS):
            cache.level_counts[entry, kind, level] = 0
        for row in range(keys.shape[0]):
            cache.level_counts[entry, kind, shapes.levels[kind, of_class, row]] += np.int32(keys[row] != INFEASIBLE)
        cache.highest_levels[entry, kind] = highest_level(cache, entry, kind)
    for row in range(keys.shape[0]):
        if keys[row] != INFEASIBLE:
            keys[row] += normalised_score(nodes, shapes, cache, shape, row, entry) << shapes.profile[KEY_SHIFT]


@inlined
def highest_level(cache: KeyCache, entry: Number, kind: Number) -> Number:
    for level in range(LEVELS - 1, -1, -1):
        if cache.level_counts[entry, kind, level] > 0:
            return np.int32(level)
    return np.int32(0)


@inlined
def pick_from_entry(
    shapes: Shapes, counters: Counters, partitions: Partitions, cache: KeyCache, shape: Number, entry: Number
) -> tuple[Number, Number]:
    """Return the best key of a current cache entry, and the number of feasible rows."""
    fields = shapes.fields
    tree = cache.tree[entry]
    if fields[shape, DOMAIN_TERMS] == 0:
        return tree[1], cache.feasible[entry, 0]
    add_domain_terms(shapes, counters, partitions, cache, shape)
    partition = fields[shape, PARTITION]
    best, feasible = np.int64(INFEASIBLE), np.int32(0)
    for group in range(partitions.groups[partition]):
        root, added = tree[partitions.start[partition, group] + 1], cache.group_keys[group]
        if root != INFEASIBLE and added != INFEASIBLE:
            best = max(best, root + added)
            feasible += cache.feasible[entry, group]
    return best, feasible


@inlined
def add_domain_terms(
    shapes: Shapes, counters: Counters, partitions: Partitions, cache: KeyCache, shape: Number
) -> None:
    """Compute what the terms over domains add to the keys of each group, into `cache.group_keys`."""
    fields, keys = shapes.fields, cache.group_keys
    partition = fields[shape, PARTITION]
    groups = partitions.groups[partition]
    for group in range(groups):
        keys[group] = 0
    for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
        if not shapes.terms[term, HOST]:
            number = cluster_wide_count(counters, shapes, shape, term)
            view, level = shapes.terms[term, VIEW], shapes.terms[term, LEVEL]
            for group in range(groups):
                if keys[group] != INFEASIBLE:
                    code = partitions.code[partition, level, group]
                    count = np.int64(counters.domain[view, max(code, 0)])
                    added = kernel_term_key(shapes.terms, term, code < 0, count, number, shapes.profile[KEY_SHIFT])
                    keys[group] = keys[group] + added if added != INFEASIBLE else INFEASIBLE


@compiled
def pick_by_scan(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    cache: KeyCache,
    shape: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> tuple[Number, Number]:
    """Return the best key and the number of feasible rows by scoring all rows, without the cache."""
    keys, rows = cache.scratch, nodes.used_rows[0]
    score_all(nodes, shapes, counters, shape, limit, spread, keys, plugin)
    fields = shapes.fields
    if fields[shape, DOMAIN_TERMS] > 0:
        add_domain_terms(shapes, counters, partitions, cache, shape)
        partition = fields[shape, PARTITION]
        for row in range(rows):
            if keys[row] != INFEASIBLE:
                added = cache.group_keys[partitions.group[partition, row]]
                keys[row] = keys[row] + added if added != INFEASIBLE else INFEASIBLE
    best = np.int64(INFEASIBLE)
    feasible = np.int64(0)
    for row in range(rows):
        best = max(best, keys[row])
        feasible += np.int64(keys[row] != INFEASIBLE)
    return best, np.int32(feasible)


@inlined
def commit(nodes: Nodes, shapes: Shapes, counters: Counters, shape: Number, row: Number, sign: Number) -> None:
    """Count a task of the shape on a row (1), or remove it (-1)."""
    tasks = nodes.free_by_row.shape[1] - 1
    for slot in range(tasks + 1):
        amount = sign * shapes.take[shape, slot]
        left = nodes.free_by_row[row, slot] - amount
        nodes.free_by_row[row, slot] = left
        nodes.free_by_slot[slot, row] = left
        if slot < tasks:
            nodes.taken[slot, row] += amount
    nodes.tasks[row] += sign
    nodes.uncounted[0, row] += sign * shapes.uncounted[shape, 0]
    nodes.uncounted[1, row] += sign * shapes.uncounted[shape, 1]
    labels = shapes.fields[shape, LABELS]
    for entry in range(shapes.adds_start[labels], shapes.adds_start[labels + 1]):
        counter = shapes.adds[entry]
        before = counters.rows[counter, row]
        counters.rows[counter, row] = before + sign
        for at in range(counters.views_start[counter], counters.views_start[counter + 1]):
            view = counters.views[at]
            level = counters.view_level[view]
            if counters.masks[counters.view_mask[view], row] and counters.codes[level, row] >= 0:
                counters.total[view] += sign
                if counters.histogram.shape[1] > 1 and counters.lowest[view] >= 0:
                    top = counters.histogram.shape[1] - 1
                    counters.histogram[view, min(before, top)] -= 1
                    counters.histogram[view, min(before + sign, top)] += 1
                    least = min(counters.lowest[view], np.int64(before + sign))
                    while least < top and counters.histogram[view, least] == 0:
                        least += 1
                    counters.lowest[view] = least
                if counters.lowest[view] < 0:
                    counters.domain[view, counters.codes[level, row]] += sign
    log_change(nodes, row)


@inlined
def log_change(nodes: Nodes, row: Number) -> None:
    head = nodes.head[0]
    nodes.change_log[head & (nodes.change_log.shape[0] - 1)] = row
    nodes.last_change[row] = head
    nodes.head[0] = head + 1
    nodes.fragmentation[row] = UNKNOWN
    nodes.fill[ROW_VALUE, row] = UNKNOWN


@inlined
def choose_devices(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Return the devices for a task that was just counted on a row, as bits: the tightest fit, lowest first."""
    wholes, share = shapes.fields[shape, WHOLE_DEVICES], shapes.fields[shape, DEVICE_SHARE]
    if share > 0 and shapes.profile[FRAGMENTATION] > 0:
        for device in range(nodes.device_scratch.shape[0]):
            nodes.device_scratch[device] = max(nodes.devices[row, device], 0)
        _, chosen = lowest_fragmentation(
            nodes, shapes, shape, row, nodes.free_by_row[row, 0], nodes.free_by_row[row, 1]
        )
        return np.int64(1) << chosen
    if share > 0 and shapes.profile[EXPECTED_FILL] > 0:
        _, chosen = best_device(nodes, shapes, shape, row, max(nodes.free_by_row[row, 0], 0))
        return np.int64(1) << chosen
    given, tightest = np.int64(0), np.int64(1 << 62)
    for device in range(nodes.devices.shape[1]):
        left = nodes.devices[row, device]
        if share > 0 and share <= left < tightest:
            given, tightest = np.int64(1) << device, left
        elif wholes > 0 and left >= WHOLE:
            given |= np.int64(1) << device
            wholes -= 1
    return given


@inlined
def move_devices(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, given: Number, sign: Number) -> None:
    """Take devices of a row for a task of the shape (1), or give them back (-1)."""
    share = shapes.fields[shape, DEVICE_SHARE]
    amount = sign * (share if share > 0 else WHOLE)
    free, largest = np.int64(0), np.int64(0)
    for device in range(nodes.devices.shape[1]):
        if given >> device & 1:
            nodes.devices[row, device] -= amount
        free += nodes.devices[row, device] >= WHOLE
        largest = max(largest, nodes.devices[row, device])
    nodes.free_devices[row], nodes.largest_share[row] = free, largest


@inlined
def known_to_fail(shapes: Shapes, shape: Number) -> bool:
    """Return whether the shape, or one that requests no more of any slot, fits on no node."""
    if shapes.fields[shape, KNOWN_TO_FAIL] == shapes.releases[0]:
        return True
    if shapes.fields[shape, ENTRY] >= 0:
        return False
    kind = shapes.fields[shape, CLASS]
    for number in range(shapes.failed_count[kind]):
        larger = True
        for slot in range(shapes.need.shape[1]):
            larger &= shapes.failed_requests[kind, number, slot] <= shapes.need[shape, slot]
        if larger:
            shapes.fields[shape, KNOWN_TO_FAIL] = shapes.releases[0]
            return True
    return False


@inlined
def remember_failure(shapes: Shapes, shape: Number) -> None:
    shapes.fields[shape, KNOWN_TO_FAIL] = shapes.releases[0]
    kind = shapes.fields[shape, CLASS]
    count = np.int32(0)
    for number in range(shapes.failed_count[kind]):
        larger = True
        for slot in range(shapes.need.shape[1]):
            larger &= shapes.failed_requests[kind, number, slot] >= shapes.need[shape, slot]
        if not larger:
            for slot in range(shapes.need.shape[1]):
                shapes.failed_requests[kind, count, slot] = shapes.failed_requests[kind, number, slot]
            count += 1
    if count < MAX_FAILED_REQUESTS:
        for slot in range(shapes.need.shape[1]):
            shapes.failed_requests[kind, count, slot] = shapes.need[shape, slot]
        count += 1
    shapes.failed_count[kind] = count


@compiled
def has_capacity_for(nodes: Nodes, shapes: Shapes, shape: Number, tasks: Number, limit: Number) -> bool:
    """Return whether the free amounts of all feasible rows suffice for these tasks. Other terms may still forbid it.

    The number that is too many for a shape is remembered until capacity is released.
    """
    fields = shapes.fields
    if (
        limit == 0
        and fields[shape, NO_CAPACITY_SINCE] == shapes.releases[0]
        and tasks >= fields[shape, NO_CAPACITY_FOR]
    ):
        return False
    static, need = shapes.static[fields[shape, CLASS]], shapes.need[shape]
    total = np.int64(0)
    for row in range(nodes.used_rows[0]):
        if static[row] >= 0:
            times = np.int64(tasks - total)
            for slot in range(need.shape[0]):
                free = nodes.free_by_row[row, slot]
                if free < need[slot]:
                    times = np.int64(0)
                    break
                if need[slot] > 0:
                    times = min(times, free // need[slot])
            total += max(min(times, limit - nodes.own_tasks[row]), 0) if limit > 0 else times
            if total >= tasks:
                return True
    if limit == 0:
        fields[shape, NO_CAPACITY_SINCE] = shapes.releases[0]
        fields[shape, NO_CAPACITY_FOR] = total + 1
    return False
