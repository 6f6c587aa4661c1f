"""The answers of the plugins for a shape on every node, cached, and refreshed only for rows that the journal lists."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.labels import Operator, Requirement
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.quantity import INT64_MAX
from mooring.scheduling.cluster.arrays import (
    Demand,
    Mask,
    Rows,
    Scores,
)
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.device_requests import given_devices
from mooring.scheduling.cluster.node_matching import satisfied
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.filters.devices import DevicesFilter
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.plugins.profiles import Active, Profile
from mooring.scheduling.plugins.protocols import (
    ChoosesDevices,
    DependsOn,
    Filter,
    Scorer,
    ask_filter,
    ask_scorer,
)

INFEASIBLE = -1
_NO_ROWS: Rows = np.empty(0, dtype=np.intp)
DESIGNATED = 2
"""The tier of a preferred node; 1 more where the workload has not failed."""
_MAX_CACHED_SHAPES = 256
_FEW_ROWS = 256
"""Up to this many eligible rows, comparing the amounts of all of them takes less time than a refresh."""
_VERY_FEW_ROWS = 4
"""Up to this many, plain numbers take less time than arrays."""


class Evaluations:
    """The evaluations of the shapes that were used last."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self.profile = profile
        self._cluster = cluster
        self._by_shape: OrderedDict[Shape, Evaluation] = OrderedDict()

    def of(self, shape: Shape) -> Evaluation:
        """Return the evaluation of a shape, as current as the columns."""
        evaluation = self._by_shape.get(shape)
        if evaluation is not None and not evaluation.concerns_the_same():
            evaluation = None
        if evaluation is None:
            evaluation = self._by_shape[shape] = Evaluation(shape, self._cluster, self.profile)
            if len(self._by_shape) > _MAX_CACHED_SHAPES:
                self._by_shape.popitem(last=False)
        else:
            self._by_shape.move_to_end(shape)
        evaluation.refresh()
        return evaluation

    def of_lacking(self, shape: Shape) -> Evaluation | None:
        """Return the evaluation of a shape that is known to fit on no node by the amounts free now; None otherwise.

        It is not refreshed, which is what makes this worthwhile: most failed searches on a small pool end here.
        """
        evaluation = self.known(shape)
        return None if evaluation is None or not evaluation.lacks_amounts() else evaluation

    def known(self, shape: Shape) -> Evaluation | None:
        """Return the evaluation of a shape, without a refresh; None if there is none."""
        evaluation = self._by_shape.get(shape)
        return None if evaluation is None or not evaluation.concerns_the_same() else evaluation

    def drop(self, shape: Shape) -> None:
        """Discard an evaluation: a plugin failed in the middle of a refresh."""
        self._by_shape.pop(shape, None)


class Evaluation:
    """Feasibility and score of every row for one shape.

    `keys` holds both, and the tie break, in one number per row: INFEASIBLE, or the tier first, the weighted sum of the
    scores second and the node's precedence last. The highest key is the best node; feasible keys are distinct.
    """

    def __init__(self, shape: Shape, cluster: Cluster, profile: Profile) -> None:
        self.shape = shape
        self.cluster = cluster
        self.profile = profile
        self.active = profile.concerning(shape, cluster)
        """The plugins of the profile that concern this shape."""
        self.node_local = not _any_depends(self.active, "domain", "cluster")
        """True if a placement changes the result for its own node only."""
        self._keys: Scores = np.empty(0, dtype=np.int64)
        self._unscored: list[Rows] = []
        """Feasible rows without a key: scores are computed when keys are read, which most failed searches never do."""
        self.tiers: Scores = np.empty(0, dtype=np.int64)
        self._vocabulary = cluster.vocabulary
        self._weight = max(sum(weight for _, weight in self.active.scorers), 1)
        self._step = SCORE_ONE * self._weight + 1
        self._static = _Stage(shape, cluster, self.active, "static")
        self._row = _Stage(shape, cluster, self.active, "row")
        self._wide = _Stage(shape, cluster, self.active, "domain", "cluster")
        self._static_seen = self._seen = self._membership = -1
        dynamic = [plugin for plugin in self.active.filters if plugin.depends_on != "static"]
        self._filters_slots_alone = all(isinstance(each, ResourcesFilter | TasksPerNodeFilter) for each in dynamic)
        self._counts_tasks = any(isinstance(each, TasksPerNodeFilter) for each in dynamic)
        self._resources = next((each for each in dynamic if isinstance(each, ResourcesFilter)), None)
        self._eligible: Rows = _NO_ROWS
        """The rows that pass the static filters."""
        self._few_eligible: list[int] = []
        """The same rows, if they are very few."""
        self.wants_devices = any(isinstance(plugin, DevicesFilter) for plugin in self.active.filters)

    def concerns_the_same(self) -> bool:
        """Return whether the same plugins concern the shape as when the evaluation was created."""
        if self._vocabulary == self.cluster.vocabulary:
            return True
        now = self.profile.concerning(self.shape, self.cluster)
        same = now.filters == self.active.filters and now.scorers == self.active.scorers
        if same:
            self._vocabulary = self.cluster.vocabulary
        return same

    @property
    def may_ever(self) -> Mask:
        """The rows that pass the static filters, whether or not they have free capacity."""
        return self._static.mask

    @property
    def depends_on_slots_alone(self) -> bool:
        """Whether only free amounts of slots decide besides static filters; the timeline then covers the shape."""
        if not self._filters_slots_alone:
            return False
        return not self._counts_tasks or bool((self.cluster.max_tasks[self.may_ever] == INT64_MAX).all())

    @cached_property
    def demand(self) -> Demand:
        return self.cluster.demand(self.shape.request, self.shape.uncounted)

    @cached_property
    def _checked_demand(self) -> Demand:
        """The part of the demand that the nodes must have free; empty without a filter for it."""
        if self._resources is None:
            return self.cluster.demand(())
        return self._resources.demand(self.shape, self.cluster)

    def lacks_amounts(self) -> bool:
        """Return whether no row has the free amounts, without a refresh; False if that is unknown or costs more."""
        cluster, eligible = self.cluster, self._eligible
        if self._resources is None or not self._filters_slots_alone or not 0 < len(eligible) <= _FEW_ROWS:
            return False
        if self._static_seen != cluster.static_changes.revision:
            return False
        demand = self._checked_demand
        if len(eligible) <= _VERY_FEW_ROWS:
            return not any(cluster.fits_on(demand, row) for row in self._few_eligible)
        fits = cluster.fits(demand, eligible)
        return not np.logical_and.reduce(fits, axis=0).any()

    def few_that_fit(self) -> list[int] | None:
        """Return the rows that pass all filters, without a refresh; None if that is unknown or costs more."""
        cluster, few = self.cluster, self._few_eligible
        if not few or not self._filters_slots_alone or self._static_seen != cluster.static_changes.revision:
            return None
        if len(self._keys) != cluster.capacity:
            return None
        demand = self._checked_demand
        fitting = [row for row in few if cluster.fits_on(demand, row)]
        if fitting and self._counts_tasks:
            tasks, most, more = cluster.tasks, cluster.max_tasks, self.shape.tasks
            return [row for row in fitting if most.item(row) - tasks.item(row) >= more]
        return fitting

    def refresh(self) -> None:
        """Ask the plugins again about the rows that changed since the last refresh."""
        cluster = self.cluster
        if self._seen == cluster.changes.revision and len(self._keys) == cluster.capacity:
            return
        static_rows: Rows | None = _NO_ROWS
        if self._static_seen != cluster.static_changes.revision:
            static_rows = cluster.static_changes.since(self._static_seen)
        rows = cluster.changes.since(self._seen)
        if static_rows is None or rows is None or len(self._keys) != cluster.capacity:
            static_rows = rows = self._start_afresh()
        if len(static_rows):
            members = static_rows[cluster.pool[static_rows] == cluster.pools.code(self.shape.pool)]
            self._static.update(static_rows, members)
            self._eligible = np.flatnonzero(self._static.mask)
            self._few_eligible = self._eligible.tolist() if len(self._eligible) <= _VERY_FEW_ROWS else []
            self.tiers[static_rows] = tiers(self.shape, cluster, static_rows)
        feasible = self._row.update(rows, rows[self._static.mask[rows]])
        if not self.node_local:
            rows = np.arange(cluster.capacity)
            feasible = self._wide.update(rows, rows[self._row.mask])
        elif self._membership != cluster.membership:
            rows = np.arange(cluster.capacity)
            feasible = rows[self._row.mask]
        self._keys[rows] = INFEASIBLE
        if len(feasible):
            self._unscored.append(feasible)
        self._static_seen = cluster.static_changes.revision
        self._seen = cluster.changes.revision
        self._membership = cluster.membership

    @property
    def feasible(self) -> Mask:
        """The rows that passed all filters at the last refresh."""
        return self._row.mask if self.node_local else self._wide.mask

    @property
    def keys(self) -> Scores:
        """The keys of all rows. They are read before the cluster changes again after a refresh."""
        if self._unscored:
            rows, self._unscored = _feasible_among(self._unscored, self.feasible), []
            ranks = self.tiers[rows] * self._step + self._weighted(rows)
            self._keys[rows] = ranks * self.cluster.capacity + self.cluster.precedence[rows]
        return self._keys

    def devices_on(self, row: int) -> tuple[DeviceShare, ...]:
        """Return the devices that a task gets on a feasible row; none if no filter looks at devices."""
        if not self.wants_devices:
            return ()
        for scorer, _ in self.active.scorers:
            if isinstance(scorer, ChoosesDevices):
                return scorer.devices_on(self.shape, self.cluster, row)
        return given_devices(self.shape, self.cluster, row)

    def score_of(self, row: int) -> int:
        """Return the profile's total score for a feasible row, 0 to SCORE_ONE."""
        return int(self.keys[row]) // self.cluster.capacity % self._step // self._weight

    def score_on(self, row: int) -> int:
        """Return what `score_of` returns after a refresh, without one. No filter or scorer may look at other rows."""
        weighted = self._static.weighted.item(row) + self._row.weighted_on(np.array([row], dtype=np.intp))
        return weighted // self._weight

    def scores_of(self, rows: Rows) -> Scores:
        scores: Scores = self.keys[rows] // self.cluster.capacity % self._step // self._weight
        return scores

    def _weighted(self, rows: Rows) -> Scores:
        weighted = self._static.weighted[rows] + self._row.weighted[rows]
        if not self.node_local:
            weighted += self._wide.weighted[rows]
        return weighted

    def _start_afresh(self) -> Rows:
        capacity = self.cluster.capacity
        self._keys = np.empty(capacity, dtype=np.int64)
        self._unscored = []
        self.tiers = np.zeros(capacity, dtype=np.int64)
        for stage in (self._static, self._row, self._wide):
            stage.allocate(capacity)
        return np.arange(capacity)


class _Stage:
    """Plugins whose answers become stale together, with their answers: feasibility and the weighted sum of scores."""

    def __init__(self, shape: Shape, cluster: Cluster, profile: Active, *depends_on: DependsOn) -> None:
        self._shape = shape
        self._cluster = cluster
        self._filters: Sequence[Filter] = [plugin for plugin in profile.filters if plugin.depends_on in depends_on]
        self._scorers: Sequence[tuple[Scorer, int]] = [
            (plugin, weight) for plugin, weight in profile.scorers if plugin.depends_on in depends_on
        ]
        self.allocate(0)

    def allocate(self, capacity: int) -> None:
        self.mask: Mask = np.zeros(capacity, dtype=np.bool_)
        self._weighted: Scores = np.zeros(capacity, dtype=np.int64)
        self._unscored: list[Rows] = []

    def update(self, rows: Rows, candidates: Rows) -> Rows:
        """Answer again for `rows`, of which `candidates` passed the stage before. Return those that pass this one."""
        self.mask[rows] = False
        passing = candidates
        for plugin in self._filters:
            if not len(passing):
                return passing
            passing = passing[ask_filter(plugin, self._shape, self._cluster, passing)]
        if len(passing):
            self.mask[passing] = True
            self._unscored.append(passing)
        return passing

    @property
    def weighted(self) -> Scores:
        """The weighted sum of the scores by row, computed for the rows that passed since it was last read."""
        if self._unscored:
            rows, self._unscored = _feasible_among(self._unscored, self.mask), []
            weighted = np.zeros(len(rows), dtype=np.int64)
            for scorer, weight in self._scorers if len(rows) else ():
                weighted += weight * ask_scorer(scorer, self._shape, self._cluster, rows)
            self._weighted[rows] = weighted
        return self._weighted

    def weighted_on(self, rows: Rows) -> int:
        """Return the weighted sum of the scores of one row, which is not kept."""
        given = ((ask_scorer(scorer, self._shape, self._cluster, rows), weight) for scorer, weight in self._scorers)
        return sum(weight * scores.item(0) for scores, weight in given)


def tiers(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """Return the tier of each row, compared before scores: designated nodes first, nodes with a failure last."""
    constraints = shape.constraints
    result = np.zeros(len(rows), dtype=np.int64)
    if constraints.designated and not constraints.designated_strictly:
        names = Requirement(NODE_NAME, Operator.IN, tuple(sorted(constraints.designated)))
        result += DESIGNATED * satisfied(names, cluster, rows)
    if constraints.failed_on:
        failed = [row for row in map(cluster.row_of, constraints.failed_on) if row is not None]
        result += ~np.isin(rows, failed)
    return result


def _feasible_among(parts: Sequence[Rows], feasible: Mask) -> Rows:
    """Return the feasible rows of several lists, each once."""
    rows = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
    return rows[feasible[rows]]


def _any_depends(profile: Active, *depends_on: DependsOn) -> bool:
    declared = {plugin.depends_on for plugin in profile.filters} | {plugin.depends_on for plugin, _ in profile.scorers}
    return not declared.isdisjoint(depends_on)
