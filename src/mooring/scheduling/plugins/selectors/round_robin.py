"""Round robin: the feasible nodes of the pool in the order of their names, one after the other.

If the task has preferences about other tasks, only the nodes that meet them best take part.
"""

from __future__ import annotations

from mooring.scheduling.plugins.protocols import Candidates
from mooring.scheduling.plugins.selectors.soft_constraints import soft_constraint_scores


class RoundRobin:
    """`position` is where the next search begins; save and pass it to continue after a restart."""

    name = "round_robin"

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def choose(self, candidates: Candidates) -> int:
        cluster = candidates.cluster
        members = cluster.rows_of_pool(candidates.shape.pool)
        order = members[cluster.precedence[members].argsort()[::-1]].tolist()
        met = soft_constraint_scores(candidates)
        best = met == met.max()
        where = {row: position for position, row in enumerate(candidates.rows.tolist()) if best[position]}
        for step in range(len(order)):
            index = (self.position + step) % len(order)
            if order[index] in where:
                self.position = (index + 1) % len(order)
                return where[order[index]]
        return 0
