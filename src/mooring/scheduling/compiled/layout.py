"""The arrays that the engine hands to the kernels: their fields, their axes and the constants in them.

The kernels take arrays of fixed types in named tuples. An axis is written in brackets: `[row, slot]`. A *row* is a node
of the cluster's columns, a *shape* a row of `Shapes.fields`, an *entry* a shape's place in the key cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.decisions import SCORE_ONE
from mooring.model.resources import devices
from mooring.scheduling.compiled.expected_fill.arrays import FillArrays

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
RowScore: TypeAlias = Callable[[Int64s, Floats, Int64s, int], int]
Number: TypeAlias = Any
"""One number inside a kernel, where the compiler infers its type."""

ONE = 1_000_000
"""The scale of scores. A constant of this package, so that the hash of its sources covers it."""
WHOLE = 1000
"""A whole device; likewise."""
if (ONE, WHOLE) != (SCORE_ONE, devices.WHOLE):
    raise AssertionError("the kernels were written for another scale of scores or devices")

INFEASIBLE = -(1 << 62)
"""The key of a row that cannot take the task; below every other key."""
NOT_REQUESTED = -(1 << 63)
"""The need of a shape for a slot that it does not request: below every free amount."""
NEVER = -(1 << 40)
"""A position in the change log before every change."""
ROW_COST = 20
"""Scoring one logged row costs about as much as scanning this many."""
MAX_FAILED_REQUESTS = 16
"""Number of requests remembered per class that fit on no node."""
MAX_DEVICES = 62
"""Most devices of one node: a task's devices are the bits of one number."""
LEVELS = 8
"""Most distinct values of a score that is normalised by the highest among the feasible nodes."""
POINT = ONE // 100
UNKNOWN = -1
"""A row's fragmentation that has to be computed again."""

AUTOMATIC, ALWAYS_REFRESH, ALWAYS_REBUILD, ALWAYS_SCAN = range(4)
"""Modes of picking a row. All give the same decisions; tests force each of them."""

# Fields of a shape. WHOLE_DEVICES is the number of whole devices that it requests, DEVICE_SHARE the part of one device,
# FILL_PRICES the number of changes of the prices at its last use.
(
    CLASS,
    PARTITION,
    ENTRY,
    USED,
    FIRST_TERM,
    LAST_TERM,
    HOST_TERMS,
    DOMAIN_TERMS,
    LABELS,
    KNOWN_TO_FAIL,
    TAINTS,
    PREFERRED_NODES,
    NO_CAPACITY_SINCE,
    NO_CAPACITY_FOR,
    WHOLE_DEVICES,
    DEVICE_SHARE,
    REQUEST_TABLE,
    FILL_POOL,
    FILL_KIND,
    FILL_PRICES,
) = range(20)
SHAPE_FIELDS = 20

# Fields of a kernel term.
KIND, VIEW, HOST, LEVEL, COUNTER, LIMIT, SELF, BASE, MIN_DOMAINS, WEIGHT = range(10)
TERM_FIELDS = 10
SPREAD, AFFINITY, ANTI_AFFINITY, FEWER_TASKS, PREFERRED_TASKS = range(5)
"""Kinds of kernel terms. The first three filter. FEWER_TASKS scores `BASE * LIMIT // (LIMIT + count)` inside domains,
PREFERRED_TASKS scores BASE where the count is above 0 (LIMIT 1) or where it is 0 (LIMIT 0)."""

# Fields of the profile. EVENLY_WEIGHTED: free CPU and memory count alike, and used ones not at all. RESOURCES_ONLY: in
# addition, no other score of a row depends on what is placed there.
(
    LEAST_ALLOCATED,
    LEAST_ALLOCATED_CPU,
    LEAST_ALLOCATED_MEMORY,
    MOST_ALLOCATED,
    MOST_ALLOCATED_CPU,
    MOST_ALLOCATED_MEMORY,
    BALANCED,
    UNUSED_CAPABILITY,
    KEY_SHIFT,
    OWN_SHIFT,
    MODE,
    NORMALISED,
    POINTS_LEAST_ALLOCATED,
    POINTS_BALANCED,
    PLUGIN,
    FRAGMENTATION,
    EXPECTED_FILL,
    EVENLY_WEIGHTED,
    RESOURCES_ONLY,
) = range(19)
PROFILE_FIELDS = 19

# Fields of a request table, of a threshold in it (the requests that need the same device share), and of a request.
FIRST_THRESHOLD, LAST_THRESHOLD, TOTAL_WEIGHT = range(3)
SHARE_NEEDED, FIRST, LAST = range(3)
TYPICAL_CPU, TYPICAL_MEMORY, TYPICAL_DEVICES = range(3)

# Statistics.
REFRESHED_ROWS, REBUILDS, SCANS, DOMINATED = range(4)


class Nodes(NamedTuple):
    """Free amounts of the nodes, and the log of the rows whose answers changed.

    The last slot is the number of tasks that the node still takes.
    """

    free_by_row: Int64s
    """[row, slot]: for work on one row."""
    free_by_slot: Int64s
    """[slot, row]: the same, for scans."""
    inverse_by_row: Floats
    """[row, 0 for CPU or 1 for memory]: 1 / allocatable."""
    inverse_by_slot: Floats
    taken: Int64s
    tasks: Int64s
    uncounted: Int64s
    precedence: Int64s
    used_rows: Int64s
    """One more than the highest row that holds a node: the capacity may be nearly twice that."""
    row_of: Int32s
    """[precedence]"""
    own_tasks: Int32s
    """[row]: tasks of the workload that is being placed."""
    change_log: Int32s
    """A ring of rows that changed."""
    last_change: Int64s
    """[row]: its latest position in the log."""
    head: Int64s
    """The position of the next change."""
    devices: Int64s
    """[row, device]: free part of each."""
    free_devices: Int64s
    """[row]: number of devices that are wholly free."""
    largest_share: Int64s
    """[row]: the largest free part of one device."""
    models: Int64s
    """[row]: model of its devices."""
    fragmentation: Int64s
    """[row]: of its devices as they are, or UNKNOWN."""
    device_scratch: Int64s
    """[device]: free parts during a calculation about one row."""
    fill: Int32s
    """[field, row], for the expected fill: the value of the node or UNKNOWN, the number of its pool or -1, the class of
    its models, and the place by which prices charge it."""


class Shapes(NamedTuple):
    fields: Int64s
    """[shape, field]"""
    need: Int64s
    """[shape, slot]: amount that must be free, or NOT_REQUESTED."""
    take: Int64s
    """[shape, slot]: amount that a placement takes."""
    uncounted: Int64s
    """[shape, 0 for CPU or 1 for memory]: amount that a placement adds to what some scorers count."""
    static: Int64s
    """[class, row]: the key without the scores that placements change; negative if infeasible."""
    terms: Int64s
    """[kernel term, field]"""
    adds_start: Int32s
    adds: Int32s
    """Per class of labels, the counters that a task with these labels increments."""
    profile: Int64s
    failed_requests: Int64s
    """[class, number, slot]: needs that fitted on no node since the last release."""
    failed_count: Int32s
    """[class]"""
    levels: Bytes
    """[0 for soft taints or 1 for preferred nodes, class, row]: index of the row's raw score in `values`."""
    values: Int64s
    """[kind, class, level], ascending."""
    releases: Int64s
    """Incremented whenever capacity may have been released, which makes remembered failures void."""
    request_tables: Int64s
    thresholds: Int64s
    """Per request table the distinct device shares that its requests need, with the range of these requests."""
    typical: Int64s
    """[field, request]"""
    allowed: Int64s
    """[model, request]: weight of the request, 0 if it cannot use devices of the model."""
    fill: FillArrays


class Counters(NamedTuple):
    """Numbers of placed tasks. A view sums a counter over the domains of a level, over the rows in its mask."""

    rows: Int32s
    """[counter, row]"""
    views_start: Int32s
    views: Int32s
    """Per counter the views of it."""
    view_level: Int32s
    view_mask: Int32s
    domain: Int32s
    """[view, domain]: the counter summed over the domain's rows."""
    total: Int64s
    """[view]"""
    present: Bytes
    """[view, domain]: whether the domain has rows in the mask."""
    histogram: Int32s
    """[view, count]: number of rows with that count, for views with one row per domain."""
    lowest: Int64s
    """[view]: lowest count with a row, for these views; -1 for others."""
    masks: Bytes
    """[mask, row]: whether the row counts; mask 0 is all rows."""
    codes: Int32s
    """[level, row]: the domain of a row, -1 for none; level 0 is the row itself."""
    sizes: Int32s
    """[level]: number of domains."""
    domains: Int32s
    """[view]: number of domains present."""


class Partitions(NamedTuple):
    """Groups of rows that share the domains of all levels of a partition. Each group has its own tree."""

    groups: Int32s
    group: Int32s
    leaf: Int32s
    start: Int32s
    size: Int32s
    code: Int32s
    """[partition, level, group]"""


class KeyCache(NamedTuple):
    """The keys of all rows for recently used shapes, as the leaves of trees (`key_trees`)."""

    tree: Int64s
    """[entry, node]"""
    roots: Int64s
    """[entry, group]: the highest key in the group's tree."""
    position: Int64s
    """[entry]: position in the change log up to which the leaves are current."""
    used: Int64s
    """[entry]: position in the change log at the last use."""
    shape: Int32s
    """[entry], -1 for none."""
    feasible: Int32s
    """[entry, group]: number of feasible leaves."""
    cluster_wide_counts: Int64s
    """[entry, term]: the counts that terms on single rows depended on when the leaves were scored."""
    level_counts: Int32s
    """[entry, kind, level]: number of feasible leaves at the level."""
    price_changes: Int64s
    """[entry]: number of changes of the prices by which the leaves were scored."""
    highest_levels: Int32s
    """[entry, kind]: the highest level among the feasible leaves when they were scored."""
    scratch: Int64s
    """[row]: the keys of a scan; INFEASIBLE from `used_rows` on."""
    changed_rows: Int32s
    changed_keys: Int64s
    """[number]: the rows that changed since the last use of an entry, and their keys; one more than there are rows."""
    group_keys: Int64s
    """[group]: what the terms over domains add to the keys of a group."""
    clock_hand: Int64s
    statistics: Int64s


class Queue(NamedTuple):
    """The workloads to place, in order."""

    shape: Int32s
    tasks: Int32s
    min_tasks: Int32s
    """Fewer placements than this are undone."""
    task_shape: Int32s
    """The shape of one task where `shape` is that of all tasks on one node; -1 where tasks are placed one by one."""
    limit: Int32s
    """Most tasks of the workload per node, 0 for no limit."""
    spread: Bytes
    own_start: Int32s
    own_rows: Int32s
    own_counts: Int32s
    """The workload's tasks that already run."""
    start: Int64s
    """The workload's first position in the results."""


class Results(NamedTuple):
    keys: Int64s
    """[placement]"""
    found: Int32s
    """[workload]: number of placements found."""
    feasible: Int32s
    """[workload]: number of feasible rows for its first task."""
    devices: Int64s
    """[placement]: the devices that it was given, as bits."""


# Preemption.

NOWHERE = -1
UNDECIDED = -2
"""The answer of the kernels where only the definition can tell."""
NOT_A_CANDIDATE = 1 << 62
"""The priority of a unit that is never a candidate victim, because it is not preemptible."""
LEAVING = NOT_A_CANDIDATE + 1
"""Likewise, of one that is leaving already."""
VIOLATIONS, HIGHEST, TOTAL, VICTIMS, AGE = range(5)
"""Parts of the cost of a row's victims, compared in this order; the lowest wins."""
NO_VICTIMS = -(1 << 32)
"""The highest priority of no victims: below every priority."""
LOWEST_PRIORITY = -(1 << 31)
NEWEST = 1 << 62
UNSHARED = -1
"""The workload of a unit that neither has a disruption budget nor belongs to a gang."""
NO_BUDGET = 1 << 62


class RunningTaskArrays(NamedTuple):
    """[row, index]: the units on the rows, the most important first.

    A unit is one task, or all tasks of a gang, which then has a unit on each of its rows.
    """

    units: Int32s
    """[row]"""
    priority: Int64s
    """Of its most important task."""
    started: Int64s
    """Likewise."""
    owner: Int64s
    preemptible_from: Int64s
    size: Int32s
    """Number of tasks, on all rows."""
    total: Int64s
    """Sum of the priorities of these tasks, each above LOWEST_PRIORITY."""
    take: Int64s
    """[row, index, slot]: amounts that the unit occupies on the row."""
    devices: Int32s
    """[row, index, device]: likewise."""
    leaving: Int64s
    """[row, slot]: amounts that tasks on their way out still occupy."""
    leaving_devices: Int64s
    """[row, device]: likewise."""
    workload: Int32s
    """Number of the unit's workload, or UNSHARED."""
    labels: Int32s
    """Number of the unit's constraints, by which other tasks may count it."""
    counted: Bytes
    """[constraints]: whether any counter includes tasks with these."""
    next_row: Int32s
    next_index: Int32s
    """The next unit of the same workload, in a ring."""
    allowed: Int64s
    """[workload]: tasks that may still be disrupted, or NO_BUDGET."""
    gang: Bytes
    """[workload]: whether its tasks are preempted together."""


class VictimCosts(NamedTuple):
    """Per kind of preemptor the cost of its victims on every row."""

    cost: Int64s
    """[kind, row, part]"""
    tree: Int32s
    """[kind, node]: the cheaper row of the two below; a leaf is a row, or NOWHERE."""
    position: Int64s
    """[kind]: position in the change log up to which the costs are current."""
    shape: Int64s
    priority: Int64s
    owner: Int64s
    requested_slots: Int32s
    slack: Int64s
    """The slots that the preemptor requests, and the amount of each that remains on the row in question."""
    devices: Int64s
    """[device]: free part of each on the row in question."""
    candidates: Int32s
    victims: Int32s
    """The indices of the candidate victims, and of the victims, on the row that was searched last."""
    violating: Int32s
    """[index]: number of the unit's tasks whose preemption violates their budget, on that row."""
    rejected: Bytes
    """[row]: whether the counts of tasks reject the preemptor in question."""
    counted: Bytes
    """[row]: whether tasks on the row are part of these counts."""
    spent: Int64s
    """[workload]: tasks of the budget that units on the row in question use; zero between searches."""


class PreemptionPlans(NamedTuple):
    """Per preemptor its kind and, when planned, its row; the indices of its victims are `victims[start:end]`."""

    kind: Int32s
    row: Int32s
    start: Int64s
    victims: Int32s
    violating: Int32s
    """[victim]: number of the unit's tasks whose preemption violates their budget."""
    devices: Int64s
    """[preemptor]: the devices that it was given, as bits."""
