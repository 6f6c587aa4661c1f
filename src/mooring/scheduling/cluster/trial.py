"""A trial of the cluster: changes that are kept or undone as a whole, in time proportional to the change."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from mooring.model.constraints import Constraints
from mooring.model.devices import DeviceShare
from mooring.model.slots import Amounts
from mooring.scheduling.arrays import Demand, Rows
from mooring.scheduling.columns import Cluster


class Trial:
    """Changes count at once for everyone who looks at the columns; without `revert` they stay."""

    def __init__(self, cluster: Cluster) -> None:
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
        """Count a task that is there as gone."""
        self._cluster.forget(rows, demand, constraints, devices, leaving=leaving)
        self._undo.append(partial(self._cluster.assume, rows, demand, constraints, devices, leaving=leaving))

    def shift(self, rows: Sequence[int], requests: Sequence[Amounts], sign: int) -> None:
        """Count (1) or forget (-1) what tasks occupy, one on each of the rows, without what others may ask about."""
        self._cluster.shift(rows, requests, sign)
        self._undo.append(partial(self._cluster.shift, rows, requests, -sign))

    def promise(self, key: Hashable, row: int, start: int, end: int | None, amounts: Amounts) -> None:
        """Promise amounts of a row for a window."""
        timeline = self._cluster.timeline
        before = timeline.get(key)
        timeline.add(key, row, start, end, amounts)
        self._undo.append(partial(timeline.put_back, key, before))

    def withdraw(self, key: Hashable) -> None:
        """Take a promise back."""
        timeline = self._cluster.timeline
        self._undo.append(partial(timeline.put_back, key, timeline.remove(key)))

    def revert(self) -> None:
        while self._undo:
            self._undo.pop()()
