"""The requeue index: finds the kinds of pending work that a change may make schedulable, without trying them.

The needs of all kinds are compared at once with the free amounts of the changed rows. The kinds within reach are then
checked exactly, filter by filter. A placement elsewhere, or a release on a node that a kind cannot use, cures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mooring.model.nodes.node import Node
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Amount, Mask, Rows
from mooring.scheduling.cluster.columns import NOBODY
from mooring.scheduling.cluster.placed_tasks import Counts
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.node_selection import own_tasks
from mooring.scheduling.plugins.filters import BUILT_IN_FILTERS
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import (
    Filter,
    PluginFailed,
    ask_filter,
    is_concerned,
)
from mooring.scheduling.queue.requeue_hints import (
    NodeChange,
    Watch,
    cured_by_node,
    watches,
)

_NOTHING = np.iinfo(np.int64).min
"""The need for a slot that is not requested: it fits even on an overcommitted node, whose free amount is negative."""

_MAX_CACHED_STATIC_BYTES = 64 << 20
_PLENTY = 1 << 40
_FEW_ROWS = 4
"""Up to this many rows, plain numbers take less time than arrays."""
_FEW_ENTRIES = 64
_MAX_ANALYSED = 1 << 12
_MANY_NODES = 64
"""Above this number of changed nodes, checking all rows costs less than evaluating each change."""

_BLIND_TO_AMOUNTS = frozenset(type(plugin) for plugin in BUILT_IN_FILTERS if plugin.depends_on == "static")
"""Filters that ignore the requested amounts, so that kinds differing only in these share a result. User-defined filters
are not among them: they may look at the amounts."""


@dataclass(slots=True, eq=False)
class Entry:
    """One kind of pending work in the index."""

    workload: Workload
    """A representative of the kind."""
    shape: Shape
    profile: Profile | None
    """None for work that is retried after every change in its pool."""
    needs: Amount = field(default_factory=lambda: np.full(1, _NOTHING))
    """The required task count of a node (1 if a filter limits it), then the required amounts along the slot axis."""
    needed: Sequence[tuple[int, int]] = ()
    """The positions in `needs` with a need, and the need."""
    static: tuple[Filter, ...] = ()
    static_shape: Shape | None = None
    """The part of the shape that the static filters may look at; computed on first use."""
    others: tuple[Filter, ...] = ()
    """Filters that depend on more than a node's properties and free amounts."""
    watched: tuple[Watch, ...] = ()
    row_dependent: bool = True
    """A filter looks at counters of a node that `needs` does not cover: every change of a row counts."""
    wide: bool = False
    """A change on one node may affect other nodes."""
    unnamed: bool = False
    """A filter depends on other nodes without naming the tasks it watches: every change anywhere counts."""
    vocabulary: int = -1
    number: int = -1

    def copy_analysis(self, other: Entry) -> None:
        """Take over the analysis of an entry with the same shape and profile."""
        self.needs, self.needed, self.others = other.needs, other.needed, other.others
        self.static, self.static_shape = other.static, other.static_shape
        self.watched, self.row_dependent, self.wide = other.watched, other.row_dependent, other.wide
        self.unnamed, self.vocabulary = other.unnamed, other.vocabulary

    def analyse(self, cluster: Cluster) -> None:
        """Determine the filters that apply to the shape and what they depend on."""
        if self.profile is None or self.vocabulary == cluster.vocabulary:
            return
        active = [plugin for plugin in self.profile.filters if is_concerned(plugin, self.shape, cluster)]
        self.needs = _needs(active, self.shape, cluster)
        self.needed = [(at, need) for at, need in enumerate(self.needs.tolist()) if need != _NOTHING]
        self.static = tuple(plugin for plugin in active if plugin.depends_on == "static")
        self.static_shape = None
        counted = (ResourcesFilter, TasksPerNodeFilter)
        self.others = tuple(p for p in active if p.depends_on != "static" and not isinstance(p, counted))
        self.row_dependent = any(plugin.depends_on == "row" for plugin in self.others)
        about_others = [plugin for plugin in self.others if plugin.depends_on != "row"]
        named = [watches(plugin, self.shape, cluster) for plugin in about_others]
        self.watched = tuple(watch for watched in named for watch in watched or ())
        self.wide, self.unnamed = bool(named), None in named
        self.vocabulary = cluster.vocabulary


def _needs(active: Iterable[Filter], shape: Shape, cluster: Cluster) -> Amount:
    demands = [plugin.demand(shape, cluster) for plugin in active if isinstance(plugin, ResourcesFilter)]
    needs = np.full(1 + len(cluster.allocatable), _NOTHING)
    for demand in demands:
        needs[1 + demand.slots[:, 0]] = demand.amounts[:, 0]
    if any(isinstance(plugin, TasksPerNodeFilter) for plugin in active):
        needs[0] = 1
    return needs


class RequeueIndex:
    """The pending kinds, with the state of the columns in which none of them could be placed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._entries: list[Entry | None] = []
        self._unused: list[int] = []
        self._needs: Amount = np.full((64, 1), _NOTHING)
        self._pools: NDArray[np.int64] = np.full(64, NOBODY, dtype=np.int64)
        self._row_dependent: Mask = np.zeros(64, dtype=np.bool_)
        self._wide: dict[int, Entry] = {}
        self.unsure: dict[int, Entry] = {}
        """Entries to check on all rows in the next query."""
        self._floor: Amount = np.full((1, 0), _NOTHING)
        """The free amounts at which no entry fitted: [tasks left and slots, row]."""
        self._seen = self._static_seen = self._relabelled = -1
        self._settled = (-1, -1)
        """The revisions of the columns at the end of the last pass."""
        self._capacities: dict[tuple[Shape, tuple[Filter, ...], bool], int] = {}
        """The maximum task counts of kinds since the last query, as far as they were asked for."""
        self._nodes: list[Node | None] = []
        self._counts: dict[Watch, Counts] = {}
        """The watched counts as of the last query."""
        self._static: dict[tuple[Shape, tuple[Filter, ...]], tuple[int, Mask]] = {}
        self._analysed: dict[tuple[Shape, int], Entry] = {}
        """An analysed entry by shape and profile."""
        self._rows_of_pool: dict[str, list[int] | None] = {}
        """The rows of pools with few nodes; None for larger pools."""
        self._pools_seen = -1

    def __len__(self) -> int:
        return len(self._entries) - len(self._unused)

    def add(self, entry: Entry) -> None:
        """Add a kind of work that was just found unschedulable."""
        if self._unused:
            entry.number = self._unused.pop()
            self._entries[entry.number] = entry
        else:
            entry.number = len(self._entries)
            self._entries.append(entry)
        self._analyse(entry)
        self._ensure_capacity(len(self._entries), len(entry.needs))
        self._needs[entry.number] = _padded(entry.needs, self._needs.shape[1])
        self._pools[entry.number] = self._cluster.pools.code(entry.shape.pool)
        self._index(entry)
        self.tried(entry)

    def _index(self, entry: Entry) -> None:
        self._row_dependent[entry.number] = entry.row_dependent
        if entry.wide:
            self._wide[entry.number] = entry

    def tried(self, entry: Entry) -> None:
        """Note that the entry is still unschedulable. Changes within the pass still count from the last query on."""
        self.unsure.pop(entry.number, None)
        if any(watch not in self._counts for watch in entry.watched):
            self.unsure[entry.number] = entry

    def drop(self, entry: Entry) -> None:
        self._entries[entry.number] = None
        self._unused.append(entry.number)
        self._needs[entry.number] = _NOTHING
        self._pools[entry.number] = NOBODY
        self._row_dependent[entry.number] = False
        self._wide.pop(entry.number, None)
        self.unsure.pop(entry.number, None)

    def settle(self) -> None:
        """End a pass: no remaining entry fits into the amounts that are free now."""
        now = (self._cluster.changes.revision, self._cluster.static_changes.revision)
        if now not in (self._settled, (self._seen, self._static_seen)):
            self._floor, self._capacities = self._free(), {}
        self._settled = now

    def nothing_changed(self) -> bool:
        """Return whether no entry can have become schedulable since the end of the last pass."""
        cluster = self._cluster
        return (
            self._settled == (cluster.changes.revision, cluster.static_changes.revision)
            and self._static_seen == cluster.static_changes.revision
            and not (self.unsure or self._wide or cluster.timeline.relieved or self._row_dependent.any())
        )

    def changed_pools(self) -> set[str] | None:
        """Return the pools whose nodes changed since the last query; None for all pools."""
        if self._static_seen == self._cluster.static_changes.revision:
            return set()
        rows = self._cluster.static_changes.since(self._static_seen)
        if rows is None or any(self._cluster.nodes[row] is None for row in rows.tolist()):
            return None
        return {self._cluster.node(row).pool for row in rows.tolist()}

    def cured(self) -> list[Entry]:
        """Return the entries that changes since the last query may make schedulable."""
        cluster = self._cluster
        if self.nothing_changed():
            self._seen, self._relabelled = cluster.changes.revision, cluster.placed_tasks.relabelled
            return []
        free = self._free()
        everywhere: Rows = np.arange(cluster.capacity)
        static_rows = everywhere[:0]
        if self._static_seen != cluster.static_changes.revision:
            static = cluster.static_changes.since(self._static_seen)
            static_rows = everywhere if static is None else static
        relieved = cluster.timeline.take_relieved()
        found: dict[int, Entry] = {}
        if len(self):
            better: Mask = np.logical_or.reduce(free > _enlarged(self._floor, free.shape), axis=0)
            better[static_rows] = True
            better[relieved] = True
            rows = np.flatnonzero(better)
            if len(rows) <= _FEW_ROWS and len(self._entries) <= _FEW_ENTRIES:
                found |= self._among_few(rows.tolist(), free)
            elif len(rows):
                found |= self._among(self._within_reach(~self._row_dependent, rows, free), rows, free)
        if self._row_dependent.any():
            moved = cluster.changes.since(self._seen)
            rows = everywhere if moved is None else np.union1d(moved, static_rows)
            found |= self._among(self._within_reach(self._row_dependent, rows, free), rows, free)
        anywhere = {**self.unsure, **dict(self._affected_elsewhere(static_rows))}
        if anywhere:
            found |= self._among((e for e in anywhere.values() if e.number not in found), everywhere, free)
        self._remember(free)
        return list(found.values())

    def task_capacity(self, entry: Entry) -> int:
        """Return the maximum number of tasks that fit by amounts, static filters and the limit per node.

        It is at least one for an entry that the last query returned.
        """
        workload = entry.workload
        if workload.max_per_node is not None or entry.profile is None:
            return self._task_capacity(entry)
        # Kinds that differ in their tasks or durations alone share the result.
        key = (entry.shape, entry.static, workload.single_node)
        known = self._capacities.get(key)
        if known is None:
            known = self._capacities[key] = self._task_capacity(entry)
        return known

    def has_capacity(self, entry: Entry, tasks: int) -> bool:
        """Return whether so many tasks may fit, if nothing has changed since the last pass. The entry may be new."""
        self._analyse(entry)
        rows = self._few_rows(entry.shape.pool)
        if rows is not None and not self._on_few(entry, rows):
            return False
        return self.task_capacity(entry) >= tasks

    def _analyse(self, entry: Entry) -> None:
        """Analyse an entry, or copy the analysis of another one with the same shape and profile."""
        key = (entry.shape, id(entry.profile))
        alike = self._analysed.get(key)
        if alike is not None and alike.profile is entry.profile and alike.vocabulary == self._cluster.vocabulary:
            entry.copy_analysis(alike)
            return
        entry.analyse(self._cluster)
        if len(self._analysed) >= _MAX_ANALYSED:
            self._analysed.clear()
        self._analysed[key] = entry

    def _few_rows(self, pool: str) -> list[int] | None:
        """Return the rows of a pool if they are few."""
        cluster = self._cluster
        if self._pools_seen != cluster.static_changes.revision:
            self._pools_seen, self._rows_of_pool = cluster.static_changes.revision, {}
        if pool not in self._rows_of_pool:
            rows = cluster.rows_of_pool(pool)
            self._rows_of_pool[pool] = rows.tolist() if len(rows) <= _FEW_ROWS else None
        return self._rows_of_pool[pool]

    def _on_few(self, entry: Entry, rows: Iterable[int]) -> list[int]:
        """Return the rows with the free amounts that an entry needs, by plain numbers."""
        cluster, needed = self._cluster, entry.needed
        allocatable, taken = cluster.allocatable, cluster.taken
        fitting: list[int] = []
        for row in rows:
            for position, need in needed:
                if position:
                    free = allocatable.item(position - 1, row) - taken.item(position - 1, row)
                else:
                    free = cluster.max_tasks.item(row) - cluster.tasks.item(row)
                if need > free:
                    break
            else:
                fitting.append(row)
        return fitting

    def _task_capacity(self, entry: Entry) -> int:
        cluster, workload, free = self._cluster, entry.workload, self._floor
        try:
            rows = self._allowed(entry).nonzero()[0]
        except PluginFailed:
            return _PLENTY
        needs, free = entry.needs[:, None], free[: len(entry.needs), rows]
        asked = entry.needs > 0
        each = np.minimum(_PLENTY, (free[asked] // needs[asked]).min(axis=0, initial=_PLENTY))
        each[(needs > free).any(axis=0)] = 0
        if workload.max_per_node is not None:
            each = np.minimum(each, workload.max_per_node - own_tasks(workload, cluster)[rows])
        each = each.clip(0)
        return int(each.max(initial=0) if workload.single_node else each.sum())

    def _within_reach(self, chosen: Mask, rows: Rows, free: Amount) -> Iterator[Entry]:
        """Yield the chosen entries whose needs the maxima of the rows meet; a single row may not meet all of them."""
        pools = self._cluster.pool[rows]
        for pool in sorted(set(pools.tolist())):
            if pool == NOBODY:
                continue
            most = free[:, rows[pools == pool]].max(axis=1)
            needs = self._needs
            near = chosen & (self._pools == pool) & (needs <= most[: needs.shape[1]]).all(axis=1)
            for number in np.flatnonzero(near).tolist():
                entry = self._entries[number]
                assert entry is not None
                yield entry

    def _among(self, entries: Iterable[Entry], rows: Rows, free: Amount) -> dict[int, Entry]:
        """Return the entries that fit on at least one of the rows, by number."""
        pools = self._cluster.pool[rows]
        known: dict[tuple[Shape, int], bool] = {}
        found: dict[int, Entry] = {}
        for entry in entries:
            # Kinds that differ in their tasks or durations alone share the answer, once they are analysed.
            key = (entry.shape, id(entry.profile))
            alike = entry.workload.max_per_node is None and entry.vocabulary == self._cluster.vocabulary
            fits = known.get(key) if alike else None
            if fits is None:
                fits = self._fits_on(entry, rows[pools == self._pools[entry.number]], free)
                if alike:
                    known[key] = fits
            if fits:
                found[entry.number] = entry
        return found

    def _among_few(self, rows: Sequence[int], free: Amount) -> dict[int, Entry]:
        """Return the entries without a need that depends on the row that fit on at least one of a few rows."""
        found: dict[int, Entry] = {}
        for number, entry in enumerate(self._entries):
            if entry is None or entry.row_dependent:
                continue
            pool = self._pools.item(number)
            fitting = self._on_few(entry, [row for row in rows if self._cluster.pool.item(row) == pool])
            if fitting and self._fits_on_few(entry, fitting, free):
                found[number] = entry
        return found

    def _fits_on_few(self, entry: Entry, rows: Sequence[int], free: Amount) -> bool:
        """Return the answer of `_fits_on` for rows with the free amounts."""
        if entry.others or entry.workload.max_per_node is not None or entry.vocabulary != self._cluster.vocabulary:
            return self._fits_on(entry, np.array(rows, dtype=np.intp), free)
        try:
            allowed = self._allowed(entry)
        except PluginFailed:
            return True  # The pass reports the failure.
        return any(allowed.item(row) for row in rows)

    def _fits_on(self, entry: Entry, rows: Rows, free: Amount) -> bool:
        rows = rows[(entry.needs[:, None] <= free[: len(entry.needs), rows]).all(axis=0)]
        limit = entry.workload.max_per_node
        if len(rows) and limit is not None:
            rows = rows[own_tasks(entry.workload, self._cluster)[rows] < limit]
        try:
            entry.analyse(self._cluster)
            self._index(entry)
            if len(rows):
                rows = rows[self._allowed(entry)[rows]]
            for plugin in entry.others:
                if not len(rows):
                    return False
                rows = rows[ask_filter(plugin, entry.shape, self._cluster, rows)]
        except PluginFailed:
            return True  # The pass reports the failure.
        return bool(len(rows))

    def _allowed(self, entry: Entry) -> Mask:
        """Return the rows that the static filters accept, cached for all kinds that these do not distinguish."""
        cluster = self._cluster
        if entry.static_shape is None:
            blind = all(type(plugin) in _BLIND_TO_AMOUNTS for plugin in entry.static)
            entry.static_shape = replace(entry.shape, request=(), uncounted=(0, 0)) if blind else entry.shape
        key = (entry.static_shape, entry.static)
        seen, mask = self._static.get(key, (-1, np.empty(0, dtype=np.bool_)))
        if seen == cluster.static_changes.revision and len(mask) == cluster.capacity:
            return mask
        rows = cluster.static_changes.since(seen)
        if rows is None or len(mask) != cluster.capacity:
            mask = np.zeros(cluster.capacity, dtype=np.bool_)
            rows = np.arange(cluster.capacity)
        if len(rows):
            mask[rows] = False
            passing = rows[cluster.pool[rows] == cluster.pools.code(entry.shape.pool)]
            for plugin in entry.static:
                if len(passing):
                    passing = passing[ask_filter(plugin, entry.shape, cluster, passing)]
            mask[passing] = True
        if seen < 0 and len(self._static) * cluster.capacity >= _MAX_CACHED_STATIC_BYTES:
            del self._static[next(iter(self._static))]
        self._static[key] = (cluster.static_changes.revision, mask)
        return mask

    def _affected_elsewhere(self, static_rows: Rows) -> Iterator[tuple[int, Entry]]:
        """Yield the entries affected by tasks that arrived or left, or nodes that changed, elsewhere in the cluster."""
        cluster = self._cluster
        if len(static_rows) > _MANY_NODES or cluster.placed_tasks.relabelled != self._relabelled:
            yield from self._wide.items()
            return
        if not self._wide:
            return
        moved = {watch for watch, was in self._counts.items() if self._moved(watch, was)}
        before = self._nodes if len(self._nodes) == cluster.capacity else [None] * cluster.capacity
        changes = [NodeChange(before[row], cluster.nodes[row]) for row in static_rows.tolist()]
        anything = cluster.changes.revision != self._seen
        for number, entry in self._wide.items():
            if (
                (entry.unnamed and anything)
                or any(watch in moved for watch in entry.watched)
                or any(cured_by_node(p, entry.shape, cluster, change) for p in entry.others for change in changes)
            ):
                yield number, entry

    def _moved(self, watch: Watch, was: Counts) -> bool:
        now = watch.counts(self._cluster)
        if len(now) != len(was):
            return True
        return bool((watch.coming and (now > was).any()) or (watch.leaving and (now < was).any()))

    def _remember(self, free: Amount) -> None:
        cluster = self._cluster
        self._floor = free
        self._capacities = {}
        self._seen, self._static_seen = cluster.changes.revision, cluster.static_changes.revision
        self._relabelled = cluster.placed_tasks.relabelled
        self.unsure.clear()
        self._counts = {}
        if self._wide:
            self._nodes = list(cluster.nodes)
            watched = {watch for entry in self._wide.values() for watch in entry.watched}
            self._counts = {watch: watch.counts(cluster).copy() for watch in watched}

    def _free(self) -> Amount:
        cluster = self._cluster
        free = np.empty((1 + len(cluster.allocatable), cluster.capacity), dtype=np.int64)
        np.subtract(cluster.max_tasks, cluster.tasks, out=free[0])
        np.subtract(cluster.allocatable, cluster.taken, out=free[1:])
        return free

    def _ensure_capacity(self, entries: int, slots: int) -> None:
        capacity, width = self._needs.shape
        larger = (max(capacity, 2 * entries) if entries > capacity else capacity, max(width, slots))
        if larger != self._needs.shape:
            self._needs = _enlarged(self._needs, larger)
            grown = larger[0] - len(self._pools)
            self._pools = np.concatenate((self._pools, np.full(grown, NOBODY, dtype=np.int64)))
            self._row_dependent = np.concatenate((self._row_dependent, np.zeros(grown, dtype=np.bool_)))


def _padded(needs: Amount, length: int) -> Amount:
    return np.concatenate((needs, np.full(max(0, length - len(needs)), _NOTHING)))


def _enlarged(array: Amount, shape: tuple[int, ...]) -> Amount:
    """Return the array enlarged to this shape, filled with `_NOTHING`."""
    if array.shape == shape:
        return array
    larger = np.full(shape, _NOTHING)
    larger[: array.shape[0], : array.shape[1]] = array
    return larger
