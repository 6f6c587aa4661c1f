"""The capacity forecast: amounts that are running, booked, planned and free on some nodes over time, in equal steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mooring.model.resources.slots import Amounts
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster_state import Cluster

RUNNING, BOOKED, PLANNED, _AWAY = range(4)
"""`_AWAY`: amounts on nodes that accept no work, negated so that they do not reduce the free amounts of other nodes."""
Change = tuple[int, int, int, int]
"""Time, kind, slot and amount of the change."""


class Window(NamedTuple):
    """Amounts required from `start` to `end` (None: open), on any node."""

    start: int
    end: int | None
    amounts: Amounts


class CapacityForecast(NamedTuple):
    """By slot and step: the peak usage and the minimum free amount, in base units."""

    slots: tuple[str, ...]
    capacity: NDArray[np.int64]
    """[slot]"""
    used: NDArray[np.int64]
    """[running, booked or planned; slot; step]"""
    free: NDArray[np.int64]
    """[slot, step]"""


def capacity_forecast(
    cluster: Cluster, rows: Rows, seconds: int, steps: int, planned: Sequence[Window] = ()
) -> CapacityForecast:
    """Return the forecast for `seconds` from the timeline's now on; `planned` is added to the timeline's promises."""
    start = cluster.timeline.now
    changes = _on(cluster, rows)
    changes += [(at, _AWAY, slot, -amount) for at, _, slot, amount in _on(cluster, rows[~cluster.ready[rows]])]
    for begins, ends, wanted in planned:
        for name, amount in wanted.items():
            slot = cluster.slot(name)
            changes.append((max(begins, start), PLANNED, slot, amount))
            changes.append((NEVER if ends is None else ends, PLANNED, slot, -amount))
    slots = len(cluster.slot_names)
    used, taken = _peaks(np.array(changes, dtype=np.int64).reshape(-1, 4), slots, start, seconds, steps)
    capacity = cluster.allocatable[:slots, rows[cluster.ready[rows]]].sum(axis=1)
    return CapacityForecast(cluster.slot_names, capacity, used, np.maximum(capacity[:, None] - taken, 0))


def _on(cluster: Cluster, rows: Rows) -> list[Change]:
    """Return the amounts taken on these rows now, and the changes by promises that begin and end there."""
    start = cluster.timeline.now
    changes = [(start, RUNNING, slot, int(cluster.taken[slot, rows].sum())) for slot in range(len(cluster.slot_names))]
    for row in rows.tolist():
        for _, (_, begins, ends, amounts, *_) in cluster.timeline.on(row):
            kind = RUNNING if begins is None else BOOKED
            for slot, amount in amounts:
                if begins is not None:
                    changes.append((max(begins, start), kind, slot, amount))
                changes.append((NEVER if ends is None else ends, kind, slot, -amount))
    return changes


def _peaks(
    changes: NDArray[np.int64], slots: int, start: int, seconds: int, steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the peak in each step by kind and slot, and by slot for all kinds together."""
    edges = start + seconds * np.arange(steps) // steps
    moments = np.unique(np.concatenate((changes[:, 0][changes[:, 0] < start + seconds], edges)))
    moved = changes[changes[:, 0] < start + seconds]
    levels = np.zeros((_AWAY + 1, slots, len(moments)), dtype=np.int64)
    np.add.at(levels, (moved[:, 1], moved[:, 2], np.searchsorted(moments, moved[:, 0])), moved[:, 3])
    np.cumsum(levels, axis=2, out=levels)
    firsts = np.searchsorted(moments, edges)
    return (
        np.maximum.reduceat(levels[:_AWAY], firsts, axis=2),
        np.maximum.reduceat(levels.sum(axis=0), firsts, axis=1),
    )
