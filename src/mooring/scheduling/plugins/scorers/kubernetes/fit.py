"""NodeResourcesFit: least allocated, most allocated, or a ratio of requested to capacity along a given shape."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from mooring.model.errors import InvalidInput
from mooring.model.resources.quantity import INT64_MAX
from mooring.scheduling.cluster.arrays import Amount, Rows, Scores
from mooring.scheduling.cluster.columns import CPU, MEMORY
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT

Strategy = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
CORE = ("cpu", "memory", "ephemeral-storage", "storage")
"""Slots that count even if the task does not request them."""


class KubernetesFit:
    """Containers without a CPU or memory request, running or new, count with 100m and 200 MiB."""

    name = "kubernetes_fit"
    depends_on: DependsOn = "row"

    def __init__(
        self,
        strategy: Strategy = "LeastAllocated",
        slots: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1)),
        shape: tuple[tuple[int, int], ...] = ((0, 0), (100, 10)),
    ) -> None:
        """`slots` with weights; `shape`: points from 0 to 10 by utilisation, for the ratio."""
        for name, weight in slots:
            if not 1 <= weight <= 100:
                raise InvalidInput(f"the weight of {name} is {weight}; it must be 1 to 100", code="invalid-profile")
        if any(left >= right for (left, _), (right, _) in pairwise(shape)) or not all(
            0 <= used <= 100 and 0 <= points <= 10 for used, points in shape
        ):
            raise InvalidInput(
                "the shape needs ascending utilisations (0 to 100) and points from 0 to 10", code="invalid-profile"
            )
        self.strategy = strategy
        self.slots = slots
        self.shape = shape

    @property
    def kernel_points(self) -> KernelPoints | None:
        is_default = self.strategy == "LeastAllocated" and self.slots == (("cpu", 1), ("memory", 1))
        return "least_allocated" if is_default else None

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        points = np.zeros(len(rows), dtype=np.int64)
        weights = np.zeros(len(rows), dtype=np.int64)
        for name, weight in self.slots:
            requested, allocatable = requested_of(shape, cluster, rows, name, counted=True)
            of_slot = self._points(requested, np.maximum(allocatable, 1))
            counts = allocatable > 0
            if self.strategy == "RequestedToCapacityRatio":
                counts &= of_slot > 0
            points += np.where(counts, weight * of_slot, 0)
            weights += np.where(counts, weight, 0)
        return _quotient(points, weights, rounded=self.strategy == "RequestedToCapacityRatio") * ONE_POINT

    def _points(self, requested: Amount, allocatable: Amount) -> Scores:
        if self.strategy == "LeastAllocated":
            return percent(np.maximum(allocatable - requested, 0), allocatable)
        if self.strategy == "MostAllocated":
            return percent(np.minimum(requested, allocatable), allocatable)
        used = np.where(requested > allocatable, 100, percent(np.minimum(requested, allocatable), allocatable))
        return _along(self.shape, used)


def requested_of(shape: Shape, cluster: Cluster, rows: Rows, name: str, *, counted: bool) -> tuple[Amount, Amount]:
    """Return the requested amount of a slot including the task, and the allocatable amount.

    Both are 0 for a custom slot that the task does not request. `counted`: containers without a CPU or memory request
    count with the defaults.
    """
    slot = cluster.slot_of(name)
    of_task = dict(shape.request).get(name, 0)
    if slot is None or (name not in CORE and not of_task):
        nothing = np.zeros(len(rows), dtype=np.int64)
        return nothing, nothing
    requested = cluster.taken[slot, rows] + of_task
    if counted and slot in (CPU, MEMORY):
        requested = requested + cluster.uncounted[slot, rows] + shape.uncounted[slot]
    return requested, cluster.allocatable[slot, rows]


def percent(part: Amount, whole: Amount) -> Scores:
    """Return part * 100 // whole, also where the product exceeds int64."""
    if len(whole) and int(whole.max()) > INT64_MAX // 100:
        return np.array([a * 100 // b for a, b in zip(part.tolist(), whole.tolist(), strict=True)], dtype=np.int64)
    scores: Scores = part * 100 // whole
    return scores


def _quotient(points: Scores, weights: Scores, *, rounded: bool) -> Scores:
    divisor = np.maximum(weights, 1)
    if rounded:
        return np.floor(points / divisor + 0.5).astype(np.int64)
    scores: Scores = points // divisor
    return scores


def _along(shape: tuple[tuple[int, int], ...], used: Scores) -> Scores:
    """Interpolate between the given points (0 to 10, here 0 to 100); divisions truncate towards zero."""
    points = np.full(len(used), shape[-1][1] * 10, dtype=np.int64)
    for (left, low), (right, high) in reversed(list(pairwise(shape))):
        rise = (high - low) * 10 * (used - left)
        step = np.sign(rise) * (np.abs(rise) // (right - left))
        points = np.where(used <= right, low * 10 + step, points)
    return np.where(used <= shape[0][0], shape[0][1] * 10, points)
