"""New arrays for the kernels, sized for a cluster."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout
from mooring.scheduling.compiled.expected_fill.arrays import ROW_FIELDS, FillArrays
from mooring.scheduling.compiled.key_layout import KeyLayout
from mooring.scheduling.compiled.lowering import LoweredProfile
from mooring.scheduling.compiled.request_tables import RequestTables

_Kind = TypeVar("_Kind", bound=np.generic)

_KEY_CACHE_BYTES = 1 << 28
_MIN_ENTRIES, _MAX_ENTRIES = 16, 1024
_INITIAL_SHAPES, _INITIAL_CLASSES = 64, 4
_MAX_HOST_TERMS = 64


def new_nodes(cluster: Cluster, devices: NDArray[np.int64]) -> layout.Nodes:
    """Return the arrays of nodes. The taken amounts, the tasks and the devices are the cluster's own arrays."""
    capacity, slots = cluster.capacity, len(cluster.allocatable)
    return layout.Nodes(
        free_by_row=np.zeros((capacity, slots + 1), dtype=np.int64),
        free_by_slot=np.zeros((slots + 1, capacity), dtype=np.int64),
        inverse_by_row=np.zeros((capacity, 2), dtype=np.float64),
        inverse_by_slot=np.zeros((2, capacity), dtype=np.float64),
        taken=cluster.taken,
        tasks=cluster.tasks,
        uncounted=cluster.uncounted,
        precedence=np.zeros(capacity, dtype=np.int64),
        used_rows=np.zeros(1, dtype=np.int64),
        row_of=np.zeros(capacity, dtype=np.int32),
        own_tasks=np.zeros(capacity, dtype=np.int32),
        change_log=np.zeros(max(capacity, 64), dtype=np.int32),
        last_change=np.full(capacity, -1, dtype=np.int64),
        head=np.zeros(1, dtype=np.int64),
        devices=devices,
        free_devices=np.zeros(capacity, dtype=np.int64),
        largest_share=np.zeros(capacity, dtype=np.int64),
        models=np.zeros(capacity, dtype=np.int64),
        fragmentation=np.full(capacity, layout.UNKNOWN, dtype=np.int64),
        device_scratch=np.zeros(devices.shape[1], dtype=np.int64),
        fill=np.zeros((ROW_FIELDS, capacity), dtype=np.int32),
    )


def new_shapes(
    cluster: Cluster, lowered: LoweredProfile, keys: KeyLayout, tables: RequestTables, fill: FillArrays, mode: int
) -> layout.Shapes:
    """Return the arrays of shapes, with the profile and without any shape."""
    capacity, slots = cluster.capacity, len(cluster.allocatable)
    return layout.Shapes(
        fields=np.zeros((_INITIAL_SHAPES, layout.SHAPE_FIELDS), dtype=np.int64),
        need=np.zeros((_INITIAL_SHAPES, slots + 1), dtype=np.int64),
        take=np.zeros((_INITIAL_SHAPES, slots + 1), dtype=np.int64),
        uncounted=np.zeros((_INITIAL_SHAPES, 2), dtype=np.int64),
        static=np.zeros((_INITIAL_CLASSES, capacity), dtype=np.int64),
        terms=np.zeros((1, layout.TERM_FIELDS), dtype=np.int64),
        adds_start=np.zeros(2, dtype=np.int32),
        adds=np.zeros(1, dtype=np.int32),
        profile=_profile(lowered, keys, mode),
        failed_requests=np.zeros((_INITIAL_CLASSES, layout.MAX_FAILED_REQUESTS, slots + 1), dtype=np.int64),
        failed_count=np.zeros(_INITIAL_CLASSES, dtype=np.int32),
        levels=np.zeros((2, _INITIAL_CLASSES, capacity if lowered.normalised else 1), dtype=np.uint8),
        values=np.zeros((2, _INITIAL_CLASSES, layout.LEVELS), dtype=np.int64),
        releases=np.ones(1, dtype=np.int64),
        request_tables=tables.tables,
        thresholds=tables.thresholds,
        typical=tables.typical,
        allowed=tables.allowed,
        fill=fill,
    )


def with_more_shapes(shapes: layout.Shapes) -> layout.Shapes:
    """Return the arrays with space for twice as many shapes."""
    return shapes._replace(
        fields=_doubled(shapes.fields),
        need=_doubled(shapes.need),
        take=_doubled(shapes.take),
        uncounted=_doubled(shapes.uncounted),
    )


def with_more_classes(shapes: layout.Shapes) -> layout.Shapes:
    """Return the arrays with space for twice as many classes of static answers."""
    return shapes._replace(
        static=_doubled(shapes.static),
        failed_requests=_doubled(shapes.failed_requests),
        failed_count=_doubled(shapes.failed_count),
        levels=_doubled(shapes.levels, axis=1),
        values=_doubled(shapes.values, axis=1),
    )


def new_key_cache(capacity: int, groups: int, tree_length: int) -> layout.KeyCache:
    """Return a cache with as many entries as the memory allows; untouched pages cost nothing.

    The length of a tree is no power of two, so that the keys of one row are in different sets of the processor's cache.
    """
    entries = int(min(max(_KEY_CACHE_BYTES // (tree_length * 8), _MIN_ENTRIES), _MAX_ENTRIES))
    return layout.KeyCache(
        tree=np.empty((entries, tree_length), dtype=np.int64),
        roots=np.zeros((entries, groups), dtype=np.int64),
        position=np.full(entries, layout.NEVER, dtype=np.int64),
        used=np.full(entries, layout.NEVER, dtype=np.int64),
        shape=np.full(entries, -1, dtype=np.int32),
        feasible=np.zeros((entries, groups), dtype=np.int32),
        cluster_wide_counts=np.zeros((entries, _MAX_HOST_TERMS), dtype=np.int64),
        level_counts=np.zeros((entries, 2, layout.LEVELS), dtype=np.int32),
        price_changes=np.zeros(entries, dtype=np.int64),
        highest_levels=np.zeros((entries, 2), dtype=np.int32),
        scratch=np.full(capacity, layout.INFEASIBLE, dtype=np.int64),
        changed_rows=np.zeros(capacity + 1, dtype=np.int32),
        changed_keys=np.zeros(capacity + 1, dtype=np.int64),
        group_keys=np.zeros(groups, dtype=np.int64),
        clock_hand=np.zeros(1, dtype=np.int64),
        statistics=np.zeros(4, dtype=np.int64),
    )


def log_changes(nodes: layout.Nodes, rows: Rows) -> None:
    """Log rows as changed, from outside the kernels."""
    head = int(nodes.head[0])
    positions = head + np.arange(len(rows))
    nodes.change_log[positions & (len(nodes.change_log) - 1)] = rows
    nodes.last_change[rows] = positions
    nodes.head[0] = head + len(rows)


def _profile(lowered: LoweredProfile, keys: KeyLayout, mode: int) -> NDArray[np.int64]:
    profile = np.zeros(layout.PROFILE_FIELDS, dtype=np.int64)
    profile[layout.LEAST_ALLOCATED] = lowered.least_allocated
    profile[layout.LEAST_ALLOCATED_CPU], profile[layout.LEAST_ALLOCATED_MEMORY] = lowered.least_allocated_weights
    profile[layout.MOST_ALLOCATED] = lowered.most_allocated
    profile[layout.MOST_ALLOCATED_CPU], profile[layout.MOST_ALLOCATED_MEMORY] = lowered.most_allocated_weights
    profile[layout.BALANCED] = lowered.balanced
    profile[layout.UNUSED_CAPABILITY] = lowered.unused_capability
    profile[layout.PLUGIN] = lowered.plugin
    profile[layout.FRAGMENTATION] = lowered.fragmentation
    profile[layout.EXPECTED_FILL] = lowered.expected_fill
    cpu_weight, memory_weight = lowered.least_allocated_weights
    evenly = not lowered.most_allocated and (not lowered.least_allocated or cpu_weight == memory_weight == 1)
    others = lowered.unused_capability or lowered.plugin or lowered.fragmentation or lowered.expected_fill
    profile[layout.EVENLY_WEIGHTED] = evenly
    profile[layout.RESOURCES_ONLY] = evenly and not others and lowered.normalised is None
    if lowered.normalised is not None:
        profile[layout.NORMALISED] = 1
        profile[layout.POINTS_LEAST_ALLOCATED] = lowered.normalised.least_allocated
        profile[layout.POINTS_BALANCED] = lowered.normalised.balanced
    profile[layout.KEY_SHIFT] = keys.precedence_bits
    profile[layout.OWN_SHIFT] = keys.own_shift
    profile[layout.MODE] = mode
    return profile


def _doubled(array: NDArray[_Kind], *, axis: int = 0) -> NDArray[_Kind]:
    return np.concatenate((array, np.zeros_like(array)), axis=axis)
