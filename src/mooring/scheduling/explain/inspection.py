"""The result of every filter and scorer for one workload on every node. Computed on demand, never in a pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.plugins.evaluation import INFEASIBLE, Evaluation
from mooring.scheduling.plugins.protocols import (
    Rejection,
    ask_filter,
    ask_scorer,
    ask_why,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one node: the filters that reject it, with their reasons, or its score."""

    node: str
    rejections: Mapping[str, Rejection]
    """By filter; empty for a feasible node."""
    score: int = 0
    scores: Mapping[str, int] | None = None
    """By scorer, from 0 to SCORE_ONE, before weights."""

    @property
    def feasible(self) -> bool:
        return not self.rejections


@dataclass(frozen=True, slots=True)
class Inspection:
    """All nodes of the pool: the feasible ones, best first, then the others, nearest miss first."""

    verdicts: tuple[Verdict, ...]

    @property
    def candidates(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.feasible)

    @property
    def nearest_misses(self) -> tuple[Verdict, ...]:
        """The rejected nodes; those that the fewest filters reject come first."""
        return tuple(verdict for verdict in self.verdicts if not verdict.feasible)

    @property
    def winner(self) -> Verdict | None:
        return next(iter(self.candidates), None)

    @property
    def runner_up(self) -> Verdict | None:
        return next(iter(self.candidates[1:]), None)

    @property
    def removed(self) -> Mapping[str, int]:
        """The number of nodes by the first filter that rejects them."""
        counts: dict[str, int] = {}
        for verdict in self.nearest_misses:
            first = next(iter(verdict.rejections))
            counts[first] = counts.get(first, 0) + 1
        return counts

    def of(self, node: str) -> Verdict:
        return next(verdict for verdict in self.verdicts if verdict.node == node)


def inspect(evaluation: Evaluation) -> Inspection:
    evaluation.refresh()
    shape, cluster = evaluation.shape, evaluation.cluster
    members = cluster.rows_of_pool(shape.pool)
    members = members[np.argsort(-cluster.precedence[members])]
    rejections: dict[int, dict[str, Rejection]] = {row: {} for row in members.tolist()}
    for plugin in evaluation.active.filters:
        if len(members):
            refused = members[~ask_filter(plugin, shape, cluster, members)]
            for row in refused.tolist():
                one: Rows = np.array([row], dtype=np.intp)
                rejections[row][plugin.name] = ask_why(plugin, shape, cluster, one)
    feasible = members[evaluation.keys[members] != INFEASIBLE]
    feasible = feasible[np.argsort(-evaluation.keys[feasible])]
    scores = {
        scorer.name: dict(zip(feasible.tolist(), ask_scorer(scorer, shape, cluster, feasible).tolist(), strict=True))
        for scorer, _ in evaluation.active.scorers
        if len(feasible)
    }
    fitting = [
        Verdict(
            cluster.node(row).name,
            {},
            evaluation.score_of(row),
            {name: by_row[row] for name, by_row in scores.items()},
        )
        for row in feasible.tolist()
    ]
    others = [Verdict(cluster.node(row).name, why) for row, why in rejections.items() if why]
    others.sort(key=lambda verdict: len(verdict.rejections))
    return Inspection((*fitting, *others))
