"""Devices: how a request is shared out over the single devices of a node, so that each share fits on its device.

A request takes as few devices as can hold it, in shares that are equal up to one quantum, each on the device that it
fits tightest. Where fragmentation is allowed it takes more devices before it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.model.devices import WHOLE
from mooring.model.errors import InvalidInput
from mooring.model.quantity import INT64_MAX

UNSUITABLE = INT64_MAX
"""The least share of a device that may not be given at all."""

Shares: TypeAlias = NDArray[np.int64]
"""[row, device] in base units of the slot."""


class Sharing(StrEnum):
    """How a request is divided: in equal shares, or so that the freest devices are filled one after the other."""

    EVENLY = "evenly"
    FILL = "fill"


class Division(NamedTuple):
    """A request over so many devices: `larger` on the first `extra` of them, `smaller` on the others."""

    devices: int
    larger: int
    extra: int
    smaller: int

    @property
    def shares(self) -> list[int]:
        return [self.larger] * self.extra + [self.smaller] * (self.devices - self.extra)


def check_request(request: int, quantum: int, *, what: str = "device") -> None:
    """InvalidInput for an amount that devices are not given out in."""
    if request <= 0 or request % quantum:
        raise InvalidInput(
            f"{request} units of {what} cannot be given out: amounts are multiples of {quantum}, above 0",
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
    """The devices for a request, by position, each with its share; None if it does not fit.

    `least` is the smallest share that each device may be given in, by what the task asks of its devices.
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
    """The ways to share a request evenly over devices, fewest first, at most `most`."""
    units = request // quantum
    fewest = -(-request // max(capacity, 1))
    for devices in range(fewest, min(most, units) + 1):
        each, extra = divmod(units, devices)
        yield Division(devices, (each + 1) * quantum if extra else each * quantum, extra, each * quantum)
        if not fragmentation:
            return


def tightest(free: Sequence[int], shares: Sequence[int]) -> list[int] | None:
    """For each share, largest first, the device with the least room that holds it; the lowest position among equals."""
    left = {position: room for position, room in enumerate(free) if room > 0}
    chosen: list[int] = []
    for share in shares:
        fitting = [(room, position) for position, room in left.items() if room >= share]
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
    """Whether `allocate` finds devices, for many rows at once. `capacity` is that of the largest device of each row."""
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
    """All that the freest devices have, one after the other."""
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
