"""The compiled engine's arrays: kept in step with the cluster, handed to the kernels, read for decisions.

It gives the decisions of the NumPy face (`selection`), which stays the definition. What cannot be put into the kernels'
terms is left to that face: `code_of` answers None then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mooring.model.constraints import Constraints
from mooring.model.decisions import SCORE_ONE
from mooring.model.devices import WHOLE, DeviceShare
from mooring.model.workloads import Workload
from mooring.scheduling import kernels
from mooring.scheduling.arrays import Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.device_columns import NO_MODELS, DeviceColumn
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.lowering import DEVICE_SLOT, LoweredProfile, StaticKey, lower_profile
from mooring.scheduling.mixes import Mixes
from mooring.scheduling.plugins import PluginFailed
from mooring.scheduling.profiles import Profile
from mooring.scheduling.shapes import Shape, of_all, shape_of
from mooring.scheduling.topology import Topology

_Kind = TypeVar("_Kind", bound=np.generic)

_SLOT_BYTES = 1 << 28
"""Memory for the keys of shapes that are asked for often."""
_CLASS_BYTES = 1 << 28
"""Memory for the static answers."""
_DESIGNATED_BIT = 60
"""The highest bit of a key; below it the workload's own tasks on the node, where it is to spread."""
TOO_FEW_SLOTS = -1
_CLOSED = -1
"""The static answer of a row that may not take a shape."""
_CLASSES = 1 << 12
"""Static answers known at a time: which rows are closed changes with what is promised of them."""
_SHAPES = 1 << 17
"""Shapes known at a time; beyond that the engine starts afresh."""


class Batch:
    """Workloads that are placed in one call."""

    __slots__ = ("each", "entries", "limited")

    def __init__(self) -> None:
        self.entries: list[tuple[Workload, int, int, int]] = []
        """Of each workload its shape's number, how many tasks, and how many of these are wanted or none."""
        self.limited: list[int] = []
        """Which of them limit or spread their own tasks per node."""
        self.each: dict[int, int] = {}
        """Of those whose tasks all go to one node, the number of one task's shape."""

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, workload: Workload, code: int, count: int, *, least: int = 0) -> None:
        if workload.max_per_node is not None or workload.spread:
            self.limited.append(len(self.entries))
        self.entries.append((workload, code, count, least))


@dataclass(frozen=True, slots=True)
class Placements:
    """What the kernels answered for a batch, or for the first of it that were `decided`.

    The entries of workload `i` are `start[i]` to `start[i] + found[i]`.
    """

    rows: list[int]
    scores: list[int]
    start: list[int]
    found: list[int]
    feasible: list[int]
    devices: list[tuple[DeviceShare, ...]]
    decided: int


class Engine:
    """The compiled counterpart of one cluster under one profile."""

    def __init__(self, cluster: Cluster, profile: Profile, *, mode: int = kernels.AUTOMATIC) -> None:
        self.cluster = cluster
        self.profile = profile
        self.mode = mode
        self.lowered: LoweredProfile | None = lower_profile(profile)
        self.nodes: kernels.Nodes
        self.shapes: kernels.Shapes
        self.slots: kernels.Slots
        self.topology: Topology
        self._shapes: list[Shape] = []
        self._weights: list[int] = []
        self._kinds: list[int] = []
        """Per shape the number of its constraints."""
        self._constraints: list[Constraints] = []
        self._number_of: dict[Constraints, int] = {}
        self._codes: dict[tuple[Shape, tuple[int, ...]], int | None] = {}
        """By shape and the rows that are closed to it."""
        self._beside: dict[tuple[int, tuple[int, ...]], int | None] = {}
        self._quick: dict[tuple[object, ...], int | None] = {}
        self._held: dict[int, Constraints] = {}
        """Constraints by identity, kept alive so that an identity means the same object."""
        self._classes: dict[tuple[StaticKey, tuple[int, ...]], int] = {}
        self._class_shapes: list[tuple[Shape, tuple[int, ...]]] = []
        self._seen = self._static_seen = self._membership = -1
        self._capacity = self._slots = self._vocabulary = self._device_rules = -1
        self._mixes: Mixes

    @property
    def statistics(self) -> tuple[int, int, int, int]:
        """Rows refreshed, rebuilds, scans, and shapes known to fit nowhere without a look."""
        refreshed, rebuilds, scans, dominated = self.slots.statistics.tolist()
        return refreshed, rebuilds, scans, dominated

    def code_of(self, workload: Workload) -> int | None:
        """The number of the workload's shape; None if the kernels cannot place it. `sync` comes before.

        TOO_FEW_SLOTS: it asks for slots that the columns have no place for. `make_room` follows; all numbers change.
        """
        constraints = workload.constraints
        scoring = workload.scoring_request
        owners = self.cluster.owners
        request = workload.request
        key = (
            workload.pool,
            workload.runtime,
            workload.architecture,
            workload.region,
            workload.user_id if len(owners.values) > 1 and workload.user_id in owners else None,
            id(constraints),
            None if scoring is None else tuple(scoring.items()),
            *request,
            *request.values(),
        )
        try:
            return self._quick[key]
        except KeyError:
            pass
        code = self._code_of_shape(shape_of(workload, self.cluster))
        if code != TOO_FEW_SLOTS:
            self._held[id(constraints)] = constraints
            self._quick[key] = code
        return code

    def code_of_all(self, workload: Workload) -> int | None:
        """The number of the shape of all its tasks on one node; None if the kernels cannot place them there.

        Tasks that may keep each other away are tried one by one, and those that are bound to a node know it.
        """
        constraints, count = workload.constraints, len(workload.tasks)
        alone = not constraints.anti_affinity and not any(spread.hard for spread in constraints.spread)
        limited = workload.max_per_node is not None and workload.max_per_node < count
        if not alone or limited or workload.occupied or constraints.host_ports:
            return None
        return self._code_of_shape(of_all(shape_of(workload, self.cluster), count))

    def _code_of_shape(self, shape: Shape, closed: tuple[int, ...] = ()) -> int | None:
        try:
            return self._codes[shape, closed]
        except KeyError:
            code = self._register(shape, closed)
            if code != TOO_FEW_SLOTS:
                self._codes[shape, closed] = code
            return code

    def is_plain(self, code: int) -> bool:
        """Whether no filter asks a shape for more than resources and what a node is."""
        self._prepare({code})
        fields = self.shapes.fields[code]
        kinds = self.shapes.terms[fields[kernels.FIRST_TERM] : fields[kernels.LAST_TERM], kernels.KIND]
        wants_devices = bool(fields[kernels.WHOLES] or fields[kernels.SHARE])
        return not wants_devices and not np.isin(kinds, (kernels.SPREAD, kernels.AFFINITY, kernels.APART)).any()

    def code_beside(self, code: int, closed: tuple[int, ...]) -> int | None:
        """The number of a shape where these rows are closed to it; None if the kernels cannot place it.

        What other filters count, and scores that are compared with each other, would count the closed rows too.
        """
        if not closed:
            return code
        if (code, closed) not in self._beside:
            assert self.lowered is not None
            alone = self.lowered.normalised is None and self.is_plain(code)
            self._beside[code, closed] = self._code_of_shape(self._shapes[code], closed) if alone else None
        return self._beside[code, closed]

    @property
    def looks_at_amounts(self) -> bool:
        """Whether what does not fit into what is free now is kept away by the profile."""
        return self.lowered is not None and ResourcesFilter in self.lowered.filters

    def make_room(self, workload: Workload) -> None:
        """Make the columns larger for what a workload asks for."""
        self.cluster.demand(shape_of(workload, self.cluster).request)
        self.sync()

    def place(self, batch: Batch, *, stop: bool = False) -> Placements:
        """Place a batch in order. What is found counts in the cluster, unless more were wanted or none.

        `stop`: the first workload that finds too few nodes is the last that is looked at.
        """
        queue = self.queue(batch)
        answers, decided = self.run(queue, stop=stop)
        total = int(queue.start[-1])
        keys = answers.keys[:total]
        rows = self.nodes.row_of[keys & (self._capacity - 1)]
        weighted = (keys >> self.shapes.profile[kernels.KEY_SHIFT]) & self._weighted_mask
        weights = np.array(self._weights, dtype=np.int64)[queue.shape]
        self._tell_cluster(queue, answers, rows)
        return Placements(
            rows.tolist(),
            (weighted // (weights if total == len(weights) else np.repeat(weights, queue.tasks))).tolist(),
            queue.start.tolist(),
            answers.found.tolist(),
            answers.feasible.tolist(),
            self._devices_given(queue, answers, rows),
            decided,
        )

    def queue(self, batch: Batch) -> kernels.Queue:
        """A batch in the kernels' terms."""
        workloads, codes, counts, least = zip(*batch.entries, strict=True)
        self._prepare({*codes, *batch.each.values()})
        size = len(batch)
        each = np.full(size, -1, dtype=np.int32)
        each[list(batch.each)] = list(batch.each.values())
        limit = np.zeros(size, dtype=np.int32)
        spread = np.zeros(size, dtype=np.uint8)
        own_start = np.zeros(size + 1, dtype=np.int32)
        own_rows: list[int] = []
        own_counts: list[int] = []
        for index in batch.limited:
            workload = workloads[index]
            limit[index] = min(workload.max_per_node or 0, 1 << 30)
            spread[index] = workload.spread
            before = len(own_rows)
            for node_id, tasks in workload.occupied.items():
                row = self.cluster.row_of(node_id)
                if row is not None and tasks > 0:
                    own_rows.append(row)
                    own_counts.append(tasks)
            own_start[index + 1] = len(own_rows) - before
        np.cumsum(own_start, out=own_start)
        count = np.array(counts, dtype=np.int32)
        start = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(count, out=start[1:])
        return kernels.Queue(
            shape=np.array(codes, dtype=np.int32),
            tasks=count,
            least=np.array(least, dtype=np.int32),
            each=each,
            limit=limit,
            spread=spread,
            own_start=own_start,
            own_rows=np.array(own_rows or [0], dtype=np.int32),
            own_counts=np.array(own_counts or [0], dtype=np.int32),
            start=start,
        )

    def run(self, queue: kernels.Queue, *, stop: bool = False) -> tuple[kernels.Answers, int]:
        """One call of the kernels, and how many workloads it decided on.

        The rows in the answers count in the cluster's columns at once.
        """
        size = len(queue.shape)
        answers = kernels.Answers(
            np.zeros(max(int(queue.start[-1]), 1), dtype=np.int64),
            np.zeros(size, dtype=np.int32),
            np.zeros(size, dtype=np.int32),
            np.zeros(max(int(queue.start[-1]), 1), dtype=np.int64),
        )
        topology = self.topology
        assert self.lowered is not None
        decided = kernels.place(
            self.nodes,
            self.shapes,
            topology.counters,
            topology.partitions,
            self.slots,
            queue,
            answers,
            0,
            size,
            self.lowered.kernel,
            stop,
        )
        return answers, int(decided)

    def sync(self) -> bool:
        """Take over what changed in the cluster since the last look. False: this profile is not for the kernels."""
        if self.lowered is None:
            return False
        cluster = self.cluster
        if (
            self._capacity != cluster.capacity
            or self._slots != len(cluster.allocatable)
            or self.nodes.taken is not cluster.taken
            or self._device_rules != cluster.devices.rules
            or (self._device_column is not None and self.nodes.devices is not self._device_column.free)
            or len(self._shapes) > _SHAPES
            or len(self._classes) > _CLASSES
            or (self._capacity * max(len(self._classes), 1) * 8 > _CLASS_BYTES and len(self._classes) > 64)
        ):
            self._start_afresh()
            return True
        if self._vocabulary != cluster.vocabulary:
            # Plugins may concern shapes that they did not concern before: every shape is looked at anew.
            self._vocabulary = cluster.vocabulary
            self._codes, self._quick, self._held, self._beside = {}, {}, {}, {}
        if self._seen == cluster.changes.revision:
            return True
        rows = cluster.changes.since(self._seen)
        static_rows = cluster.static_changes.since(self._static_seen)
        if rows is None or static_rows is None:
            self._start_afresh()
            return True
        if self._membership != cluster.membership:
            self._take_over_order()
        self._take_over_rows(rows)
        try:
            self._refresh_classes(rows, static_rows)
        except PluginFailed:
            self._start_afresh()
            return True
        self.topology.update(rows, static_rows)
        kernels_log(self.nodes, rows)
        self.shapes.failures[:] = 0
        self.shapes.releases[0] += 1
        self._mark_seen()
        return True

    def _start_afresh(self) -> None:
        cluster, lowered = self.cluster, self.lowered
        assert lowered is not None
        capacity, slots = cluster.capacity, len(cluster.allocatable)
        self._capacity, self._slots = capacity, slots
        self._shapes, self._weights, self._codes, self._quick, self._held, self._beside = [], [], {}, {}, {}, {}
        self._kinds, self._constraints, self._number_of = [], [], {}
        self._vocabulary = cluster.vocabulary
        self._device_rules = cluster.devices.rules
        column = self._device_column
        devices = np.zeros((capacity, 1), dtype=np.int64) if column is None else column.free
        self._mixes = Mixes(cluster.devices.typical, NO_MODELS if column is None else column.models)
        self._classes, self._class_shapes = {}, []
        weighted_bits = (SCORE_ONE * lowered.weight).bit_length()
        shift = capacity.bit_length() - 1
        own_shift = shift + weighted_bits + 1
        self._weighted_mask = (1 << weighted_bits) - 1
        self._tiers = (1 << weighted_bits, 1 << _DESIGNATED_BIT - shift)
        self._most_own = (1 << max(_DESIGNATED_BIT - own_shift, 0)) - 1
        self.nodes = kernels.Nodes(
            row=np.zeros((capacity, slots + 1), dtype=np.int64),
            free=np.zeros((slots + 1, capacity), dtype=np.int64),
            row_inverse=np.zeros((capacity, 2), dtype=np.float64),
            inverse=np.zeros((2, capacity), dtype=np.float64),
            taken=cluster.taken,
            tasks=cluster.tasks,
            uncounted=cluster.uncounted,
            precedence=np.zeros(capacity, dtype=np.int64),
            row_of=np.zeros(capacity, dtype=np.int32),
            own=np.zeros(capacity, dtype=np.int32),
            log=np.zeros(max(capacity, 64), dtype=np.int32),
            last=np.full(capacity, -1, dtype=np.int64),
            head=np.zeros(1, dtype=np.int64),
            devices=devices,
            wholes=np.zeros(capacity, dtype=np.int64),
            largest_share=np.zeros(capacity, dtype=np.int64),
            models=np.zeros(capacity, dtype=np.int64),
            fragment=np.full(capacity, kernels.UNKNOWN, dtype=np.int64),
            left=np.zeros(devices.shape[1], dtype=np.int64),
        )
        profile = np.zeros(kernels.PROFILE_FIELDS, dtype=np.int64)
        profile[kernels.LEAST] = lowered.least
        profile[kernels.LEAST_CPU], profile[kernels.LEAST_MEMORY] = lowered.least_shares
        profile[kernels.MOST] = lowered.most
        profile[kernels.MOST_CPU], profile[kernels.MOST_MEMORY] = lowered.most_shares
        profile[kernels.BALANCED] = lowered.balanced
        profile[kernels.UNUSED] = lowered.unused
        profile[kernels.PLUGIN] = lowered.plugin
        profile[kernels.FRAGMENTATION] = lowered.fragmentation
        profile[kernels.NORMALISED] = lowered.normalised is not None
        if lowered.normalised is not None:
            profile[kernels.POINTS_LEFT] = lowered.normalised.left
            profile[kernels.POINTS_EVEN] = lowered.normalised.even
        profile[kernels.KEY_SHIFT] = shift
        profile[kernels.OWN_SHIFT] = own_shift
        profile[kernels.MODE] = self.mode
        self.shapes = kernels.Shapes(
            fields=np.zeros((64, kernels.SHAPE_FIELDS), dtype=np.int64),
            need=np.zeros((64, slots + 1), dtype=np.int64),
            take=np.zeros((64, slots + 1), dtype=np.int64),
            uncounted=np.zeros((64, 2), dtype=np.int64),
            static=np.zeros((4, capacity), dtype=np.int64),
            terms=np.zeros((1, kernels.TERM_FIELDS), dtype=np.int64),
            adds_start=np.zeros(2, dtype=np.int32),
            adds=np.zeros(1, dtype=np.int32),
            profile=profile,
            failed=np.zeros((4, kernels.REMEMBERED, slots + 1), dtype=np.int64),
            failures=np.zeros(4, dtype=np.int32),
            levels=np.zeros((2, 4, capacity if lowered.normalised else 1), dtype=np.uint8),
            values=np.zeros((2, 4, kernels.LEVELS), dtype=np.int64),
            releases=np.ones(1, dtype=np.int64),
            mixes=self._mixes.mixes,
            typical=self._mixes.typical,
            thresholds=self._mixes.thresholds,
            allowed=self._mixes.allowed,
        )
        self.topology = Topology(cluster, lowered)
        self._make_slots()
        self._take_over_order()
        self._take_over_rows(np.arange(capacity))
        self._mark_seen()

    def _make_slots(self) -> None:
        """As many slots as the memory allows; untouched pages cost nothing."""
        groups = self.topology.most_groups
        count = int(min(max(_SLOT_BYTES // (self._capacity * 16), 16), 1024))
        self.slots = kernels.Slots(
            tree=np.empty((count, 2 * self._capacity), dtype=np.int64),
            position=np.full(count, kernels.NEVER, dtype=np.int64),
            used=np.full(count, kernels.NEVER, dtype=np.int64),
            shape=np.full(count, -1, dtype=np.int32),
            feasible=np.zeros((count, groups), dtype=np.int32),
            scalars=np.zeros((count, 64), dtype=np.int64),
            level_counts=np.zeros((count, 2, kernels.LEVELS), dtype=np.int32),
            largest=np.zeros((count, 2), dtype=np.int32),
            scratch=np.zeros(self._capacity, dtype=np.int64),
            group_keys=np.zeros(groups, dtype=np.int64),
            hand=np.zeros(1, dtype=np.int64),
            statistics=np.zeros(4, dtype=np.int64),
        )
        self.shapes.fields[:, kernels.SLOT] = -1

    def _mark_seen(self) -> None:
        self._seen = self.cluster.changes.revision
        self._static_seen = self.cluster.static_changes.revision

    def _take_over_order(self) -> None:
        precedence = self.cluster.precedence
        rows = self.cluster.rows
        self.nodes.precedence[:] = precedence
        self.nodes.row_of[precedence[rows]] = rows
        self.slots.position[:] = kernels.NEVER
        self._membership = self.cluster.membership

    def _take_over_rows(self, rows: Rows) -> None:
        cluster, nodes = self.cluster, self.nodes
        free = cluster.allocatable[:, rows] - cluster.taken[:, rows]
        room = cluster.max_tasks[rows] - cluster.tasks[rows]
        inverse = cluster.inverse[:2, rows]
        nodes.free[:-1, rows] = free
        nodes.free[-1, rows] = room
        nodes.row[rows, :-1] = free.T
        nodes.row[rows, -1] = room
        devices = nodes.devices[rows]
        nodes.wholes[rows] = (devices >= WHOLE).sum(axis=1)
        nodes.largest_share[rows] = devices.max(axis=1)
        nodes.fragment[rows] = kernels.UNKNOWN
        if self._device_column is not None:
            nodes.models[rows] = self._device_column.model[rows, 0]
        nodes.inverse[:, rows] = inverse
        nodes.row_inverse[rows] = inverse.T

    def _refresh_classes(self, rows: Rows, static_rows: Rows) -> None:
        """The static answers of rows that changed other than by placements."""
        assert self.lowered is not None
        stale = rows if self.lowered.reads_load else static_rows
        if not len(stale):
            return
        for code, (shape, closed) in enumerate(self._class_shapes):
            self.shapes.static[code, stale] = self.lowered.static_keys(shape, self.cluster, stale, self._tiers)
            self.shapes.static[code, list(closed)] = _CLOSED
            self._write_levels(code, shape)

    def _register(self, shape: Shape, closed: tuple[int, ...]) -> int | None:
        lowered = self.lowered
        assert lowered is not None
        try:
            if not lowered.accepts(shape, self.cluster):
                return None
        except PluginFailed:
            return None
        unknown = sum(self.cluster.slot_of(name) is None for name, _ in shape.request)
        if unknown and len(self.cluster.slot_names) + unknown > self._slots:
            return TOO_FEW_SLOTS
        demand = self.cluster.demand(shape.request, shape.uncounted)
        try:
            static = self._class_of(shape, closed)
            weight = max(lowered.weight_of(shape, self.cluster), 1)
        except PluginFailed:
            # The NumPy face meets the same failure and says so.
            return None
        code = len(self._shapes)
        self._shapes.append(shape)
        self._weights.append(weight)
        number = self._number_of.setdefault(shape.constraints, len(self._constraints))
        if number == len(self._constraints):
            self._constraints.append(shape.constraints)
        self._kinds.append(number)
        if code == len(self.shapes.fields):
            self.shapes = self.shapes._replace(
                fields=_doubled(self.shapes.fields),
                need=_doubled(self.shapes.need),
                take=_doubled(self.shapes.take),
                uncounted=_doubled(self.shapes.uncounted),
            )
        fields, need, take = self.shapes.fields[code], self.shapes.need[code], self.shapes.take[code]
        fields[kernels.CLASS] = static
        fields[kernels.SLOT] = -1
        fields[kernels.USED] = kernels.NEVER
        need[:] = kernels.UNASKED
        take[:] = 0
        slots = demand.slots[:, 0]
        take[slots] = demand.amounts[:, 0]
        take[-1] = shape.tasks
        if ResourcesFilter in lowered.filters:
            need[slots] = demand.amounts[:, 0]
        if TasksPerNodeFilter in lowered.filters:
            need[-1] = shape.tasks
        fields[kernels.WHOLES] = fields[kernels.SHARE] = 0
        fields[kernels.MIX] = self._mixes.number(shape.pool)
        for request in lowered.device_requests(shape, self.cluster):
            fields[kernels.WHOLES], fields[kernels.SHARE] = divmod(request.amount, WHOLE)
        self.shapes.uncounted[code] = demand.uncounted[:, 0]
        if lowered.normalised is not None:
            fields[kernels.TAINTS], fields[kernels.WISHES] = lowered.normalised.weights(shape, self.cluster)
        self.topology.register(code, shape)
        return code

    def _class_of(self, shape: Shape, closed: tuple[int, ...]) -> int:
        assert self.lowered is not None
        key = (self.lowered.static_key(shape, self.cluster), closed)
        code = self._classes.get(key)
        if code is None:
            answers = self.lowered.static_keys(shape, self.cluster, np.arange(self._capacity), self._tiers)
            answers[list(closed)] = _CLOSED
            code = self._classes[key] = len(self._class_shapes)
            self._class_shapes.append((shape, closed))
            if code == len(self.shapes.static):
                self.shapes = self.shapes._replace(
                    static=_doubled(self.shapes.static),
                    failed=_doubled(self.shapes.failed),
                    failures=_doubled(self.shapes.failures),
                    levels=np.concatenate((self.shapes.levels, np.zeros_like(self.shapes.levels)), axis=1),
                    values=np.concatenate((self.shapes.values, np.zeros_like(self.shapes.values)), axis=1),
                )
            self.shapes.static[code] = answers
            self._write_levels(code, shape)
        return code

    def _write_levels(self, code: int, shape: Shape) -> None:
        """The raw values of the scores that are normalised, per row of a class."""
        assert self.lowered is not None
        if self.lowered.normalised is not None:
            for kind, raw in enumerate(self.lowered.normalised.raw(shape, self.cluster)):
                values, levels = np.unique(raw, return_inverse=True)
                self.shapes.levels[kind, code] = levels
                self.shapes.values[kind, code, : len(values)] = values

    def _prepare(self, codes: set[int]) -> None:
        """Put the terms of these shapes into the kernels' tables, where something new came."""
        if not self.topology.prepare(codes, self.shapes.fields, self.slots):
            return
        self.shapes = self.shapes._replace(
            terms=self.topology.terms,
            adds_start=self.topology.adds_start,
            adds=self.topology.adds,
        )
        if self.topology.most_groups > self.slots.feasible.shape[1]:
            self._make_slots()

    def _tell_cluster(self, queue: kernels.Queue, answers: kernels.Answers, rows: NDArray[np.int32]) -> None:
        """The kernels wrote the amounts; who is where is told here."""
        cluster, found, tasks = self.cluster, answers.found, queue.tasks
        keeps = np.where(found < queue.least, 0, found)
        numbers = np.array(self._kinds, dtype=np.int64)[queue.shape]
        if len(rows) != len(tasks) or not (keeps == tasks).all():
            kept = np.arange(len(rows)) - np.repeat(queue.start[:-1], tasks) < np.repeat(keeps, tasks)
            rows, numbers = rows[kept], np.repeat(numbers, tasks)[kept]
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        placed: Rows = rows[order].astype(np.intp)
        firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(placed)], strict=False):
            cluster.placed.add_rows(placed[first:last], self._constraints[int(numbers[first])])
        cluster.changes.note(placed.tolist())
        self._mark_seen()

    @property
    def _device_column(self) -> DeviceColumn | None:
        return self.cluster.devices.columns.get(DEVICE_SLOT)

    def _devices_given(
        self, queue: kernels.Queue, answers: kernels.Answers, rows: NDArray[np.int32]
    ) -> list[tuple[DeviceShare, ...]]:
        """Per placement the devices whose bits are set."""
        column = self._device_column
        placed = np.flatnonzero(answers.devices)
        if column is None or not len(placed):
            return [()] * len(rows)
        shares = self.shapes.fields[np.repeat(queue.shape, queue.tasks)[placed], kernels.SHARE]
        amounts = np.where(shares > 0, shares, WHOLE)
        given: list[tuple[DeviceShare, ...]] = [()] * len(rows)
        entries = np.stack((placed, rows[placed], answers.devices[placed], amounts), axis=1)
        for at, row, bits, amount in entries.tolist():
            positions = [(position, amount) for position in range(bits.bit_length()) if bits >> position & 1]
            given[at] = column.named(row, positions)
        return given

    def takes(self, workload: Workload, count: int) -> bool:
        """Whether a workload that limits or spreads its own tasks per node can be placed by the kernels."""
        assert self.lowered is not None
        if self.lowered.normalised is not None or (workload.max_per_node is not None and workload.max_per_node < 1):
            return False
        if not workload.spread:
            return True
        return max(workload.occupied.values(), default=0) + count <= self._most_own


def kernels_log(nodes: kernels.Nodes, rows: Rows) -> None:
    """Log rows as changed, from outside of the kernels."""
    head = int(nodes.head[0])
    at = head + np.arange(len(rows))
    nodes.log[at & (len(nodes.log) - 1)] = rows
    nodes.last[rows] = at
    nodes.head[0] = head + len(rows)


def _doubled(array: NDArray[_Kind]) -> NDArray[_Kind]:
    return np.concatenate((array, np.zeros_like(array)))
