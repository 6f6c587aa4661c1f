"""Device requests of shapes: where they fit, and which devices they get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mooring.model.resources.devices import WHOLE, DeviceDemand, DeviceShare
from mooring.scheduling.cluster.arrays import Amount, Mask, Rows
from mooring.scheduling.cluster.columns import ClusterColumns
from mooring.scheduling.cluster.device_columns import DeviceColumn
from mooring.scheduling.cluster.device_sharing import (
    UNSUITABLE,
    Shares,
    allocate,
    fits,
)
from mooring.scheduling.cluster.shapes import Shape


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """An amount of one device slot, with the demand on each device."""

    column: DeviceColumn
    amount: int
    demand: DeviceDemand | None
    fragmentation: bool
    times: int = 1
    """Number of tasks that request it on the same node."""

    @property
    def valid(self) -> bool:
        """True if the amount is a multiple of the quantum."""
        return self.amount % self.column.quantum == 0

    def fits(self, rows: Rows) -> Mask:
        found = self._fits(rows, self.column.free[rows], self.least(rows))
        return self._fits_times(rows, found, self.column.free)

    def fits_when_empty(self, rows: Rows, *, any_device: bool = False) -> Mask:
        """Return the rows that fit if nothing were taken; with `any_device`, if every device were suitable as well."""
        if any_device and self.demand is not None:
            return replace(self, demand=None).fits_when_empty(rows)
        found = self._fits(rows, self.column.capacity[rows], self.least(rows))
        return self._fits_times(rows, found, self.column.capacity)

    def suitable(self, rows: Rows) -> Mask:
        """Return the rows whose first device is suitable, however full, for rows with equal devices."""
        least = self.least(rows)
        share = min(self.amount, WHOLE)
        return np.ones(len(rows), dtype=np.bool_) if least is None else least[:, 0] <= share

    def most_free(self, rows: Rows) -> Amount:
        """Return the largest free share among the suitable devices of each row."""
        free, least = self.column.free[rows], self.least(rows)
        usable = free if least is None else np.where(least < UNSUITABLE, free, 0)
        most: Amount = np.maximum(usable.max(axis=1), 0)
        return most

    def give(self, row: int, free: Sequence[int] | None = None) -> list[tuple[int, int]] | None:
        """Return the devices of a row by position, with their shares; `free` in place of the present free capacity."""
        rows = np.array([row], dtype=np.intp)
        least = self.least(rows)
        return allocate(
            self.column.free[row].tolist() if free is None else free,
            self.amount,
            capacity=int(self.column.capacity[row].max()),
            quantum=self.column.quantum,
            fragmentation=self.fragmentation,
            least=None if least is None else least[0].tolist(),
        )

    def tasks_when_empty(self, row: int, count: int) -> int:
        """Return the number of tasks, up to `count`, that fit on the devices of a row if nothing else used them."""
        return self._tasks_on(row, self.column.capacity[row].tolist(), count) if self.valid else 0

    def _fits_times(self, rows: Rows, once: Mask, free: Shares) -> Mask:
        """Return those rows, among the ones that take one task, that take all of them in sequence."""
        if self.times == 1:
            return once
        found = once.copy()
        for at in np.flatnonzero(once & self.column.divided(rows)).tolist():
            row = int(rows[at])
            found[at] = self._tasks_on(row, free[row].tolist(), self.times) == self.times
        return found

    def _tasks_on(self, row: int, free: list[int], count: int) -> int:
        """Return the number of tasks, up to `count`, that find devices in sequence. `free` is consumed."""
        for number in range(count):
            given = self.give(row, free)
            if given is None:
                return number
            for position, share in given:
                free[position] -= share
        return count

    def least(self, rows: Rows) -> Shares | None:
        return None if self.demand is None else self.column.least(self.demand, rows)

    def _fits(self, rows: Rows, free: Shares, least: Shares | None) -> Mask:
        if not self.valid:
            return np.zeros(len(rows), dtype=np.bool_)
        divided = self.column.divided(rows)
        largest = self.column.capacity[rows].max(axis=1)
        found = fits(
            free,
            self.amount,
            largest,
            quantum=self.column.quantum,
            fragmentation=self.fragmentation,
            least=least,
        )
        return found | ~divided


def device_requests(shape: Shape, cluster: ClusterColumns) -> list[DeviceRequest]:
    """Return the requests of a shape for device slots."""
    columns = cluster.devices.columns
    if not columns:
        return []
    demands = {demand.slot: demand for demand in shape.constraints.devices}
    fragmentation = cluster.devices.fragmentation_allowed(shape.pool)
    return [
        DeviceRequest(columns[slot], amount // shape.tasks, demands.get(slot), fragmentation, shape.tasks)
        for slot, amount in shape.request
        if amount and slot in columns
    ]


def given_devices(shape: Shape, cluster: ClusterColumns, row: int) -> tuple[DeviceShare, ...]:
    """Return the devices that a task gets on a feasible row, each by the tightest fit."""
    shares: list[DeviceShare] = []
    for request in device_requests(shape, cluster):
        if request.column.divided(np.array([row], dtype=np.intp))[0]:
            shares.extend(request.column.named(row, request.give(row) or ()))
    return tuple(shares)
