"""Eviction of running tasks from tainted nodes, by Kubernetes' rules for NoExecute. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from mooring.model.workloads.constraints import Effect, Taint, Toleration

NODE_DRAINED = "node-drained"
NOT_TOLERATED = "taint-not-tolerated"
BOOKING_BEGINS = "booking-begins"
DEFRAGMENTED = "defragmented"
LEAVING = frozenset({NODE_DRAINED, NOT_TOLERATED, BOOKING_BEGINS, DEFRAGMENTED})
"""Reason codes of evictions."""


def eviction(
    taints: Iterable[tuple[Taint, datetime]], tolerations: Sequence[Toleration], placed_at: datetime
) -> tuple[datetime, Taint] | None:
    """Return the time of its eviction and the taint; None if it may stay.

    A taint without a matching toleration evicts it at once; otherwise the shortest time of the matching tolerations
    counts, from the time at which both the taint and the task were there.
    """
    found: list[tuple[datetime, Taint]] = []
    for taint, since in taints:
        if taint.effect is not Effect.NO_EXECUTE:
            continue
        matching = [toleration for toleration in tolerations if toleration.tolerates(taint)]
        seconds = min((each.seconds for each in matching if each.seconds is not None), default=None)
        if not matching:
            seconds = 0
        if seconds is not None:
            found.append((max(since, placed_at) + timedelta(seconds=seconds), taint))
    return min(found, key=lambda each: each[0], default=None)
