"""Bookings: capacity on the timeline for tasks in a future window, or the nearest alternatives."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from mooring.scheduling.calendar.capacity_queries import Alternatives
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.cluster.arrays import Demand, Rows
from mooring.scheduling.cluster_state import Cluster


class Booked(NamedTuple):
    """Rows with their task counts; each is promised under (key, row)."""

    placements: tuple[tuple[int, int], ...]


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
    movable_by: int | None = None,
) -> Booked | Alternatives:
    """Promise capacity for `count` tasks on these rows for the whole window, or return the alternatives.

    Running tasks count until their latest end: no promise rests on a guess. Only if that leaves too little capacity,
    work without an end counts as moved away at `movable_by`; None: it stays.

    A single row that takes all tasks is preferred, the one with the least capacity, so that large gaps remain.
    Otherwise the rows with the most capacity come first. Node precedence breaks ties.
    """
    timeline = cluster.timeline
    with timeline.without_guesses(rows):
        task_capacity = timeline.task_capacity(rows, demand, start, end)
        if int(np.minimum(task_capacity, count).sum()) < count:
            with nullcontext() if movable_by is None else timeline.movable(rows, movable_by):
                task_capacity = timeline.task_capacity(rows, demand, start, end)
                if int(np.minimum(task_capacity, count).sum()) < count:
                    return timeline.alternatives(rows, demand, count, start, end, horizon=horizon)
    order = np.lexsort((-cluster.precedence[rows], task_capacity))
    order = order[task_capacity[order] > 0]
    # A single row that takes all tasks comes before several that share them.
    alone = order[task_capacity[order] >= count]
    order = alone[:1] if len(alone) else order[::-1]
    given = np.minimum(
        task_capacity[order], np.maximum(count - (np.cumsum(task_capacity[order]) - task_capacity[order]), 0)
    )
    placements = tuple((int(row), int(tasks)) for row, tasks in zip(rows[order], given, strict=True) if tasks)
    for row, tasks in placements:
        units = dict(zip(demand.names, (demand.amounts[:, 0] * tasks).tolist(), strict=True))
        timeline.add((key, row), row, start, end, units)
    return Booked(placements)
