"""A trial of the cluster: changes that are kept or undone as a whole, in time proportional to the change."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.model.constraints import Constraints
from mooring.model.devices import DeviceShare
from mooring.scheduling.columns import Cluster, Demand, Rows


class Trial:
    """Changes count at once for everyone who looks at the columns; without `revert` they stay."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._assumed: list[tuple[Rows, Demand, Constraints | None, Sequence[tuple[DeviceShare, ...]]]] = []

    def assume(
        self,
        rows: Rows,
        demand: Demand,
        constraints: Constraints | None = None,
        devices: Sequence[tuple[DeviceShare, ...]] = (),
    ) -> None:
        self._cluster.assume(rows, demand, constraints, devices)
        self._assumed.append((rows, demand, constraints, devices))

    def revert(self) -> None:
        while self._assumed:
            self._cluster.forget(*self._assumed.pop())
