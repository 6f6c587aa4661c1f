"""A proven upper bound of what any number of moves can gain: the linear programme over node patterns.

A pattern is the set of tasks that one node of a kind holds. Every running task stays on some node, and each pending
task may get one; which tasks may move, and in which order, is left out, so that the optimum is at least the gain of any
plan. Patterns are added by column generation. At any prices of the tasks, the best pattern of each kind of node proves
a bound (Lagrange), so that the bound is valid whenever the search ends.

The devices of a node are relaxed to sums over dual feasible functions: whole devices and shares above a half, above a
third and so on count as fractions of a device of which no set that fits one device exceeds 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mooring.model.policy.defragmentation import Bound, Gain, PlacedTask
from mooring.model.resources.devices import WHOLE
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.shapes import Shape, shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.profiles import Profile
from mooring.scheduling.solver import LinearProgramme, PatternSearch, Real, Whole

_MAX_CLASSES = 400
_MAX_KINDS = 60
_ROUNDS = 40
_CLOSE = 0.02
"""The search ends when the bound is within this part of the programme's own optimum."""
LOOSE = "the search ended before the bound was tight"
_SPLITS = (2, 3, 4)
_UNLIMITED = 1e6


def bound(
    cluster: Cluster,
    profile: Profile,
    pool: str,
    placed: Sequence[PlacedTask],
    wanted: Sequence[tuple[Workload, float, int]],
    gain: Gain,
) -> Bound:
    """Return the bound. `wanted`: requests with the gain of one task and their number; the cluster is not changed."""
    instance = _instance(cluster, profile, pool, placed, wanted)
    if isinstance(instance, str):
        return Bound(None, instance)
    value, tight = _solved(instance, empty=1.0 if gain is Gain.DRAIN_NODES else 0.0)
    return Bound(round(value, 3), None if tight else LOOSE)


@dataclass(frozen=True, slots=True)
class _Instance:
    """Classes of equal tasks and kinds of equal nodes."""

    uses: Real
    """[row, class]: amounts, devices by each function, and one task."""
    capacity: Real
    """[kind, row]"""
    nodes: Whole
    """[kind]"""
    allowed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    """[kind, class]"""
    least: Whole
    """[class]: the running tasks."""
    most: Whole
    """[class]: with the pending ones."""
    value: Real
    """[class]: the gain of a pending task."""
    present: list[tuple[int, Whole]]
    """The patterns of the nodes as they are."""


def _instance(
    cluster: Cluster,
    profile: Profile,
    pool: str,
    placed: Sequence[PlacedTask],
    wanted: Sequence[tuple[Workload, float, int]],
) -> _Instance | str:
    rows = [row for row in cluster.rows_of_pool(pool).tolist() if cluster.ready[row]]
    running: Counter[Shape] = Counter()
    on_row: dict[int, Counter[Shape]] = {row: Counter() for row in rows}
    for task in placed:
        row = cluster.row_of(task.node_id)
        if row in on_row:
            shape = shape_of(task.workload, cluster)
            running[shape] += 1
            on_row[row][shape] += 1
    pending: Counter[tuple[Shape, float]] = Counter()
    for workload, value, count in wanted:
        pending[shape_of(workload, cluster), value] += count
    # A pending task counts apart from running ones of its shape, since only it gains.
    classes = [(shape, 0.0, count, count) for shape, count in running.items()]
    classes += [(shape, value, 0, count) for (shape, value), count in pending.items()]
    if len(classes) > _MAX_CLASSES:
        return f"not computed: {len(classes)} different requests, more than {_MAX_CLASSES}"
    if not classes or not rows:
        return "not computed: nothing runs and nothing waits"
    evaluations = {shape: Evaluation(shape, cluster, profile) for shape, *_ in classes}
    for evaluation in evaluations.values():
        evaluation.refresh()
    names = sorted({name for shape, *_ in classes for name, amount in shape.request if amount})
    kinds: dict[tuple[object, ...], list[int]] = {}
    may = np.array([[evaluations[shape].may_ever[row] for shape, *_ in classes] for row in rows])
    for number, row in enumerate(rows):
        offered = tuple(_capacity(cluster, row, name) for name in names)
        kinds.setdefault((offered, int(cluster.max_tasks[row]), may[number].tobytes()), []).append(number)
    if len(kinds) > _MAX_KINDS:
        return f"not computed: {len(kinds)} kinds of nodes, more than {_MAX_KINDS}"
    uses = np.array([_uses(cluster, names, dict(shape.request)) for shape, *_ in classes], dtype=np.float64).T
    split = cluster.devices.fragmentation_allowed(pool)
    offered_rows = [_rows_of(cluster, names, rows[members[0]], split=split) for members in kinds.values()]
    capacity = np.array(offered_rows, dtype=np.float64)
    scale = np.maximum(capacity.max(axis=0), 1.0)
    position = {shape: at for at, (shape, value, *_) in enumerate(classes) if not value}
    present: dict[tuple[int, bytes], tuple[int, Whole]] = {}
    for kind, members in enumerate(kinds.values()):
        for number in members:
            counts = np.zeros(len(classes), dtype=np.int64)
            for shape, count in on_row[rows[number]].items():
                counts[position[shape]] = count
            present.setdefault((kind, counts.tobytes()), (kind, counts))
    full = [kind for kind, counts in present.values() if (uses @ counts > capacity[kind] * (1 + 1e-9)).any()]
    if full:
        return f"not computed: {len(full)} nodes hold more than they offer"
    return _Instance(
        uses / scale[:, None],
        capacity / scale,
        np.array([len(members) for members in kinds.values()], dtype=np.int64),
        np.array([may[members[0]] for members in kinds.values()]),
        np.array([least for _, _, least, _ in classes], dtype=np.int64),
        np.array([most for _, _, _, most in classes], dtype=np.int64),
        np.array([value for _, value, _, _ in classes]),
        list(present.values()),
    )


def _solved(instance: _Instance, *, empty: float) -> tuple[float, bool]:
    """Return the bound, and whether it is close to the gain of the programme's optimum."""
    tight = False
    kinds, classes = len(instance.nodes), len(instance.value)
    # Rows: the tasks of each class, then the nodes of each kind. The cost is the negated gain.
    lower = np.concatenate((instance.least, np.zeros(kinds))).astype(np.float64)
    upper = np.concatenate((instance.most, instance.nodes)).astype(np.float64)
    programme = LinearProgramme(lower, upper)
    searches = [
        PatternSearch(instance.uses, capacity, np.where(allowed, instance.most, 0))
        for capacity, allowed in zip(instance.capacity, instance.allowed, strict=True)
    ]
    _add(programme, instance, instance.present, empty)
    best = float(instance.value @ instance.most) + empty * float(instance.nodes.sum())
    for _ in range(_ROUNDS):
        if not programme.solve():
            break
        prices = programme.prices[:classes]
        found = [search.best(instance.value + prices) for search in searches]
        # At prices p: the gain is at most the sum of the best patterns' worth, less what the tasks are worth at p.
        worth = sum(float(number) * max(each.bound, empty) for number, each in zip(instance.nodes, found, strict=True))
        fixed = np.where(prices > 0, prices * instance.least, prices * instance.most)
        best = min(best, worth - float(fixed.sum()))
        if best <= -programme.value + _CLOSE * max(abs(best), 1.0):
            tight = True
            break
        _add(programme, instance, [(kind, each.counts) for kind, each in enumerate(found)], empty)
    return max(best, 0.0), tight


def _add(programme: LinearProgramme, instance: _Instance, patterns: Sequence[tuple[int, Whole]], empty: float) -> None:
    kinds, classes = len(instance.nodes), len(instance.value)
    columns = np.zeros((len(patterns), classes + kinds))
    costs = np.zeros(len(patterns))
    for at, (kind, counts) in enumerate(patterns):
        columns[at, :classes] = counts
        columns[at, classes + kind] = 1
        costs[at] = -float(instance.value @ counts) - (empty if not counts.any() else 0.0)
    programme.add(costs, columns)


def _capacity(cluster: Cluster, row: int, name: str) -> int:
    at = cluster.slot_of(name)
    return 0 if at is None else int(cluster.allocatable[at, row])


def _rows_of(cluster: Cluster, names: Sequence[str], row: int, *, split: bool) -> list[float]:
    found: list[float] = []
    for name in names:
        offered = _capacity(cluster, row, name)
        column = cluster.devices.columns.get(name)
        found.append(float(offered))
        if column is not None:
            sizes = column.capacity[row][column.capacity[row] > 0]
            # Requests that may be split over devices, and nodes without listed ones, are limited by amounts alone.
            plain = len(sizes) > 0 and int(sizes.max()) <= WHOLE and not split
            found += [float(len(sizes)) if plain else _UNLIMITED] * len(_SPLITS)
    return [*found, float(min(cluster.max_tasks[row], 1 << 30))]


def _uses(cluster: Cluster, names: Sequence[str], request: dict[str, int]) -> list[float]:
    found: list[float] = []
    for name in names:
        amount = request.get(name, 0)
        found.append(float(amount))
        if name in cluster.devices.columns:
            whole, share = divmod(amount, WHOLE)
            # At most k - 1 shares above 1/k fit on a device, so each counts as 1/(k - 1) of it.
            found += [whole + (1 / (split - 1) if share * split > WHOLE else 0.0) for split in _SPLITS]
    return [*found, 1.0]
