"""Round robin: the nodes of the pool in the order of their names, one after the other, those without room left out.

Where a task has wishes about other tasks, the turn goes round among the nodes that meet them best.
"""

from __future__ import annotations

from mooring.scheduling.plugins import Candidates
from mooring.scheduling.selectors.wishes import wished


class RoundRobin:
    """`position` is where the next search begins; keep it and give it back to go on after a restart."""

    name = "round_robin"

    def __init__(self, position: int = 0) -> None:
        self.position = position

    def choose(self, candidates: Candidates) -> int:
        cluster = candidates.cluster
        members = cluster.rows_of_pool(candidates.shape.pool)
        order = members[cluster.precedence[members].argsort()[::-1]].tolist()
        met = wished(candidates)
        best = met == met.max()
        where = {row: place for place, row in enumerate(candidates.rows.tolist()) if best[place]}
        for step in range(len(order)):
            turn = (self.position + step) % len(order)
            if order[turn] in where:
                self.position = (turn + 1) % len(order)
                return where[order[turn]]
        return 0
