"""Trial changes of the cluster, kept or undone as a whole, in time proportional to the change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.constraints import Constraints
from mooring.scheduling.cluster.arrays import Demand, Rows
from mooring.scheduling.cluster.columns import ClusterColumns


class Trial:
    """Changes are visible in the columns at once, and stay unless `revert` is called."""

    def __init__(self, cluster: ClusterColumns) -> None:
        self._cluster = cluster
        self._undo: list[Callable[[], None]] = []

    def assume(
        self,
        rows: Rows,
        demand: Demand,
        constraints: Constraints | None = None,
        devices: Sequence[tuple[DeviceShare, ...]] = (),
        *,
        leaving: bool = False,
    ) -> None:
        self._cluster.assume(rows, demand, constraints, devices, leaving=leaving)
        self._undo.append(partial(self._cluster.forget, rows, demand, constraints, devices, leaving=leaving))

    def forget(
        self,
        rows: Rows,
        demand: Demand,
        constraints: Constraints | None = None,
        devices: Sequence[tuple[DeviceShare, ...]] = (),
        *,
        leaving: bool = False,
    ) -> None:
        """Count a task on the rows as gone."""
        self._cluster.forget(rows, demand, constraints, devices, leaving=leaving)
        self._undo.append(partial(self._cluster.assume, rows, demand, constraints, devices, leaving=leaving))

    def count_amounts(self, rows: Sequence[int], requests: Sequence[Amounts], sign: int) -> None:
        """Count (1) or forget (-1) the amounts of tasks, one on each of the rows."""
        self._cluster.count_amounts(rows, requests, sign)
        self._undo.append(partial(self._cluster.count_amounts, rows, requests, -sign))

    def revert(self) -> None:
        while self._undo:
            self._undo.pop()()
