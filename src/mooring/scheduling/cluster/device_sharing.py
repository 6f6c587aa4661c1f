"""The division of a request over the single devices of a node, so that each share fits on its device.

A request takes as few devices as can hold it, in shares that are equal up to one quantum, each on the device with the
tightest fit. If fragmentation is allowed, it takes more devices before it is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.errors import InvalidInput
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.quantity import INT64_MAX

UNSUITABLE = INT64_MAX
"""The minimum share of a device that cannot be used at all."""

Shares: TypeAlias = NDArray[np.int64]
"""[row, device] in base units of the slot."""


class Sharing(StrEnum):
    """Division of a request: in equal shares, or by filling the freest devices one after the other."""

    EVENLY = "evenly"
    FILL = "fill"


class Division(NamedTuple):
    """A request over several devices: `larger` on the first `extra` of them, `smaller` on the others."""

    devices: int
    larger: int
    extra: int
    smaller: int

    @property
    def shares(self) -> list[int]:
        return [self.larger] * self.extra + [self.smaller] * (self.devices - self.extra)


def check_request(request: int, quantum: int, *, what: str = "device") -> None:
    """Raise InvalidInput for an amount that is not a multiple of the quantum."""
    if request <= 0 or request % quantum:
        raise InvalidInput(
            f"{request} units of {what} cannot be allocated: amounts are multiples of {quantum}, above 0",
            code="invalid-device-request",
        )


def allocate(
    free: Sequence[int],
    request: int,
    *,
    capacity: int = WHOLE,
    quantum: int = 1,
    fragmentation: bool = False,
    sharing: Sharing = Sharing.EVENLY,
    least: Sequence[int] | None = None,
) -> list[tuple[int, int]] | None:
    """Return the devices for a request, by position, each with its share; None if it does not fit.

    `least` is the minimum share of each device that satisfies the task's demand.
    """
    check_request(request, quantum)
    if sharing is Sharing.FILL:
        return _filled(free, request, capacity, fragmentation=fragmentation, least=least)
    for division in divisions(request, capacity, len(free), quantum=quantum, fragmentation=fragmentation):
        usable = free
        if least is not None:
            usable = [left if needs <= division.smaller else 0 for left, needs in zip(free, least, strict=True)]
        chosen = tightest(usable, division.shares)
        if chosen is not None:
            return sorted(zip(chosen, division.shares, strict=True))
    return None


def divisions(request: int, capacity: int, most: int, *, quantum: int, fragmentation: bool) -> Iterator[Division]:
    """Yield the even divisions of a request over devices, fewest first, at most `most`."""
    units = request // quantum
    fewest = -(-request // max(capacity, 1))
    for devices in range(fewest, min(most, units) + 1):
        each, extra = divmod(units, devices)
        yield Division(devices, (each + 1) * quantum if extra else each * quantum, extra, each * quantum)
        if not fragmentation:
            return


def tightest(free: Sequence[int], shares: Sequence[int]) -> list[int] | None:
    """Return for each share, largest first, the tightest device that holds it; among equals the lowest position."""
    left = {position: capacity for position, capacity in enumerate(free) if capacity > 0}
    chosen: list[int] = []
    for share in shares:
        fitting = [(capacity, position) for position, capacity in left.items() if capacity >= share]
        if not fitting:
            return None
        _, position = min(fitting)
        chosen.append(position)
        del left[position]
    return chosen


def fits(
    free: Shares,
    request: int,
    capacity: NDArray[np.int64],
    *,
    quantum: int,
    fragmentation: bool,
    least: Shares | None = None,
) -> NDArray[np.bool_]:
    """Return whether `allocate` finds devices, for many rows. `capacity` is that of the largest device of each row."""
    result = np.zeros(len(free), dtype=np.bool_)
    for largest in np.unique(capacity[capacity > 0]).tolist():
        of_size = np.flatnonzero(capacity == largest)
        found = np.zeros(len(of_size), dtype=np.bool_)
        for division in divisions(request, largest, free.shape[1], quantum=quantum, fragmentation=fragmentation):
            usable = free[of_size]
            if least is not None:
                usable = np.where(least[of_size] <= division.smaller, usable, 0)
            found |= ((usable >= division.larger).sum(axis=1) >= division.extra) & (
                (usable >= division.smaller).sum(axis=1) >= division.devices
            )
        result[of_size] = found
    return result


def _filled(
    free: Sequence[int], request: int, capacity: int, *, fragmentation: bool, least: Sequence[int] | None
) -> list[tuple[int, int]] | None:
    """Fill the freest devices one after the other."""
    given: list[tuple[int, int]] = []
    left = request
    for position in sorted(range(len(free)), key=lambda position: -free[position]):
        share = min(free[position], left)
        if share <= 0 or (least is not None and share < least[position]):
            continue
        given.append((position, share))
        left -= share
        if not left:
            break
    few_enough = fragmentation or len(given) <= -(-request // max(capacity, 1))
    return sorted(given) if not left and few_enough else None
