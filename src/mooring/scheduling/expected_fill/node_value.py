"""The value of a node: the device capacity that requests to come are expected to fill on it.

Each sampled sequence is walked: a request that fits is put onto the node, on the fullest devices that fit. Its device
capacity counts the less the later it comes: in full at the beginning, nothing once the sequence has asked for HORIZON
times the free devices. The value is the mean over the sequences, in points of a score.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mooring.scheduling.expected_fill.demand import HORIZON, Demand, Numbers

POINTS = 50
"""Points of a score per thousandth of a device."""
FINE_STEP = 500
"""Millicores: the values of a node are computed at the multiples of this, up to FINE_CPU."""
FINE_CPU = 4_000
STEPS_PER_DOUBLING = 16
"""Above FINE_CPU; between two of these points the value is interpolated."""
DOUBLINGS = 8
CPU_POINTS = FINE_CPU // FINE_STEP + DOUBLINGS * STEPS_PER_DOUBLING + 1


class CpuPoint(NamedTuple):
    point: int
    beyond: int
    """Millicores above it; 0 where the free CPU is rounded down to the point."""
    width: int
    """Millicores to the next point."""


def cpu_point(cpu: int) -> CpuPoint:
    """Return the highest point that is not above this free CPU."""
    if cpu < FINE_CPU:
        return CpuPoint(cpu // FINE_STEP, 0, FINE_STEP)
    doubling = (cpu // FINE_CPU).bit_length() - 1
    if doubling >= DOUBLINGS:
        return CpuPoint(CPU_POINTS - 1, 0, FINE_STEP)
    above, width = cpu - (FINE_CPU << doubling), (FINE_CPU << doubling) // STEPS_PER_DOUBLING
    return CpuPoint(FINE_CPU // FINE_STEP + doubling * STEPS_PER_DOUBLING + above // width, above % width, width)


def cpu_at(point: int) -> int:
    """Return the free CPU of a point."""
    coarse = point - FINE_CPU // FINE_STEP
    if coarse < 0:
        return point * FINE_STEP
    doubling, step = divmod(coarse, STEPS_PER_DOUBLING)
    return (FINE_CPU << doubling) + step * ((FINE_CPU << doubling) // STEPS_PER_DOUBLING)


class NodeValues:
    """The values of nodes under one demand. Nodes in equal states share one value."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._values: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
        self._asked: dict[int, Numbers] = {}

    def value(self, level: int, of_class: int, cpu: int, devices: tuple[int, ...]) -> int:
        """Return the value of a node by its class, its free CPU and the free parts of its devices, ascending."""
        point, beyond, width = cpu_point(cpu)
        value = self._at_point(level, of_class, point, devices)
        if beyond:
            value += (self._at_point(level, of_class, point + 1, devices) - value) * beyond // width
        return value

    def _at_point(self, level: int, of_class: int, point: int, devices: tuple[int, ...]) -> int:
        key = level, of_class, point, devices
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._expected_fill(level, of_class, cpu_at(point), devices)
        return value

    def _expected_fill(self, level: int, of_class: int, cpu: int, devices: Sequence[int]) -> int:
        demand = self.demand
        usable_parts = [part for part in devices if part >= demand.smallest_share]
        horizon = sum(usable_parts) * HORIZON
        if not horizon or not demand.smallest_share or cpu < demand.least_cpu:
            return 0
        fitting = np.array(
            [
                request.cpu <= cpu
                and (
                    not request.devices
                    or (
                        request.classes >> of_class & 1 == 1
                        and sum(part >= request.share for part in usable_parts) >= request.devices
                    )
                )
                for request in demand.requests
            ]
        )
        if level not in self._asked:
            self._asked[level] = demand.asked(level)
        total = 0
        for numbers, asked in zip(demand.sequences[level], self._asked[level], strict=True):
            at = np.flatnonzero(fitting[numbers] & (asked < horizon))
            total += self._filled(numbers[at].tolist(), asked[at].tolist(), cpu, usable_parts.copy(), horizon)
        return total * POINTS // (len(demand.sequences[level]) * horizon)

    def _filled(self, numbers: list[int], asked: list[int], cpu: int, devices: list[int], horizon: int) -> int:
        """Return the capacity that one sequence fills, each part times the rest of the horizon."""
        demand, total = self.demand, 0
        for number, before in zip(numbers, asked, strict=True):
            request = demand.requests[number]
            first = bisect_left(devices, request.share)
            if request.cpu > cpu or len(devices) - first < request.devices:
                continue
            cpu -= request.cpu
            if request.devices:
                left = [part - request.share for part in devices[first : first + request.devices]]
                del devices[first : first + request.devices]
                for part in left:
                    insort(devices, part)
                total += request.devices * request.share * (horizon - before)
            if cpu < demand.least_cpu or devices[-1] < demand.smallest_share:
                break
        return total
