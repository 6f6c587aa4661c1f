"""The compiled engine: a queue of workloads is placed in one call, over arrays that `engine` owns.

Per shape a slot keeps one key per row as the leaves of tournament trees, one tree per group of rows that share all
domains which the shape asks about. Every change of a row goes to a log; a slot scores again the rows that were logged
since it was used last. What depends on a domain is added per group when picking, so that a domain's counter never
dirties its rows.

A key is one int64: (tier, weighted sum of scores, precedence) from the highest bits to the lowest, so that the root of
a tree names the best row by itself. `IMPOSSIBLE` is below every key.

All functions that inline each other are in this file, since the compiler's cache sees changes of this file only.
`_nrt=False` (no reference counting, and so no allocation) makes the difference between one and twenty microseconds per
decision; the benchmark `placement` would show it if it ceased to work.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from mooring.model import devices
from mooring.model.decisions import SCORE_ONE

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _cache_folder() -> str | None:
    """Where compiled code is kept between processes, by the hash of this file; None: nowhere.

    What lies there is run when it is loaded, so nobody else may be able to write it: every folder from the one with
    the user's number down is the user's own, and closed. A service without a home gets one among the temporary files.
    """
    source = hashlib.blake2b(Path(__file__).read_bytes(), digest_size=8).hexdigest()
    given, caches = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):
        caches = caches or str(Path("~/.cache").expanduser())
    for parent in (given, caches, tempfile.gettempdir()):
        if parent:
            own = Path(parent) / f"mooring-{os.getuid()}"
            folder = own / f"kernels-{source}"
            with contextlib.suppress(OSError):
                Path(parent).mkdir(parents=True, exist_ok=True)
                if _made_private(own) and _made_private(folder):
                    return str(folder)
    return None


def _made_private(folder: Path) -> bool:
    """Make a folder that only its owner can write, or find it so; whoever made it otherwise is not trusted."""
    folder.mkdir(exist_ok=True, mode=0o700)
    found = folder.lstat()
    closed = not stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and closed and os.access(folder, os.W_OK)


CACHE_FOLDER = _cache_folder()
_DISPATCHERS: list[Any] = []


def cache_is_filled() -> bool:
    """Some process has compiled everything with this interpreter and compiler before."""
    return CACHE_FOLDER is not None and _mark().exists()


def mark_cache_filled() -> None:
    if CACHE_FOLDER is not None:
        with contextlib.suppress(OSError):
            _mark().touch()


def leave_cache() -> None:
    """Neither read nor write compiled code from now on."""
    for dispatcher in _DISPATCHERS:
        dispatcher._cache.disable()


def _mark() -> Path:
    return Path(CACHE_FOLDER or "") / f"filled-{sys.implementation.cache_tag}-numba-{numba.__version__}"


def _compiled(function: _Function, **further: Any) -> _Function:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False, **further}
    options["cache"] = CACHE_FOLDER is not None
    # The folder is looked up when a function is made; other users of the compiler keep theirs.
    settings: Any = numba.config
    others, settings.CACHE_DIR = settings.CACHE_DIR, CACHE_FOLDER or ""
    try:
        compiled: _Function = numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = others
    _DISPATCHERS.append(compiled)
    return compiled


def _inlined(function: _Function) -> _Function:
    return _compiled(function, forceinline=True)


def _merged(function: _Function) -> _Function:
    """For large functions with one caller: the compiler meets them as a part of it, and does not compile them twice."""
    return _compiled(function, inline="always")


ONE = 1_000_000
"""The scale of scores, a constant of this file so that the compiler's cache sees it change."""
WHOLE = 1000
"""A whole device; likewise."""
if (ONE, WHOLE) != (SCORE_ONE, devices.WHOLE):
    raise AssertionError("the kernels were written for another scale of scores or devices")

IMPOSSIBLE = -(1 << 62)
UNASKED = -(1 << 63)
"""What a shape needs of a slot that it does not ask for: less than anything that can be left."""
ROW_COST = 20
"""Scoring one logged row costs about as much as scanning this many."""
NEVER = -(1 << 40)
REMEMBERED = 16
"""Requests kept per class that are known not to fit anywhere."""

# Fields of a shape.
(
    CLASS,
    PARTITION,
    SLOT,
    USED,
    FIRST_TERM,
    LAST_TERM,
    HOST_TERMS,
    DOMAIN_TERMS,
    LABELS,
    FAILED,
    TAINTS,
    WISHES,
    NO_ROOM_SINCE,
    NO_ROOM_FOR,
    WHOLES,
    SHARE,
    MIX,
) = range(17)
SHAPE_FIELDS = 17
"""WHOLES: whole devices that it asks for, or SHARE: so much of one. MIX: the typical requests of its pool."""

# Fields of a term.
KIND, VIEW, HOST, LEVEL, COUNTER, LIMIT, SELF, BASE, MIN_DOMAINS, WEIGHT = range(10)
TERM_FIELDS = 10
SPREAD, AFFINITY, APART, FEWER, BESIDE = range(5)
"""Kinds of terms. FEWER scores `BASE * LIMIT // (LIMIT + count)` inside of domains, BESIDE scores BASE where the count
is above 0 (LIMIT 1) or where it is not (LIMIT 0)."""

# Fields of the profile.
(
    LEAST,
    LEAST_CPU,
    LEAST_MEMORY,
    MOST,
    MOST_CPU,
    MOST_MEMORY,
    BALANCED,
    UNUSED,
    KEY_SHIFT,
    OWN_SHIFT,
    MODE,
    NORMALISED,
    POINTS_LEFT,
    POINTS_EVEN,
    PLUGIN,
    FRAGMENTATION,
) = range(16)
PROFILE_FIELDS = 16
LEVELS = 8
"""Distinct values of a score that is normalised by the largest among the nodes that can be chosen."""
POINT = ONE // 100
AUTOMATIC, ALWAYS_REFRESH, ALWAYS_REBUILD, ALWAYS_SCAN = range(4)
"""Modes: tests force each way of picking; all give the same decisions."""

# Fields of a mix of typical requests, of those that need the same share of a device, and of one of them.
FIRST_THRESHOLD, LAST_THRESHOLD, TOTAL_WEIGHT = range(3)
SHARE_NEEDED, FIRST, LAST = range(3)
TYPICAL_CPU, TYPICAL_MEMORY, TYPICAL_DEVICES = range(3)

UNKNOWN = -1
MOST_DEVICES = 62
"""Of one node: those that a task was given are the bits of one number."""

# Statistics.
REFRESHED_ROWS, REBUILDS, SCANS, DOMINATED = range(4)

Int64s: TypeAlias = NDArray[np.int64]
Int32s: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Bytes: TypeAlias = NDArray[np.uint8]
RowScore: TypeAlias = Callable[[Int64s, Floats, Int64s, int], int]
Number: TypeAlias = Any
"""One number. Inside of the kernels the compiler knows its type; outside of them only `place` is called."""


class Nodes(NamedTuple):
    """What is free: `row` [row, slot] for one row, `free` [slot, row] for scans. The last slot is room for tasks."""

    row: Int64s
    free: Int64s
    row_inverse: Floats
    inverse: Floats
    taken: Int64s
    tasks: Int64s
    uncounted: Int64s
    precedence: Int64s
    row_of: Int32s
    own: Int32s
    log: Int32s
    last: Int64s
    head: Int64s
    devices: Int64s
    """[row, device]: what is left of each."""
    wholes: Int64s
    """How many devices of a row are wholly free."""
    largest_share: Int64s
    """The most that is left of one device of a row."""
    models: Int64s
    """Of the devices of a row."""
    fragment: Int64s
    """Of the devices of a row as they are; UNKNOWN where they changed since it was asked for."""
    left: Int64s
    """Room for calculations about the devices of one row."""


class Shapes(NamedTuple):
    fields: Int64s
    need: Int64s
    take: Int64s
    uncounted: Int64s
    """Processor and memory that a placement adds to what some scorers count."""
    static: Int64s
    """[class, row]: tier and weighted sum of the scores that no placement changes; negative where it may not run."""
    terms: Int64s
    adds_start: Int32s
    adds: Int32s
    """Per class of labels the counters that a task of it moves."""
    profile: Int64s
    failed: Int64s
    """[class, number, slot]: needs that were found to fit nowhere since anything was last released."""
    failures: Int32s
    levels: Bytes
    """[kind, class, row]: of soft taints and of preferred nodes, which of the values in `values` the row has."""
    values: Int64s
    """[kind, class, level], rising."""
    releases: Int64s
    """Raised whenever room may have come back; what failed before may be tried again then."""
    mixes: Int64s
    thresholds: Int64s
    """Per mix the distinct shares of a device that its typical requests need, with the requests that need so much."""
    typical: Int64s
    """[field, number]"""
    allowed: Int64s
    """[model, number]: the weight of a typical request, 0 if it cannot use devices of that model."""


class Counters(NamedTuple):
    rows: Int32s
    """[counter, row]: tasks that count there."""
    views_start: Int32s
    views: Int32s
    """Per counter the views that follow it."""
    view_level: Int32s
    view_mask: Int32s
    domain: Int32s
    """[view, domain]: the counter summed over a domain's rows that the view includes."""
    total: Int64s
    present: Bytes
    """[view, domain]: it has rows that the view includes."""
    histogram: Int32s
    """[view, count]: how many rows have that count, for views with one row per domain."""
    least: Int64s
    masks: Bytes
    """[mask, row]: which rows a view includes; mask 0 is all."""
    codes: Int32s
    """[level, row]: the domain of a row, -1 for none; level 0 is the row itself."""
    sizes: Int32s
    """[level]: number of domains."""
    domains: Int32s
    """[view]: number of domains present."""


class Partitions(NamedTuple):
    """Groups of rows whose domains agree at the levels of a partition; each group is one tree."""

    groups: Int32s
    group: Int32s
    leaf: Int32s
    start: Int32s
    size: Int32s
    code: Int32s
    """[partition, level, group]"""


class Slots(NamedTuple):
    tree: Int64s
    position: Int64s
    used: Int64s
    shape: Int32s
    feasible: Int32s
    """[slot, group]: leaves that are not impossible."""
    scalars: Int64s
    """[slot, term]: what the terms on single rows depended on cluster-wide when the leaves were scored."""
    level_counts: Int32s
    """[slot, kind, level]: how many leaves that are not impossible have it."""
    largest: Int32s
    """[slot, kind]: the largest level among these when the leaves were scored."""
    scratch: Int64s
    group_keys: Int64s
    hand: Int64s
    statistics: Int64s


class Queue(NamedTuple):
    shape: Int32s
    tasks: Int32s
    least: Int32s
    """So many are placed or none."""
    each: Int32s
    """The shape of one task where `shape` is of all tasks on one node; -1 where they go one by one."""
    limit: Int32s
    spread: Bytes
    own_start: Int32s
    own_rows: Int32s
    own_counts: Int32s
    start: Int64s


class Answers(NamedTuple):
    keys: Int64s
    found: Int32s
    feasible: Int32s
    devices: Int64s
    """Per placement the devices that it was given, as bits."""


def row_score(function: Callable[..., int]) -> RowScore:
    """Compile a scorer's formula for one row, to be its `kernel`; the kernels themselves are not compiled anew.

    It is called as `function(free, inverse, request, row)`: `free[row, slot]` is what is left of the slots in the order
    of the cluster (the last is room for tasks), `inverse[row, slot]` is 1 / allocatable of processor and memory (0 for
    none), `request[slot]` what the task asks for. It returns 0 to SCORE_ONE, as `score` does for the same row, and may
    neither allocate nor raise.
    """
    array = numba.types.Array
    whole = numba.types.int64
    signature = whole(array(whole, 2, "C"), array(numba.types.float64, 2, "C"), array(whole, 1, "C"), whole)
    compiled: RowScore = numba.cfunc(signature)(function)
    return compiled


def _nothing(free: Number, inverse: Number, request: Number, row: Number) -> Number:
    return 0


NO_PLUGIN = row_score(_nothing)


@_inlined
def touch(nodes: Nodes, row: Number) -> None:
    head = nodes.head[0]
    nodes.log[head & (nodes.log.shape[0] - 1)] = row
    nodes.last[row] = head
    nodes.head[0] = head + 1
    nodes.fragment[row] = UNKNOWN


@_inlined
def share(free: Number, request: Number, inverse: Number) -> Number:
    """What a request leaves of a slot as fixed point; the order of the operations is that of the scorers."""
    return np.int64(np.rint(np.float64(max(free - request, 0)) * inverse * ONE))


@_inlined
def resource_score(profile: Int64s, cpu: Number, memory: Number, cpu_inverse: Number, memory_inverse: Number) -> Number:
    score = np.int64(0)
    if profile[LEAST] > 0:
        mean = profile[LEAST_CPU] * cpu + profile[LEAST_MEMORY] * memory
        score += profile[LEAST] * (mean // (profile[LEAST_CPU] + profile[LEAST_MEMORY]))
    if profile[MOST] > 0:
        mean = profile[MOST_CPU] * (ONE - cpu if cpu_inverse > 0 else 0)
        mean += profile[MOST_MEMORY] * (ONE - memory if memory_inverse > 0 else 0)
        score += profile[MOST] * (mean // (profile[MOST_CPU] + profile[MOST_MEMORY]))
    if profile[BALANCED] > 0:
        score += profile[BALANCED] * (ONE - abs(cpu - memory))
    return score


@_inlined
def unused_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """The fewer slots have something free that the shape does not ask for, the better."""
    unused = 0
    for slot in range(nodes.row.shape[1] - 1):
        unused += shapes.take[shape, slot] == 0 and nodes.row[row, slot] > 0
    return shapes.profile[UNUSED] * (ONE // (1 + unused))


@_inlined
def points(shapes: Shapes, shape: Number, kind: Number, row: Number, largest: Number) -> Number:
    """A score of 0 to 100 as the share of the largest among the nodes that can be chosen."""
    values, of_class = shapes.values, shapes.fields[shape, CLASS]
    value, top = values[kind, of_class, shapes.levels[kind, of_class, row]], values[kind, of_class, largest]
    return value * 100 // top if top > 0 else value


@_compiled
def normalised_score(nodes: Nodes, shapes: Shapes, slots: Slots, shape: Number, row: Number, slot: Number) -> Number:
    """Kubernetes' points: for processor and memory left, their even use, few soft taints, preferred nodes."""
    profile, fields = shapes.profile, shapes.fields
    left, present, most, fewest = np.int64(0), np.int64(0), 0.0, 1.0
    for resource in range(2):
        taken = nodes.taken[resource, row]
        allocatable = nodes.row[row, resource] + taken
        if allocatable > 0:
            requested = taken + shapes.take[shape, resource]
            counted = requested + nodes.uncounted[resource, row] + shapes.uncounted[shape, resource]
            left += max(allocatable - counted, 0) * 100 // allocatable
            used = min(requested / allocatable, 1.0)
            most, fewest = max(most, used), min(fewest, used)
            present += 1
    score = profile[POINTS_LEFT] * (left // (present if present > 0 else 1))
    uneven = abs(most - fewest) / 2 if present == 2 else 0.0
    score += profile[POINTS_EVEN] * np.int64((1 - uneven) * 100)
    if fields[shape, TAINTS] > 0:
        score += fields[shape, TAINTS] * (100 - points(shapes, shape, 0, row, slots.largest[slot, 0]))
    if fields[shape, WISHES] > 0:
        score += fields[shape, WISHES] * points(shapes, shape, 1, row, slots.largest[slot, 1])
    return score * POINT


@_inlined
def largest_level(slots: Slots, slot: Number, kind: Number) -> Number:
    for level in range(LEVELS - 1, -1, -1):
        if slots.level_counts[slot, kind, level] > 0:
            return np.int32(level)
    return np.int32(0)


@_inlined
def plugin_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, plugin: RowScore) -> Number:
    return min(max(plugin(nodes.row, nodes.row_inverse, shapes.take[shape], row), 0), ONE)


@_compiled
def fragment(nodes: Nodes, shapes: Shapes, mix: Number, row: Number, cpu: Number, memory: Number) -> Number:
    """How much of `nodes.left` the typical requests of a mix cannot use, summed with their weights.

    Requests that need the same share of a device are neighbours, so that what they all waste is added up once.
    """
    left, typical, allowed = nodes.left, shapes.typical, shapes.allowed[nodes.models[row]]
    total = np.int64(0)
    for device in range(left.shape[0]):
        total += left[device]
    result = total * shapes.mixes[mix, TOTAL_WEIGHT]
    for at in range(shapes.mixes[mix, FIRST_THRESHOLD], shapes.mixes[mix, LAST_THRESHOLD]):
        share, wasted, enough = shapes.thresholds[at, SHARE_NEEDED], np.int64(0), np.int64(0)
        for device in range(left.shape[0]):
            suffices = left[device] >= share
            enough += suffices
            wasted += 0 if suffices else left[device]
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


@_compiled
def least_fragment(
    nodes: Nodes, shapes: Shapes, shape: Number, row: Number, cpu: Number, memory: Number
) -> tuple[Number, Number]:
    """The least fragment that a share of one device leaves in `nodes.left`, and which device that is."""
    left, share, mix = nodes.left, shapes.fields[shape, SHARE], shapes.fields[shape, MIX]
    least, chosen = np.int64(1 << 62), np.int64(0)
    for device in range(left.shape[0]):
        fits = left[device] >= share
        for earlier in range(device):
            fits &= left[earlier] != left[device]
        if fits:
            left[device] -= share
            result = fragment(nodes, shapes, mix, row, cpu, memory)
            left[device] += share
            if result < least:
                least, chosen = result, np.int64(device)
    return least, chosen


@_compiled
def fragmentation_score(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """Half of ONE if the fragment stays as it is, more the more it falls."""
    mix, wholes = shapes.fields[shape, MIX], shapes.fields[shape, WHOLES]
    total = np.int64(0)
    for device in range(nodes.left.shape[0]):
        nodes.left[device] = max(nodes.devices[row, device], 0)
        total += nodes.left[device]
    if total == 0:
        return np.int64(ONE // 2)
    cpu, memory = nodes.row[row, 0], nodes.row[row, 1]
    before = nodes.fragment[row]
    if before == UNKNOWN:
        before = fragment(nodes, shapes, mix, row, cpu, memory)
        nodes.fragment[row] = before
    cpu, memory = cpu - shapes.take[shape, 0], memory - shapes.take[shape, 1]
    if shapes.fields[shape, SHARE] > 0:
        after, _ = least_fragment(nodes, shapes, shape, row, cpu, memory)
    else:
        for device in range(nodes.left.shape[0]):
            if wholes > 0 and nodes.left[device] >= WHOLE:
                nodes.left[device] -= WHOLE
                wholes -= 1
        after = fragment(nodes, shapes, mix, row, cpu, memory)
    change = abs(before - after)
    part = ONE // 2 * change // (WHOLE * shapes.mixes[mix, TOTAL_WEIGHT] + change)
    return (ONE // 2 + part if after <= before else ONE // 2 - part) // POINT * POINT


@_inlined
def minimum(counters: Counters, terms: Int64s, term: Number) -> Number:
    """The least count over the domains that a spread term includes; 0 while there are fewer than it demands."""
    view = terms[term, VIEW]
    if counters.domains[view] < max(terms[term, MIN_DOMAINS], 1):
        return np.int64(0)
    least = np.int64(1 << 40)
    if terms[term, HOST]:
        if counters.least[view] != counters.histogram.shape[1] - 1:
            return counters.least[view]
        for row in range(counters.rows.shape[1]):
            if counters.masks[counters.view_mask[view], row] and counters.codes[terms[term, LEVEL], row] >= 0:
                least = min(least, np.int64(counters.rows[terms[term, COUNTER], row]))
        return least
    for domain in range(counters.sizes[terms[term, LEVEL]]):
        if counters.present[view, domain]:
            least = min(least, np.int64(counters.domain[view, domain]))
    return least


@_inlined
def none_anywhere(counters: Counters, shapes: Shapes, shape: Number) -> Number:
    """No task matches the affinity of the shape in any domain, so that the first of its kind may go anywhere."""
    fields = shapes.fields
    for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
        if shapes.terms[term, KIND] == AFFINITY and (
            counters.total[shapes.terms[term, VIEW]] > 0 or shapes.terms[term, SELF] == 0
        ):
            return np.int64(0)
    return np.int64(1)


@_inlined
def scalar(counters: Counters, shapes: Shapes, shape: Number, term: Number) -> Number:
    """The cluster-wide number that a term depends on."""
    kind = shapes.terms[term, KIND]
    if kind == SPREAD:
        return minimum(counters, shapes.terms, term)
    if kind == AFFINITY:
        return none_anywhere(counters, shapes, shape)
    return np.int64(0)


@_inlined
def term_key(terms: Int64s, term: Number, outside: bool, count: Number, number: Number, shift: Number) -> Number:
    """What a term adds to the key, or IMPOSSIBLE. `number` is its scalar."""
    kind = terms[term, KIND]
    if kind == SPREAD:
        if outside or count + terms[term, SELF] - number > terms[term, LIMIT]:
            return np.int64(IMPOSSIBLE)
        return np.int64(0)
    if kind == AFFINITY:
        if outside or (count == 0 and number == 0):
            return np.int64(IMPOSSIBLE)
        return np.int64(0)
    if kind == APART:
        if count > 0 and not outside:
            return np.int64(IMPOSSIBLE)
        return np.int64(0)
    score = np.int64(0)
    if kind == FEWER:
        if not outside:
            score = terms[term, BASE] * terms[term, LIMIT] // (terms[term, LIMIT] + count)
    elif (count > 0 and not outside) == (terms[term, LIMIT] == 1):
        score = terms[term, BASE]
    return (terms[term, WEIGHT] * score) << shift


@_inlined
def score_row(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    slots: Slots,
    shape: Number,
    row: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> Number:
    """The key of one row, without what depends on domains."""
    fields, profile = shapes.fields, shapes.profile
    weighted = shapes.static[fields[shape, CLASS], row]
    possible = weighted >= 0
    for slot in range(nodes.row.shape[1]):
        possible &= nodes.row[row, slot] >= shapes.need[shape, slot]
    if fields[shape, WHOLES] + fields[shape, SHARE] > 0:
        possible &= nodes.wholes[row] >= fields[shape, WHOLES] and nodes.largest_share[row] >= fields[shape, SHARE]
    if not possible:
        return np.int64(IMPOSSIBLE)
    cpu = share(nodes.row[row, 0], shapes.take[shape, 0], nodes.row_inverse[row, 0])
    memory = share(nodes.row[row, 1], shapes.take[shape, 1], nodes.row_inverse[row, 1])
    weighted += resource_score(profile, cpu, memory, nodes.row_inverse[row, 0], nodes.row_inverse[row, 1])
    if profile[UNUSED] > 0:
        weighted += unused_score(nodes, shapes, shape, row)
    if profile[PLUGIN] > 0:
        weighted += profile[PLUGIN] * plugin_score(nodes, shapes, shape, row, plugin)
    if profile[FRAGMENTATION] > 0:
        weighted += profile[FRAGMENTATION] * fragmentation_score(nodes, shapes, shape, row)
    shift = profile[KEY_SHIFT]
    key = (weighted << shift) + nodes.precedence[row]
    if fields[shape, HOST_TERMS] > 0:
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                mask = counters.view_mask[shapes.terms[term, VIEW]]
                added = term_key(
                    shapes.terms,
                    term,
                    counters.codes[shapes.terms[term, LEVEL], row] < 0,
                    np.int64(counters.rows[shapes.terms[term, COUNTER], row]) * counters.masks[mask, row],
                    scalar(counters, shapes, shape, term),
                    shift,
                )
                if added == IMPOSSIBLE:
                    return np.int64(IMPOSSIBLE)
                key += added
    if profile[NORMALISED]:
        key += normalised_score(nodes, shapes, slots, shape, row, fields[shape, SLOT]) << shift
    if limit > 0 or spread:
        own = nodes.own[row]
        if limit > 0 and own >= limit:
            return np.int64(IMPOSSIBLE)
        if spread:
            key -= np.int64(own) << profile[OWN_SHIFT]
    return key


@_compiled
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
    """The keys of all rows, without what depends on domains."""
    fields, profile = shapes.fields, shapes.profile
    rows = keys.shape[0]
    shift = profile[KEY_SHIFT]
    static = shapes.static[fields[shape, CLASS]]
    tasks = nodes.free.shape[0] - 1
    cpu_need, memory_need, room_need = shapes.need[shape, 0], shapes.need[shape, 1], shapes.need[shape, tasks]
    cpu_take, memory_take = shapes.take[shape, 0], shapes.take[shape, 1]
    cpu_free, memory_free, room = nodes.free[0], nodes.free[1], nodes.free[tasks]
    cpu_inverse, memory_inverse, precedence = nodes.inverse[0], nodes.inverse[1], nodes.precedence
    least, balanced = profile[LEAST], profile[BALANCED]
    if profile[MOST] == 0 and (least == 0 or (profile[LEAST_CPU] == 1 and profile[LEAST_MEMORY] == 1)):
        for row in range(rows):
            cpu = share(cpu_free[row], cpu_take, cpu_inverse[row])
            memory = share(memory_free[row], memory_take, memory_inverse[row])
            score = least * ((cpu + memory) >> 1) + balanced * (ONE - abs(cpu - memory))
            possible = (
                (static[row] >= 0)
                & (cpu_free[row] >= cpu_need)
                & (memory_free[row] >= memory_need)
                & (room[row] >= room_need)
            )
            keys[row] = ((static[row] + score) << shift) + precedence[row] if possible else IMPOSSIBLE
    else:
        for row in range(rows):
            cpu = share(cpu_free[row], cpu_take, cpu_inverse[row])
            memory = share(memory_free[row], memory_take, memory_inverse[row])
            score = resource_score(profile, cpu, memory, cpu_inverse[row], memory_inverse[row])
            possible = (
                (static[row] >= 0)
                & (cpu_free[row] >= cpu_need)
                & (memory_free[row] >= memory_need)
                & (room[row] >= room_need)
            )
            keys[row] = ((static[row] + score) << shift) + precedence[row] if possible else IMPOSSIBLE
    if profile[UNUSED] > 0:
        for row in range(rows):
            if keys[row] != IMPOSSIBLE:
                keys[row] += unused_score(nodes, shapes, shape, row) << shift
    if profile[PLUGIN] > 0:
        for row in range(rows):
            if keys[row] != IMPOSSIBLE:
                keys[row] += profile[PLUGIN] * plugin_score(nodes, shapes, shape, row, plugin) << shift
    for slot in range(2, tasks):
        need = shapes.need[shape, slot]
        if need != UNASKED:
            free = nodes.free[slot]
            for row in range(rows):
                keys[row] = keys[row] if free[row] >= need else IMPOSSIBLE
    wholes, devices_share = fields[shape, WHOLES], fields[shape, SHARE]
    if wholes + devices_share > 0:
        for row in range(rows):
            possible = (nodes.wholes[row] >= wholes) & (nodes.largest_share[row] >= devices_share)
            keys[row] = keys[row] if possible else IMPOSSIBLE
    if profile[FRAGMENTATION] > 0:
        for row in range(rows):
            if keys[row] != IMPOSSIBLE:
                keys[row] += profile[FRAGMENTATION] * fragmentation_score(nodes, shapes, shape, row) << shift
    if fields[shape, HOST_TERMS] > 0:
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                number = scalar(counters, shapes, shape, term)
                counts, codes = counters.rows[shapes.terms[term, COUNTER]], counters.codes[shapes.terms[term, LEVEL]]
                mask = counters.masks[counters.view_mask[shapes.terms[term, VIEW]]]
                for row in range(rows):
                    if keys[row] != IMPOSSIBLE:
                        count = np.int64(counts[row]) * mask[row]
                        added = term_key(shapes.terms, term, codes[row] < 0, count, number, shift)
                        keys[row] = keys[row] + added if added != IMPOSSIBLE else IMPOSSIBLE
    if limit > 0 or spread:
        own_shift = profile[OWN_SHIFT]
        for row in range(rows):
            own = nodes.own[row]
            if own > 0 and keys[row] != IMPOSSIBLE:
                keys[row] -= np.int64(own) << own_shift if spread else np.int64(0)
                if limit > 0 and own >= limit:
                    keys[row] = IMPOSSIBLE


@_inlined
def add_domains(shapes: Shapes, counters: Counters, partitions: Partitions, slots: Slots, shape: Number) -> None:
    """What the terms over domains add to the keys of each group, into `slots.group_keys`."""
    fields, keys = shapes.fields, slots.group_keys
    partition = fields[shape, PARTITION]
    groups = partitions.groups[partition]
    for group in range(groups):
        keys[group] = 0
    for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
        if not shapes.terms[term, HOST]:
            number = scalar(counters, shapes, shape, term)
            view, level = shapes.terms[term, VIEW], shapes.terms[term, LEVEL]
            for group in range(groups):
                if keys[group] != IMPOSSIBLE:
                    code = partitions.code[partition, level, group]
                    count = np.int64(counters.domain[view, max(code, 0)])
                    added = term_key(shapes.terms, term, code < 0, count, number, shapes.profile[KEY_SHIFT])
                    keys[group] = keys[group] + added if added != IMPOSSIBLE else IMPOSSIBLE


@_compiled
def normalise(nodes: Nodes, shapes: Shapes, slots: Slots, shape: Number, slot: Number) -> None:
    """Add what depends on the largest score among the rows of `slots.scratch` that are not impossible."""
    keys, of_class = slots.scratch, shapes.fields[shape, CLASS]
    for kind in range(2):
        for level in range(LEVELS):
            slots.level_counts[slot, kind, level] = 0
        for row in range(keys.shape[0]):
            slots.level_counts[slot, kind, shapes.levels[kind, of_class, row]] += np.int32(keys[row] != IMPOSSIBLE)
        slots.largest[slot, kind] = largest_level(slots, slot, kind)
    for row in range(keys.shape[0]):
        if keys[row] != IMPOSSIBLE:
            keys[row] += normalised_score(nodes, shapes, slots, shape, row, slot) << shapes.profile[KEY_SHIFT]


@_compiled
def build(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    slots: Slots,
    shape: Number,
    slot: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> None:
    """Score all rows into a slot."""
    fields, scratch = shapes.fields, slots.scratch
    partition = fields[shape, PARTITION]
    tree = slots.tree[slot]
    score_all(nodes, shapes, counters, shape, limit, spread, scratch, plugin)
    if shapes.profile[NORMALISED]:
        normalise(nodes, shapes, slots, shape, slot)
    if fields[shape, DOMAIN_TERMS] == 0:
        rows = scratch.shape[0]
        feasible = 0
        for row in range(rows):
            tree[rows + row] = scratch[row]
            feasible += scratch[row] != IMPOSSIBLE
        slots.feasible[slot, 0] = feasible
        half = rows >> 1
        while half > 0:
            for node in range(half, 2 * half):
                tree[node] = max(tree[2 * node], tree[2 * node + 1])
            half >>= 1
    else:
        for group in range(partitions.groups[partition]):
            slots.feasible[slot, group] = 0
        for row in range(scratch.shape[0]):
            leaf = partitions.leaf[partition, row]
            if leaf >= 0:
                tree[leaf] = scratch[row]
                slots.feasible[slot, partitions.group[partition, row]] += scratch[row] != IMPOSSIBLE
        for group in range(partitions.groups[partition]):
            start = partitions.start[partition, group]
            for node in range(partitions.size[partition, group] - 1, 0, -1):
                tree[start + node] = max(tree[start + 2 * node], tree[start + 2 * node + 1])
    number = 0
    if fields[shape, HOST_TERMS] > 0:
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                slots.scalars[slot, number] = scalar(counters, shapes, shape, term)
                number += 1
    slots.position[slot] = nodes.head[0]


@_inlined
def set_leaf(tree: Int64s, start: Number, leaf: Number, key: Number) -> None:
    """Leaf `leaf` of the tree at `start` becomes `key`; its ancestors follow as far as they change."""
    tree[start + leaf] = key
    node = leaf >> 1
    while node >= 1:
        best = max(tree[start + 2 * node], tree[start + 2 * node + 1])
        if tree[start + node] == best:
            break
        tree[start + node] = best
        node >>= 1


@_merged
def refresh(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    slots: Slots,
    shape: Number,
    slot: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> None:
    """Score again what the log says has changed since the slot was used."""
    fields = shapes.fields
    partition, head = fields[shape, PARTITION], nodes.head[0]
    mode = shapes.profile[MODE]
    behind = head - slots.position[slot]
    stale = behind > nodes.log.shape[0] if mode == ALWAYS_REFRESH else behind * ROW_COST > slots.scratch.shape[0]
    stale |= mode == ALWAYS_REBUILD
    if fields[shape, HOST_TERMS] > 0:
        number = 0
        for term in range(fields[shape, FIRST_TERM], fields[shape, LAST_TERM]):
            if shapes.terms[term, HOST]:
                stale |= slots.scalars[slot, number] != scalar(counters, shapes, shape, term)
                number += 1
    if stale:
        build(nodes, shapes, counters, partitions, slots, shape, slot, limit, spread, plugin)
        slots.statistics[REBUILDS] += 1
        return
    tree = slots.tree[slot]
    newest = nodes.log.shape[0] - 1
    grouped = fields[shape, DOMAIN_TERMS] > 0
    for entry in range(slots.position[slot], head):
        row = nodes.log[entry & newest]
        if nodes.last[row] == entry:
            start, group = np.int64(0), np.int64(0)
            leaf = np.int64(slots.scratch.shape[0] + row)
            if grouped:
                leaf = np.int64(partitions.leaf[partition, row])
                if leaf < 0:
                    continue
                group = np.int64(partitions.group[partition, row])
                start = np.int64(partitions.start[partition, group])
            key = score_row(nodes, shapes, counters, slots, shape, row, limit, spread, plugin)
            before = tree[leaf]
            if before != key:
                came = np.int32(key != IMPOSSIBLE) - np.int32(before != IMPOSSIBLE)
                slots.feasible[slot, group] += came
                if shapes.profile[NORMALISED]:
                    for kind in range(2):
                        slots.level_counts[slot, kind, shapes.levels[kind, fields[shape, CLASS], row]] += came
                set_leaf(tree, start, leaf - start, key)
            slots.statistics[REFRESHED_ROWS] += 1
    slots.position[slot] = head
    if shapes.profile[NORMALISED] and (
        largest_level(slots, slot, 0) != slots.largest[slot, 0]
        or largest_level(slots, slot, 1) != slots.largest[slot, 1]
    ):
        build(nodes, shapes, counters, partitions, slots, shape, slot, limit, spread, plugin)
        slots.statistics[REBUILDS] += 1


@_inlined
def pick_from_slot(
    shapes: Shapes, counters: Counters, partitions: Partitions, slots: Slots, shape: Number, slot: Number
) -> tuple[Number, Number]:
    """The best key of an up-to-date slot, and how many rows are possible."""
    fields = shapes.fields
    tree = slots.tree[slot]
    if fields[shape, DOMAIN_TERMS] == 0:
        return tree[1], slots.feasible[slot, 0]
    add_domains(shapes, counters, partitions, slots, shape)
    partition = fields[shape, PARTITION]
    best, feasible = np.int64(IMPOSSIBLE), np.int32(0)
    for group in range(partitions.groups[partition]):
        root, added = tree[partitions.start[partition, group] + 1], slots.group_keys[group]
        if root != IMPOSSIBLE and added != IMPOSSIBLE:
            best = max(best, root + added)
            feasible += slots.feasible[slot, group]
    return best, feasible


@_compiled
def pick_by_scan(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    slots: Slots,
    shape: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> tuple[Number, Number]:
    keys = slots.scratch
    score_all(nodes, shapes, counters, shape, limit, spread, keys, plugin)
    fields = shapes.fields
    if fields[shape, DOMAIN_TERMS] > 0:
        add_domains(shapes, counters, partitions, slots, shape)
        partition = fields[shape, PARTITION]
        for row in range(keys.shape[0]):
            if keys[row] != IMPOSSIBLE:
                added = slots.group_keys[partitions.group[partition, row]]
                keys[row] = keys[row] + added if added != IMPOSSIBLE else IMPOSSIBLE
    best = np.int64(IMPOSSIBLE)
    feasible = np.int64(0)
    for row in range(keys.shape[0]):
        best = max(best, keys[row])
        feasible += np.int64(keys[row] != IMPOSSIBLE)
    return best, np.int32(feasible)


@_inlined
def slot_for(shapes: Shapes, slots: Slots, shape: Number) -> Number:
    """A slot for a shape that has none: one of the next eight, the one that was used longest ago."""
    fields = shapes.fields
    total = slots.position.shape[0]
    chosen = slots.hand[0] % total
    for step in range(8):
        candidate = (slots.hand[0] + step) % total
        if slots.used[candidate] < slots.used[chosen]:
            chosen = candidate
    slots.hand[0] = (slots.hand[0] + 1) % total
    if slots.shape[chosen] >= 0:
        fields[slots.shape[chosen], SLOT] = -1
    slots.shape[chosen] = shape
    slots.position[chosen] = NEVER
    slots.used[chosen] = NEVER
    fields[shape, SLOT] = chosen
    return chosen


@_merged
def pick(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    slots: Slots,
    shape: Number,
    limit: Number,
    spread: bool,
    plugin: RowScore,
) -> tuple[Number, Number]:
    """The best key for a task of the shape: from its slot if few rows changed since it was used, else by a scan."""
    fields = shapes.fields
    mode = shapes.profile[MODE]
    rows, head = slots.scratch.shape[0], nodes.head[0]
    slot, gap = fields[shape, SLOT], head - fields[shape, USED]
    fields[shape, USED] = head
    recent = gap * ROW_COST * 2 <= rows
    near = slot >= 0 and (head - slots.position[slot]) * ROW_COST <= rows
    kept = near or recent or mode in (ALWAYS_REFRESH, ALWAYS_REBUILD)
    if (kept and mode != ALWAYS_SCAN) or shapes.profile[NORMALISED]:
        if slot < 0:
            slot = slot_for(shapes, slots, shape)
        slots.used[slot] = head
        refresh(nodes, shapes, counters, partitions, slots, shape, slot, limit, spread, plugin)
        return pick_from_slot(shapes, counters, partitions, slots, shape, slot)
    slots.statistics[SCANS] += 1
    return pick_by_scan(nodes, shapes, counters, partitions, slots, shape, limit, spread, plugin)


@_inlined
def commit(nodes: Nodes, shapes: Shapes, counters: Counters, shape: Number, row: Number, sign: Number) -> None:
    """Count a task of the shape on a row (1), or take it away (-1)."""
    tasks = nodes.row.shape[1] - 1
    for slot in range(tasks + 1):
        amount = sign * shapes.take[shape, slot]
        left = nodes.row[row, slot] - amount
        nodes.row[row, slot] = left
        nodes.free[slot, row] = left
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
                if counters.histogram.shape[1] > 1 and counters.least[view] >= 0:
                    top = counters.histogram.shape[1] - 1
                    counters.histogram[view, min(before, top)] -= 1
                    counters.histogram[view, min(before + sign, top)] += 1
                    least = min(counters.least[view], np.int64(before + sign))
                    while least < top and counters.histogram[view, least] == 0:
                        least += 1
                    counters.least[view] = least
                if counters.least[view] < 0:
                    counters.domain[view, counters.codes[level, row]] += sign
    touch(nodes, row)


@_inlined
def choose_devices(nodes: Nodes, shapes: Shapes, shape: Number, row: Number) -> Number:
    """The devices for a task of the shape that was just counted on a row, as bits: the tightest fit, lowest first."""
    wholes, share = shapes.fields[shape, WHOLES], shapes.fields[shape, SHARE]
    if share > 0 and shapes.profile[FRAGMENTATION] > 0:
        for device in range(nodes.left.shape[0]):
            nodes.left[device] = max(nodes.devices[row, device], 0)
        _, chosen = least_fragment(nodes, shapes, shape, row, nodes.row[row, 0], nodes.row[row, 1])
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


@_inlined
def move_devices(nodes: Nodes, shapes: Shapes, shape: Number, row: Number, given: Number, sign: Number) -> None:
    """Take devices from a row for a task of the shape (1), or give them back (-1)."""
    share = shapes.fields[shape, SHARE]
    amount = sign * (share if share > 0 else WHOLE)
    free, largest = np.int64(0), np.int64(0)
    for device in range(nodes.devices.shape[1]):
        if given >> device & 1:
            nodes.devices[row, device] -= amount
        free += nodes.devices[row, device] >= WHOLE
        largest = max(largest, nodes.devices[row, device])
    nodes.wholes[row], nodes.largest_share[row] = free, largest


@_inlined
def known_to_fail(shapes: Shapes, shape: Number) -> bool:
    """It was found to fit nowhere, or something was that asks for no more in any slot."""
    if shapes.fields[shape, FAILED] == shapes.releases[0]:
        return True
    if shapes.fields[shape, SLOT] >= 0:
        return False
    kind = shapes.fields[shape, CLASS]
    for number in range(shapes.failures[kind]):
        larger = True
        for slot in range(shapes.need.shape[1]):
            larger &= shapes.failed[kind, number, slot] <= shapes.need[shape, slot]
        if larger:
            shapes.fields[shape, FAILED] = shapes.releases[0]
            return True
    return False


@_inlined
def remember_failure(shapes: Shapes, shape: Number) -> None:
    shapes.fields[shape, FAILED] = shapes.releases[0]
    kind = shapes.fields[shape, CLASS]
    kept = np.int32(0)
    for number in range(shapes.failures[kind]):
        larger = True
        for slot in range(shapes.need.shape[1]):
            larger &= shapes.failed[kind, number, slot] >= shapes.need[shape, slot]
        if not larger:
            for slot in range(shapes.need.shape[1]):
                shapes.failed[kind, kept, slot] = shapes.failed[kind, number, slot]
            kept += 1
    if kept < REMEMBERED:
        for slot in range(shapes.need.shape[1]):
            shapes.failed[kind, kept, slot] = shapes.need[shape, slot]
        kept += 1
    shapes.failures[kind] = kept


@_compiled
def has_room(nodes: Nodes, shapes: Shapes, shape: Number, least: Number, limit: Number) -> bool:
    """The slots of all rows that may take the shape have room for so many tasks. Other terms may still forbid it.

    What is too much for a shape is remembered until something is released.
    """
    fields = shapes.fields
    if limit == 0 and fields[shape, NO_ROOM_SINCE] == shapes.releases[0] and least >= fields[shape, NO_ROOM_FOR]:
        return False
    static, need = shapes.static[fields[shape, CLASS]], shapes.need[shape]
    total = np.int64(0)
    for row in range(static.shape[0]):
        if static[row] >= 0:
            times = np.int64(least - total)
            for slot in range(need.shape[0]):
                free = nodes.row[row, slot]
                if free < need[slot]:
                    times = np.int64(0)
                    break
                if need[slot] > 0:
                    times = min(times, free // need[slot])
            total += max(min(times, limit - nodes.own[row]), 0) if limit > 0 else times
            if total >= least:
                return True
    if limit == 0:
        fields[shape, NO_ROOM_SINCE] = shapes.releases[0]
        fields[shape, NO_ROOM_FOR] = total + 1
    return False


@_compiled
def place(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    partitions: Partitions,
    slots: Slots,
    queue: Queue,
    answers: Answers,
    first: Number,
    last: Number,
    plugin: RowScore,
    stop: bool,
) -> Number:
    """Place the workloads `first` to `last` of a queue, in order; returns the first that was not decided on.

    `stop`: the first that finds fewer places than it has tasks is the last.
    """
    lowest = nodes.row_of.shape[0] - 1
    for workload in range(first, last):
        shape, start = queue.shape[workload], queue.start[workload]
        least, each = queue.least[workload], queue.each[workload]
        limit, spread = queue.limit[workload], queue.spread[workload] != 0
        limited = limit > 0 or spread
        own_first, own_last = queue.own_start[workload], queue.own_start[workload + 1]
        if limited:
            for at in range(own_first, own_last):
                nodes.own[queue.own_rows[at]] = queue.own_counts[at]
                touch(nodes, queue.own_rows[at])
        plain = shapes.fields[shape, FIRST_TERM] == shapes.fields[shape, LAST_TERM] and not limited
        found = np.int32(0)
        count = queue.tasks[workload]
        together = count if each >= 0 else np.int32(1)
        answers.feasible[workload] = 0
        while found < count:
            if plain and known_to_fail(shapes, shape):
                slots.statistics[DOMINATED] += 1
                break
            key, feasible = pick(nodes, shapes, counters, partitions, slots, shape, limit, spread, plugin)
            if found == 0:
                answers.feasible[workload] = feasible
            if key == IMPOSSIBLE:
                # What will be undone proves nothing.
                if plain and (found == 0 or found >= least):
                    remember_failure(shapes, shape)
                break
            if found == 0 and least > 1 and each < 0 and not has_room(nodes, shapes, shape, least, limit):
                break
            row = nodes.row_of[key & lowest]
            for _ in range(together):
                answers.keys[start + found] = key
                found += 1
            if limited:
                nodes.own[row] += 1
            commit(nodes, shapes, counters, each if each >= 0 else shape, row, together)
            if shapes.fields[shape, WHOLES] + shapes.fields[shape, SHARE] > 0:
                given = choose_devices(nodes, shapes, shape, row)
                move_devices(nodes, shapes, shape, row, given, 1)
                answers.devices[start + found - 1] = given
        answers.found[workload] = found
        if limited:
            for at in range(own_first, own_last):
                nodes.own[queue.own_rows[at]] = 0
                touch(nodes, queue.own_rows[at])
            for at in range(found):
                row = nodes.row_of[answers.keys[start + at] & lowest]
                nodes.own[row] = 0
                touch(nodes, row)
        if found < least:
            for at in range(found - 1, -1, -1):
                row = nodes.row_of[answers.keys[start + at] & lowest]
                commit(nodes, shapes, counters, shape, row, -1)
                if answers.devices[start + at]:
                    move_devices(nodes, shapes, shape, row, answers.devices[start + at], -1)
        if stop and found < count:
            return workload + 1
    return last


# Preemption: who has to leave a row for a task of a shape, and on which row that is worth the least. Costs are kept per
# kind of preemptor and follow the same log as the slots; the winner of a tournament tree over the rows is the choice.

NOWHERE = -1
STAYS = 1 << 62
"""The priority of a resident that need not be asked: it may not leave, or is on its way out already."""
HIGHEST, TOTAL, VICTIMS, AGE = range(4)
"""What is compared, in this order; the smallest wins."""
NOBODY_LEAVES = -(1 << 32)
"""The highest priority where a row needs no further victim: below every priority."""
LOWEST_PRIORITY = -(1 << 31)
NEWEST = 1 << 62


class Residents(NamedTuple):
    """[row, place]: who is on the rows, the most important first."""

    present: Int32s
    """[row]: how many there are."""
    priority: Int64s
    started: Int64s
    owner: Int64s
    since: Int64s
    """From when on it may have to leave."""
    take: Int64s
    """[row, place, slot]"""
    leaving: Int64s
    """[row, slot]: what those on their way out still occupy."""


class Costs(NamedTuple):
    """Per kind of preemptor what its victims on every row are worth."""

    cost: Int64s
    """[kind, row, what is compared]"""
    tree: Int32s
    """[kind, node]: the better row of the two below; a leaf is a row, or NOWHERE."""
    position: Int64s
    shape: Int64s
    priority: Int64s
    owner: Int64s
    slack: Int64s
    asked: Int32s
    """What is left over of the slots that are asked for, and which these are, on the row that is looked at."""
    victims: Int32s
    """The places of the victims on the row that was looked at last."""


class Plans(NamedTuple):
    """Per preemptor its kind and, when planned, its row; its victims' places are `victims[start:end]`."""

    kind: Int32s
    row: Int32s
    start: Int64s
    victims: Int32s


@_compiled
def find_victims(
    nodes: Nodes, shapes: Shapes, residents: Residents, costs: Costs, kind: Number, row: Number, now: Number
) -> Number:
    """The victims on a row and what they are worth; NOWHERE if nobody can make it fit, or nobody has to."""
    shape, priority, owner = costs.shape[kind], costs.priority[kind], costs.owner[kind]
    if shapes.static[shapes.fields[shape, CLASS], row] < 0:
        return NOWHERE
    slack, asked, number = costs.slack, costs.asked, np.int64(0)
    fits = True
    for slot in range(nodes.row.shape[1]):
        need = shapes.need[shape, slot]
        if need != UNASKED:
            fits &= nodes.row[row, slot] >= need
            slack[number] = nodes.row[row, slot] + residents.leaving[row, slot] - need
            asked[number] = slot
            number += 1
    if fits:
        return NOWHERE
    count = residents.present[row]
    for place in range(count):
        if may_leave(residents, row, place, priority, owner, now):
            for at in range(number):
                slack[at] += residents.take[row, place, asked[at]]
    fits = True
    for at in range(number):
        fits &= slack[at] >= 0
    if not fits:
        return NOWHERE
    victims, highest, total, age = np.int32(0), np.int64(NOBODY_LEAVES), np.int64(0), np.int64(-NEWEST)
    for place in range(count):
        if not may_leave(residents, row, place, priority, owner, now):
            continue
        back = True
        for at in range(number):
            back &= slack[at] >= residents.take[row, place, asked[at]]
        if back:
            for at in range(number):
                slack[at] -= residents.take[row, place, asked[at]]
        else:
            if victims == 0:
                highest, age = residents.priority[row, place], -residents.started[row, place]
            total += residents.priority[row, place] - LOWEST_PRIORITY
            costs.victims[victims] = place
            victims += np.int32(1)
    cost = costs.cost[kind, row]
    cost[HIGHEST], cost[TOTAL], cost[VICTIMS], cost[AGE] = highest, total, victims, age
    return victims


@_inlined
def may_leave(residents: Residents, row: Number, place: Number, priority: Number, owner: Number, now: Number) -> bool:
    lower = residents.priority[row, place] < priority
    return bool(lower and residents.owner[row, place] == owner and residents.since[row, place] <= now)


@_inlined
def cheaper(nodes: Nodes, costs: Costs, kind: Number, one: Number, other: Number) -> Number:
    """The row of the two whose victims are worth less."""
    if one == NOWHERE or other == NOWHERE:
        return max(one, other)
    for part in range(AGE + 1):
        difference = costs.cost[kind, one, part] - costs.cost[kind, other, part]
        if difference != 0:
            return one if difference < 0 else other
    return one if nodes.precedence[one] > nodes.precedence[other] else other


@_compiled
def refresh_costs(nodes: Nodes, shapes: Shapes, residents: Residents, costs: Costs, kind: Number, now: Number) -> None:
    """Look again at the rows that the log says have changed; all of them if these are many."""
    rows, head, tree = nodes.last.shape[0], nodes.head[0], costs.tree[kind]
    behind = head - costs.position[kind]
    if behind * 2 > rows:
        for row in range(rows):
            possible = find_victims(nodes, shapes, residents, costs, kind, row, now) >= 0
            tree[rows + row] = row if possible else NOWHERE
        for node in range(rows - 1, 0, -1):
            tree[node] = cheaper(nodes, costs, kind, tree[2 * node], tree[2 * node + 1])
    else:
        newest = nodes.log.shape[0] - 1
        for entry in range(costs.position[kind], head):
            row = nodes.log[entry & newest]
            if nodes.last[row] == entry:
                possible = find_victims(nodes, shapes, residents, costs, kind, row, now) >= 0
                tree[rows + row] = row if possible else NOWHERE
                node = (rows + row) >> 1
                while node >= 1:
                    tree[node] = cheaper(nodes, costs, kind, tree[2 * node], tree[2 * node + 1])
                    node >>= 1
    costs.position[kind] = head


@_compiled
def preempt(
    nodes: Nodes,
    shapes: Shapes,
    counters: Counters,
    residents: Residents,
    costs: Costs,
    plans: Plans,
    now: Number,
) -> None:
    """Plan for preemptors in order. Each takes its place at once; its victims stay, and are spoken for."""
    slots = nodes.row.shape[1]
    chosen = np.int64(0)
    for preemptor in range(plans.kind.shape[0]):
        kind = plans.kind[preemptor]
        refresh_costs(nodes, shapes, residents, costs, kind, now)
        row = costs.tree[kind, 1]
        plans.row[preemptor] = row
        plans.start[preemptor] = chosen
        if row != NOWHERE:
            for number in range(find_victims(nodes, shapes, residents, costs, kind, row, now)):
                place = costs.victims[number]
                plans.victims[chosen] = place
                chosen += 1
                residents.priority[row, place] = STAYS
                for slot in range(slots):
                    residents.leaving[row, slot] += residents.take[row, place, slot]
            commit(nodes, shapes, counters, costs.shape[kind], row, 1)
    plans.start[plans.kind.shape[0]] = chosen
