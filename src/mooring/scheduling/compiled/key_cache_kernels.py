"""Kernels that pick the best row for a task: from the keys in the cache, or by a scan of all rows.

Per shape a cache entry keeps one key per row as the leaves of trees, one tree per group of rows that share all domains
which the shape's terms name. Every change of a row goes to a log, and an entry scores only the rows again that were
logged since it was used. Terms over domains are added per group when a row is picked, so that a change of a domain's
count never makes its rows stale.
"""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import CHANGES
from mooring.scheduling.compiled.expected_fill.scores import begin_scores
from mooring.scheduling.compiled.kernel_cache import compiled, inlined, merged
from mooring.scheduling.compiled.key_trees import TOP, build_tree, update_tree
from mooring.scheduling.compiled.layout import (
    ALWAYS_REBUILD,
    ALWAYS_REFRESH,
    ALWAYS_SCAN,
    CLASS,
    DOMAIN_TERMS,
    ENTRY,
    EXPECTED_FILL,
    FILL_POOL,
    FIRST_TERM,
    HOST,
    HOST_TERMS,
    INFEASIBLE,
    KEY_SHIFT,
    LAST_TERM,
    LEVEL,
    LEVELS,
    MODE,
    NEVER,
    NORMALISED,
    PARTITION,
    REBUILDS,
    REFRESHED_ROWS,
    ROW_COST,
    SCANS,
    USED,
    VIEW,
    Counters,
    KeyCache,
    Nodes,
    Number,
    Partitions,
    RowScore,
    Shapes,
)
from mooring.scheduling.compiled.scoring_kernels import (
    cluster_wide_count,
    depends_on_resources_only,
    highest_key,
    kernel_term_key,
    normalised_score,
    requests_first_slots_only,
    score_all,
    score_rows,
)


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
    if (
        fields[shape, DOMAIN_TERMS] == 0
        and depends_on_resources_only(shapes, shape, limit, spread)
        and requests_first_slots_only(shapes, shape)
    ):
        return highest_key(
            nodes.free_by_slot,
            nodes.inverse_by_slot,
            shapes.static[fields[shape, CLASS]],
            shapes.need[shape],
            shapes.take[shape],
            shapes.profile,
            nodes.used_rows[0],
        )
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
    tree, changed = cache.tree[entry], cache.changed_rows
    newest = nodes.change_log.shape[0] - 1
    grouped = fields[shape, DOMAIN_TERMS] > 0
    count: Number = np.int64(0)
    for change in range(cache.position[entry], head):
        row = nodes.change_log[change & newest]
        changed[count] = row
        count += np.int64(nodes.last_change[row] == change and not (grouped and partitions.leaf[partition, row] < 0))
    score_rows(nodes, shapes, counters, cache, shape, entry, limit, spread, plugin, count)
    cache.statistics[REFRESHED_ROWS] += count
    # From here on, `changed` holds the rows that are left to look at above the leaves.
    scored, count = count, np.int64(0)
    for at in range(scored):
        row, key = changed[at], cache.changed_keys[at]
        leaf, group, leaves = np.int64(row), np.int64(0), np.int64(cache.scratch.shape[0])
        if grouped:
            leaf, group = np.int64(partitions.leaf[partition, row]), np.int64(partitions.group[partition, row])
            leaves = np.int64(partitions.size[partition, group])
        before = tree[leaf]
        tree[leaf] = key
        came = np.int32(key != INFEASIBLE) - np.int32(before != INFEASIBLE)
        cache.feasible[entry, group] += came
        if shapes.profile[NORMALISED]:
            for kind in range(2):
                cache.level_counts[entry, kind, shapes.levels[kind, fields[shape, CLASS], row]] += came
        changed[count] = row
        # In a tree of one level, a key that neither was nor becomes the highest changes nothing else.
        root = cache.roots[entry, group]
        count += np.int64(key != before and (leaves > TOP or before == root or key > root))
    cache.position[entry] = head
    first: Number = np.int64(0)
    while first < count:
        # Without groups, all changes are in one tree; with them, runs of changes in the same tree are rare.
        last, start, leaves, group = count, np.int64(0), np.int64(cache.scratch.shape[0]), np.int64(0)
        if grouped:
            row, last = changed[first], first + 1
            group = np.int64(partitions.group[partition, row])
            start, leaves = np.int64(partitions.start[partition, group]), np.int64(partitions.size[partition, group])
            changed[first] = partitions.leaf[partition, row] - start
        cache.roots[entry, group] = update_tree(tree, start, leaves, changed[first:], last - first)
        first = last
    if shapes.profile[NORMALISED] and (
        highest_level(cache, entry, 0) != cache.highest_levels[entry, 0]
        or highest_level(cache, entry, 1) != cache.highest_levels[entry, 1]
    ):
        rebuild_entry(nodes, shapes, counters, partitions, cache, shape, entry, limit, spread, plugin)
        cache.statistics[REBUILDS] += 1


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
    for group in range(partitions.groups[partition]):
        cache.feasible[entry, group] = 0
    if fields[shape, DOMAIN_TERMS] == 0:
        feasible = np.int64(0)
        for row in range(scratch.shape[0]):
            tree[row] = scratch[row]
            feasible += np.int64(scratch[row] != INFEASIBLE)
        cache.feasible[entry, 0] = feasible
        cache.roots[entry, 0] = build_tree(tree, np.int64(0), np.int64(scratch.shape[0]))
    else:
        for row in range(scratch.shape[0]):
            leaf = partitions.leaf[partition, row]
            if leaf >= 0:
                tree[leaf] = scratch[row]
                cache.feasible[entry, partitions.group[partition, row]] += scratch[row] != INFEASIBLE
        for group in range(partitions.groups[partition]):
            start, leaves = partitions.start[partition, group], partitions.size[partition, group]
            cache.roots[entry, group] = build_tree(tree, np.int64(start), np.int64(leaves))
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
    if fields[shape, DOMAIN_TERMS] == 0:
        return cache.roots[entry, 0], cache.feasible[entry, 0]
    add_domain_terms(shapes, counters, partitions, cache, shape)
    partition = fields[shape, PARTITION]
    best, feasible = np.int64(INFEASIBLE), np.int32(0)
    for group in range(partitions.groups[partition]):
        root, added = cache.roots[entry, group], cache.group_keys[group]
        possible = (root != INFEASIBLE) & (added != INFEASIBLE)
        best = max(best, root + added if possible else np.int64(INFEASIBLE))
        feasible += cache.feasible[entry, group] if possible else np.int32(0)
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
    fields = shapes.fields
    keys, rows = cache.scratch, nodes.used_rows[0]
    score_all(nodes, shapes, counters, shape, limit, spread, keys, plugin)
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
