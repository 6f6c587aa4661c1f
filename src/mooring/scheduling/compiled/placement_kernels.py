"""Kernels that place a queue of workloads in one call, over arrays that the engine owns."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.compiled.expected_fill.arrays import ROW_VALUE
from mooring.scheduling.compiled.expected_fill.scores import begin_workload, best_device
from mooring.scheduling.compiled.kernel_cache import compiled, inlined
from mooring.scheduling.compiled.key_cache_kernels import pick
from mooring.scheduling.compiled.layout import (
    CLASS,
    DEVICE_SHARE,
    DOMINATED,
    ENTRY,
    EXPECTED_FILL,
    FILL_POOL,
    FIRST_TERM,
    FRAGMENTATION,
    INFEASIBLE,
    KNOWN_TO_FAIL,
    LABELS,
    LAST_TERM,
    MAX_FAILED_REQUESTS,
    NO_CAPACITY_FOR,
    NO_CAPACITY_SINCE,
    UNKNOWN,
    WHOLE,
    WHOLE_DEVICES,
    Counters,
    KeyCache,
    Nodes,
    Number,
    Partitions,
    Queue,
    Results,
    RowScore,
    Shapes,
)
from mooring.scheduling.compiled.scoring_kernels import lowest_fragmentation


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
