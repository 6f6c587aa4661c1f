"""Bookings: room on the timeline for tasks in a window of future time, or what is possible in its place."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from mooring.scheduling.arrays import Demand, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.timeline import NEVER, Alternatives


class Booked(NamedTuple):
    """Rows with how many of the tasks each is to take; promised under (key, row)."""

    places: tuple[tuple[int, int], ...]


def book(
    cluster: Cluster,
    key: Hashable,
    rows: Rows,
    demand: Demand,
    count: int,
    start: int,
    end: int,
    *,
    horizon: int = NEVER,
) -> Booked | Alternatives:
    """Promise room for so many tasks on these rows for the whole window, or say what would fit.

    What runs there counts for as long as it may run: no promise rests on a guess.

    The rows with the least room take them first, so that large gaps stay; of these the one with the lowest name.
    """
    timeline = cluster.timeline
    with timeline.without_guesses(rows):
        room = timeline.room(rows, demand, start, end)
        if int(np.minimum(room, count).sum()) < count:
            return timeline.alternatives(rows, demand, count, start, end, horizon=horizon)
    order = np.lexsort((-cluster.precedence[rows], room))
    order = order[room[order] > 0]
    # One row that takes all of them comes before several that share them.
    alone = order[room[order] >= count]
    order = alone[:1] if len(alone) else order[::-1]
    given = np.minimum(room[order], np.maximum(count - (np.cumsum(room[order]) - room[order]), 0))
    places = tuple((int(row), int(tasks)) for row, tasks in zip(rows[order], given, strict=True) if tasks)
    for row, tasks in places:
        units = dict(zip(demand.names, (demand.amounts[:, 0] * tasks).tolist(), strict=True))
        timeline.add((key, row), row, start, end, units)
    return Booked(places)
