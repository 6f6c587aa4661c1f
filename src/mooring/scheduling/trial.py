"""A trial of the cluster: changes that are kept or undone as a whole, in time proportional to the change."""

from __future__ import annotations

from mooring.model.constraints import Constraints
from mooring.scheduling.columns import Cluster, Demand, Rows


class Trial:
    """Changes count at once for everyone who looks at the columns; without `revert` they stay."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changes: list[tuple[bool, Rows, Demand, Constraints | None, bool]] = []

    def assume(
        self, rows: Rows, demand: Demand, constraints: Constraints | None = None, *, leaving: bool = False
    ) -> None:
        self._cluster.assume(rows, demand, constraints, leaving=leaving)
        self._changes.append((True, rows, demand, constraints, leaving))

    def forget(
        self, rows: Rows, demand: Demand, constraints: Constraints | None = None, *, leaving: bool = False
    ) -> None:
        """Count a task that is there as gone."""
        self._cluster.forget(rows, demand, constraints, leaving=leaving)
        self._changes.append((False, rows, demand, constraints, leaving))

    def revert(self) -> None:
        while self._changes:
            assumed, rows, demand, constraints, leaving = self._changes.pop()
            undo = self._cluster.forget if assumed else self._cluster.assume
            undo(rows, demand, constraints, leaving=leaving)
