"""The compiled engine: the kernels' arrays, kept in step with a cluster, and their placements read back.

It makes the same decisions as the NumPy path (`node_selection`), which remains the definition. `code_of` returns None
for workloads that the kernels cannot place, which are left to that path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.devices import WHOLE, DeviceShare
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster.device_columns import NO_MODELS, DeviceColumn
from mooring.scheduling.cluster.shapes import Shape, of_all, shape_of
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled import layout, placement_kernels
from mooring.scheduling.compiled.array_allocation import (
    log_changes,
    new_key_cache,
    new_nodes,
    new_shapes,
    with_more_classes,
    with_more_shapes,
)
from mooring.scheduling.compiled.expected_fill.tables import FillTables
from mooring.scheduling.compiled.key_layout import KeyLayout
from mooring.scheduling.compiled.lowering import LoweredProfile, StaticKey, lower_profile
from mooring.scheduling.compiled.placement_batch import Batch, Placements, new_results, queue_of
from mooring.scheduling.compiled.request_tables import RequestTables
from mooring.scheduling.compiled.topology.counters import TopologyCounters
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.plugins.protocols import PluginFailed

TOO_FEW_SLOTS = -1
_CLOSED = -1
"""The static answer of a row that may not take a shape."""
_MAX_SHAPES = 1 << 17
_MAX_CLASSES = 1 << 12
"""Beyond these the engine starts again from nothing. Closed rows, which change with the promises on them, make many
classes."""
_MAX_CLASS_BYTES = 1 << 28
_FEW_CLASSES = 64


class CompiledEngine:
    """The compiled counterpart of one cluster under one profile."""

    def __init__(self, cluster: Cluster, profile: Profile, *, mode: int = layout.AUTOMATIC) -> None:
        self.cluster = cluster
        self.profile = profile
        self.mode = mode
        self.lowered: LoweredProfile | None = lower_profile(profile)
        self.nodes: layout.Nodes
        self.shapes: layout.Shapes
        self.key_cache: layout.KeyCache
        self.topology: TopologyCounters
        self._shapes: list[Shape] = []
        """By code."""
        self._weights: list[int] = []
        """By code, the total weight of the scorers that concern the shape."""
        self._constraints_of: list[int] = []
        """By code, the index of its constraints in `_constraints`."""
        self._constraints: list[Constraints] = []
        self._index_of: dict[Constraints, int] = {}
        self._codes: dict[tuple[Shape, tuple[int, ...]], int | None] = {}
        """By shape and the rows that are closed to it."""
        self._codes_with_closed_rows: dict[tuple[int, tuple[int, ...]], int | None] = {}
        self._codes_by_identity: dict[tuple[object, ...], int | None] = {}
        self._referenced: dict[int, Constraints] = {}
        """Constraints by identity, referenced so that an identity keeps meaning the same object."""
        self._classes: dict[tuple[StaticKey, tuple[int, ...]], int] = {}
        self._class_shapes: list[Shape] = []
        """By class, a shape of it."""
        self._seen = self._static_seen = self._membership = -1
        self._capacity = self._slots = self._vocabulary = self._device_rules = self._demand_changes = -1
        self._request_tables: RequestTables
        self._fill: FillTables
        self._keys: KeyLayout

    @property
    def statistics(self) -> tuple[int, int, int, int]:
        """Rows refreshed, rebuilds, scans, and shapes known to fit nowhere without a look."""
        refreshed, rebuilds, scans, dominated = self.key_cache.statistics.tolist()
        return refreshed, rebuilds, scans, dominated

    @property
    def filters_resources(self) -> bool:
        """True if the profile rejects nodes with insufficient free capacity."""
        return self.lowered is not None and "resources" in self.lowered.kernel_filters

    def sync(self) -> bool:
        """Take over the cluster's changes since the last call. Return False if the kernels cannot apply the profile."""
        if self.lowered is None:
            return False
        cluster = self.cluster
        if (
            self._capacity != cluster.capacity
            or self._slots != len(cluster.allocatable)
            or self.nodes.taken is not cluster.taken
            or self._device_rules != cluster.devices.rules
            or (self.lowered.fragmentation and self._demand_changes != cluster.devices.demand_changes)
            or (self._device_column is not None and self.nodes.devices is not self._device_column.free)
            or len(self._shapes) > _MAX_SHAPES
            or len(self._classes) > _MAX_CLASSES
            or (
                self._capacity * max(len(self._classes), 1) * 8 > _MAX_CLASS_BYTES and len(self._classes) > _FEW_CLASSES
            )
        ):
            self._reset()
            return True
        if self._vocabulary != cluster.vocabulary:
            # Plugins may concern shapes that they did not concern before: every shape is looked at again.
            self._vocabulary = cluster.vocabulary
            self._forget_codes()
        self._sync_expected_fill()
        if self._seen == cluster.changes.revision:
            return True
        rows = cluster.changes.since(self._seen)
        static_rows = cluster.static_changes.since(self._static_seen)
        if rows is None or static_rows is None:
            self._reset()
            return True
        if self._membership != cluster.membership:
            self._copy_precedence()
        self._copy_rows(rows)
        try:
            self._refresh_classes(rows, static_rows)
        except PluginFailed:
            self._reset()
            return True
        self.topology.update(rows, static_rows)
        log_changes(self.nodes, rows)
        self.shapes.failed_count[:] = 0
        self.shapes.releases[0] += 1
        self._mark_seen()
        return True

    def code_of(self, workload: Workload) -> int | None:
        """Return the code of the workload's shape, or None if the kernels cannot place it. Call `sync` before.

        TOO_FEW_SLOTS: the columns have no place for a requested slot. Call `add_slots` then; it changes all codes.
        """
        (key,) = self._identities((workload,))
        try:
            return self._codes_by_identity[key]
        except KeyError:
            pass
        code = self._code_of_shape(shape_of(workload, self.cluster))
        if code != TOO_FEW_SLOTS:
            self._referenced[id(workload.constraints)] = workload.constraints
            self._codes_by_identity[key] = code
        return code

    def known_codes(self, workloads: Sequence[Workload]) -> Iterator[int | None]:
        """Yield the codes that `code_of` has returned for such workloads; None where it has not been asked yet."""
        for key in self._identities(workloads):
            yield self._codes_by_identity.get(key)

    def _identities(self, workloads: Sequence[Workload]) -> Iterator[tuple[object, ...]]:
        """Yield for each workload a key that only workloads of the same shape have."""
        owners = self.cluster.owners
        none_owned = len(owners.values) <= 1
        for workload in workloads:
            request, scoring = workload.request, workload.scoring_request
            yield (
                workload.pool,
                workload.runtime,
                workload.architecture,
                workload.region,
                None if none_owned or workload.user_id not in owners else workload.user_id,
                id(workload.constraints),
                None if scoring is None else tuple(scoring.items()),
                *request,
                *request.values(),
            )

    def code_on_single_node(self, workload: Workload) -> int | None:
        """Return the code of the shape of all its tasks on one node, or None if the kernels cannot place them there.

        Tasks that may exclude each other are placed one by one, and so are those that already run on a node.
        """
        constraints, count = workload.constraints, len(workload.tasks)
        independent = not constraints.anti_affinity and not any(spread.hard for spread in constraints.spread)
        limited = workload.max_per_node is not None and workload.max_per_node < count
        if not independent or limited or workload.occupied or constraints.host_ports:
            return None
        return self._code_of_shape(of_all(shape_of(workload, self.cluster), count))

    def code_with_closed_rows(self, code: int, closed: tuple[int, ...]) -> int | None:
        """Return the code of a shape that may not use these rows, or None if the kernels cannot place it.

        Filters that count tasks and scores relative to other nodes would take the closed rows into account.
        """
        if not closed:
            return code
        if (code, closed) not in self._codes_with_closed_rows:
            assert self.lowered is not None
            node_local = self.lowered.normalised is None and self.is_plain(code)
            closed_code = self._code_of_shape(self._shapes[code], closed) if node_local else None
            self._codes_with_closed_rows[code, closed] = closed_code
        return self._codes_with_closed_rows[code, closed]

    def is_plain(self, code: int) -> bool:
        """Return whether only resources and static properties of nodes filter the shape."""
        fields = self.shapes.fields[code]
        wants_devices = bool(fields[layout.WHOLE_DEVICES] or fields[layout.DEVICE_SHARE])
        return not wants_devices and not self.filtering_terms(code)

    def filtering_terms(self, code: int) -> set[int]:
        """Return the kinds of terms by which numbers of other tasks filter the shape."""
        self.prepare({code})
        fields = self.shapes.fields[code]
        kinds = self.shapes.terms[fields[layout.FIRST_TERM] : fields[layout.LAST_TERM], layout.KIND]
        return {layout.SPREAD, layout.AFFINITY, layout.ANTI_AFFINITY}.intersection(kinds.tolist())

    def counters_known(self) -> tuple[int, int]:
        """Return a value that changes when a counter appears or labels of projects change."""
        return self.topology.counters_known, self.cluster.vocabulary

    def can_limit(self, workload: Workload, count: int) -> bool:
        """Return whether the kernels can limit or spread the workload's own tasks per node as it asks."""
        assert self.lowered is not None
        if self.lowered.normalised is not None or (workload.max_per_node is not None and workload.max_per_node < 1):
            return False
        if not workload.spread:
            return True
        return max(workload.occupied.values(), default=0) + count <= self._keys.max_own_tasks

    def add_slots(self, workload: Workload) -> None:
        """Add the slots that a workload requests to the columns."""
        self.cluster.demand(shape_of(workload, self.cluster).request)
        self.sync()

    def place(self, batch: Batch, *, stop: bool = False) -> Placements:
        """Place a batch in order and count the placements in the cluster.

        `stop`: end after the first workload that finds too few nodes.
        """
        queue = self.queue(batch)
        results, decided = self.run(queue, stop=stop)
        total = int(queue.start[-1])
        keys = results.keys[:total]
        rows = self.nodes.row_of[keys & (self._capacity - 1)]
        weighted = (keys >> self._keys.precedence_bits) & self._keys.weighted_mask
        weights = np.array(self._weights, dtype=np.int64)[queue.shape]
        self._count_placements(queue, results, rows)
        return Placements(
            rows.tolist(),
            (weighted // (weights if total == len(weights) else np.repeat(weights, queue.tasks))).tolist(),
            queue.start.tolist(),
            results.found.tolist(),
            results.feasible.tolist(),
            self._devices_given(queue, results, rows),
            decided,
        )

    def queue(self, batch: Batch) -> layout.Queue:
        """Return a batch as arrays, after preparing the shapes in it."""
        self.prepare({code for _, code, _, _ in batch.entries}.union(batch.task_codes.values()))
        return queue_of(batch, self.cluster)

    def run(self, queue: layout.Queue, *, stop: bool = False) -> tuple[layout.Results, int]:
        """Call the kernels once. Return the results and the number of workloads that they decided.

        The kernels write the amounts of the placements into the cluster's columns.
        """
        results = new_results(queue)
        assert self.lowered is not None
        decided = placement_kernels.place(
            self.nodes,
            self.shapes,
            self.topology.counters,
            self.topology.partitions,
            self.key_cache,
            queue,
            results,
            0,
            len(queue.shape),
            self.lowered.kernel,
            stop,
        )
        return results, int(decided)

    def _count_placements(self, queue: layout.Queue, results: layout.Results, rows: NDArray[np.int32]) -> None:
        """Add the placed tasks to the cluster; the kernels wrote the amounts only."""
        cluster, found, tasks = self.cluster, results.found, queue.tasks
        bound = np.where(found < queue.min_tasks, 0, found)
        indices = np.array(self._constraints_of, dtype=np.int64)[queue.shape]
        if len(rows) != len(tasks) or not (bound == tasks).all():
            keeps = np.arange(len(rows)) - np.repeat(queue.start[:-1], tasks) < np.repeat(bound, tasks)
            rows, indices = rows[keeps], np.repeat(indices, tasks)[keeps]
        order = np.argsort(indices, kind="stable")
        indices = indices[order]
        placed: Rows = rows[order].astype(np.intp)
        firsts = np.flatnonzero(np.diff(indices, prepend=-1))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(placed)], strict=False):
            cluster.placed_tasks.add_rows(placed[first:last], self._constraints[int(indices[first])])
        cluster.changes.note(placed.tolist())
        self._mark_seen()

    def _devices_given(
        self, queue: layout.Queue, results: layout.Results, rows: NDArray[np.int32]
    ) -> list[tuple[DeviceShare, ...]]:
        """Return per placement the devices whose bits are set."""
        column = self._device_column
        placed = np.flatnonzero(results.devices)
        if column is None or not len(placed):
            return [()] * len(rows)
        shares = self.shapes.fields[np.repeat(queue.shape, queue.tasks)[placed], layout.DEVICE_SHARE]
        amounts = np.where(shares > 0, shares, WHOLE)
        given: list[tuple[DeviceShare, ...]] = [()] * len(rows)
        entries = np.stack((placed, rows[placed], results.devices[placed], amounts), axis=1)
        for at, row, bits, amount in entries.tolist():
            given[at] = _named(column, row, bits, amount)
        return given

    def named_devices(self, code: int, row: int, bits: int) -> tuple[DeviceShare, ...]:
        """Return the devices whose bits are set, as a task of the shape gets them."""
        if not bits or self._device_column is None:
            return ()
        return _named(self._device_column, row, bits, int(self.shapes.fields[code, layout.DEVICE_SHARE]) or WHOLE)

    def device_index(self) -> NDArray[np.int64] | None:
        """Return the index of every device, [row, device]; -1 where a row has none. None without device columns."""
        column = self._device_column
        return None if column is None else np.where(column.capacity > 0, column.index, -1)

    def _reset(self) -> None:
        cluster, lowered = self.cluster, self.lowered
        assert lowered is not None
        self._capacity, self._slots = cluster.capacity, len(cluster.allocatable)
        self._vocabulary = cluster.vocabulary
        self._device_rules, self._demand_changes = cluster.devices.rules, cluster.devices.demand_changes
        self._forget_codes()
        self._shapes, self._weights = [], []
        self._constraints_of, self._constraints, self._index_of = [], [], {}
        self._classes, self._class_shapes = {}, []
        column = self._device_column
        devices = np.zeros((self._capacity, 1), dtype=np.int64) if column is None else column.free
        models = NO_MODELS if column is None else column.models
        self._request_tables = RequestTables(cluster.devices.typical, models)
        self._keys = KeyLayout.of(self._capacity, lowered.total_weight)
        self.nodes = new_nodes(cluster, devices)
        self._fill = FillTables(cluster, used=lowered.expected_fill > 0, devices=devices.shape[1])
        self._fill.sync()
        self.shapes = new_shapes(cluster, lowered, self._keys, self._request_tables, self._fill.arrays, self.mode)
        self.topology = TopologyCounters(cluster, lowered)
        self._empty_key_cache()
        self._copy_precedence()
        self._copy_rows(np.arange(self._capacity))
        self._mark_seen()

    def _sync_expected_fill(self) -> None:
        """Take over the demand by which the expected fill is measured; every score follows from it."""
        if self._fill.sync():
            self.shapes = self.shapes._replace(fill=self._fill.arrays)
            self._fill.write_rows(np.arange(self._capacity), self.nodes.fill)
            self.key_cache.position[:] = layout.NEVER

    def _forget_codes(self) -> None:
        self._codes, self._codes_with_closed_rows = {}, {}
        self._codes_by_identity, self._referenced = {}, {}

    def _empty_key_cache(self) -> None:
        self.key_cache = new_key_cache(self._capacity, self.topology.most_groups, self.topology.tree_length)
        self.shapes.fields[:, layout.ENTRY] = -1

    def _mark_seen(self) -> None:
        self._seen = self.cluster.changes.revision
        self._static_seen = self.cluster.static_changes.revision

    def _copy_precedence(self) -> None:
        precedence = self.cluster.precedence
        rows = self.cluster.rows
        self.nodes.precedence[:] = precedence
        self.nodes.row_of[precedence[rows]] = rows
        self.nodes.used_rows[0] = rows.max(initial=-1) + 1
        static = self.shapes.static[: len(self._class_shapes)]
        without_precedence = static >> self._keys.precedence_bits << self._keys.precedence_bits
        np.copyto(static, without_precedence + precedence, where=static >= 0)
        self.key_cache.scratch[:] = layout.INFEASIBLE
        self.key_cache.position[:] = layout.NEVER
        self._membership = self.cluster.membership

    def _copy_rows(self, rows: Rows) -> None:
        cluster, nodes = self.cluster, self.nodes
        free = cluster.allocatable[:, rows] - cluster.taken[:, rows]
        free_tasks = cluster.max_tasks[rows] - cluster.tasks[rows]
        inverse = cluster.inverse[:2, rows]
        nodes.free_by_slot[:-1, rows] = free
        nodes.free_by_slot[-1, rows] = free_tasks
        nodes.free_by_row[rows, :-1] = free.T
        nodes.free_by_row[rows, -1] = free_tasks
        devices = nodes.devices[rows]
        nodes.free_devices[rows] = (devices >= WHOLE).sum(axis=1)
        nodes.largest_share[rows] = devices.max(axis=1)
        nodes.fragmentation[rows] = layout.UNKNOWN
        if self._device_column is not None:
            nodes.models[rows] = self._device_column.model[rows, 0]
        self._fill.write_rows(rows, nodes.fill)
        nodes.inverse_by_slot[:, rows] = inverse
        nodes.inverse_by_row[rows] = inverse.T

    def _refresh_classes(self, rows: Rows, static_rows: Rows) -> None:
        """Compute the static answers again for rows that changed other than by placements."""
        assert self.lowered is not None
        stale = rows if self.lowered.reads_load else static_rows
        if not len(stale):
            return
        # Classes that differ in their closed rows alone share the answers.
        answers: dict[StaticKey, NDArray[np.int64]] = {}
        for (static_key, closed), number in self._classes.items():
            shape = self._class_shapes[number]
            if static_key not in answers:
                answers[static_key] = self._static_keys(shape, stale)
            self.shapes.static[number, stale] = answers[static_key]
            self.shapes.static[number, list(closed)] = _CLOSED
            self._write_levels(number, shape)

    def _code_of_shape(self, shape: Shape, closed: tuple[int, ...] = ()) -> int | None:
        try:
            return self._codes[shape, closed]
        except KeyError:
            code = self._register(shape, closed)
            if code != TOO_FEW_SLOTS:
                self._codes[shape, closed] = code
            return code

    def _register(self, shape: Shape, closed: tuple[int, ...]) -> int | None:
        lowered, cluster = self.lowered, self.cluster
        assert lowered is not None
        try:
            if not lowered.accepts(shape, cluster):
                return None
            unknown = sum(cluster.slot_of(name) is None for name, _ in shape.request)
            if unknown and len(cluster.slot_names) + unknown > self._slots:
                return TOO_FEW_SLOTS
            number = self._class_of(shape, closed)
            weight = max(lowered.weight_of(shape, cluster), 1)
        except PluginFailed:
            # The NumPy path meets the same failure and reports it.
            return None
        code = len(self._shapes)
        self._shapes.append(shape)
        self._weights.append(weight)
        index = self._index_of.setdefault(shape.constraints, len(self._constraints))
        if index == len(self._constraints):
            self._constraints.append(shape.constraints)
        self._constraints_of.append(index)
        if code == len(self.shapes.fields):
            self.shapes = with_more_shapes(self.shapes)
        self._write_shape(code, shape, number)
        self.topology.register(code, shape)
        return code

    def _write_shape(self, code: int, shape: Shape, number: int) -> None:
        lowered, cluster = self.lowered, self.cluster
        assert lowered is not None
        demand = cluster.demand(shape.request, shape.uncounted)
        fields, need, take = self.shapes.fields[code], self.shapes.need[code], self.shapes.take[code]
        fields[layout.CLASS] = number
        fields[layout.ENTRY] = -1
        fields[layout.USED] = layout.NEVER
        need[:] = layout.NOT_REQUESTED
        take[:] = 0
        slots = demand.slots[:, 0]
        take[slots] = demand.amounts[:, 0]
        take[-1] = shape.tasks
        if "resources" in lowered.kernel_filters:
            need[slots] = demand.amounts[:, 0]
        if "tasks_per_node" in lowered.kernel_filters:
            need[-1] = shape.tasks
        fields[layout.WHOLE_DEVICES] = fields[layout.DEVICE_SHARE] = 0
        fields[layout.REQUEST_TABLE] = self._request_tables.number(shape.pool)
        for request in lowered.device_requests(shape, cluster):
            fields[layout.WHOLE_DEVICES], fields[layout.DEVICE_SHARE] = divmod(request.amount, WHOLE)
        if lowered.expected_fill:
            fields[layout.FILL_POOL] = self._fill.number_of(shape.pool)
            wholes, share = int(fields[layout.WHOLE_DEVICES]), int(fields[layout.DEVICE_SHARE])
            fields[layout.FILL_KIND] = self._fill.kind(shape.pool, int(take[cluster.slot("cpu")]), wholes, share)
            self._sync_expected_fill()
        self.shapes.uncounted[code] = demand.uncounted[:, 0]
        if lowered.normalised is not None:
            fields[layout.TAINTS], fields[layout.PREFERRED_NODES] = lowered.normalised.weights(shape, cluster)

    def _class_of(self, shape: Shape, closed: tuple[int, ...]) -> int:
        """Return the number of the class of shapes with the same static answers."""
        assert self.lowered is not None
        key = (self.lowered.static_key(shape, self.cluster), closed)
        number = self._classes.get(key)
        if number is None:
            without_closed = self._classes.get((key[0], ()))
            if without_closed is None:
                answers = self._static_keys(shape, np.arange(self._capacity))
            else:
                answers = self.shapes.static[without_closed].copy()
            answers[list(closed)] = _CLOSED
            number = self._classes[key] = len(self._class_shapes)
            self._class_shapes.append(shape)
            if number == len(self.shapes.static):
                self.shapes = with_more_classes(self.shapes)
            self.shapes.static[number] = answers
            self._write_levels(number, shape)
        return number

    def _static_keys(self, shape: Shape, rows: Rows) -> NDArray[np.int64]:
        """Return the keys of rows without the scores that placements change; negative where infeasible."""
        assert self.lowered is not None
        weighted = self.lowered.static_keys(shape, self.cluster, rows, self._keys.tiers)
        keys = (weighted << self._keys.precedence_bits) + self.cluster.precedence[rows]
        return np.where(weighted < 0, _CLOSED, keys)

    def _write_levels(self, number: int, shape: Shape) -> None:
        """Write the raw values of the normalised scores, per row of a class."""
        assert self.lowered is not None
        if self.lowered.normalised is not None:
            for kind, raw in enumerate(self.lowered.normalised.raw_scores(shape, self.cluster)):
                values, levels = np.unique(raw, return_inverse=True)
                self.shapes.levels[kind, number] = levels
                self.shapes.values[kind, number, : len(values)] = values

    def prepare(self, codes: set[int]) -> None:
        """Write the kernel terms of these shapes to the tables, if any are new."""
        if not self.topology.prepare(codes, self.shapes.fields, self.key_cache):
            return
        self.shapes = self.shapes._replace(
            terms=self.topology.terms,
            adds_start=self.topology.adds_start,
            adds=self.topology.adds,
        )
        groups, length = self.key_cache.feasible.shape[1], self.key_cache.tree.shape[1]
        if self.topology.most_groups > groups or self.topology.tree_length > length:
            self._empty_key_cache()

    @property
    def _device_column(self) -> DeviceColumn | None:
        return self.cluster.devices.columns.get(DEVICE_SLOT)


def _named(column: DeviceColumn, row: int, bits: int, amount: int) -> tuple[DeviceShare, ...]:
    positions = [(position, amount) for position in range(bits.bit_length()) if bits >> position & 1]
    return column.named(row, positions)
