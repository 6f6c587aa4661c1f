"""The outlook: how much of some nodes runs, is booked, planned and free over the time ahead, in equal steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mooring.model.slots import Amounts
from mooring.scheduling.arrays import Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.timeline import NEVER

RUNNING, BOOKED, PLANNED, _AWAY = range(4)
"""Away: what is on nodes that take no work, as less than nothing, so that the others stay as free as they are."""
Change = tuple[int, int, int, int]
"""When, of which kind, of which slot, by how much."""


class Window(NamedTuple):
    """Amounts that are wanted from `start` to `end`, None for open, wherever that will be."""

    start: int
    end: int | None
    amounts: Amounts


class Outlook(NamedTuple):
    """By slot and step the most at one moment, and the least that is free, in base units."""

    slots: tuple[str, ...]
    capacity: NDArray[np.int64]
    """[slot]"""
    used: NDArray[np.int64]
    """[running, booked or planned; slot; step]"""
    free: NDArray[np.int64]
    """[slot, step]"""


def outlook(cluster: Cluster, rows: Rows, seconds: int, steps: int, planned: Sequence[Window] = ()) -> Outlook:
    """The time from the timeline's now on, for so many seconds; `planned` beside what the timeline itself has."""
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
    return Outlook(cluster.slot_names, capacity, used, np.maximum(capacity[:, None] - taken, 0))


def _on(cluster: Cluster, rows: Rows) -> list[Change]:
    """What the nodes of these rows have now, and what begins and ends there."""
    start = cluster.timeline.now
    changes = [(start, RUNNING, slot, int(cluster.taken[slot, rows].sum())) for slot in range(len(cluster.slot_names))]
    for row in rows.tolist():
        for _, (_, begins, ends, amounts) in cluster.timeline.on(row):
            kind = RUNNING if begins is None else BOOKED
            for slot, amount in amounts:
                if begins is not None:
                    changes.append((max(begins, start), kind, slot, amount))
                changes.append((NEVER if ends is None else ends, kind, slot, -amount))
    return changes


def _peaks(
    changes: NDArray[np.int64], slots: int, start: int, seconds: int, steps: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The highest level in each step, of each kind and slot, and of all kinds together."""
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
