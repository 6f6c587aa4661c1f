"""The lookout: which kinds of waiting work could be placed after what changed, found without trying them.

All kinds are compared with the changed rows at once: what they ask for with what is free. Those within reach are then
asked about exactly, filter by filter. A placement elsewhere, or a release where a kind could not go, cures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mooring.model.nodes import Node
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Amount, Mask, Rows
from mooring.scheduling.columns import NOBODY, Cluster
from mooring.scheduling.filters import BUILT_IN_FILTERS
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.hints import NodeChange, Watch, cured_by_node, watches
from mooring.scheduling.placed import Counts
from mooring.scheduling.plugins import Filter, PluginFailed, ask_filter, is_concerned
from mooring.scheduling.profiles import Profile
from mooring.scheduling.selection import own_tasks
from mooring.scheduling.shapes import Shape

_NOTHING = np.iinfo(np.int64).min
"""The need of a slot that is not asked for: it fits even where less than nothing is free."""

_STATIC_BYTES_KEPT = 64 << 20
_PLENTY = 1 << 40
_MANY_NODES = 64
"""Where more changed than this, to look everywhere costs less than to ask about each."""

_BLIND_TO_AMOUNTS = frozenset(type(plugin) for plugin in BUILT_IN_FILTERS if plugin.depends_on == "static")
"""Filters to which kinds that differ only in the amounts they ask for are the same; one of a user may look at these."""


@dataclass(slots=True, eq=False)
class Entry:
    """One kind of waiting work, as the lookout sees it."""

    workload: Workload
    """One of the kind."""
    shape: Shape
    profile: Profile | None
    """None for work that is worth a try after every change in its pool."""
    needs: Amount = field(default_factory=lambda: np.full(1, _NOTHING))
    """The tasks left on a node (1, if that is looked at) and the slots, along the slot axis."""
    static: tuple[Filter, ...] = ()
    static_shape: Shape | None = None
    """The shape as far as the static filters may look at it, once that was needed."""
    others: tuple[Filter, ...] = ()
    """Filters that look at more than what a node is and what is free of it."""
    watched: tuple[Watch, ...] = ()
    attentive: bool = True
    """A filter looks at counters of a node that are not among the needs: every change of a row counts."""
    wide: bool = False
    """A change of one node may be felt on others."""
    unnamed: bool = False
    """A filter looks at other nodes and does not say what for: every change anywhere counts."""
    vocabulary: int = -1
    number: int = -1

    def study(self, cluster: Cluster) -> None:
        """Learn which filters have something to say about the shape, and what they look at."""
        if self.profile is None or self.vocabulary == cluster.vocabulary:
            return
        active = [plugin for plugin in self.profile.filters if is_concerned(plugin, self.shape, cluster)]
        self.needs = _needs(active, self.shape, cluster)
        self.static = tuple(plugin for plugin in active if plugin.depends_on == "static")
        self.static_shape = None
        counted = (ResourcesFilter, TasksPerNodeFilter)
        self.others = tuple(p for p in active if p.depends_on != "static" and not isinstance(p, counted))
        self.attentive = any(plugin.depends_on == "row" for plugin in self.others)
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


class Lookout:
    """Remembers the columns as they were when nothing in the room could be placed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._entries: list[Entry | None] = []
        self._unused: list[int] = []
        self._needs: Amount = np.full((64, 1), _NOTHING)
        self._pools: NDArray[np.int64] = np.full(64, NOBODY, dtype=np.int64)
        self._attentive: Mask = np.zeros(64, dtype=np.bool_)
        self._wide: dict[int, Entry] = {}
        self.unsure: dict[int, Entry] = {}
        """To be asked about on all rows at the next look."""
        self._floor: Amount = np.full((1, 0), _NOTHING)
        """What was free when every entry was found wanting: [tasks left and slots, row]."""
        self._seen = self._static_seen = self._relabelled = -1
        self._nodes: list[Node | None] = []
        self._counts: dict[Watch, Counts] = {}
        """What was watched, as it was at the last look."""
        self._static: dict[tuple[Shape, tuple[Filter, ...]], tuple[int, Mask]] = {}

    def __len__(self) -> int:
        return len(self._entries) - len(self._unused)

    def add(self, entry: Entry) -> None:
        """Look out for a kind of work that was just found wanting."""
        if self._unused:
            entry.number = self._unused.pop()
            self._entries[entry.number] = entry
        else:
            entry.number = len(self._entries)
            self._entries.append(entry)
        entry.study(self._cluster)
        self._make_room(len(self._entries), len(entry.needs))
        self._needs[entry.number] = _padded(entry.needs, self._needs.shape[1])
        self._pools[entry.number] = self._cluster.pools.code(entry.shape.pool)
        self._index(entry)
        self.tried(entry)

    def _index(self, entry: Entry) -> None:
        self._attentive[entry.number] = entry.attentive
        if entry.wide:
            self._wide[entry.number] = entry

    def tried(self, entry: Entry) -> None:
        """It was found wanting again. What others of the same pass changed counts from the last look on."""
        self.unsure.pop(entry.number, None)
        if any(watch not in self._counts for watch in entry.watched):
            self.unsure[entry.number] = entry

    def drop(self, entry: Entry) -> None:
        self._entries[entry.number] = None
        self._unused.append(entry.number)
        self._needs[entry.number] = _NOTHING
        self._pools[entry.number] = NOBODY
        self._attentive[entry.number] = False
        self._wide.pop(entry.number, None)
        self.unsure.pop(entry.number, None)

    def settle(self) -> None:
        """The pass is through: nothing that is still here fits into what is free now."""
        self._floor = self._free()

    def changed_pools(self) -> set[str] | None:
        """The pools with nodes that are other than at the last look; None for all."""
        rows = self._cluster.static_changes.since(self._static_seen)
        if rows is None or any(self._cluster.nodes[row] is None for row in rows.tolist()):
            return None
        return {self._cluster.node(row).pool for row in rows.tolist()}

    def cured(self) -> list[tuple[Entry, int]]:
        """The entries that could be placed now, by what changed since the last look, with how many tasks at most."""
        cluster = self._cluster
        free = self._free()
        everywhere = np.arange(cluster.capacity)
        static = cluster.static_changes.since(self._static_seen)
        static_rows: Rows = everywhere if static is None else static
        relieved = cluster.timeline.take_relieved()
        found: dict[int, Entry] = {}
        if len(self):
            better: Mask = np.logical_or.reduce(free > _enlarged(self._floor, free.shape), axis=0)
            better[static_rows] = True
            better[relieved] = True
            rows = np.flatnonzero(better)
            found |= self._among(self._within_reach(~self._attentive, rows, free), rows, free)
        if self._attentive.any():
            moved = cluster.changes.since(self._seen)
            rows = everywhere if moved is None else np.union1d(moved, static_rows)
            found |= self._among(self._within_reach(self._attentive, rows, free), rows, free)
        anywhere = {**self.unsure, **dict(self._felt_elsewhere(static_rows))}
        found |= self._among((e for e in anywhere.values() if e.number not in found), everywhere, free)
        self._remember(free)
        return [(entry, self._room_for(entry, free)) for entry in found.values()]

    def _room_for(self, entry: Entry, free: Amount) -> int:
        """How many tasks of the kind there is room for at most, by amounts and by what the nodes are."""
        cluster, workload = self._cluster, entry.workload
        try:
            rows = np.flatnonzero(self._allowed(entry))
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
        """The chosen entries whose needs the best of the rows meet slot by slot, though perhaps no row meets all."""
        pools = self._cluster.pool[rows]
        for pool in np.unique(pools).tolist():
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
        """Those of the entries that some of the rows could take."""
        pools = self._cluster.pool[rows]
        return {e.number: e for e in entries if self._fits_on(e, rows[pools == self._pools[e.number]], free)}

    def _fits_on(self, entry: Entry, rows: Rows, free: Amount) -> bool:
        rows = rows[(entry.needs[:, None] <= free[: len(entry.needs), rows]).all(axis=0)]
        limit = entry.workload.max_per_node
        if len(rows) and limit is not None:
            rows = rows[own_tasks(entry.workload, self._cluster)[rows] < limit]
        try:
            entry.study(self._cluster)
            self._index(entry)
            if len(rows):
                rows = rows[self._allowed(entry)[rows]]
            for plugin in entry.others:
                if not len(rows):
                    return False
                rows = rows[ask_filter(plugin, entry.shape, self._cluster, rows)]
        except PluginFailed:
            return True  # The pass says what is wrong with it.
        return bool(len(rows))

    def _allowed(self, entry: Entry) -> Mask:
        """What the static filters say, kept for all kinds that they cannot tell apart."""
        cluster = self._cluster
        if entry.static_shape is None:
            blind = all(type(plugin) in _BLIND_TO_AMOUNTS for plugin in entry.static)
            entry.static_shape = replace(entry.shape, request=(), uncounted=(0, 0)) if blind else entry.shape
        key = (entry.static_shape, entry.static)
        seen, mask = self._static.get(key, (-1, np.empty(0, dtype=np.bool_)))
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
        if seen < 0 and len(self._static) * cluster.capacity >= _STATIC_BYTES_KEPT:
            del self._static[next(iter(self._static))]
        self._static[key] = (cluster.static_changes.revision, mask)
        return mask

    def _felt_elsewhere(self, static_rows: Rows) -> Iterator[tuple[int, Entry]]:
        """The entries for which tasks came or left, or nodes changed, in a way that other nodes feel."""
        cluster = self._cluster
        if len(static_rows) > _MANY_NODES or cluster.placed.relabelled != self._relabelled:
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
        self._seen, self._static_seen = cluster.changes.revision, cluster.static_changes.revision
        self._relabelled = cluster.placed.relabelled
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

    def _make_room(self, entries: int, slots: int) -> None:
        capacity, width = self._needs.shape
        larger = (max(capacity, 2 * entries) if entries > capacity else capacity, max(width, slots))
        if larger != self._needs.shape:
            self._needs = _enlarged(self._needs, larger)
            grown = larger[0] - len(self._pools)
            self._pools = np.concatenate((self._pools, np.full(grown, NOBODY, dtype=np.int64)))
            self._attentive = np.concatenate((self._attentive, np.zeros(grown, dtype=np.bool_)))


def _padded(needs: Amount, length: int) -> Amount:
    return np.concatenate((needs, np.full(max(0, length - len(needs)), _NOTHING)))


def _enlarged(array: Amount, shape: tuple[int, ...]) -> Amount:
    """The array with this shape, `_NOTHING` where it did not reach."""
    if array.shape == shape:
        return array
    larger = np.full(shape, _NOTHING)
    larger[: array.shape[0], : array.shape[1]] = array
    return larger
