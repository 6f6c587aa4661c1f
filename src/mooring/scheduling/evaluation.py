"""What the plugins say about a shape on every node, kept and refreshed only where the journal says it went stale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from mooring.scheduling.columns import Cluster, Demand, Mask, Rows, Scores
from mooring.scheduling.plugins import DependsOn, Filter, Scorer, ask_filter, ask_scorer
from mooring.scheduling.profiles import Profile
from mooring.scheduling.shapes import Shape

INFEASIBLE = -1
_SHAPES_KEPT = 256


class Evaluations:
    """The evaluations of the shapes that were asked for last."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._by_shape: OrderedDict[Shape, Evaluation] = OrderedDict()

    def of(self, shape: Shape) -> Evaluation:
        """The evaluation of a shape, as current as the columns."""
        evaluation = self._by_shape.get(shape)
        if evaluation is None:
            evaluation = self._by_shape[shape] = Evaluation(shape, self._cluster, self._profile)
            if len(self._by_shape) > _SHAPES_KEPT:
                self._by_shape.popitem(last=False)
        else:
            self._by_shape.move_to_end(shape)
        evaluation.refresh()
        return evaluation

    def drop(self, shape: Shape) -> None:
        """Start afresh next time: a plugin failed in the middle of a refresh."""
        self._by_shape.pop(shape, None)


class Evaluation:
    """Feasibility and score of every row for one shape.

    `keys` holds both, and the tie break, in one number per row: INFEASIBLE, or the profile's total first and the
    node's precedence second. The highest key is the best node; feasible keys are distinct.
    """

    def __init__(self, shape: Shape, cluster: Cluster, profile: Profile) -> None:
        self.shape = shape
        self.cluster = cluster
        self.profile = profile
        self.node_local = not _any_depends(profile, "domain", "cluster")
        """A placement changes the answer for its own node and no other."""
        self.keys: Scores = np.empty(0, dtype=np.int64)
        self._weight = sum(weight for _, weight in profile.scorers)
        self._static = _Stage(shape, cluster, profile, "static")
        self._row = _Stage(shape, cluster, profile, "row")
        self._wide = _Stage(shape, cluster, profile, "domain", "cluster")
        self._static_seen = self._seen = self._membership = -1

    @property
    def demand(self) -> Demand:
        return self.cluster.demand(self.shape.request)

    @property
    def revision(self) -> int:
        """Of the columns at the last refresh; while it stays, so do all answers."""
        return self._seen

    def refresh(self) -> None:
        """Ask the plugins again about the rows that changed since the last refresh."""
        cluster = self.cluster
        if self._seen == cluster.changes.revision and len(self.keys) == cluster.capacity:
            return
        static_rows = cluster.static_changes.since(self._static_seen)
        rows = cluster.changes.since(self._seen)
        if static_rows is None or rows is None or len(self.keys) != cluster.capacity:
            static_rows = rows = self._start_afresh()
        if len(static_rows):
            members = static_rows[cluster.pool[static_rows] == cluster.pools.code(self.shape.pool)]
            self._static.update(static_rows, members)
        feasible = self._row.update(rows, rows[self._static.mask[rows]])
        if not self.node_local:
            rows = np.arange(cluster.capacity)
            feasible = self._wide.update(rows, rows[self._row.mask])
        elif self._membership != cluster.membership:
            rows = np.arange(cluster.capacity)
            feasible = rows[self._row.mask]
        self.keys[rows] = INFEASIBLE
        self.keys[feasible] = self._totals(feasible) * cluster.capacity + cluster.precedence[feasible]
        self._static_seen = cluster.static_changes.revision
        self._seen = cluster.changes.revision
        self._membership = cluster.membership

    def score_of(self, row: int) -> int:
        """The profile's total for a feasible row, 0 to SCORE_ONE."""
        return int(self.keys[row]) // self.cluster.capacity

    def _totals(self, rows: Rows) -> Scores:
        weighted = self._static.weighted[rows] + self._row.weighted[rows]
        if not self.node_local:
            weighted += self._wide.weighted[rows]
        totals: Scores = weighted // self._weight
        return totals

    def _start_afresh(self) -> Rows:
        capacity = self.cluster.capacity
        self.keys = np.empty(capacity, dtype=np.int64)
        for stage in (self._static, self._row, self._wide):
            stage.allocate(capacity)
        return np.arange(capacity)


class _Stage:
    """The plugins whose answers go stale together, with these answers: may it, and the weighted sum of scores."""

    def __init__(self, shape: Shape, cluster: Cluster, profile: Profile, *depends_on: DependsOn) -> None:
        self._shape = shape
        self._cluster = cluster
        self._filters: Sequence[Filter] = [plugin for plugin in profile.filters if plugin.depends_on in depends_on]
        self._scorers: Sequence[tuple[Scorer, int]] = [
            (plugin, weight) for plugin, weight in profile.scorers if plugin.depends_on in depends_on
        ]
        self.allocate(0)

    def allocate(self, capacity: int) -> None:
        self.mask: Mask = np.zeros(capacity, dtype=np.bool_)
        self.weighted: Scores = np.zeros(capacity, dtype=np.int64)

    def update(self, rows: Rows, candidates: Rows) -> Rows:
        """Answer anew for `rows`, of which `candidates` passed the stage before; returns those that pass this one."""
        self.mask[rows] = False
        passing = candidates
        for plugin in self._filters:
            if not len(passing):
                return passing
            passing = passing[ask_filter(plugin, self._shape, self._cluster, passing)]
        if len(passing):
            self.mask[passing] = True
            weighted = np.zeros(len(passing), dtype=np.int64)
            for scorer, weight in self._scorers:
                weighted += weight * ask_scorer(scorer, self._shape, self._cluster, passing)
            self.weighted[passing] = weighted
        return passing


def _any_depends(profile: Profile, *depends_on: DependsOn) -> bool:
    declared = {plugin.depends_on for plugin in profile.filters} | {plugin.depends_on for plugin, _ in profile.scorers}
    return not declared.isdisjoint(depends_on)
