"""Counters of placed tasks for the kernels: per row, per domain, and the terms of shapes that read them.

A counter counts the placed tasks of one source. A view sums it over the domains of a level, over the rows in its mask.
Where every domain of a level is one row, terms are part of the row's key; otherwise they are added per group.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout
from mooring.scheduling.compiled.key_trees import tree_length
from mooring.scheduling.compiled.lowering import LoweredProfile
from mooring.scheduling.compiled.topology.counter_changes import (
    CountedLabels,
    increment,
    sources_of,
    sources_of_placed_tasks,
)
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTermKind

_KINDS = {
    KernelTermKind.SPREAD: layout.SPREAD,
    KernelTermKind.AFFINITY: layout.AFFINITY,
    KernelTermKind.ANTI_AFFINITY: layout.ANTI_AFFINITY,
    KernelTermKind.FEWER_TASKS: layout.FEWER_TASKS,
    KernelTermKind.PREFERRED_TASKS: layout.PREFERRED_TASKS,
}
_HISTOGRAM = 1024
"""Counts below this are tracked in a histogram to find the lowest count over rows; above it, all rows are searched."""


class TopologyCounters:
    """The tables in which the kernels count placed tasks, and the kernel terms of shapes."""

    def __init__(self, cluster: Cluster, lowered: LoweredProfile) -> None:
        self._cluster = cluster
        self._profile = lowered
        self._sources: dict[CounterSource, int] = {}
        self._labels: dict[CountedLabels, int] = {}
        self._shapes: list[tuple[Shape, int]] = []
        self._lowered: dict[int, int] = {}
        """By code of a shape, the epoch in which its terms were written to the tables."""
        self._epoch = 0
        self._vocabulary = -1
        self._adds: list[list[int]] = []
        self._rows: NDArray[np.int32] = np.zeros((1, cluster.capacity), dtype=np.int32)
        self.counters: layout.Counters
        self.partitions: layout.Partitions
        self._start_views()
        self._build()
        self.adds_start, self.adds = _flat([[]])
        self._vocabulary = cluster.vocabulary
        for source in sources_of_placed_tasks(cluster):
            self._counter(source)
        self.changed = True

    @property
    def counters_known(self) -> int:
        return len(self._sources)

    def register(self, code: int, shape: Shape) -> None:
        """Add a shape. `code` counts up from 0."""
        label = CountedLabels.of(shape)
        number = self._labels.get(label)
        if number is None:
            number = self._labels[label] = len(self._labels)
            self._adds.append(
                [at for source, at in self._sources.items() for _ in range(increment(label, source, self._cluster))]
            )
            for source in sources_of(label):
                self._counter(source)
            self.changed = True
        self._shapes.append((shape, number))

    def update(self, rows: Rows, static_rows: Rows) -> None:
        """Take over changes of rows that the kernels did not make."""
        if self._vocabulary != self._cluster.vocabulary:
            self._vocabulary = self._cluster.vocabulary
            for source in sources_of_placed_tasks(self._cluster):
                self._counter(source)
            for label, number in self._labels.items():
                self._adds[number] = [
                    at for source, at in self._sources.items() for _ in range(increment(label, source, self._cluster))
                ]
            self._epoch += 1
            self.changed = True
        if not self._sources and not self._profile.counting_scorers:
            return
        if len(static_rows):
            # Labels, and hence domains, may have changed: every view is built again.
            self._start_views()
            self._epoch += 1
        for source, counter in self._sources.items():
            now = source.counts(self._cluster)
            mine = self.counters.rows[counter]
            if now is None or np.array_equal(now[rows], mine[rows]):
                continue
            mine[rows] = now[rows]
            for view, (of, level, _) in enumerate(self._views):
                if of == counter:
                    self._count(view, level)

    def prepare(self, codes: Iterable[int], fields: NDArray[np.int64], cache: layout.KeyCache) -> bool:
        """Write the terms of these shapes to the tables. Return whether tables were replaced."""
        lowered, epoch = self._lowered, self._epoch
        for code in codes:
            if lowered.get(code) != epoch:
                self._lower(code, fields, cache)
        if not self.changed:
            return False
        self._build()
        self.adds_start, self.adds = _flat(self._adds)
        self.changed = False
        return True

    def _lower(self, code: int, fields: NDArray[np.int64], cache: layout.KeyCache) -> None:
        shape, label = self._shapes[code]
        terms = self._profile.terms(shape, self._cluster, self._sources)
        first = len(self._terms)
        levels: set[int] = set()
        host_terms = domain_terms = 0
        for term in terms:
            level = self._level(term.topology_key)
            host = self._single[level]
            view = self._view(self._counter(term.source), level, term.mask)
            host_terms += host
            domain_terms += not host
            if not host:
                levels.add(level)
            entry = np.zeros(layout.TERM_FIELDS, dtype=np.int64)
            entry[layout.KIND] = _KINDS[term.kind]
            entry[layout.VIEW] = view
            entry[layout.HOST] = host
            entry[layout.LEVEL] = level
            entry[layout.COUNTER] = self._sources[term.source]
            entry[layout.LIMIT] = term.limit
            entry[layout.SELF] = term.counts_itself
            entry[layout.BASE] = term.base
            entry[layout.WEIGHT] = term.weight
            entry[layout.MIN_DOMAINS] = term.min_domains
            self._terms.append(entry)
        partition = self._partition(tuple(sorted(levels)))
        self._lowered[code] = self._epoch
        entry = fields[code]
        entry[layout.FIRST_TERM], entry[layout.LAST_TERM] = first, len(self._terms)
        entry[layout.HOST_TERMS], entry[layout.DOMAIN_TERMS] = host_terms, domain_terms
        entry[layout.PARTITION] = partition
        entry[layout.LABELS] = label
        cached = int(entry[layout.ENTRY])
        if cached >= 0:
            cache.position[cached] = layout.NEVER
        if terms:
            self.changed = True

    def _start_views(self) -> None:
        self._levels: dict[str, int] = {}
        self._codes: list[NDArray[np.int32]] = [np.arange(self._cluster.capacity, dtype=np.int32)]
        self._single: list[bool] = [True]
        self._sizes: list[int] = [self._cluster.capacity]
        self._masks: dict[bytes, int] = {}
        self._mask_rows: list[Mask] = [np.ones(self._cluster.capacity, dtype=np.bool_)]
        self._views: list[tuple[int, int, int]] = []
        self._view_of: dict[tuple[int, int, int], int] = {}
        self._partitions: dict[tuple[int, ...], int] = {(): 0}
        self._terms: list[NDArray[np.int64]] = []
        self.changed = True

    def _counter(self, source: CounterSource) -> int:
        counter = self._sources.get(source)
        if counter is None:
            counter = self._sources[source] = len(self._sources)
            if counter == len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
                self.counters = self.counters._replace(rows=self._rows)
            counts = source.counts(self._cluster)
            self._rows[counter] = 0 if counts is None else counts
            for label, number in self._labels.items():
                self._adds[number] += [counter] * increment(label, source, self._cluster)
            if source.concerns_others:
                self._epoch += 1
            self.changed = True
        return counter

    def _level(self, key: str) -> int:
        level = self._levels.get(key)
        if level is None:
            codes, size = self._cluster.domains(key)
            present = codes[self._cluster.rows]
            present = present[present >= 0]
            level = self._levels[key] = len(self._codes)
            self._codes.append(codes.copy())
            self._single.append(len(np.unique(present)) == len(present))
            self._sizes.append(size)
            self.changed = True
        return level

    def _view(self, counter: int, level: int, mask: Mask | None) -> int:
        number = 0
        if mask is not None:
            key = mask.tobytes()
            number = self._masks.get(key, 0)
            if number == 0:
                number = self._masks[key] = len(self._mask_rows)
                self._mask_rows.append(mask)
        view = self._view_of.get((counter, level, number))
        if view is None:
            view = self._view_of[counter, level, number] = len(self._views)
            self._views.append((counter, level, number))
            self.changed = True
        return view

    def _partition(self, levels: tuple[int, ...]) -> int:
        partition = self._partitions.get(levels)
        if partition is None:
            partition = self._partitions[levels] = len(self._partitions)
            self.changed = True
        return partition

    def _build(self) -> None:
        """Build all tables as arrays, and count the views from the rows."""
        views = max(len(self._views), 1)
        widest = max((self._sizes[level] for _, level, _ in self._views if not self._single[level]), default=1)
        following: list[list[int]] = [[] for _ in range(max(len(self._sources), 1))]
        for view, (counter, _, _) in enumerate(self._views):
            following[counter].append(view)
        views_start, flat_views = _flat(following)
        any_single = any(self._single[level] for _, level, _ in self._views)
        self.counters = layout.Counters(
            rows=self._rows,
            views_start=views_start,
            views=flat_views,
            view_level=np.array([level for _, level, _ in self._views] or [0], dtype=np.int32),
            view_mask=np.array([mask for _, _, mask in self._views] or [0], dtype=np.int32),
            domain=np.zeros((views, max(widest, 1)), dtype=np.int32),
            total=np.zeros(views, dtype=np.int64),
            present=np.zeros((views, max(widest, 1)), dtype=np.uint8),
            histogram=np.zeros((views, _HISTOGRAM if any_single else 1), dtype=np.int32),
            lowest=np.full(views, -1, dtype=np.int64),
            masks=np.array(self._mask_rows, dtype=np.uint8),
            codes=np.array(self._codes, dtype=np.int32),
            sizes=np.array(self._sizes, dtype=np.int32),
            domains=np.zeros(views, dtype=np.int32),
        )
        for view, (_, level, _) in enumerate(self._views):
            self._count(view, level)
        self._build_partitions()
        self.terms = np.array(self._terms or [np.zeros(layout.TERM_FIELDS, dtype=np.int64)])

    def _count(self, view: int, level: int) -> None:
        """Sum a view from the rows of its counter."""
        counters = self.counters
        counter, _, mask = self._views[view]
        codes = self._codes[level]
        included = np.flatnonzero(self._mask_rows[mask] & (codes >= 0) & (self._cluster.pool >= 0))
        counts = counters.rows[counter, included]
        counters.total[view] = counts.sum()
        if self._single[level]:
            counters.domains[view] = len(included)
            top = _HISTOGRAM - 1
            counters.histogram[view] = np.bincount(np.minimum(counts, top), minlength=_HISTOGRAM)
            counters.lowest[view] = counts.min() if len(counts) else 0
            return
        domains = np.zeros(counters.domain.shape[1], dtype=np.int64)
        np.add.at(domains, codes[included], counts)
        counters.domain[view] = domains
        counters.present[view] = 0
        counters.present[view, codes[included]] = 1
        counters.domains[view] = int(counters.present[view].sum())
        counters.lowest[view] = -1

    def _build_partitions(self) -> None:
        capacity, rows = self._cluster.capacity, self._cluster.rows
        number = len(self._partitions)
        grouped = {}
        for levels, partition in self._partitions.items():
            if levels:
                of_levels = np.array([self._codes[level][rows] for level in levels])
                grouped[partition] = (levels, *np.unique(of_levels, axis=1, return_inverse=True))
        self.most_groups = max([1, *(values.shape[1] for _, values, _ in grouped.values())])
        self.tree_length = tree_length(capacity)
        partitions = layout.Partitions(
            groups=np.ones(number, dtype=np.int32),
            group=np.zeros((number, capacity), dtype=np.int32),
            leaf=np.full((number, capacity), -1, dtype=np.int32),
            start=np.zeros((number, self.most_groups), dtype=np.int32),
            size=np.zeros((number, self.most_groups), dtype=np.int32),
            code=np.full((number, len(self._codes), self.most_groups), -1, dtype=np.int32),
        )
        for partition, (levels, values, inverse) in grouped.items():
            groups = values.shape[1]
            sizes = np.bincount(inverse, minlength=groups)
            firsts = np.cumsum(sizes) - sizes
            lengths = _tree_lengths(sizes)
            starts = np.cumsum(lengths) - lengths
            self.tree_length = max(self.tree_length, int(lengths.sum()))
            order = np.argsort(inverse, kind="stable")
            offset = np.empty(len(rows), dtype=np.int64)
            offset[order] = np.arange(len(rows)) - firsts[inverse[order]]
            partitions.groups[partition] = groups
            partitions.group[partition, rows] = inverse
            partitions.leaf[partition, rows] = starts[inverse] + offset
            partitions.start[partition, :groups] = starts
            partitions.size[partition, :groups] = sizes
            for level, codes in zip(levels, values, strict=True):
                partitions.code[partition, level, :groups] = codes
        self.partitions = partitions


def _tree_lengths(sizes: NDArray[np.intp]) -> NDArray[np.int64]:
    distinct, inverse = np.unique(sizes, return_inverse=True)
    lengths: NDArray[np.int64] = np.array([tree_length(size) for size in distinct.tolist()], dtype=np.int64)[inverse]
    return lengths


def _flat(lists: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the start of each list and the concatenation of all lists."""
    start = np.zeros(len(lists) + 1, dtype=np.int32)
    np.cumsum([len(entries) for entries in lists], out=start[1:])
    return start, np.array([entry for entries in lists for entry in entries] or [0], dtype=np.int32)
